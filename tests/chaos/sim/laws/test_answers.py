"""The laws of answers: of the quorum's replicas, and of leaders that are to delete records."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.sim.cluster.methods import DELETE_RECORDS
from chaos.sim.laws.arrivals import Arrivals
from chaos.sim.laws.quorum_answers import QuorumAnswersAreTrue
from chaos.sim.laws.quorum_leaders import OneLeaderPerQuorumEpoch
from chaos.sim.laws.refused_deletions import DeletionsAreRefusedForAReason
from chaos.sim.world.wire import Said, Stage
from metadata.partitions import PartitionState
from raft.ready import Role
from runtime.quorum.messages import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    VOTE,
)
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.wire.v1.data_pb2 import DeleteRecordsRequest, DeleteRecordsResponse
from tests.support.batches import make_batch
from tests.support.law_bench import TOPIC, LawBench, image

KINDS = {
    VOTE: (pb.VoteRequest, pb.VoteResponse),
    BEGIN_QUORUM_EPOCH: (pb.BeginQuorumEpochRequest, pb.BeginQuorumEpochResponse),
    END_QUORUM_EPOCH: (pb.EndQuorumEpochRequest, pb.EndQuorumEpochResponse),
    FETCH: (pb.QuorumFetchRequest, pb.QuorumFetchResponse),
    FETCH_SNAPSHOT: (pb.FetchSnapshotRequest, pb.FetchSnapshotResponse),
}


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


# ------------------------------------------------------------------------ the quorum


@pytest.fixture
def law(bench: LawBench) -> QuorumAnswersAreTrue:
    """Controller 101 leads epoch 5."""
    leaders = OneLeaderPerQuorumEpoch(bench.scene)
    bench.core(101).role = Role.LEADER
    bench.controllers[101].node.quorum.status = bench.core(101).status
    bench.scene.look_at_nodes([bench.sim_node(101)])
    assert not bench.broken(leaders)
    return QuorumAnswersAreTrue(bench.cluster, leaders, bench.report)


def answers(
    bench: LawBench, law: QuorumAnswersAreTrue, method: str, asked: int, **answer: Any
) -> list[str]:
    """Controller 102 answers a request of epoch ``asked``."""
    request, response = KINDS[method]
    said = Said(
        "c101",
        "c102",
        method,
        request(epoch=asked).SerializeToString(),
        response(**{"leader_id": -1, "epoch": 5, **answer}).SerializeToString(),
    )
    law.hear(Stage.SENT, said._replace(answer=b""))
    law.hear(Stage.ANSWERED, said)
    return bench.broken()


@pytest.mark.parametrize(
    ("method", "error", "asked", "breaks"),
    [
        (FETCH, ErrorCode.NONE, 5, False),
        (FETCH, ErrorCode.NONE, 6, True),
        (FETCH_SNAPSHOT, ErrorCode.FENCED_LEADER_EPOCH, 4, False),
        (FETCH_SNAPSHOT, ErrorCode.FENCED_LEADER_EPOCH, 5, True),
        (FETCH, ErrorCode.UNKNOWN_LEADER_EPOCH, 6, False),
        (FETCH, ErrorCode.UNKNOWN_LEADER_EPOCH, 5, True),
        (FETCH, ErrorCode.INVALID_REQUEST, 5, False),
        (BEGIN_QUORUM_EPOCH, ErrorCode.INVALID_REQUEST, 5, True),
        (END_QUORUM_EPOCH, ErrorCode.INVALID_REQUEST, 5, True),
        (END_QUORUM_EPOCH, ErrorCode.FENCED_LEADER_EPOCH, 4, False),
        (VOTE, ErrorCode.INVALID_VOTER_KEY, 5, False),
        (VOTE, ErrorCode.INCONSISTENT_VOTER_SET, 5, True),
    ],
)
def test_an_error_fits_the_epochs(
    bench: LawBench,
    law: QuorumAnswersAreTrue,
    method: str,
    error: ErrorCode,
    asked: int,
    breaks: bool,
) -> None:
    assert bool(answers(bench, law, method, asked, error=error)) is breaks
    assert law.looked == 1


def test_a_leader_does_not_refuse_as_if_it_led_nothing(
    bench: LawBench, law: QuorumAnswersAreTrue
) -> None:
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not answers(bench, law, FETCH, 5, error=error, leader_id=101)
    assert answers(bench, law, FETCH, 6, error=error, leader_id=102, epoch=6)


def test_nobody_names_another_leader_of_an_epoch(
    bench: LawBench, law: QuorumAnswersAreTrue
) -> None:
    assert not answers(bench, law, VOTE, 5, leader_id=101)
    assert not answers(bench, law, VOTE, 5, leader_id=103, epoch=6)
    (report,) = answers(bench, law, VOTE, 5, leader_id=103)
    assert report.endswith("that 103 leads epoch 5, which 101 led")


def test_after_the_end_of_an_epoch_it_has_no_leader(
    bench: LawBench, law: QuorumAnswersAreTrue
) -> None:
    assert not answers(bench, law, END_QUORUM_EPOCH, 5)
    assert not answers(bench, law, END_QUORUM_EPOCH, 5, leader_id=103, epoch=6)
    assert answers(bench, law, END_QUORUM_EPOCH, 5, leader_id=101)


# ------------------------------------------------------------------------ deletions


LED = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)


@pytest.mark.parametrize(
    ("offset", "error", "breaks"),
    [
        (3, ErrorCode.OFFSET_OUT_OF_RANGE, True),
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE, True),
        (4, ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE, False),
        (3, ErrorCode.NONE, False),
        (3, ErrorCode.POLICY_VIOLATION, False),
    ],
)
def test_what_is_committed_can_be_deleted(
    bench: LawBench, offset: int, error: ErrorCode, breaks: bool
) -> None:
    law = DeletionsAreRefusedForAReason(bench.cluster, bench.report)
    bench.replica(1, make_batch(5), state=LED, high_watermark=3)
    bench.brokers[1].node.broker.image = image(1, LED)
    wish = DeleteRecordsRequest.Partition(topic=TOPIC, offset=offset)
    said = Said(
        "client", "b1", DELETE_RECORDS, DeleteRecordsRequest(partitions=[wish]).SerializeToString()
    )
    answer = DeleteRecordsResponse.Partition(topic=TOPIC, error=error)
    response = DeleteRecordsResponse(partitions=[answer]).SerializeToString()
    law.hear(Stage.ARRIVED, said)
    law.hear(Stage.ANSWERED, said._replace(answer=response))
    assert bool(bench.broken()) is breaks
    assert law.looked == 1


def test_only_a_leader_is_judged(bench: LawBench) -> None:
    law = DeletionsAreRefusedForAReason(bench.cluster, bench.report)
    bench.replica(2, make_batch(5), state=LED, high_watermark=3)
    bench.brokers[2].node.broker.image = image(1, LED)
    wish = DeleteRecordsRequest.Partition(topic=TOPIC, offset=3)
    said = Said(
        "client", "b2", DELETE_RECORDS, DeleteRecordsRequest(partitions=[wish]).SerializeToString()
    )
    answer = DeleteRecordsResponse.Partition(topic=TOPIC, error=ErrorCode.OFFSET_OUT_OF_RANGE)
    response = DeleteRecordsResponse(partitions=[answer]).SerializeToString()
    law.hear(Stage.ARRIVED, said)
    law.hear(Stage.ANSWERED, said._replace(answer=response))
    assert not bench.broken()
    assert law.looked == 0


def test_of_a_request_that_comes_twice_the_first_arrival_counts() -> None:
    arrivals, said = Arrivals[int](), Said("client", "b1", DELETE_RECORDS, b"request")
    assert arrivals.get(said) is None
    arrivals.keep(said, 1)
    arrivals.keep(said, 2)
    assert arrivals.get(said._replace(answer=b"answer")) == 1
