"""The Kubernetes manifests: valid by Kubernetes' own schemas, and settings that nodes accept."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes import FILE, Wish, render
from runtime.config.node import check_key, from_settings, load
from stele.addresses import SecurityProtocol

kubernetes_validate = pytest.importorskip("kubernetes_validate")
yaml = pytest.importorskip("yaml")

VERSION = "1.31"  # the first with ordinals.start for good


def documents(wish: Wish | None = None) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(render(wish or Wish())) if document]


@pytest.mark.parametrize(
    "wish", [Wish(), Wish(namespace="other", controllers=1, brokers=1), Wish(secret="stele-tls")]
)
def test_every_manifest_is_valid(wish: Wish) -> None:
    found = documents(wish)
    assert [each["kind"] for each in found] == [
        "Namespace", "Service",
        "Service", "PodDisruptionBudget", "StatefulSet",
        "Service", "PodDisruptionBudget", "StatefulSet",
    ]  # fmt: skip
    for document in found:
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_a_wrong_manifest_is_not_valid() -> None:
    document = documents()[4]
    document["spec"]["replicas"] = "three"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_file_is_what_is_made() -> None:
    assert FILE.read_text() == render(Wish()), "run python -m deploy.kubernetes"


def environment_of(stateful_set: dict[str, Any], node_id: int) -> dict[str, str]:
    """The settings of one pod, as Kubernetes fills them in."""
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    pod = f"{stateful_set['metadata']['name']}-{node_id}"
    found = {"POD_NAME": pod, "STELE_NODE_ID": str(node_id)}
    for each in container["env"]:
        if "value" in each:
            value = each["value"].replace("$(POD_NAME)", pod)
            found[each["name"]] = value.replace("$(STELE_NODE_ID)", str(node_id))
    return found


@pytest.mark.parametrize(("place", "node_id"), [(4, 1), (7, 101)])
def test_nodes_accept_their_settings(place: int, node_id: int) -> None:
    stateful_set = documents()[place]
    assert stateful_set["spec"]["ordinals"]["start"] == node_id
    environment = environment_of(stateful_set, node_id)
    settings = {
        name.removeprefix("STELE_").lower().replace("_", "."): value
        for name, value in environment.items()
        if name.startswith("STELE_") and name != "STELE_CLUSTER_ID"
    } | {"log.dirs": "/var/lib/stele/data"}
    for key in settings:
        check_key(key)
    config = from_settings(settings)
    assert config.node_id == node_id
    if node_id == 1:
        assert config.is_controller
    else:
        assert config.is_broker
        assert settings["transaction.two.phase.commit.enable"] == "true"  # Spark's sink needs it
        host = f"stele-broker-{node_id}.stele-broker.stele.svc.cluster.local"
        assert environment["STELE_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{host}:9092"


@pytest.mark.parametrize(("place", "node_id"), [(4, 1), (7, 101)])
def test_nodes_accept_their_settings_when_they_are_secure(place: int, node_id: int) -> None:
    wish = Wish(secret="stele-tls")
    stateful_set = documents(wish)[place]
    environment = environment_of(stateful_set, node_id)
    environment.pop("STELE_CLUSTER_ID")
    config = load("log.dirs=/var/lib/stele/data", environment=environment)
    keystore = f"/etc/stele/security/node-{node_id}.pem"
    assert config.security.to_controllers["CONTROLLER"].tls.keystore.location == keystore
    assert config.security.controllers["CONTROLLER"].client_auth == "required"
    assert config.access_policy is not None
    pod = stateful_set["spec"]["template"]["spec"]
    assert {"name": "security", "mountPath": "/etc/stele/security", "readOnly": True} in (
        pod["containers"][0]["volumeMounts"]
    )
    assert pod["volumes"][0]["secret"]["secretName"] == "stele-tls"
    if node_id == 101:
        assert config.security.listeners["CLIENTS"].protocol is SecurityProtocol.SASL_SSL
        assert config.security.listeners["NODES"].client_auth == "required"


def test_the_command_for_the_secret_names_every_node_as_it_is_advertised() -> None:
    wish = Wish(secret="stele-tls", controllers=1, brokers=1)
    command = wish.certificates
    settings = environment_of(documents(wish)[7], 101)
    host = settings["STELE_ADVERTISED_LISTENERS"].split("://")[1].split(":")[0]
    assert f"--node 101={host}," in command
    assert wish.certificates in render(wish)
    assert "mv certs/ca.key certs/user-admin.pem ." in render(wish), "what no pod may read"
    assert f"--node 1={settings['STELE_CONTROLLER_QUORUM_VOTERS'][2:].split(':')[0]} " in command


def test_selectors_meet_the_pods() -> None:
    found = documents()
    for place in (4, 7):
        stateful_set = found[place]
        labels = stateful_set["spec"]["template"]["metadata"]["labels"]
        service, budget = found[place - 2], found[place - 1]
        assert service["metadata"]["name"] == stateful_set["spec"]["serviceName"]
        assert service["spec"]["selector"].items() <= labels.items()
        assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert service["spec"]["publishNotReadyAddresses"]
