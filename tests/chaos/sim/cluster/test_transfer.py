"""The active controller changes: on request of an administrator, and during other requests."""

from __future__ import annotations

import asyncio

import pytest

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.judged import JudgedCluster
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2
from stele.wire.v1 import raft_pb2 as pb
from tests.support.sim_cluster import TOPIC, a_topic, judged, write


async def transfer(cluster: SimCluster, to: int) -> pb.TransferLeadershipResponse:
    request = pb.TransferLeadershipRequest(voter_id=to).SerializeToString()
    answer = await cluster.client.administrate("TransferLeadership", request)
    return pb.TransferLeadershipResponse.FromString(answer)


@pytest.mark.parametrize("seed", range(2))
@judged
async def test_the_active_controller_is_chosen(cluster: SimCluster, seed: int) -> None:
    await a_topic(cluster)
    for target in [*cluster.controllers.values(), *cluster.controllers.values()]:
        answer = await transfer(cluster, target.id)
        assert (answer.error, answer.leader_id) == (ErrorCode.NONE, target.id)
        await cluster.until(lambda: cluster.active_controller is not None, "one is active")
        assert cluster.active_controller is target
        await cluster.client.create_topic(f"epoch-{answer.epoch}")
        await write(cluster, 2, f"epoch {answer.epoch}")
    answer = await transfer(cluster, 99)
    assert (answer.error, answer.message) == (
        ErrorCode.VOTER_NOT_FOUND,
        "there is no voter 99",
    )
    assert cluster.active_controller is target
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("delay_ms", [0, 2, 5, 10, 50])
def test_a_request_that_is_sent_again_makes_one_topic_and_says_so(delay_ms: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
        await a_topic(cluster)
        request = admin_pb2.CreateTopicsRequest(
            topics=[admin_pb2.NewTopic(name="once", partitions=3, replication_factor=3)]
        ).SerializeToString()
        active = cluster.active_controller
        assert active is not None
        first = asyncio.ensure_future(cluster.client.administrate("CreateTopics", request))
        await asyncio.sleep(delay_ms / 1000)
        active.kill()
        answers = [await first, await cluster.client.administrate("CreateTopics", request)]
        parsed = [admin_pb2.CreateTopicsResponse.FromString(answer) for answer in answers]
        # Each answer is a success, or says that the topic exists or that the outcome is unknown.
        known = [answer.topics[0].error for answer in parsed if not answer.error]
        assert known.count(ErrorCode.NONE) <= 1
        assert set(known) <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
        assert not parsed[1].error
        active.start()
        await cluster.until_isr("once", 3)
        assert cluster.image.topic("once") is not None
        assert len(cluster.image.topics) == 2

    JudgedCluster(delay_ms).run(scenario)
