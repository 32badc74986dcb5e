"""The Kubernetes manifests: valid by Kubernetes' own schemas, and settings that nodes accept."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.kubernetes import FILE, Wish, render
from runtime.config.node import check_key, from_settings

kubernetes_validate = pytest.importorskip("kubernetes_validate")
yaml = pytest.importorskip("yaml")

VERSION = "1.31"  # the first with ordinals.start for good


def documents(wish: Wish | None = None) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(render(wish or Wish())) if document]


@pytest.mark.parametrize("wish", [Wish(), Wish(namespace="other", controllers=1, brokers=1)])
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
            found[each["name"]] = each["value"].replace("$(POD_NAME)", pod)
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
