"""A node's configuration: its sources, its faults and the messages about them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from metadata.config_keys import NODE_KEYS
from metadata.node_settings import SETTINGS, NodeSettings
from runtime.config import page as config_page
from runtime.config.addresses import NamedAddress, parse_address
from runtime.config.node import ConfigError, NodeConfig, Voter, from_settings, load
from stele.addresses import Address
from stele.properties import parse_properties

MINIMAL = {"node.id": "1", "controller.quorum.voters": "1@127.0.0.1:9093"}


def with_(**settings: str) -> NodeConfig:
    return from_settings({**MINIMAL, **{k.replace("_", "."): v for k, v in settings.items()}})


def fault(**settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        with_(**settings)
    return str(caught.value)


def found_at(config: NodeConfig) -> list[str]:
    return list(map(str, config.controller_advertised_listeners))


def test_everything_listens_at_home_by_default() -> None:
    config = from_settings(MINIMAL)
    assert config.roles == ("broker", "controller")
    assert config.listeners == (NamedAddress("PLAINTEXT", "127.0.0.1", 9092),)
    assert config.grpc_listeners == (NamedAddress("PLAINTEXT", "127.0.0.1", 9192),)
    assert config.advertised_listeners == config.listeners
    assert config.grpc_advertised_listeners == config.grpc_listeners
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.controller_listeners == (NamedAddress("CONTROLLER", "127.0.0.1", 9093),)
    assert config.metrics_listener == Address("127.0.0.1", 9404)
    assert config.voters == (Voter(1, "127.0.0.1", 9093),)
    assert config.metadata_log_dir == config.log_dirs[0]
    assert config.raw == MINIMAL


def test_settings_hold_the_typed_values_of_the_keys_of_their_name() -> None:
    config = from_settings(MINIMAL)
    for name, setting in SETTINGS.items():
        key = setting.key
        assert key is NODE_KEYS[name.replace("_", ".")]
        assert getattr(config, name) == key.parse(MINIMAL.get(key.name, key.default or ""))


def test_a_setting_that_was_not_read_has_no_value() -> None:
    with pytest.raises(AttributeError, match=r"node\.id was not read"):
        _ = NodeSettings().node_id


def test_a_controller_that_joins_later_knows_whom_to_ask() -> None:
    config = from_settings(
        {
            "node.id": "4",
            "controller.quorum.bootstrap.servers": "c1:9093,[::1]:9094,c1:9093",
            "controller.listener": "0.0.0.0:9093",
            "controller.advertised.listener": "c4:9093",
        }
    )
    assert config.voters == ()
    assert config.bootstrap_controllers == (Address("c1", 9093), Address("::1", 9094))
    assert found_at(config) == ["CONTROLLER://c4:9093"]


def test_where_a_controller_is_found() -> None:
    assert found_at(with_()) == ["CONTROLLER://127.0.0.1:9093"]
    wild = {"controller_listener": "0.0.0.0:9093"}
    assert found_at(with_(**wild)) == ["CONTROLLER://127.0.0.1:9093"]  # its entry
    moved = with_(**wild, controller_advertised_listener="c1:1")
    assert found_at(moved) == ["CONTROLLER://c1:1"]
    broker = {"process_roles": "broker", "controller_quorum_voters": "7@c:1"}
    assert found_at(with_(**broker)) == []


MOVING = {
    "controller_listener_names": "CONTROLLER,SECRET",
    "controller_listener": "CONTROLLER://0.0.0.0:9093,SECRET://0.0.0.0:9094",
}


def test_a_controller_with_two_listeners() -> None:
    config = with_(**MOVING, controller_quorum_voters="1@c1:9093")
    assert list(map(str, config.controller_listeners)) == MOVING["controller_listener"].split(",")
    assert found_at(config) == ["CONTROLLER://c1:9093", "SECRET://c1:9094"]
    told = "SECRET://outside:1,CONTROLLER://c1:9093"
    assert found_at(with_(**MOVING, controller_advertised_listener=told)) == [
        "CONTROLLER://c1:9093",
        "SECRET://outside:1",
    ]
    swapped = {**MOVING, "controller_listener_names": "SECRET,CONTROLLER"}
    config = with_(**swapped, controller_quorum_voters="1@c1:9094")
    assert found_at(config) == ["SECRET://c1:9094", "CONTROLLER://c1:9093"]
    assert list(config.security.to_controllers) == ["SECRET", "CONTROLLER"]


def test_mistakes_with_several_listeners_of_a_controller() -> None:
    swapped = {**MOVING, "controller_listener_names": "SECRET,CONTROLLER"}
    entry = "controller.quorum.voters has this controller at c1:9093, and its listener SECRET is at"
    assert entry in fault(**swapped, controller_quorum_voters="1@c1:9093")
    alone = {**MOVING, "controller_listener": "127.0.0.1:9093"}
    assert "controller.listener lacks SECRET" in fault(**alone)
    other = {**MOVING, "controller_listener_names": "CONTROLLER"}
    assert "names SECRET, which controller.listener.names does not" in fault(**other)
    twice = {**MOVING, "controller_listener": "CONTROLLER://a:1,SECRET://a:2,SECRET://a:3"}
    assert "controller.listener names SECRET twice" in fault(**twice)
    assert "names a listener twice" in fault(controller_listener_names="CONTROLLER,CONTROLLER")
    assert "controller.listener must name an address" in fault(controller_listener="")
    assert "'A+B' must be of letters" in fault(controller_listener_names="A+B")
    assert "controller.listener.names must name" in fault(controller_listener_names=",")
    assert "name of its own" in fault(controller_listener_names="PLAINTEXT")
    nowhere = fault(
        **MOVING, controller_quorum_voters="", controller_quorum_bootstrap_servers="c:1"
    )
    assert "set controller.advertised.listener=SECRET://<host name or address>:9094" in nowhere


def test_a_controller_that_nobody_finds() -> None:
    later = {"controller_quorum_voters": "", "controller_quorum_bootstrap_servers": "c1:9093"}
    said = fault(**later, controller_listener="0.0.0.0:9093")
    assert "set controller.advertised.listener=<host name or address>:9093" in said
    assert "'c1' is not host:port" in fault(controller_quorum_bootstrap_servers="c1")
    assert "must name a controller" in fault(controller_quorum_voters="")
    assert "bootstrap.servers in its place" in fault(node_id="4")


def test_later_sources_win() -> None:
    text = "node.id=1\ncontroller.quorum.voters=1@h:1\nbroker.rack=file\nlog.dirs=/file\n"
    environment = {
        "STELE_BROKER_RACK": "environment",
        "STELE_LOG_RETENTION_HOURS": "5",
        "HOME": "/x",
    }
    config = load(text, environment=environment, overrides=["broker.rack=override=1"])
    assert config.rack == "override=1"
    assert config.log_dirs == ("/file",)
    assert config.raw["log.retention.hours"] == "5"
    assert load(text, environment=environment).rack == "environment"


def test_unknown_keys_are_reported_with_the_nearest(caplog: pytest.LogCaptureFixture) -> None:
    environment = {"STELE_LOG_DIRECTORIES": "/x"}
    with caplog.at_level(logging.WARNING):
        load(
            "node.id=1\ncontroller.quorum.voters=1@h:1\nbroker.rak=a\nsegment.bytes=5000",
            environment=environment,
        )
    assert "did you mean broker.rack" in caplog.text
    assert "did you mean log.dirs" in caplog.text
    assert "its default is set by log.segment.bytes" in caplog.text


def test_roles() -> None:
    broker = with_(node_id="2", process_roles="broker")
    assert (broker.is_broker, broker.is_controller) == (True, False)
    assert broker.controller_listeners == ()
    controller = with_(process_roles="controller", inter_broker_listener_name="INTERNAL")
    assert controller.listeners == ()
    assert controller.inter_broker_listener_name == "INTERNAL"


def test_several_networks() -> None:
    config = with_(
        listeners="EXTERNAL://0.0.0.0:9092,INTERNAL://10.0.0.1:19092",
        advertised_listeners="EXTERNAL://example.org:9092",
        grpc_listeners="INTERNAL://10.0.0.1:19192,EXTERNAL://[::]:9192",
        grpc_advertised_listeners="EXTERNAL://example.org:9192",
        inter_broker_listener_name="INTERNAL",
    )
    assert config.advertised_listeners == (
        NamedAddress("EXTERNAL", "example.org", 9092),
        NamedAddress("INTERNAL", "10.0.0.1", 19092),
    )
    assert {item.name: item.host for item in config.grpc_advertised_listeners} == {
        "EXTERNAL": "example.org",
        "INTERNAL": "10.0.0.1",
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"node_id": "-1"}, "node.id=-1: it must be a whole number from 0"),
        (
            {"process_roles": "boss"},
            "process.roles=boss: it must be one or several of broker, controller",
        ),
        ({"process_roles": ""}, "process.roles must name"),
        ({"listeners": "127.0.0.1:9092"}, "is not NAME://host:port"),
        ({"listeners": "A://h:70000"}, "is not NAME://host:port"),
        ({"listeners": "A://h:1,A://h:2"}, "names A twice"),
        ({"listeners": ""}, "listeners must name a listener"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "set advertised.listeners=PLAINTEXT://<host"),
        ({"grpc_listeners": "PLAINTEXT://[::]:1"}, "set grpc.advertised.listeners=PLAINTEXT://"),
        ({"advertised_listeners": "B://h:1"}, "names B, which listeners does not"),
        ({"grpc_listeners": "B://h:1"}, "grpc.listeners lacks PLAINTEXT"),
        ({"inter_broker_listener_name": "B"}, "listeners has only PLAINTEXT"),
        ({"controller_listener": "9093"}, "controller.listener=9093: it must be host:port"),
        ({"controller_quorum_voters": "h:9093"}, "is not id@host:port"),
        ({"controller_quorum_voters": "1@h:1,1@h:2"}, "names 1 twice"),
        ({"controller_quorum_voters": ""}, "must name a controller"),
        ({"node_id": "7"}, "not in controller.quorum.voters"),
        ({"process_roles": "broker"}, "give it the role controller or another node.id"),
        ({"log_dirs": "data"}, "absolute path"),
        ({"log_dirs": "/a,/a"}, "twice"),
        ({"log_dirs": ""}, "log.dirs must name"),
        ({"broker_session_timeout_ms": "500"}, "must be larger than broker.heartbeat.interval"),
        ({"replica_lag_time_max_ms": "500"}, "must be larger than replica.fetch.wait.max.ms"),
        ({"replica_socket_timeout_ms": "499"}, "must be at least replica.fetch.wait.max.ms"),
        ({"log_retention_hours": "long"}, "log.retention.hours=long: it must be a whole number"),
        ({"min_insync_replicas": "0"}, "min.insync.replicas=0"),
    ],
)
def test_faults_say_what_to_change(settings: dict[str, str], words: str) -> None:
    assert words in fault(**settings)


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        from_settings({"broker.session.timeout.ms": "x"})
    for words in ("node.id must be set", "must name a controller", "session.timeout.ms=x"):
        assert words in str(caught.value)


def test_an_override_without_value() -> None:
    with pytest.raises(ConfigError, match="not of the form key=value"):
        load(overrides=["node.id"])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("h:1", Address("h", 1)),
        (":0", Address("", 0)),
        ("[::1]:9", Address("::1", 9)),
        ("h", None),
        ("h:", None),
        ("h:x", None),
        ("h:65536", None),
        ("::1:9", None),
        ("a b:1", None),
        ("h/x:1", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address
    if address is not None:
        assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("a=b\n# c=d\n! e=f\n\n  g = h i  \n", {"a": "b", "g": "h i"}),
        ("a: b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("a=b=c\na=d", {"a": "d"}),
        ("a=b,\\\n  c,\\\n  d\ne=f\\\\", {"a": "b,c,d", "e": "f\\"}),
        ("a\\=b\\:c=\\u0041\\t\\x", {"a=b:c": "A\tx"}),
        ("a=1\\", {"a": "1"}),
        ("=x", {}),
    ],
)
def test_properties(text: str, settings: dict[str, str]) -> None:
    assert parse_properties(text) == settings


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert page.read_text() == config_page.page(), "run scripts/configuration-page"
