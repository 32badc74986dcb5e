"""The registry of faults."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.sim.faults.fault import Fault
from chaos.sim.faults.registry import FAULTS, KINDS, SEEN_AS
from chaos.sim.faults.storm import Storm
from chaos.sim.laws.judged import JudgedCluster
from tests.support.sim_cluster import a_topic, judged


def test_every_fault_is_in_the_registry_once_under_a_name_of_its_own() -> None:
    assert Counter(FAULTS) == Counter(Fault.__subclasses__())
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.weight > 0 for fault in FAULTS)


def test_every_fault_is_a_kind_and_it_is_known_how_each_kind_is_seen() -> None:
    assert {fault.name for fault in FAULTS} <= set(KINDS)
    assert set(SEEN_AS) == set(KINDS)
    assert len(set(KINDS)) == len(KINDS)


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.name)
@judged(3)
async def test_a_fault_strikes_and_the_cluster_gets_over_it(
    cluster: JudgedCluster, kind: type[Fault]
) -> None:
    """Some faults can do nothing in such a young cluster, and return that."""

    storm = Storm(cluster, kinds=(kind.name,))
    await a_topic(cluster)
    await cluster.client.produce_until_acknowledged("orders", b"before")
    struck = storm.strike(kind.name, cluster.leader("orders"))
    assert storm.counts[kind.name] == struck
    await storm.calm()
    await cluster.client.produce_until_acknowledged("orders", b"after")
    await cluster.client.check_promises("orders")
    assert storm.violations == []
