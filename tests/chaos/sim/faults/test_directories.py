"""Log directories that die and come back."""

from __future__ import annotations

from chaos.sim.faults.directories import SECOND
from chaos.sim.faults.storm import Storm
from chaos.sim.laws.judged import JudgedCluster


def test_a_storm_of_dying_directories_loses_nothing() -> None:
    cluster = JudgedCluster(3, directories=("/data", SECOND))

    async def scenario(cluster: JudgedCluster) -> None:
        storm = Storm(cluster, kinds=(), has_directories=True)
        await cluster.client.create_topic(
            "orders", partitions=4, configs={"min.insync.replicas": "2"}
        )
        for number in range(4):
            await cluster.client.produce_until_acknowledged("orders", b"before", partition=number)
        await storm.rage(60.0)
        assert storm.counts["log directories dead"]
        assert storm.counts["brokers restarted without a log directory"]
        assert storm.drawn >= sum(storm.counts.values()) - storm.counts["log directories repaired"]
        await storm.calm()
        assert not any(node.machine.disk.faults.dead for node in cluster.brokers.values())
        for number in range(4):
            await cluster.until_whole("orders", number)
            await cluster.client.produce_until_acknowledged("orders", b"after", partition=number)
            found = await cluster.client.read_back("orders", number)
            assert len(found) >= 2
        assert storm.violations == []

    cluster.run(scenario)
