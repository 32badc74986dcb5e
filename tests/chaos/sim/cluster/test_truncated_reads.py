"""Our consumer where an unclean election takes records away that it has read (KIP-320)."""

import pytest

from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.judged import JudgedCluster
from stele.errors import LogTruncationError
from stele.ids import TopicPartition
from tests.support.sim_cluster import TOPIC, a_topic, consumer_of, judged, read, write

RISKY = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}


async def lose_what_one_replica_lacks(cluster: JudgedCluster, behind: SimNode) -> None:
    """All but one replica are gone, and that one leads."""
    for node in cluster.brokers.values():
        if node is not behind:
            node.kill()
    behind.start()
    await cluster.until(lambda: cluster.leader(TOPIC) is behind, "the one behind leads")
    await write(cluster, 7, "served by ")


@pytest.mark.parametrize("policy", ["earliest", "none"])
@judged(3)
async def test_a_consumer_finds_out_that_what_it_read_has_vanished(
    cluster: JudgedCluster, policy: str
) -> None:
    told: list[tuple[TopicPartition, int, int]] = []

    await a_topic(cluster, RISKY)
    await write(cluster, 5)
    behind = next(node for node in cluster.brokers.values() if node is not cluster.leader(TOPIC))
    behind.kill()
    await cluster.until(
        lambda: behind.id not in cluster.partition(TOPIC).isr, "it has left the ISR"
    )
    await write(cluster, 4, "vanishes ")
    async with consumer_of(
        cluster, auto_offset_reset=policy, on_truncation=lambda *what: told.append(what)
    ) as consumer:
        assert len(await read(consumer, 9)) == 9
        await lose_what_one_replica_lacks(cluster, behind)
        if policy == "none":
            with pytest.raises(LogTruncationError) as caught:
                await read(consumer, 1)
            assert (caught.value.offset, caught.value.diverging_offset) == (9, 5)
            consumer.seek(TOPIC, 0, caught.value.diverging_offset)
        values = [record.value for record in await read(consumer, 7)]
        assert all(str(value).startswith("b'served by") for value in values)
    assert told == ([] if policy == "none" else [((TOPIC, 0), 9, 5)])
