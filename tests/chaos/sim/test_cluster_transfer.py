"""Leadership of the quorum is handed over by an administrator, who asks any broker."""

from __future__ import annotations

import pytest

from chaos.sim.cluster import SimCluster
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from tests.support.sim_cluster import TOPIC, a_topic, write


async def transfer(cluster: SimCluster, to: int) -> pb.TransferLeadershipResponse:
    request = pb.TransferLeadershipRequest(voter_id=to).SerializeToString()
    answer = await cluster.client._administrate("TransferLeadership", request)
    return pb.TransferLeadershipResponse.FromString(answer)


@pytest.mark.parametrize("seed", range(2))
def test_the_active_controller_is_chosen(seed: int) -> None:
    async def scenario(cluster: SimCluster) -> None:
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

    SimCluster(seed).run(scenario)
