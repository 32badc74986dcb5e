"""Laws compare only with what the cluster has really promised."""

import asyncio

import pytest

from chaos.sim.cluster.methods import ALTER_PARTITION
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import newest_image, replica_of
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.isr_proposals import IsrProposalsAreFresh
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.world.wire import Said, Stage
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import AlterPartitionRequest
from tests.support.sim_cluster import TOPIC, a_topic, judged, write

LOOKS_S = 3.0  # long enough for every law to look while something runs


def registered_as(cluster: JudgedCluster, node: SimNode) -> int:
    registration = cluster.image.broker(node.id)
    assert registration is not None
    return registration.broker_epoch


@pytest.mark.parametrize("seed", range(2))
@judged
async def test_a_controller_cut_off_does_not_say_who_leads_when_the_others_are_down(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 3)
    deposed = cluster.leader(TOPIC)
    active = cluster.active_controller
    cut_off = next(node for node in cluster.controllers.values() if node is not active)
    dark = [deposed.host, cut_off.host]
    light = [node.host for node in cluster.nodes.values() if node.host not in dark]
    cluster.simulation.fabric.partition(dark, [*light, "client"])
    await cluster.until(lambda: cluster.leader(TOPIC) is not deposed, "another one leads")
    await write(cluster, 3, "w")
    await asyncio.sleep(0.5)  # for the laws to see that it is committed
    others = [node for node in cluster.controllers.values() if node is not cut_off]
    metadata = CommittedMetadata(cluster)
    newest = metadata.newest
    for node in others:
        node.kill()
    await asyncio.sleep(LOOKS_S)
    assert newest is not None
    known = newest_image(cluster)
    assert known is not None
    assert known.offset < newest.offset
    assert metadata.newest is newest
    cluster.simulation.fabric.heal()
    for node in others:
        node.start()
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@judged(0)
async def test_a_member_has_to_have_everything_in_the_registration_that_is_proposed(
    cluster: JudgedCluster,
) -> None:
    violations: list[str] = []

    await a_topic(cluster)
    await write(cluster, 3)
    leader, lost = cluster.leader(TOPIC), cluster.brokers[1]
    if lost is leader:
        lost = cluster.brokers[2]
    before = registered_as(cluster, lost)
    lost.kill()
    await cluster.until(lambda: lost.id not in cluster.partition(TOPIC).isr, "it is out")
    cluster.wipe(lost)
    cluster.simulation.fabric.isolate(lost.host, [leader.host])  # its log stays empty
    lost.start()
    await cluster.until(
        lambda: lost.ready and registered_as(cluster, lost) > before, "it is registered"
    )
    topic = cluster.image.topic(TOPIC)
    assert topic is not None
    partition, state = PartitionId(topic.topic_id, 0), cluster.partition(TOPIC)
    await cluster.until(lambda: replica_of(lost, partition) is not None, "it is a replica")
    law = IsrProposalsAreFresh(
        cluster, CommittedMetadata(cluster), violations.append, {partition: 3}
    )

    def propose(broker_epoch: int) -> None:
        request = AlterPartitionRequest(broker_id=leader.id)
        proposal = request.partitions.add(
            topic_id=topic.topic_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
        )
        proposal.isr.add(broker_id=lost.id, broker_epoch=broker_epoch)
        said = Said(leader.host, "c101", ALTER_PARTITION, request.SerializeToString())
        law.hear(Stage.SENT, said)

    propose(before)  # a repeated request, from before the disk was lost
    assert not violations
    propose(registered_as(cluster, lost))
    assert len(violations) == 1
    cluster.simulation.fabric.heal()
    await cluster.until_isr(TOPIC, 3)
