"""What the voters in its log mean for a replica that does not lead: votes, roles, whom it asks."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from raft.core import InvariantError, RaftCore
from raft.log_view import LogView
from raft.messages import (
    Batch,
    BeginQuorumEpochRequest,
    CallFailed,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    RequestReceived,
    ResponseReceived,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from raft.quorum import NO_DIRECTORY, ReplicaKey, Voter, VoterSet
from raft.ready import Call, HardState, Ready, Reply, Role
from raft.timing import Timing
from raft.voter_history import VoterHistory
from stele.errors import ErrorCode

TIMING = Timing()


def key(node: int, disk: str = "a") -> ReplicaKey:
    return ReplicaKey(node, f"{node}{disk}".encode() * 8)


def known(*nodes: int) -> VoterSet:
    return VoterSet(Voter(key(node)) for node in nodes)


def role(core: RaftCore) -> Role:
    return core.status.role


def replica(
    voters: VoterSet | VoterHistory,
    *,
    local: ReplicaKey | None = None,
    leader_id: int | None = None,
    **kwargs: Any,
) -> RaftCore:
    """Node 1 in epoch 5. Its log ends at offset 10, epoch 5, and contains the voters."""
    core = RaftCore(
        local or key(1),
        VoterHistory(voters, 0) if isinstance(voters, VoterSet) else voters,
        LogView(end_offset=10, epochs=[(3, 0), (5, 6)]),
        HardState(5, leader_id),
        TIMING,
        random.Random(1),
        **kwargs,
    )
    core.start(0.0)
    return core


def hearing(voters: VoterSet | VoterHistory, **kwargs: Any) -> RaftCore:
    """The same, but it has just heard from leader 3, and everything in its log is committed."""
    core = replica(voters, leader_id=3, **kwargs)
    answer(core, FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=10))
    return core


def fetch_of(core: RaftCore) -> Call:
    calls = list(core.outstanding.values())
    assert len(calls) == 1
    return calls[0]


def answer(
    core: RaftCore, response: FetchResponse | FetchSnapshotResponse, now: float = 0.1
) -> Ready:
    """Answer its fetch. The result is durable at once."""
    ready = core.step(ResponseReceived(fetch_of(core).request_id, response), now)
    if ready.ticket:
        core.persisted(ready.ticket, now)
    return ready


def with_voters(offset: int, voters: VoterSet, **fields: Any) -> FetchResponse:
    """A batch with a voters record, as the driver decodes it."""
    response = FetchResponse(
        ErrorCode.NONE, 3, 5, high_watermark=offset, batches=(Batch(offset, 1, 5, b"", voters),)
    )
    return replace(response, **fields)


VOTE = VoteRequest(
    candidate_id=2,
    candidate_directory_id=key(2).directory_id,
    voter_id=1,
    voter_directory_id=key(1).directory_id,
    epoch=6,
    last_offset=10,
    last_epoch=5,
    pre_vote=False,
)


def ask(core: RaftCore, request: VoteRequest, now: float = 0.2) -> tuple[Ready, VoteResponse]:
    ready = core.step(RequestReceived(7, request), now)
    replies = [i.message for i in ready.send + ready.send_after_persist if isinstance(i, Reply)]
    assert len(replies) == 1
    assert isinstance(replies[0], VoteResponse)
    return ready, replies[0]


# --------------------------------------------------------------------------------- votes


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_candidate_that_is_no_voter_here_may_get_the_vote(pre_vote: bool) -> None:
    _, response = ask(replica(known(1, 3)), replace(VOTE, pre_vote=pre_vote))
    assert (response.error, response.granted) == (ErrorCode.NONE, True)


@pytest.mark.parametrize("pre_vote", [True, False])
def test_one_that_does_not_know_yet_that_it_is_a_voter_votes(pre_vote: bool) -> None:
    core = replica(known(2, 3))
    assert role(core) is Role.OBSERVER
    ready, response = ask(core, replace(VOTE, pre_vote=pre_vote))
    assert response.granted
    assert role(core) is Role.OBSERVER
    if not pre_vote:
        assert ready.hard_state == HardState(6, None, 2, key(2).directory_id)
        assert [type(item) for item in ready.send_after_persist] == [Reply]
        again = replace(VOTE, candidate_id=3, candidate_directory_id=key(3).directory_id)
        assert not ask(core, again)[1].granted  # one vote per epoch


def test_an_observer_votes_only_for_a_log_as_good() -> None:
    _, response = ask(replica(known(2, 3)), replace(VOTE, last_offset=9))
    assert (response.error, response.granted) == (ErrorCode.NONE, False)


@pytest.mark.parametrize("pre_vote", [True, False])
@pytest.mark.parametrize(
    ("local", "voters", "founder", "granted"),
    [
        (key(1), VoterSet.of_ids(1, 2, 3), True, True),
        (key(1), VoterSet.of_ids(1, 2, 3), False, False),  # a disk in another's place
        (key(1), known(1, 2, 3), False, True),
        (key(1, "b"), known(1, 2, 3), True, False),  # likewise
        (key(1), known(2, 3), True, False),
    ],
)
def test_who_is_asked_by_its_node_alone_votes_as_a_voter_only(
    local: ReplicaKey, voters: VoterSet, founder: bool, granted: bool, pre_vote: bool
) -> None:
    core = replica(voters, local=local, is_founder=founder)
    _, response = ask(core, replace(VOTE, voter_directory_id=NO_DIRECTORY, pre_vote=pre_vote))
    assert response.granted == granted
    assert response.error is (ErrorCode.NONE if granted else ErrorCode.INVALID_VOTER_KEY)
    assert granted or core.epoch == 5


def test_an_emptied_disk_does_not_answer_for_the_one_before_it() -> None:
    core = replica(known(1, 2, 3), local=key(1, "b"))
    assert role(core) is Role.OBSERVER
    _, response = ask(core, VOTE)
    assert response == VoteResponse(ErrorCode.INVALID_VOTER_KEY, None, 5, False)
    assert core.epoch == 5


@pytest.mark.parametrize("observer", [True, False])
def test_a_removed_voter_deposes_nobody(observer: bool) -> None:
    """Not even by a later epoch, in which it stood in vain."""
    core = hearing(known(3, 4) if observer else known(1, 3))
    assert role(core) is (Role.OBSERVER if observer else Role.FOLLOWER)
    _, response = ask(core, replace(VOTE, epoch=9, pre_vote=True, last_epoch=9))
    assert response == VoteResponse(ErrorCode.NONE, 3, 5, False)
    assert core.epoch == 5
    late = 0.2 + TIMING.fetch_timeout_s
    assert ask(core, replace(VOTE, epoch=9, pre_vote=True, last_epoch=9), late)[1].granted


def test_a_voter_of_a_later_epoch_is_heard() -> None:
    """Otherwise it could follow nobody."""
    core = hearing(known(1, 2, 3))
    ask(core, replace(VOTE, epoch=9, pre_vote=True))
    assert core.epoch == 9


@pytest.mark.parametrize(("leader_id", "epoch"), [(None, 5), (3, 9)])
def test_the_epoch_of_another_disk_counts_only_if_it_has_a_leader(
    leader_id: int | None, epoch: int
) -> None:
    core = replica(known(1, 2, 3))
    calls = [item for item in core.tick(0.5).send if isinstance(item, Call)]
    assert [call.to for call in calls] == [2, 3]
    refusal = VoteResponse(ErrorCode.INVALID_VOTER_KEY, leader_id, 9, False)
    core.step(ResponseReceived(calls[0].request_id, refusal), 0.5)
    assert (core.epoch, core.status.leader_id) == (epoch, leader_id)


def test_a_candidate_counts_itself_only_as_a_voter() -> None:
    """It has removed itself from two voters, and nobody else has the record."""
    history = VoterHistory(known(1, 2), 0)
    history.append(9, known(2))
    core = replica(history)
    assert role(core) is Role.UNATTACHED
    calls = [item for item in core.tick(0.2).send if isinstance(item, Call)]
    assert role(core) is Role.PROSPECTIVE
    assert [call.to for call in calls] == [2]
    granted = VoteResponse(ErrorCode.NONE, None, 5, True)
    ready = core.step(ResponseReceived(calls[0].request_id, granted), 0.2)
    assert role(core) is Role.CANDIDATE
    votes = [item for item in ready.send_after_persist if isinstance(item, Call)]
    core.persisted(ready.ticket, 0.2)
    assert role(core) is Role.CANDIDATE  # its own vote is not enough, and not counted
    granted = VoteResponse(ErrorCode.NONE, None, 6, True)
    ready = core.step(ResponseReceived(votes[0].request_id, granted), 0.2)
    assert role(core) is Role.LEADER
    core.persisted(ready.ticket, 0.2)
    assert core.high_watermark == -1
    fetch = FetchRequest(2, key(2).directory_id, 6, 11, 6, 0, 1000, -1)
    core.step(RequestReceived(8, fetch), 0.3)
    assert core.high_watermark == 11
    assert role(core) is Role.RESIGNED


# --------------------------------------------------------------------------------- roles


def test_an_observer_follows_as_soon_as_the_log_makes_it_a_voter() -> None:
    core = hearing(known(2, 3))
    ready = answer(core, with_voters(10, known(1, 2, 3)), 0.2)
    assert ready.voters == known(1, 2, 3)
    assert role(core) is Role.FOLLOWER
    assert core.in_touch(0.3)
    assert not ask(core, replace(VOTE, epoch=5, pre_vote=True))[1].granted  # it hears its leader
    message = fetch_of(core).message
    assert isinstance(message, FetchRequest)
    assert message.fetch_offset == 11


def test_a_truncation_takes_the_voters_back() -> None:
    core = hearing(known(2, 3))
    answer(core, with_voters(10, known(1, 2, 3)), 0.2)
    ready = core.step(RequestReceived(8, BeginQuorumEpochRequest(2, 6, 1, NO_DIRECTORY)), 0.3)
    core.persisted(ready.ticket, 0.3)
    ready = answer(core, FetchResponse(ErrorCode.NONE, 2, 6, 10, diverging=EpochEnd(5, 10)), 0.4)
    assert ready.truncate_to == 10
    assert ready.voters == known(2, 3)
    assert core.voters_offset == 0
    assert role(core) is Role.OBSERVER


def test_a_removed_follower_takes_part_until_that_is_committed() -> None:
    core = hearing(known(1, 2, 3))
    answer(core, with_voters(10, known(2, 3)), 0.2)
    assert (core.change_pending, role(core)) == (True, Role.FOLLOWER)
    answer(core, FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=11), 0.3)
    assert (core.change_pending, role(core)) == (False, Role.OBSERVER)
    assert core.status.leader_id == 3
    assert core.in_touch(0.4)


def test_one_that_was_removed_long_ago_does_not_stand() -> None:
    history = VoterHistory(known(1, 2, 3), 0)
    history.append(5, known(2, 3))
    history.append(7, known(2, 3, 4))  # so the one before is committed
    assert replica(history).status.role is Role.OBSERVER


def test_a_snapshot_says_who_the_voters_are() -> None:
    history = VoterHistory(known(2, 3), 0)
    history.append(9, known(2, 3, 4))
    core = replica(history, leader_id=3)
    offer = FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=20, snapshot=SnapshotId(20, 5))
    answer(core, offer)
    piece = FetchSnapshotResponse(ErrorCode.NONE, 3, 5, SnapshotId(20, 5), size=1, data=b"x")
    assert answer(core, piece).pieces[0].is_last
    ready = core.snapshot_checked(SnapshotId(20, 5), 0.2, sound=True, voters=known(1, 3))
    assert ready.voters == known(1, 3)
    assert core.voters_offset == 19
    assert not core.change_pending
    assert role(core) is Role.FOLLOWER


def test_a_snapshot_without_voters_must_be_older_than_all_records_of_voters() -> None:
    for base_offset in (-1, 0):
        history = VoterHistory(VoterSet.of_ids(2, 3), base_offset)
        history.append(9, known(2, 3))
        core = replica(history, leader_id=3)
        offer = FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=20, snapshot=SnapshotId(20, 5))
        answer(core, offer)
        answer(core, FetchSnapshotResponse(ErrorCode.NONE, 3, 5, SnapshotId(20, 5), 1, data=b"x"))
        if base_offset < 0:
            core.snapshot_checked(SnapshotId(20, 5), 0.2, sound=True)
            assert (core.voters, core.voters_offset) == (VoterSet.of_ids(2, 3), -1)
        else:
            with pytest.raises(InvariantError, match="no voters"):
                core.snapshot_checked(SnapshotId(20, 5), 0.2, sound=True)


# ---------------------------------------------------------------------- finding the leader


def joining(*bootstrap: int) -> RaftCore:
    core = RaftCore(
        key(1),
        VoterHistory(VoterSet([])),
        LogView(),
        HardState(),
        TIMING,
        random.Random(1),
        bootstrap=bootstrap,
        is_founder=False,
    )
    core.start(0.0)
    return core


def test_one_that_knows_nobody_asks_the_bootstrap_nodes_in_turn() -> None:
    core = joining(-2, -3)
    assert role(core) is Role.OBSERVER
    now, asked = 0.0, []
    for _ in range(3):
        asked.append(fetch_of(core).to)
        answer(core, FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 0), now)
        now += TIMING.retry_max_s
        core.tick(now)
    assert asked == [-2, -3, -2]


def test_a_bootstrap_node_names_the_leader() -> None:
    core = joining(-2)
    ready = answer(core, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 3, 5))
    assert core.status.leader_id == 3
    assert ready.hard_state == HardState(5, 3)
    assert fetch_of(core).to == 3


def test_a_bootstrap_node_may_be_the_leader() -> None:
    core = joining(-2, -3)
    answer(core, FetchResponse(ErrorCode.FENCED_LEADER_EPOCH, 3, 5))
    core.step(ResponseReceived(fetch_of(core).request_id, NOT_LEADER), 0.2)
    core.tick(0.2 + TIMING.retry_max_s)
    assert fetch_of(core).to == -2
    ready = answer(core, FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=0), 0.5)
    assert not ready.append
    assert fetch_of(core).to == 3


NOT_LEADER = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 5)


def test_one_that_has_nobody_to_ask_does_not_start() -> None:
    with pytest.raises(ValueError, match="nobody to ask"):
        joining()


def test_a_leader_tells_one_that_does_not_know_that_it_is_a_voter() -> None:
    core = joining(-2)
    request = BeginQuorumEpochRequest(4, 5, 1, key(1).directory_id)
    ready = core.step(RequestReceived(7, request), 0.1)
    core.persisted(ready.ticket, 0.1)
    assert core.status.leader_id == 4
    assert fetch_of(core).to == 4


# ------------------------------------------------------------------------------- in touch


def test_a_follower_is_in_touch_for_a_fetch_timeout() -> None:
    core = replica(known(1, 2, 3), leader_id=3)
    assert not core.in_touch(0.0)  # it has heard nothing yet
    answer(core, FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=10), 0.5)
    assert core.in_touch(0.5)
    assert core.in_touch(0.5 + TIMING.fetch_timeout_s)
    assert not core.in_touch(0.6 + TIMING.fetch_timeout_s)


def test_a_prospective_is_in_touch_as_long_as_the_follower_was() -> None:
    core = replica(known(1, 2, 3), leader_id=3)
    answer(core, FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=10), 0.5)
    core.leader_unreachable(0.6)
    core.tick(0.6 + TIMING.suspicion_max_s)
    assert role(core) is Role.PROSPECTIVE
    assert core.in_touch(1.0)
    assert not core.in_touch(0.6 + TIMING.fetch_timeout_s)


def test_who_knows_no_leader_is_not_in_touch() -> None:
    core = hearing(known(1, 2, 3))
    assert core.in_touch(0.2)
    ask(core, VOTE)  # a later epoch
    assert role(core) is Role.UNATTACHED
    assert not core.in_touch(0.2)


def test_an_observer_is_in_touch_as_a_follower_is() -> None:
    core = hearing(known(2, 3))
    assert core.in_touch(0.1 + TIMING.fetch_timeout_s)
    assert not core.in_touch(0.2 + TIMING.fetch_timeout_s)


def test_a_leader_is_in_touch_with_itself() -> None:
    core = replica(known(1))
    ready = core.tick(0.5)
    core.persisted(ready.ticket, 0.5)
    assert role(core) is Role.LEADER
    assert core.in_touch(99.0)
    core.resign(99.0)
    assert not core.in_touch(99.0)


# ------------------------------------------------------------------------------ knowing nobody


def fail_all(core: RaftCore, now: float) -> None:
    """Let every call fail."""
    for request_id in list(core.outstanding):
        core.step(CallFailed(request_id), now)


def stood_in_vain(**kwargs: Any) -> tuple[RaftCore, float]:
    """A voter whose fellow voters were replaced, and are gone, while it was away."""
    core = replica(known(1, 2, 3), bootstrap=(-2, 3, 4), **kwargs)
    now = core.tick(1.0).deadline
    assert {call.to for call in core.outstanding.values()} == {2, 3}
    fail_all(core, 1.1)
    return core, now


def test_a_voter_that_stood_in_vain_also_asks_nodes_that_are_no_voters() -> None:
    core, now = stood_in_vain()
    asked = []
    for _ in range(8):
        call = fetch_of(core)
        assert isinstance(call.message, FetchRequest)
        assert (call.message.fetch_offset, call.message.max_wait_ms) == (10, 0)
        asked.append(call.to)
        fail_all(core, now)
        now += 2 * TIMING.election_timeout_s
        core.tick(now)
        assert role(core) is Role.PROSPECTIVE
        fail_all(core, now)
    assert set(asked) == {-2, 4}
    assert core.epoch == 5


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_it_follows_the_leader_that_it_hears_of_and_learns_that_it_was_removed(
    error: ErrorCode,
) -> None:
    core, _ = stood_in_vain()
    answer(core, FetchResponse(error, 4, 7), 1.2)
    assert (role(core), core.status.leader_id, core.epoch) == (Role.FOLLOWER, 4, 7)
    response = with_voters(10, known(4, 5, 6), leader_id=4, epoch=7, high_watermark=11)
    batch = replace(response.batches[0], epoch=7)
    answer(core, replace(response, batches=(batch,)), 1.3)
    assert role(core) is Role.OBSERVER


def test_one_whose_disk_does_not_have_its_log_yet_asks_nobody() -> None:
    """A fetch acknowledges the whole log."""
    core = replica(known(1, 2, 3), leader_id=3, bootstrap=(-2, 3, 4))
    response = with_voters(10, known(1, 2, 3))
    ready = core.step(ResponseReceived(fetch_of(core).request_id, response), 0.1)
    assert ready.append
    now = core.step(RequestReceived(8, EndQuorumEpochRequest(3, 5, ())), 0.2).deadline
    core.tick(now)
    assert role(core) is Role.PROSPECTIVE
    fail_all(core, now)
    assert not core.outstanding
    core.persisted(ready.ticket, now)
    core.tick(now)
    assert fetch_of(core).to in (-2, 4)
