"""The laws of answers: of the quorum's replicas, and of leaders that are to delete records."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.sim.cluster.methods import DELETE_RECORDS
from chaos.sim.laws.arrivals import Arrivals
from chaos.sim.laws.fetched_logs import FetchesTellWhatIsDurable
from chaos.sim.laws.followed_hints import WITHIN_S, ObserversAskTheLeader
from chaos.sim.laws.quorum_answers import QuorumAnswersAreTrue
from chaos.sim.laws.quorum_leaders import OneLeaderPerQuorumEpoch
from chaos.sim.laws.refused_deletions import DeletionsAreRefusedForAReason
from chaos.sim.laws.refused_voters import VotersAreRefusedForAReason
from chaos.sim.world.wire import Said, Stage
from metadata.partitions import PartitionState
from raft.ready import Role
from runtime.quorum.messages import (
    ADD_VOTER,
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    REMOVE_VOTER,
    UPDATE_VOTER,
    VOTE,
)
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from stele.wire.v1.admin_pb2 import DeleteRecordsRequest, DeleteRecordsResponse
from tests.support.batches import make_batch
from tests.support.law_bench import TOPIC, LawBench, disk_id, image, voters

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


@pytest.mark.parametrize(
    ("asked", "told", "breaks"),
    [
        ({}, {"leader_id": 103}, False),
        ({"pre_vote": False}, {"leader_id": 103}, True),
        ({"candidate_id": 101}, {"leader_id": 103}, True),
        ({}, {"leader_id": -1}, True),
        ({}, {"leader_id": 103, "granted": True}, True),
    ],
)
def test_only_a_stranger_that_asks_for_a_pre_vote_may_be_ahead(
    bench: LawBench,
    law: QuorumAnswersAreTrue,
    asked: dict[str, Any],
    told: dict[str, Any],
    breaks: bool,
) -> None:
    """Controller 102 has a leader in epoch 4. A candidate of epoch 5 asks for its pre-vote."""
    bench.core(102).history.append(0, voters(101, 102, 103))
    candidate = {"candidate_id": 104, "candidate_directory_id": disk_id(104), "pre_vote": True}
    if asked.get("candidate_id") == 101:
        candidate["candidate_directory_id"] = disk_id(101)
    request = pb.VoteRequest(epoch=5, **{**candidate, **asked}).SerializeToString()
    answer = pb.VoteResponse(epoch=4, **told).SerializeToString()
    law.hear(Stage.ANSWERED, Said("c104", "c102", VOTE, request, answer))
    assert bool(bench.broken()) is breaks


# ------------------------------------------------------------------------ fetches


def fetches(node_id: int, to: str, *, epoch: int = 5, offset: int = 0) -> Said:
    request = pb.QuorumFetchRequest(replica_id=node_id, epoch=epoch, fetch_offset=offset)
    return Said(f"c{node_id}", to, FETCH, request.SerializeToString())


def test_a_fetch_tells_no_more_than_is_on_disk(bench: LawBench) -> None:
    law = FetchesTellWhatIsDurable(bench.cluster, bench.report)
    core = bench.core(102)
    core.durable_end_offset = 10
    law.hear(Stage.SENT, fetches(102, "c101", offset=10))
    assert not bench.broken()
    law.hear(Stage.SENT, fetches(102, "c101", offset=11))
    assert bench.broken() == ["c102 fetches from 11, and has 10 on disk"]
    law.hear(Stage.ARRIVED, fetches(102, "c101", offset=11))
    assert not bench.broken()
    assert law.looked == 2


def test_a_fetch_tells_no_epoch_that_is_not_on_disk(bench: LawBench) -> None:
    law = FetchesTellWhatIsDurable(bench.cluster, bench.report)
    bench.core(102).promises_durable = False
    law.hear(Stage.SENT, fetches(102, "c101", epoch=4))
    assert not bench.broken()
    law.hear(Stage.SENT, fetches(102, "c101"))
    assert bench.broken() == ["c102 fetches in epoch 5, which is not on disk"]


class Observer:
    """Controller 103 observes. It asks 101, which names a leader. The voters are 101 and 102."""

    def __init__(self, bench: LawBench) -> None:
        self.bench = bench
        self.law = ObserversAskTheLeader(bench.cluster, bench.report)
        bench.core(103).role = Role.OBSERVER
        bench.core(103).history.append(0, voters(101, 102))

    def is_told(
        self, leader: int, *, asked: str = "c101", taken: bool = True, **answer: Any
    ) -> None:
        said = fetches(103, asked)
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        told = {"error": error, "leader_id": leader, "epoch": 5, **answer}
        self.law.hear(Stage.SENT, said)
        assert not self.bench.broken()
        response = pb.QuorumFetchResponse(**told).SerializeToString()
        answered = said._replace(answer=response)
        self.law.hear(Stage.ANSWERED, answered)
        if taken:
            self.law.hear(Stage.TAKEN, answered)

    def asks(self, whom: str, *, epoch: int = 5) -> list[str]:
        self.law.hear(Stage.SENT, fetches(103, whom, epoch=epoch))
        return self.bench.broken()


@pytest.fixture
def observer(bench: LawBench) -> Observer:
    return Observer(bench)


def test_a_node_that_hears_of_the_leader_asks_it(observer: Observer) -> None:
    observer.is_told(102)
    assert not observer.asks("c102")
    observer.is_told(102)
    assert observer.asks("c101") == ["c103 was told that c102 leads epoch 5, and asks c101"]
    assert observer.law.looked == 2


@pytest.mark.parametrize(
    "answer", [{"error": ErrorCode.NONE}, {"leader_id": -1}, {"leader_id": 103}, {"epoch": 6}]
)
def test_some_answers_name_nobody_to_ask(observer: Observer, answer: dict[str, Any]) -> None:
    observer.is_told(102, **answer)
    assert not observer.asks("c101")
    assert observer.law.looked == 0


def test_a_leader_that_the_observer_does_not_know_cannot_be_asked(observer: Observer) -> None:
    observer.bench.core(103).history.append(1, voters(101))
    observer.is_told(102)
    assert not observer.asks("c101")
    assert observer.law.looked == 0


def test_who_answers_itself_or_late_or_is_not_heard_names_nobody(observer: Observer) -> None:
    observer.is_told(102, asked="c102")
    assert not observer.asks("c101")
    observer.is_told(102)
    assert not observer.asks("c101", epoch=6)
    observer.is_told(102)
    observer.bench.simulation.run(asyncio.sleep(WITHIN_S + 0.01))
    assert not observer.asks("c101")
    observer.is_told(102, taken=False)
    assert not observer.asks("c101")
    observer.is_told(102)
    observer.bench.core(103).role = Role.FOLLOWER
    assert not observer.asks("c101")
    assert observer.law.looked == 0


# ------------------------------------------------------------------------ voters


@pytest.mark.parametrize(
    ("method", "voter", "disk", "error", "breaks"),
    [
        (UPDATE_VOTER, 102, 102, ErrorCode.VOTER_NOT_FOUND, True),
        (UPDATE_VOTER, 102, 9, ErrorCode.VOTER_NOT_FOUND, False),
        (REMOVE_VOTER, 102, 102, ErrorCode.VOTER_NOT_FOUND, True),
        (REMOVE_VOTER, 104, 4, ErrorCode.VOTER_NOT_FOUND, False),
        (REMOVE_VOTER, 102, 102, ErrorCode.NONE, False),
        (ADD_VOTER, 104, 4, ErrorCode.DUPLICATE_VOTER, True),
        (ADD_VOTER, 102, 9, ErrorCode.DUPLICATE_VOTER, False),
        (ADD_VOTER, 104, 4, ErrorCode.REQUEST_TIMED_OUT, False),
    ],
)
def test_a_voter_that_is_there_is_found(
    bench: LawBench, method: str, voter: int, disk: int, error: ErrorCode, breaks: bool
) -> None:
    law = VotersAreRefusedForAReason(bench.cluster, bench.report)
    bench.core(101).history.append(0, voters(101, 102, 103))
    kinds = {
        ADD_VOTER: pb.AddVoterRequest,
        REMOVE_VOTER: pb.RemoveVoterRequest,
        UPDATE_VOTER: pb.UpdateVoterRequest,
    }
    request = kinds[method](voter_id=voter, voter_directory_id=disk_id(disk))
    said = Said("c102", "c101", method, request.SerializeToString())
    answer = pb.VoterChangeResponse(error=error).SerializeToString()
    law.hear(Stage.SENT, said)
    law.hear(Stage.ARRIVED, said)
    law.hear(Stage.ANSWERED, said._replace(answer=answer))
    assert bool(bench.broken()) is breaks
    assert law.looked == 1


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
