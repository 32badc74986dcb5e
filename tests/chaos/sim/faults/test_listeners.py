"""The fault that moves the brokers' listener."""

from __future__ import annotations

from chaos.sim.faults.listeners import PHASES
from chaos.sim.faults.storm import Storm
from chaos.sim.laws.judged import JudgedCluster
from tests.support.sim_cluster import TOPIC, a_topic, judged, write


def phases(cluster: JudgedCluster) -> set[tuple[int, str]]:
    """The phases that the running brokers are in."""
    found = set()
    for node in cluster.brokers.values():
        if node.runs_as_configured and "inter.broker.listener.name" in node.config.raw:
            raw = node.config.raw
            plain, of_nodes = raw["listeners"].split(",")
            assert plain == f"PLAINTEXT://{node.host}:9092"
            found.add((int(of_nodes.rpartition(":")[2]), raw["inter.broker.listener.name"]))
    return found


@judged()
async def test_all_brokers_come_through_a_phase_before_the_next_one(cluster: JudgedCluster) -> None:
    storm = Storm(cluster, kinds=("listeners",))
    await a_topic(cluster)
    node = cluster.leader(TOPIC)
    before: set[tuple[int, str]] = set()
    for number, phase in enumerate((*PHASES, *PHASES[:2])):
        await cluster.until(lambda: storm.strike("listeners", node), "the move before is over")
        seen = set()
        while not (
            phases(cluster) == {phase} and all(each.ready for each in cluster.brokers.values())
        ):
            seen |= phases(cluster)
            await write(cluster, 1, f"{number}-")
        assert seen <= before | {phase}
        await cluster.until_isr(TOPIC, len(cluster.brokers))
        before = {phase}
    await storm.calm()
    assert storm.violations == []
