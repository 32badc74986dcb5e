"""The compose files: settings that nodes accept, files that are there. Without an engine."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.main import app
from node.node_facts import read_facts
from node.start_checks import check_start
from runtime.config.node import check_key, from_settings, load
from security.authority import MAPPING_RULES
from stele.addresses import SecurityProtocol
from tests.deploy.test_secure_script import prepare

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parents[2] / "deploy"


def services(name: str) -> dict[str, dict[str, Any]]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text())
    found: dict[str, dict[str, Any]] = loaded["services"]
    return found


def nodes_of(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: each
        for name, each in found.items()
        if each["image"] == "stele:latest" and "profiles" not in each
    }


@pytest.mark.parametrize(("name", "nodes"), [("compose.yaml", 6), ("compose.single.yaml", 1)])
def test_nodes_accept_their_settings(name: str, nodes: int) -> None:
    own = nodes_of(services(name))
    assert len(own) == nodes
    for service in own.values():
        settings = {
            key.removeprefix("STELE_").lower().replace("_", "."): str(value)
            for key, value in service["environment"].items()
            if key != "STELE_CLUSTER_ID"
        } | {"log.dirs": "/var/lib/stele/data"}
        for key in settings:
            check_key(key)
        from_settings(settings)
        assert settings["transaction.two.phase.commit.enable"] == "true"  # Spark's sink needs it
        assert service["stop_grace_period"] == "30s"
        assert service["healthcheck"]["interval"] == "5s"


def test_nodes_accept_their_settings_when_they_are_secure() -> None:
    """The second file is laid over the first. Docker's own variables are escaped in it."""
    plain, secure = services("compose.yaml"), services("compose.secure.yaml")
    nodes = nodes_of(plain)
    assert sorted(set(secure) - set(nodes)) == ["console", "prepare", "users"]
    for name in nodes:
        environment = {**plain[name]["environment"], **secure[name]["environment"]}
        environment.pop("STELE_CLUSTER_ID")
        unescaped = {key: str(value).replace("$$", "$") for key, value in environment.items()}
        config = load("log.dirs=/var/lib/stele/data", environment=unescaped)
        assert config.security.controllers["CONTROLLER"].client_auth == "required"
        assert config.security.to_controllers["CONTROLLER"].protocol is SecurityProtocol.SSL
        assert config.access_policy is not None
        assert config.access_policy.super_users >= {"User:nodes", "User:admin"}
        keystore = f"/var/lib/stele/security/certificates/node-{config.node_id}.pem"
        assert config.security.to_controllers["CONTROLLER"].tls.keystore.location == keystore
        assert f" {config.node_id}=" in f" {secure['prepare']['environment']['NODES']}"
        if config.is_broker:
            assert config.security.listeners["INTERNAL"].client_auth == "required"
            assert config.security.listeners["EXTERNAL"].protocol is SecurityProtocol.SASL_SSL
            assert config.security.to_brokers.protocol is SecurityProtocol.SSL


def test_secure_nodes_take_the_certificates_that_are_made_for_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of them finds its addresses, its number and its principal in its certificate."""
    plain, secure = services("compose.yaml"), services("compose.secure.yaml")
    prepare(tmp_path, secure["prepare"]["environment"]["NODES"])
    for name in nodes_of(plain):
        environment = {**plain[name]["environment"], **secure[name]["environment"]}
        environment.pop("STELE_CLUSTER_ID")
        told = {key: str(value).replace("$$", "$") for key, value in environment.items()}
        there = {
            key: value.replace("/var/lib/stele/security", str(tmp_path))
            for key, value in told.items()
        }
        config = load("log.dirs=/var/lib/stele/data", environment=there)
        facts = read_facts(config, datetime.now(UTC))
        assert {"CONTROLLER", *config.security.listeners} == set(facts.certificates)
        check_start(config, datetime.now(UTC))
    assert caplog.records == []


def test_the_rules_of_the_secure_file_agree_with_our_certificates() -> None:
    environment = services("compose.secure.yaml")["controller-1"]["environment"]
    rules = environment["STELE_SSL_PRINCIPAL_MAPPING_RULES"].replace("$$", "$")
    assert rules == MAPPING_RULES


def test_ports_are_open_on_this_host_only() -> None:
    for name in ("compose.yaml", "compose.single.yaml"):
        for service in services(name).values():
            assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def of_profile(profile: str) -> dict[str, dict[str, Any]]:
    found = services("compose.yaml").items()
    return {name: each for name, each in found if each.get("profiles") == [profile]}


def test_what_the_services_of_profiles_mount_is_there() -> None:
    assert (len(of_profile("observe")), len(of_profile("spark"))) == (2, 3)
    for service in [*of_profile("observe").values(), *of_profile("spark").values()]:
        for volume in service["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith("./") or (DEPLOY / source).is_dir(), volume


def test_prometheus_scrapes_every_node() -> None:
    loaded = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = loaded["scrape_configs"]
    (static,) = job["static_configs"]
    nodes = [name for name, each in services("compose.yaml").items() if "profiles" not in each]
    assert sorted(static["targets"]) == sorted(f"{name}:9404" for name in nodes)


def test_sparks_workers_and_jobs_know_the_master() -> None:
    members = of_profile("spark")
    addresses = {name: each["networks"]["stele"]["ipv4_address"] for name, each in members.items()}
    master = f"spark://{addresses['spark-master']}:7077"
    for name, each in members.items():
        assert each["environment"]["SPARK_LOCAL_IP"] == addresses[name]
        assert addresses[name] in each["command"]
        assert name == "spark-master" or each["command"][-1] == master
    lines = (DEPLOY / "spark" / "spark-defaults.conf").read_text().splitlines()
    defaults = dict(line.split() for line in lines if not line.startswith("#"))
    assert defaults["spark.master"] == master
    assert defaults["spark.driver.host"] == addresses["spark-master"]
    assert (DEPLOY.parent / members["spark-master"]["build"]["dockerfile"]).is_file()


def test_the_console_understands_its_command_and_finds_the_brokers() -> None:
    plain, secure = services("compose.yaml"), services("compose.secure.yaml")
    (console,) = of_profile("console").values()
    name, *arguments = console["command"]
    command = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    options = command.make_context(name, [*arguments]).params
    assert options["listen_elsewhere"]
    assert console["ports"] == [f"127.0.0.1:{options['port']}:{options['port']}"]
    servers = console["environment"]["STELE_BOOTSTRAP_SERVER"].split(",")
    internal = [
        each["environment"]["STELE_ADVERTISED_LISTENERS"].partition("INTERNAL://")[2].split(",")[0]
        for each in nodes_of(plain).values()
        if each["environment"]["STELE_PROCESS_ROLES"] == "broker"
    ]
    assert servers == internal
    config = Path(secure["console"]["environment"]["STELE_COMMAND_CONFIG"])
    (mount,) = secure["console"]["volumes"]
    assert mount == f"security:{config.parent}:ro"
    assert f'"$home/{config.name}"' in (DEPLOY / "secure").read_text()
