"""What a replica answers over the wire, and what it refuses: unknown replicas, garbage, old
epochs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.quorum.messages import (
    BEGIN_QUORUM_EPOCH,
    DESCRIBE_QUORUM,
    END_QUORUM_EPOCH,
    EPOCH_STEP_MAX,
    FETCH,
    VOTE,
)
from stele.errors import ErrorCode
from stele.wire.batch import batches, decode
from stele.wire.v1 import raft_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.raft_quorum import QuorumCluster, QuorumNode, with_quorum


def fetch(replica: QuorumNode, **fields: Any) -> bytes:
    request: dict[str, Any] = {
        "cluster_id": "cluster",
        "replica_id": 9,
        "epoch": replica.quorum.leader.epoch,
        "max_bytes": 1 << 20,
        "high_watermark": -1,
    }
    return pb.QuorumFetchRequest(**(request | fields)).SerializeToString()


@pytest.mark.parametrize(
    ("method", "request_type", "response_type"),
    [
        (VOTE, pb.VoteRequest, pb.VoteResponse),
        (BEGIN_QUORUM_EPOCH, pb.BeginQuorumEpochRequest, pb.BeginQuorumEpochResponse),
        (END_QUORUM_EPOCH, pb.EndQuorumEpochRequest, pb.EndQuorumEpochResponse),
        (FETCH, pb.QuorumFetchRequest, pb.QuorumFetchResponse),
    ],
)
@with_quorum
async def test_another_cluster_is_refused(
    cluster: QuorumCluster, method: str, request_type: Any, response_type: Any
) -> None:
    leader = await cluster.start()
    asker = cluster.others(leader)[0]
    request = request_type(cluster_id="other", epoch=99).SerializeToString()
    answer = response_type.FromString(await asker.call(leader, method, request))
    assert answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (answer.leader_id, answer.epoch, answer.leader_endpoint) == (-1, 0, "")
    assert leader.quorum.leader.epoch == 1


@pytest.mark.parametrize("method", [VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH])
@pytest.mark.parametrize("garbage", [b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f"])
@with_quorum
async def test_garbage_is_refused_and_harms_nobody(
    cluster: QuorumCluster, method: str, garbage: bytes
) -> None:
    leader = await cluster.start()
    with pytest.raises(RpcError) as refusal:
        await cluster.others(leader)[0].call(leader, method, garbage)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT
    await leader.propose(b"a")
    await cluster.until_equal()


ABOUT_A_LEADER: dict[str, Any] = {
    VOTE: lambda leader, epoch: pb.VoteRequest(
        cluster_id="cluster", candidate_id=leader, voter_id=1, epoch=epoch, pre_vote=False
    ),
    BEGIN_QUORUM_EPOCH: lambda leader, epoch: pb.BeginQuorumEpochRequest(
        cluster_id="cluster", leader_id=leader, voter_id=1, epoch=epoch
    ),
    END_QUORUM_EPOCH: lambda leader, epoch: pb.EndQuorumEpochRequest(
        cluster_id="cluster", leader_id=leader, epoch=epoch
    ),
}


@pytest.mark.parametrize(
    ("leader_id", "epoch"), [(2, 2**31 - 1), (2, 2 + EPOCH_STEP_MAX), (2, -1), (-1, 2)]
)
@pytest.mark.parametrize("method", ABOUT_A_LEADER)
@with_quorum
async def test_what_cannot_be_an_epoch_or_a_leader_of_this_quorum_ends_no_epoch(
    cluster: QuorumCluster, method: str, leader_id: int, epoch: int
) -> None:
    """A greater epoch than the last of 32 bits could never follow."""
    leader = await cluster.start()
    request = ABOUT_A_LEADER[method](leader_id, epoch).SerializeToString()
    with pytest.raises(RpcError) as refusal:
        await cluster.others(leader)[0].call(leader, method, request)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT
    assert leader.quorum.leader.epoch == 1
    await leader.propose(b"a")
    await cluster.until_equal()


@with_quorum
async def test_a_directory_id_of_the_wrong_length_is_refused(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    request = fetch(leader, replica_directory_id=b"short")
    with pytest.raises(RpcError) as refusal:
        await cluster.others(leader)[0].call(leader, FETCH, request)
    assert refusal.value.code is RpcCode.INVALID_ARGUMENT


@with_quorum
async def test_a_fetch_over_the_wire(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    offset = await leader.propose(b"a", b"b")
    await cluster.until_equal()
    asker = cluster.others(leader)[0]
    data = await asker.call(leader, FETCH, fetch(leader))
    answer = pb.QuorumFetchResponse.FromString(data)
    assert (answer.error, answer.leader_id, answer.high_watermark) == (0, leader.id, offset + 2)
    found = [header for _, header in batches(answer.records)]
    assert [h.is_control for h in found] == [True] * (len(found) - 1) + [False]
    assert (found[0].base_offset, found[-1].base_offset) == (0, offset)
    assert {h.leader_epoch for h in found} == {1}
    last = decode(answer.records, sum(header.size_bytes for header in found[:-1]))
    assert [record.value for record in last] == [b"a", b"b"]
    for epoch, error in [
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]:
        data = await asker.call(leader, FETCH, fetch(leader, epoch=epoch))
        assert pb.QuorumFetchResponse.FromString(data).error == error
    follower = cluster.others(leader)[1]
    data = await asker.call(follower, FETCH, fetch(leader))
    answer = pb.QuorumFetchResponse.FromString(data)
    assert answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.leader_id == leader.id


@with_quorum
async def test_a_parked_fetch_waits_as_long_as_it_said(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await cluster.until_equal()
    began, end = cluster.now, leader.quorum.log_end_offset
    request = fetch(
        leader, fetch_offset=end, last_fetched_epoch=1, high_watermark=end, max_wait_ms=300
    )
    data = await cluster.others(leader)[0].call(leader, FETCH, request)
    assert not pb.QuorumFetchResponse.FromString(data).records
    assert 0.29 < cluster.now - began < 0.4


@with_quorum(observers=1)
async def test_describe(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    end_offset = await leader.propose(b"a") + 1
    await asyncio.sleep(0.5)
    asker = cluster.others(leader)[0]
    data = await asker.call(leader, DESCRIBE_QUORUM, b"")
    answer = pb.DescribeQuorumResponse.FromString(data)
    assert (answer.error, answer.leader_id, answer.epoch, answer.high_watermark) == (
        0,
        leader.id,
        1,
        end_offset,
    )
    assert [voter.replica_id for voter in answer.voters] == [1, 2, 3]
    assert [voter.directory_id for voter in answer.voters] == [
        bytes([node]) * 16 for node in (1, 2, 3)
    ]
    assert [voter.log_end_offset for voter in answer.voters] == [end_offset] * 3
    assert [observer.replica_id for observer in answer.observers] == [4]
    now_ms = leader.process.world.clock.time_ms()
    for state in [*answer.voters, *answer.observers]:
        assert now_ms - 1000 < state.last_caught_up_time_ms <= now_ms
        assert now_ms - 1000 < state.last_fetch_time_ms <= now_ms
    data = await leader.call(asker, DESCRIBE_QUORUM, b"")
    answer = pb.DescribeQuorumResponse.FromString(data)
    assert answer.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.leader_id == leader.id


@with_quorum
async def test_a_stopped_replica_is_unavailable(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await leader.process.run(leader.quorum.stop())
    for method in (VOTE, DESCRIBE_QUORUM):
        with pytest.raises(RpcError) as refusal:
            await cluster.others(leader)[0].call(leader, method, b"")
        assert refusal.value.code is RpcCode.UNAVAILABLE
