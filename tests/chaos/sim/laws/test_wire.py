"""The laws that listen to calls: what breaks them, and what does not."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from chaos.sim.cluster.methods import ALTER_PARTITION
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.fenced_brokers import FencedBrokersAcknowledgeNothing
from chaos.sim.laws.isr_proposals import IsrProposalsAreFresh
from chaos.sim.laws.told_votes import VotesAreKept
from chaos.sim.world.wire import Said, Stage, Wire
from metadata.brokers import Brokers
from metadata.image import MetadataImage
from metadata.partitions import PartitionState
from raft.quorum import NO_DIRECTORY, ReplicaKey
from runtime.quorum.messages import VOTE
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse
from stele.wire.v1.raft_pb2 import VoteRequest, VoteResponse
from tests.support.batches import make_batch
from tests.support.law_bench import BROKERS, PARTITION, LawBench, disk_id, image

QUORUM_STATE = "/data/__cluster_metadata-0/quorum-state"


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


def say(bench: LawBench, stage: Stage, said: Said) -> list[str]:
    """Send a call. Returns what the listening laws report."""
    bench.simulation.fabric.wire.tell(stage, said)
    return bench.broken()


# ------------------------------------------------------------------------ listening


def test_listeners_hear_what_they_asked_for_until_they_ignore_it() -> None:
    wire, heard = Wire(), []

    def hear(stage: Stage, said: Said) -> None:
        heard.append(said.method)

    def say_all() -> list[str]:
        heard.clear()
        for method in ("/stele.v1.Raft/Vote", "/stele.v1.Admin/AddVoter"):
            wire.tell(Stage.SENT, Said("c101", "c102", method, b""))
        return list(heard)

    assert say_all() == []
    wire.listen(hear, "/AddVoter", "/RemoveVoter")
    assert say_all() == ["/stele.v1.Admin/AddVoter"]
    wire.listen(hear)
    assert len(say_all()) == 3
    wire.ignore(hear)
    wire.ignore(hear)
    assert say_all() == []


# ------------------------------------------------------------------------ votes


@pytest.fixture
def votes(bench: LawBench) -> LawBench:
    """Voters 101 to 103 on the disks of their numbers, in epoch 5 with a log of ten records. The
    law listens."""
    for node_id in bench.controllers:
        bench.give_disk(node_id, node_id)
        bench.core(node_id).end_offset = 10
    bench.listen(VotesAreKept(bench.cluster, bench.report))
    return bench


def vote_on_disk(bench: LawBench, voter: int, epoch: int, candidate: int) -> None:
    state = {"leaderEpoch": epoch, "votedId": candidate}
    bench.put(voter, QUORUM_STATE, json.dumps(state).encode())


def asks(candidate: int, voter: int, epoch: int = 6, **more: Any) -> Said:
    """A request for a vote, with a log as good as the others'."""
    request = VoteRequest(
        candidate_id=candidate,
        voter_id=voter,
        epoch=epoch,
        **{"last_epoch": 5, "last_offset": 10, "voter_directory_id": disk_id(voter), **more},
    )
    return Said(f"c{candidate}", f"c{voter}", VOTE, request.SerializeToString())


def granted(asked: Said, **more: Any) -> Said:
    return asked._replace(answer=VoteResponse(**{"granted": True, **more}).SerializeToString())


def test_a_vote_that_is_on_disk_may_be_told(votes: LawBench) -> None:
    asked = asks(101, 102)
    vote_on_disk(votes, 101, 6, 101)
    assert not say(votes, Stage.SENT, asked)
    assert not say(votes, Stage.ARRIVED, asked)
    vote_on_disk(votes, 102, 6, 101)
    assert not say(votes, Stage.ANSWERED, granted(asked))


def test_a_disk_that_is_lost_when_the_answer_has_left_does_not_matter(votes: LawBench) -> None:
    vote_on_disk(votes, 102, 6, 101)
    asked = asks(101, 102)
    assert not say(votes, Stage.ANSWERED, granted(asked))
    vote_on_disk(votes, 102, 0, -1)
    assert not say(votes, Stage.TAKEN, granted(asked))


@pytest.mark.parametrize("on_disk", [None, (5, 101), (6, -1), (6, 103)])
def test_a_vote_that_is_sent_before_it_is_on_disk_breaks_it(
    votes: LawBench, on_disk: tuple[int, int] | None
) -> None:
    if on_disk is not None:
        vote_on_disk(votes, 102, *on_disk)
    (report,) = say(votes, Stage.ANSWERED, granted(asks(101, 102)))
    assert f"its disk says (epoch, vote) {on_disk or (-1, -1)}" in report


def test_what_is_only_in_the_page_cache_is_not_on_disk(votes: LawBench) -> None:
    disk = votes.disk(102)
    disk.make_directory("/data/__cluster_metadata-0")
    file = disk.open(QUORUM_STATE, create=True)
    file.append([b'{"leaderEpoch": 6, "votedId": 101}'])
    assert say(votes, Stage.ANSWERED, granted(asks(101, 102)))


def test_a_candidate_that_asks_before_its_own_vote_is_on_disk_breaks_it(votes: LawBench) -> None:
    vote_on_disk(votes, 101, 5, -1)
    (report,) = say(votes, Stage.SENT, asks(101, 102))
    assert report.startswith("voter 101 told 101 that it votes for it in epoch 6")


def test_a_voter_that_went_on_to_a_later_epoch_has_kept_its_vote(votes: LawBench) -> None:
    vote_on_disk(votes, 102, 7, -1)
    assert not say(votes, Stage.ANSWERED, granted(asks(101, 102)))


def vote(bench: LawBench, voter: int, candidate: int, epoch: int = 6, **more: Any) -> list[str]:
    """A vote that was given and sent as it should be."""
    vote_on_disk(bench, voter, epoch, candidate)
    return say(bench, Stage.ANSWERED, granted(asks(candidate, voter, epoch, **more)))


def test_a_second_vote_in_an_epoch_breaks_it(votes: LawBench) -> None:
    assert not vote(votes, 102, 101)
    assert not vote(votes, 102, 101)  # the same answer again
    (report,) = vote(votes, 102, 103)
    assert report == "voter 102 told 101 and 103 that it votes for them in 6"


def test_a_second_vote_after_a_crash_breaks_it(votes: LawBench) -> None:
    vote(votes, 102, 101)
    votes.controllers[102].restart()
    assert vote(votes, 102, 103)


def test_a_candidate_has_voted_for_itself(votes: LawBench) -> None:
    vote_on_disk(votes, 101, 6, 101)
    assert not say(votes, Stage.SENT, asks(101, 102))
    assert vote(votes, 101, 103)


def test_other_epochs_and_other_voters_may_vote_otherwise(votes: LawBench) -> None:
    assert not vote(votes, 102, 101)
    assert not vote(votes, 102, 103, 7)
    assert not vote(votes, 103, 103)


def test_on_another_disk_it_is_another_voter(votes: LawBench) -> None:
    assert not vote(votes, 102, 101)
    votes.give_disk(102, 9)
    assert not vote(votes, 102, 103, voter_directory_id=disk_id(9))


def test_a_vote_of_another_disk_than_was_asked_breaks_it(votes: LawBench) -> None:
    votes.give_disk(102, 9)
    (report,) = vote(votes, 102, 101)
    assert "which has asked the voter with the disk" in report


@pytest.mark.parametrize("asked", [b"", NO_DIRECTORY])
def test_whose_disk_is_not_known_may_be_asked_without(votes: LawBench, asked: bytes) -> None:
    assert not vote(votes, 102, 101, voter_directory_id=asked)


@pytest.mark.parametrize(
    ("last_epoch", "last_offset", "breaks"),
    [(5, 10, False), (5, 11, False), (6, 3, False), (5, 9, True), (4, 99, True)],
)
def test_a_vote_for_a_log_that_is_worse_breaks_it(
    votes: LawBench, last_epoch: int, last_offset: int, breaks: bool
) -> None:
    asked = asks(101, 102, last_epoch=last_epoch, last_offset=last_offset)
    assert not say(votes, Stage.ARRIVED, asked)
    vote_on_disk(votes, 102, 6, 101)
    assert bool(say(votes, Stage.ANSWERED, granted(asked))) is breaks


@pytest.mark.parametrize(("then", "now"), [(9, 10), (10, 9)])
def test_a_log_that_was_no_worse_when_it_came_or_when_it_is_answered_will_do(
    votes: LawBench, then: int, now: int
) -> None:
    core, asked = votes.core(102), asks(101, 102, last_offset=9)
    core.end_offset = then
    say(votes, Stage.ARRIVED, asked)
    core.end_offset = now
    vote_on_disk(votes, 102, 6, 101)
    assert not say(votes, Stage.ANSWERED, granted(asked))


def test_who_has_voted_already_may_say_so_again_with_more_in_its_log(votes: LawBench) -> None:
    core, asked = votes.core(102), asks(101, 102, last_offset=9)
    core.epoch, core.vote = 6, ReplicaKey(101)
    say(votes, Stage.ARRIVED, asked)
    vote_on_disk(votes, 102, 6, 101)
    assert not say(votes, Stage.ANSWERED, granted(asked))


@pytest.mark.parametrize("voted", [ReplicaKey(103), None])
def test_who_has_voted_for_another_or_in_another_epoch_has_no_such_excuse(
    votes: LawBench, voted: ReplicaKey | None
) -> None:
    core, asked = votes.core(102), asks(101, 102, last_offset=9)
    core.epoch, core.vote = (6, voted) if voted else (5, ReplicaKey(101))
    say(votes, Stage.ARRIVED, asked)
    vote_on_disk(votes, 102, 6, 101)
    assert say(votes, Stage.ANSWERED, granted(asked))


def test_only_granted_votes_count(votes: LawBench) -> None:
    asked = asks(101, 102)
    assert not say(votes, Stage.ANSWERED, granted(asked, granted=False))
    assert not say(votes, Stage.ANSWERED, granted(asked, error=ErrorCode.FENCED_LEADER_EPOCH))
    before = asks(101, 102, pre_vote=True)
    assert not say(votes, Stage.SENT, before)
    assert not say(votes, Stage.ANSWERED, granted(before))
    assert not say(votes, Stage.ANSWERED, granted(asked)._replace(method="/stele.v1.Raft/Fetch"))


# ------------------------------------------------------------------------ ISR proposals


STATE = PartitionState((1, 2, 3), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=10)


@pytest.fixture
def proposals(bench: LawBench) -> LawBench:
    """All brokers have three committed records. The law listens."""
    bench.commit(image(50, STATE))
    for broker_id in BROKERS:
        bench.replica(broker_id, make_batch(3), state=STATE)
    metadata = CommittedMetadata(bench.cluster)
    bench.listen(IsrProposalsAreFresh(bench.cluster, metadata, bench.report, {PARTITION: 3}))
    return bench


def proposes(
    *isr: int,
    leader: int = 1,
    leader_epoch: int = 5,
    partition_epoch: int = 10,
    partition: PartitionId = PARTITION,
    broker_epochs: Iterable[int] = (),
) -> Said:
    """A proposal to 101, with each member under its registration."""
    epochs = [*broker_epochs] or [100 + each for each in isr]
    request = AlterPartitionRequest(
        broker_id=leader,
        partitions=[
            AlterPartitionRequest.Partition(
                topic_id=partition.topic_id,
                partition=partition.partition,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                isr=[
                    AlterPartitionRequest.Member(broker_id=each, broker_epoch=epoch)
                    for each, epoch in zip(isr, epochs, strict=True)
                ],
            )
        ],
    )
    return Said(f"b{leader}", "c101", ALTER_PARTITION, request.SerializeToString())


def answered(proposed: Said, partition_epoch: int = 11, error: ErrorCode = ErrorCode.NONE) -> Said:
    answer = AlterPartitionResponse(
        partitions=[
            AlterPartitionResponse.Partition(
                topic_id=PARTITION.topic_id,
                partition=PARTITION.partition,
                partition_epoch=partition_epoch,
                error=error,
            )
        ]
    )
    return proposed._replace(answer=answer.SerializeToString())


def test_an_isr_of_members_with_everything_may_be_proposed(proposals: LawBench) -> None:
    assert not say(proposals, Stage.SENT, proposes(1, 2, 3))


def test_to_propose_a_replica_that_lacks_records_breaks_it(proposals: LawBench) -> None:
    proposals.replica(3, make_batch(2), state=STATE)
    assert not say(proposals, Stage.SENT, proposes(1, 2))
    (report,) = say(proposals, Stage.SENT, proposes(1, 2, 3))
    assert "broker 3 is proposed for the ISR, has 2 on disk, and 3 is committed" in report


def test_what_is_not_on_disk_does_not_count(proposals: LawBench) -> None:
    replica = proposals.replica(3, make_batch(2), state=STATE)
    replica.log.append_as_follower(make_batch(1, base_offset=2))
    assert say(proposals, Stage.SENT, proposes(1, 2, 3))


@pytest.mark.parametrize(
    "proposed",
    [
        proposes(1, 3, leader=2),
        proposes(1, 3, leader_epoch=4),
        proposes(1, 3, partition_epoch=9),
        proposes(1, 3, partition=PartitionId(PARTITION.topic_id, 1)),
        proposes(1, 3)._replace(method="/stele.v1.Controller/Heartbeat"),
    ],
)
def test_a_proposal_that_cannot_be_taken_may_name_anybody(
    proposals: LawBench, proposed: Said
) -> None:
    proposals.replica(3, state=STATE)
    assert not say(proposals, Stage.SENT, proposed)


def test_after_an_unclean_election_fewer_records_may_be_everything(proposals: LawBench) -> None:
    state = PartitionState(
        (1, 2, 3), (1,), leader=1, leader_epoch=5, partition_epoch=10, unclean_elections=1
    )
    proposals.commit(image(51, state))
    proposals.replica(3, state=state)
    assert not say(proposals, Stage.SENT, proposes(1, 3))


def test_of_a_broker_that_is_down_nothing_is_known(proposals: LawBench) -> None:
    proposals.replica(3, state=STATE)
    proposals.brokers[3].alive = False
    assert not say(proposals, Stage.SENT, proposes(1, 2, 3))


def test_it_may_be_taken_as_the_next_partition_epoch(proposals: LawBench) -> None:
    assert not say(proposals, Stage.ANSWERED, answered(proposes(1, 2, 3), 11))


def test_to_take_it_on_a_later_partition_epoch_breaks_it(proposals: LawBench) -> None:
    (report,) = say(proposals, Stage.ANSWERED, answered(proposes(1, 2, 3), 12))
    assert "proposed on partition epoch 10 was taken as 12" in report


def test_a_refusal_may_tell_any_epoch(proposals: LawBench) -> None:
    error = ErrorCode.INVALID_UPDATE_VERSION
    assert not say(proposals, Stage.ANSWERED, answered(proposes(1, 2, 3), 14, error))


def registered(offset: int, epoch_of_3: int) -> MetadataImage:
    known = image(offset, STATE)
    registration = replace(known.brokers[3], broker_epoch=epoch_of_3)
    return replace(known, brokers=Brokers({**known.brokers, 3: registration}))


@pytest.mark.parametrize(
    ("named", "then", "now", "breaks"),
    [
        (103, 103, 103, False),
        (103, 103, 200, False),  # it was so when the request came
        (200, 103, 200, False),  # it is so when the answer leaves
        (103, 200, 200, True),
        (200, 103, 103, True),
    ],
)
def test_to_take_a_member_under_another_registration_breaks_it(
    proposals: LawBench, named: int, then: int, now: int, breaks: bool
) -> None:
    proposed = proposes(1, 3, broker_epochs=(101, named))
    proposals.commit(registered(60, then), 101)
    assert not say(proposals, Stage.ARRIVED, proposed)
    proposals.commit(registered(61, now), 101)
    reports = say(proposals, Stage.ANSWERED, answered(proposed))
    assert len(reports) == breaks
    assert all(f"with epoch {named}; it was registered with {(then, now)}" in r for r in reports)


# ------------------------------------------------------------------------ fenced brokers


@pytest.fixture
def fenced(bench: LawBench) -> FencedBrokersAcknowledgeNothing:
    """Broker 2 is seen fenced at ten seconds. A session lasts for six."""
    law = FencedBrokersAcknowledgeNothing(bench.cluster, bench.report)
    look(bench, law, 10, image(50, fenced=[2]))
    return law


def look(
    bench: LawBench, law: FencedBrokersAcknowledgeNothing, now_s: float, known: MetadataImage
) -> None:
    bench.simulation.scheduler.now = now_s
    bench.commit(known)
    assert not bench.broken(law)


def acknowledge(
    bench: LawBench, law: FencedBrokersAcknowledgeNothing, broker: int, sent_s: float, now_s: float
) -> list[str]:
    bench.simulation.scheduler.now = now_s
    law.acknowledged(broker, now_s - sent_s)
    return bench.broken()


def test_whoever_lost_its_lease_before_the_write_came_breaks_it(
    bench: LawBench, fenced: FencedBrokersAcknowledgeNothing
) -> None:
    (report,) = acknowledge(bench, fenced, 2, 16.5, 17)
    assert report == "broker 2, fenced since 10.000, acknowledged a write of 16.500"
    assert fenced.looked == 1


@pytest.mark.parametrize(("broker", "sent_s"), [(2, 15.5), (2, 3), (1, 16.5)])
def test_a_write_that_came_before_and_one_of_another_broker_do_not(
    bench: LawBench, fenced: FencedBrokersAcknowledgeNothing, broker: int, sent_s: float
) -> None:
    assert not acknowledge(bench, fenced, broker, sent_s, 17)


def test_it_is_fenced_since_it_was_first_seen_so(
    bench: LawBench, fenced: FencedBrokersAcknowledgeNothing
) -> None:
    look(bench, fenced, 14, image(51, fenced=[2]))
    assert acknowledge(bench, fenced, 2, 16.5, 17)


def test_who_has_been_unfenced_may_acknowledge(
    bench: LawBench, fenced: FencedBrokersAcknowledgeNothing
) -> None:
    bench.commit(image(51))  # nobody has looked since
    assert not acknowledge(bench, fenced, 2, 16.5, 17)


def test_controllers_that_have_restarted_do_not_unfence(
    bench: LawBench, fenced: FencedBrokersAcknowledgeNothing
) -> None:
    look(bench, fenced, 12, image(40))
    assert acknowledge(bench, fenced, 2, 16.5, 17)
