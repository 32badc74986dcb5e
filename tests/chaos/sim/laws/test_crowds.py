"""The law of a client that opens connections without end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.crowds import ADDRESS, CrowdsStayWithinTheirLimits
from chaos.sim.laws.scene import Scene


@pytest.fixture
def broken() -> list[str]:
    return []


@pytest.fixture
def law(broken: list[str]) -> CrowdsStayWithinTheirLimits:
    return CrowdsStayWithinTheirLimits.of(cast(Scene, SimpleNamespace(report=broken.append)))


def cluster(refused: dict[str, int], present: dict[str, int]) -> SimCluster:
    connections = SimpleNamespace(refused_addresses=refused, by_address=present)
    broker = SimpleNamespace(has_begun=True, connections=connections)
    nodes = {1: SimpleNamespace(host="b1", broker=broker), 2: SimpleNamespace(broker=None)}
    return cast(SimCluster, SimpleNamespace(brokers=nodes))


@pytest.mark.parametrize(("since_s", "most"), [(0.0, 13), (10.0, 24)])
def test_a_crowd_gets_its_rate_and_a_burst(
    law: CrowdsStayWithinTheirLimits, broken: list[str], since_s: float, most: int
) -> None:
    law.tried(b"i", 100.0)
    law.tried(b"i", 100.0 + since_s)
    for _ in range(most):
        law.admitted(b"i", 1.0, 100.0 + since_s)
    law.tried(b"another process", 100.0 + since_s)
    law.admitted(b"another process", 1.0, 100.0 + since_s)
    assert not broken
    law.admitted(b"i", 1.0, 100.0 + since_s)
    assert len(broken) == 1


def test_only_the_crowd_is_refused(law: CrowdsStayWithinTheirLimits, broken: list[str]) -> None:
    law.look(cluster({ADDRESS: 5}, {ADDRESS: 5}), broken.append)
    assert not broken
    assert law.looked == 1
    law.look(cluster({ADDRESS: 5, "client": 1}, {}), broken.append)
    assert broken == ["b1 has refused connections of client"]


def test_a_crowd_has_no_more_connections_than_its_limit(
    law: CrowdsStayWithinTheirLimits, broken: list[str]
) -> None:
    law.limited(8)
    law.look(cluster({}, {ADDRESS: 8, "client": 20}), broken.append)
    assert not broken
    law.look(cluster({}, {ADDRESS: 9}), broken.append)
    assert broken == ["b1 has 9 connections of a crowd, not 8"]
