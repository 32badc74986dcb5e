"""A replica that stands for election, or waits to: when it gives up, what delays it, what counts as
a loss."""

from __future__ import annotations

import random
from dataclasses import replace

from raft import election
from raft.log_view import LogView
from raft.messages import Batch
from raft.quorum import ReplicaKey, VoterSet
from raft.ready import HardState, Role
from raft.replica import RaftReplica
from raft.roles import Candidate, Unattached
from raft.timing import Timing
from raft.voter_history import VoterHistory
from tests.support.raft_core import VOTE

TIMING = Timing(election_timeout_s=1.0, suspicion_min_s=0.05, suspicion_max_s=0.15)
PRE_VOTE = replace(VOTE, epoch=5, pre_vote=True)


class Longest(random.Random):
    """Draws the greatest number of every range: election timeouts are 2 s, suspicions 0.15 s."""

    def uniform(self, a: float, b: float) -> float:
        return b


def replica(*voters: int) -> RaftReplica:
    """Voter 1 in epoch 5. Its whole log is durable."""
    return RaftReplica(
        ReplicaKey(1),
        VoterHistory(VoterSet.of_ids(*voters), 0),
        LogView(end_offset=10, epochs=[(3, 0), (5, 6)]),
        HardState(5),
        TIMING,
        Longest(0),
    )


def persisted(one: RaftReplica, now: float) -> None:
    """Make durable what it asked for at 0."""
    one.persisted(one.take_ready(0.0, 9.0).ticket, now)


def candidate(*voters: int, durable: bool = True) -> tuple[RaftReplica, Candidate]:
    """A replica that stands since 0, and would stand again at 2."""
    one = replica(*voters)
    one.become_candidate(0.0)
    if durable:
        persisted(one, 0.0)
    assert isinstance(one.state, Candidate)
    assert one.state.stand_again_at == 2.0
    return one, one.state


def waiting(delay_s: float) -> tuple[RaftReplica, Unattached]:
    """A replica that waits since 0 for so long before it stands."""
    one = replica(1, 2, 3)
    one.become_unattached(0.0, delay_s)
    assert isinstance(one.state, Unattached)
    return one, one.state


# ------------------------------------------------------------------------------ candidates


def test_a_lost_election_counts_once_and_is_tried_again_after_a_backoff() -> None:
    one, state = candidate(1, 2, 3)
    for other in (2, 3):
        state.tally.record(other, granted=False)
    for now in (0.1, 0.15):
        election.judge(one, now)
        assert (one.losses, state.stand_again_at) == (1, 0.1 + 0.1)


def test_a_backoff_does_not_put_off_the_next_election() -> None:
    one, state = candidate(1, 2, 3)
    for other in (2, 3):
        state.tally.record(other, granted=False)
    election.judge(one, 1.95)
    assert (one.losses, state.stand_again_at) == (1, 2.0)


def test_an_election_is_not_lost_while_voters_have_yet_to_answer() -> None:
    one, state = candidate(1, 2, 3)
    state.asking.due(0.0)
    state.asking.fail(2, 0.1, TIMING)
    election.judge(one, 0.1)
    assert (one.losses, state.stand_again_at) == (0, 2.0)
    state.asking.fail(3, 0.1, TIMING)
    election.judge(one, 0.1)
    assert (one.losses, state.stand_again_at) == (1, 0.1 + 0.1)


def test_a_lone_voter_has_not_lost_while_its_own_vote_is_being_written() -> None:
    one, state = candidate(1, durable=False)
    election.judge(one, 0.1)
    assert (one.losses, state.stand_again_at) == (0, 2.0)


def test_the_own_vote_counts_once_it_is_durable_itself() -> None:
    one = replica(1)
    one.append([Batch(10, 1, 5, b"x")])
    written = one.take_ready(0.0, 9.0).ticket
    one.become_candidate(0.0)
    voted = one.take_ready(0.0, 9.0).ticket
    roles = []
    for ticket in (written, voted):
        one.persisted(ticket, 0.1)
        election.count_own_vote(one, 0.1)
        roles.append(one.role)
    assert roles == [Role.CANDIDATE, Role.LEADER]


# --------------------------------------------------------------------------- slow disks


def test_the_patience_with_other_disks_is_two_syncs_of_this_one_and_has_a_bound() -> None:
    one = replica(1, 2, 3)
    waits = []
    for one.sync_took_s in (0.0, 0.1, 5.0):
        waits.append(election.patience(one))
    assert waits == [0.0, 0.2, 2.0]


def test_who_has_voted_waits_from_when_the_vote_is_durable() -> None:
    one, _ = waiting(1.0)
    one.give_vote(ReplicaKey(2))
    persisted(one, 0.5)
    election.promise_kept(one)
    assert election.stand_at(one, one.state.stand_at) == 1.5  # type: ignore[union-attr]


def test_who_has_only_heard_of_an_epoch_waits_no_longer_for_its_disk() -> None:
    one, state = waiting(1.0)
    one.enter_epoch(6)
    persisted(one, 0.5)
    election.promise_kept(one)
    assert state.stand_at == 1.0


# ----------------------------------------------------------------------------- pre-votes


def test_a_pre_vote_puts_off_the_own_candidacy_and_never_brings_it_on() -> None:
    for delay_s, stand_at in ((0.12, 0.1 + 0.15), (1.5, 1.5)):
        one, state = waiting(delay_s)
        election.on_vote_request(one, 0.1, 7, PRE_VOTE)
        assert state.stand_at == stand_at
