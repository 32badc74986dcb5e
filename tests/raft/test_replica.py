"""A replica stops before it does what Raft rules out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from raft.api import CommittedBatch
from raft.log_view import LogView
from raft.messages import Batch, SnapshotId
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter, VoterSet, VoteTally
from raft.ready import HardState, Role
from raft.replica import InvariantError, RaftReplica
from raft.timing import Timing
from raft.voter_history import VoterHistory
from tests.support.raft_core import voter

VOTERS = VoterSet.of_ids(1, 2, 3)


def replica(hard_state: HardState | None = None) -> RaftReplica:
    """Voter 1 in epoch 5. Its log ends at offset 10, and all of it is durable."""
    return RaftReplica(
        ReplicaKey(1),
        VoterHistory(VOTERS, 0),
        LogView(end_offset=10, epochs=[(3, 0), (5, 6)]),
        hard_state or HardState(5),
        Timing(),
        random.Random(1),
    )


def leading() -> RaftReplica:
    leader = replica()
    leader.become_candidate(0.0)
    leader.become_leader(0.0, [1, 2])
    return leader


def established() -> RaftReplica:
    """Let it lead. Its driver has carried out everything."""
    leader = leading()
    leader.take_ready(0.0, 9.0)
    return leader


def voting() -> RaftReplica:
    return replica(HardState(5, None, 2, NO_DIRECTORY))


def following() -> RaftReplica:
    return replica(HardState(5, 3))


def committed() -> RaftReplica:
    one = replica()
    one.advance_high_watermark(8)
    return one


def written() -> RaftReplica:
    one = replica()
    one.append([Batch(10, 1, 5, b"x")])
    return one


def cut() -> RaftReplica:
    one = replica()
    one.truncate_to(9)
    return one


@pytest.mark.parametrize(
    ("before", "step"),
    [
        (replica, lambda it: it.append([Batch(10, 1, 6, b"of an epoch to come")])),
        (committed, lambda it: it.truncate_to(7)),
        (written, lambda it: it.truncate_to(10)),
        (established, lambda it: it.install(SnapshotId(20, 5), VOTERS)),
        (committed, lambda it: it.install(SnapshotId(8, 5), VOTERS)),
        (written, lambda it: it.install(SnapshotId(20, 5), VOTERS)),
        (cut, lambda it: it.install(SnapshotId(20, 5), VOTERS)),
        (replica, lambda it: it.advance_high_watermark(11)),
        (replica, lambda it: it.enter_epoch(5)),
        (replica, lambda it: it.enter_epoch(4)),
        (voting, lambda it: it.give_vote(ReplicaKey(2))),
        (following, lambda it: it.give_vote(ReplicaKey(2))),
        (following, lambda it: it.learn_leader(2)),
        (replica, lambda it: it.return_to_leader(0.0, 0.0)),
    ],
)
def test_what_raft_rules_out(
    before: Callable[[], RaftReplica], step: Callable[[RaftReplica], object]
) -> None:
    with pytest.raises(InvariantError):
        step(before())


@pytest.mark.parametrize(
    ("before", "step"),
    [
        (committed, lambda it: it.truncate_to(8)),
        (committed, lambda it: it.install(SnapshotId(20, 5), VOTERS)),
        (replica, lambda it: it.advance_high_watermark(10)),
        (replica, lambda it: it.enter_epoch(6)),
        (replica, lambda it: it.give_vote(ReplicaKey(2))),
        (following, lambda it: it.learn_leader(3)),
    ],
)
def test_what_it_allows(
    before: Callable[[], RaftReplica], step: Callable[[RaftReplica], object]
) -> None:
    step(before())


def test_persisted_takes_only_tickets_that_were_given_and_in_their_order() -> None:
    one = written()
    ticket = one.take_ready(0.0, 9.0).ticket
    assert one.log.durable_end_offset == 10
    with pytest.raises(ValueError, match="is not in"):
        one.persisted(ticket + 1, 0.1)
    one.append([Batch(11, 1, 5, b"y")])
    later = one.take_ready(0.1, 9.0).ticket
    one.persisted(ticket, 0.2)
    assert (one.log.durable_end_offset, one.sync_took_s) == (11, 0.2)
    one.persisted(ticket, 0.2)
    one.persisted(later, 0.3)
    assert one.log.durable_end_offset == 12
    with pytest.raises(ValueError, match="is not in"):
        one.persisted(ticket, 0.4)


def test_whether_the_last_promise_has_become_durable_is_reported_once() -> None:
    one = written()
    before = one.take_ready(0.0, 9.0).ticket
    one.enter_epoch(6)
    promised = one.take_ready(0.0, 9.0).ticket
    assert not one.promises_durable
    one.append([Batch(11, 1, 6, b"x")])
    after = one.take_ready(0.0, 9.0).ticket
    assert [one.persisted(each, 0.1) for each in (before, promised, after)] == [False, True, False]


def test_voters_that_are_the_same_as_before_are_no_news() -> None:
    one = replica()
    assert one.take_ready(0.0, 9.0).voters == VOTERS
    one.install(SnapshotId(20, 5), VoterSet.of_ids(1, 2, 3))
    assert one.take_ready(0.0, 9.0).voters is None
    one.install(SnapshotId(30, 5), VoterSet.of_ids(1, 2))
    assert one.take_ready(0.0, 9.0).voters == VoterSet.of_ids(1, 2)


def test_what_is_cut_before_it_is_durable_is_not_durable_afterwards() -> None:
    one = written()
    ticket = one.take_ready(0.0, 9.0).ticket
    one.truncate_to(9)
    one.take_ready(0.1, 9.0)
    one.persisted(ticket, 0.2)
    assert (one.log.end_offset, one.log.durable_end_offset) == (9, 9)


def test_a_truncation_alone_waits_for_the_disk() -> None:
    one = cut()
    assert one.take_ready(0.0, 9.0).ticket > 0


def test_a_vote_is_for_the_directory_that_the_disk_names() -> None:
    assert replica(HardState(5, None, 2, b"d" * 16)).voted == ReplicaKey(2, b"d" * 16)
    assert replica(HardState(5, None, 2, None)).voted == ReplicaKey(2, NO_DIRECTORY)


def test_news_of_an_earlier_epoch_is_none() -> None:
    one = replica()
    assert not one.observe(0.0, 4, 3)
    assert (one.epoch, one.leader_id, one.role) == (5, None, Role.UNATTACHED)


def test_the_first_answer_of_a_voter_counts() -> None:
    for granted in (True, False):
        tally = VoteTally(VOTERS)
        tally.record(2, granted)
        tally.record(2, not granted)
        assert (2 in tally.granted, 2 in tally.rejected) == (granted, not granted)


def test_a_voter_shows_its_directory_or_that_it_is_not_known() -> None:
    assert str(Voter(ReplicaKey(1), "host:9")) == "1@host:9:?"
    assert str(Voter(ReplicaKey(1, b"\x01" * 16), "host:9")) == "1@host:9:AQEBAQEBAQEBAQEBAQEBAQ"


def test_voters_follow_one_another() -> None:
    history = VoterHistory(VOTERS)
    assert history.recorded == []
    history.append(4, VOTERS)
    assert history.recorded == [(4, VOTERS)]
    with pytest.raises(ValueError, match="do not follow"):
        history.append(4, VOTERS)


def test_a_batch_knows_its_last_offset() -> None:
    assert CommittedBatch(5, 1, 0, (b"a", b"b")).last_offset == 6


def test_a_snapshot_holds_no_more_than_what_is_committed() -> None:
    core = voter()
    with pytest.raises(InvariantError, match="holds more than"):
        core.snapshot_taken(SnapshotId(5, 3), 0)
