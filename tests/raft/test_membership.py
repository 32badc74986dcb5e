"""The rules for changes of voters, tested on one core."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from raft.core import RaftCore
from raft.log_view import LogView
from raft.membership import AddVoter, RemoveVoter, UpdateVoter, VoterChange
from raft.messages import (
    Batch,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    ResponseReceived,
    VotersChange,
)
from raft.quorum import ReplicaKey, Voter, VoterSet
from raft.ready import HardState, Role
from raft.voter_history import NO_RECORD, VoterHistory
from stele.errors import ErrorCode
from tests.support.raft_leading import TIMING, Leading, key, known, voter


def role(core: RaftCore) -> Role:
    return core.status.role


def minds_room(leading: Leading) -> bool:
    return leading.core.minds_room


def pending(leading: Leading) -> bool:
    return leading.core.change_pending


def adding(leading: Leading) -> Voter | None:
    return leading.core.adding


# ---------------------------------------------------------------------- the first records


def test_the_first_leader_writes_down_who_the_voters_are() -> None:
    leading = Leading(VoterSet.of_ids(1, 2, 3), at=NO_RECORD)
    first = VoterSet.of_ids(1, 2, 3).with_voter(voter(1))
    assert [batch.base_offset for batch in leading.appended] == [0, 1]
    assert leading.appended[1] == Batch(1, 2, 1, VotersChange(first, is_first=True))
    assert leading.core.voters == first
    assert leading.core.voters_offset == 1
    assert pending(leading)


def test_a_leader_learns_the_directories_of_fetching_replicas() -> None:
    leading = Leading(VoterSet.of_ids(1, 2, 3), at=NO_RECORD)
    leading.fetch(key(2), 0)
    assert len(leading.voters_appended()) == 1  # the first record is not committed yet
    leading.fetch(key(2))
    assert leading.core.high_watermark == 3
    assert leading.core.voters == known(1, 2).with_voter(Voter(ReplicaKey(3)))
    leading.fetch(key(3))
    leading.fetch(key(2))
    assert leading.core.voters == known(1, 2, 3)
    assert [change.count for change in leading.appended if change.new_voters] == [2, 1, 1]


def test_another_disk_of_a_voter_acknowledges_nothing() -> None:
    leading = Leading(VoterSet.of_ids(1, 2, 3), at=NO_RECORD)
    leading.fetch(key(2, "a"), 0)  # it is the voter, though no record says so yet
    leading.fetch(key(2, "b"))
    assert leading.core.high_watermark == -1
    views = [(view.key, view.is_voter) for view in leading.core.describe(leading.now)]
    assert (key(2, "a"), True) in views
    assert (key(2, "b"), False) in views
    leading.fetch(key(2, "a"))
    assert leading.core.high_watermark == 3


def test_who_does_not_say_which_disk_it_has_is_no_voter_whose_disk_is_known() -> None:
    leading = Leading(known(1, 2, 3))
    leading.fetch(ReplicaKey(2))
    assert leading.core.high_watermark == -1
    leading.fetch(key(2))
    assert leading.core.high_watermark == leading.core.log.end_offset


def test_learning_waits_for_a_record_of_the_own_epoch_to_be_committed() -> None:
    """Even if all records of earlier epochs are committed, including the voters' records."""
    leading = Leading(VoterSet.of_ids(1, 2, 3), committed=True)
    assert not pending(leading)
    assert leading.voters_appended() == []
    leading.fetch(key(2))
    assert leading.voters_appended() == [known(1, 2).with_voter(Voter(ReplicaKey(3)))]


def test_learning_waits_for_room() -> None:
    leading = Leading(VoterSet.of_ids(1, 2, 3), full=True).established(2)
    assert leading.voters_appended() == []
    leading.full = False
    leading.fetch(key(2))
    assert leading.core.voters == known(1, 2).with_voter(Voter(ReplicaKey(3)))


def test_an_answer_about_room_counts_for_one_event() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.change(AddVoter(voter(4), 1.0))
    leading.core.tell_room(True)
    leading.take(leading.core.tick(leading.now))
    leading.full = True
    leading.fetch(key(4))
    assert leading.core.voters == known(1, 2, 3)
    leading.full = False
    leading.take(leading.core.tick(leading.now))
    assert leading.core.voters == known(1, 2, 3, 4)


def test_room_is_minded_while_the_voters_may_change_by_themselves() -> None:
    assert minds_room(Leading(VoterSet.of_ids(1, 2, 3)))
    leading = Leading(known(1, 2, 3)).established(2, 3)
    assert not minds_room(leading)
    leading.change(AddVoter(voter(4), 1.0))
    assert minds_room(leading)
    leading.take(leading.core.resign(leading.now))
    assert not minds_room(leading)


def test_room_is_minded_until_the_log_says_who_the_voters_are() -> None:
    leading = Leading(known(1, 2, 3), at=NO_RECORD, full=True)
    assert minds_room(leading)
    leading.full = False
    leading.take(leading.core.tick(leading.now))
    assert leading.voters_appended() == [known(1, 2, 3)]
    assert not minds_room(leading)


# ---------------------------------------------------------------------------- refusals


def test_no_change_before_a_record_of_the_own_epoch_is_committed() -> None:
    leading = Leading(known(1, 2, 3))
    assert leading.refused(RemoveVoter(key(3))) is ErrorCode.REQUEST_TIMED_OUT
    leading.established(2, 3)
    assert leading.refused(RemoveVoter(key(3))) is None


def test_records_of_earlier_epochs_that_are_committed_do_not_make_a_leader_ready() -> None:
    leading = Leading(known(1, 2, 3), committed=True)
    assert leading.core.high_watermark == leading.core.epoch_start_offset
    assert leading.refused(RemoveVoter(key(3))) is ErrorCode.REQUEST_TIMED_OUT
    leading.fetch(key(2))
    assert leading.refused(RemoveVoter(key(3))) is None


def test_an_update_comes_from_the_disk_that_fetches() -> None:
    """Even while the record does not have the disk's id, or none has fetched."""
    leading = Leading(VoterSet.of_ids(1, 2, 3), full=True).established(2)
    leading.full = False
    assert leading.refused(UpdateVoter(voter(2, "b"))) is ErrorCode.VOTER_NOT_FOUND
    assert leading.refused(UpdateVoter(voter(2, "a"))) is None
    leading = Leading(known(1, 2, 3)).established(2)
    assert leading.refused(UpdateVoter(voter(3, "b"))) is ErrorCode.VOTER_NOT_FOUND
    assert leading.refused(UpdateVoter(voter(3, "a"))) is None


def test_one_change_at_a_time() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    assert not pending(leading)
    leading.change(RemoveVoter(key(3)))
    assert pending(leading)
    assert leading.refused(RemoveVoter(key(2))) is ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(ValueError, match="not committed"):
        leading.change(RemoveVoter(key(2)))
    leading.fetch(key(2))
    assert not pending(leading)
    assert leading.refused(RemoveVoter(key(2))) is None
    leading.change(AddVoter(voter(4), 1.0))
    assert pending(leading)
    assert leading.refused(RemoveVoter(key(2))) is ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (AddVoter(voter(2), 1.0), ErrorCode.DUPLICATE_VOTER),
        (AddVoter(voter(2, "b"), 1.0), ErrorCode.DUPLICATE_VOTER),
        (AddVoter(Voter(ReplicaKey(4)), 1.0), ErrorCode.INVALID_REQUEST),
        (RemoveVoter(key(4)), ErrorCode.VOTER_NOT_FOUND),
        (RemoveVoter(key(2, "b")), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoter(voter(4)), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoter(voter(2, "b")), ErrorCode.VOTER_NOT_FOUND),
        (UpdateVoter(Voter(ReplicaKey(2))), ErrorCode.INVALID_REQUEST),
        (AddVoter(voter(4), 1.0), None),
        (RemoveVoter(key(2)), None),
        (RemoveVoter(ReplicaKey(2)), None),  # whatever its directory
        (RemoveVoter(key(1)), None),
        (UpdateVoter(voter(2, endpoint="moved:1")), None),
    ],
)
def test_refusals(change: VoterChange, error: ErrorCode | None) -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    assert leading.refused(change) is error
    leading.full = True
    assert leading.refused(change) is ErrorCode.KAFKA_STORAGE_ERROR


def test_only_a_leader_changes_voters() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.take(leading.core.resign(leading.now))
    assert leading.refused(RemoveVoter(key(2))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_last_voter_stays() -> None:
    leading = Leading(known(1)).established()
    assert leading.refused(RemoveVoter(key(1))) is ErrorCode.INVALID_REQUEST


def test_the_remaining_voters_must_be_a_majority_that_is_heard() -> None:
    leading = Leading(known(1, 2, 3)).established(2)
    assert leading.refused(RemoveVoter(key(2))) is ErrorCode.INVALID_REQUEST  # 3 never fetched
    assert leading.refused(RemoveVoter(key(3))) is None
    leading.fetch(key(3))
    leading.now += TIMING.fetch_timeout_s - 0.1
    leading.fetch(key(2))
    assert leading.refused(RemoveVoter(key(2))) is None
    leading.now += 0.2
    assert leading.refused(RemoveVoter(key(2))) is ErrorCode.INVALID_REQUEST


def test_a_voter_is_heard_for_the_fetch_timeout() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.now = 1.0
    leading.fetch(key(3))
    leading.now = 1.0 + TIMING.fetch_timeout_s
    assert leading.refused(RemoveVoter(key(2))) is None
    leading.now += 0.1
    assert leading.refused(RemoveVoter(key(2))) is ErrorCode.INVALID_REQUEST


def test_no_change_while_leadership_is_handed_over() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.take(leading.core.propose(b"x", 1, leading.now))
    leading.take(leading.core.transfer(3, leading.now))
    assert leading.refused(RemoveVoter(key(2))) is ErrorCode.NOT_LEADER_OR_FOLLOWER


# ---------------------------------------------------------------------------- adding


def test_a_new_voter_counts_once_it_has_caught_up() -> None:
    leading = Leading(known(1, 2)).established(2)
    leading.take(leading.core.propose(b"x", 1, leading.now))
    leading.change(AddVoter(voter(3), 1.0))
    assert adding(leading) == voter(3)
    leading.fetch(key(3), 1)
    assert leading.core.voters == known(1, 2)
    leading.fetch(key(3, "b"))  # another disk
    assert leading.core.voters == known(1, 2)
    leading.fetch(key(3))
    assert adding(leading) is None
    assert leading.core.voters == known(1, 2, 3)
    end = leading.core.log.end_offset
    leading.fetch(key(3))
    assert leading.core.high_watermark == end  # with 1 a majority of three
    assert not pending(leading)


def test_a_voter_that_has_everything_is_added_at_once() -> None:
    leading = Leading(known(1)).established()
    leading.fetch(key(2))
    leading.change(AddVoter(voter(2, endpoint="two:1"), 1.0))
    assert adding(leading) is None
    assert leading.core.voters == known(1).with_voter(voter(2, endpoint="two:1"))
    end = leading.core.log.end_offset
    assert leading.core.high_watermark == end - 1  # from now on it takes both
    leading.fetch(key(2))
    assert leading.core.high_watermark == end


def test_who_is_added_is_known_to_have_what_it_had_as_an_observer() -> None:
    leading = Leading(known(1)).established()
    end = leading.core.log.end_offset
    leading.fetch(key(2))
    leading.change(AddVoter(voter(2), 1.0))
    views = leading.core.describe(leading.now)
    assert [(view.key.id, view.is_voter) for view in views] == [(1, True), (2, True)]
    assert views[1].end_offset == end


def test_who_is_removed_before_its_first_fetch_is_one_observer() -> None:
    leading = Leading(known(1, 2, 3)).established(2)
    views = leading.core.describe(leading.now)
    assert [view.key.id for view in views if view.is_voter] == [1, 2, 3]
    leading.change(RemoveVoter(key(3)))
    leading.fetch(key(3))
    leading.fetch(key(3))
    views = leading.core.describe(leading.now)
    assert [view.key for view in views if not view.is_voter] == [key(3)]


def test_a_silent_voter_is_not_added_for_what_it_had() -> None:
    leading = Leading(known(1)).established()
    leading.fetch(key(2))
    leading.now += TIMING.fetch_timeout_s + 0.1
    leading.change(AddVoter(voter(2), 1.0))
    assert adding(leading) == voter(2)
    leading.now += 0.5
    leading.fetch(key(2))
    assert leading.core.voters == known(1, 2)


@pytest.mark.parametrize(("later_s", "added"), [(0.0, True), (0.1, False)])
def test_a_voter_that_was_heard_within_the_fetch_timeout_is_added(
    later_s: float, added: bool
) -> None:
    leading = Leading(known(1)).established()
    leading.now = 1.0
    leading.fetch(key(2))
    leading.now = 1.0 + TIMING.fetch_timeout_s + later_s
    leading.change(AddVoter(voter(2), 1.0))
    assert (adding(leading) is None) == added


def test_a_round_is_short_when_it_takes_less_than_an_election_timeout() -> None:
    for took_s, added in ((TIMING.election_timeout_s, False), (0.9, True)):
        leading = Leading(known(1)).established()
        leading.now = 1.0
        end = leading.core.log.end_offset
        leading.change(AddVoter(voter(2), 60.0))
        leading.take(leading.core.propose(b"x", 1, leading.now))
        leading.now += took_s
        leading.fetch(key(2), end)
        assert (adding(leading) is None) == added


def test_a_slow_round_is_followed_by_another() -> None:
    leading = Leading(known(1)).established()
    leading.change(AddVoter(voter(2), 60.0))
    for _ in range(3):  # each time it gets as far as the leader was, too late
        end = leading.core.log.end_offset
        leading.take(leading.core.propose(b"x", 1, leading.now))
        leading.now += TIMING.election_timeout_s + 0.1
        leading.fetch(key(2), end)
        assert adding(leading) == voter(2)
    end = leading.core.log.end_offset
    leading.take(leading.core.propose(b"x", 1, leading.now))
    leading.now += TIMING.election_timeout_s - 0.1
    leading.fetch(key(2), end)
    assert leading.core.voters == known(1, 2)


def test_a_voter_that_does_not_catch_up_is_given_up() -> None:
    leading = Leading(known(1)).established()
    leading.take(leading.core.propose(b"x", 1, leading.now))
    leading.change(AddVoter(voter(2), 1.0))
    leading.fetch(key(2), 0)
    ready = leading.core.tick(leading.now + 0.9)
    assert adding(leading) == voter(2)
    assert ready.deadline <= leading.now + 1.0
    leading.now += 1.0
    leading.take(leading.core.tick(leading.now))
    assert adding(leading) is None
    leading.fetch(key(2))
    assert leading.core.voters == known(1)
    assert not pending(leading)


def test_adding_waits_until_what_was_learned_meanwhile_is_committed() -> None:
    leading = Leading(known(1, 2).with_voter(Voter(ReplicaKey(3)))).established(2)
    leading.change(AddVoter(voter(4), 60.0))
    leading.full = True
    leading.fetch(key(4))  # it has caught up, and there is no room for the record
    leading.full = False
    leading.fetch(key(3))
    assert leading.voters_appended() == [known(1, 2, 3)]
    leading.fetch(key(2))
    assert leading.voters_appended() == [known(1, 2, 3), known(1, 2, 3, 4)]


def test_adding_stands_still_while_leadership_is_handed_over() -> None:
    leading = Leading(known(1, 2)).established(2)
    leading.change(AddVoter(voter(3), 60.0))
    leading.take(leading.core.propose(b"x", 1, leading.now))
    leading.take(leading.core.transfer(2, leading.now))
    leading.fetch(key(3))
    assert leading.core.voters == known(1, 2)
    leading.now += TIMING.election_timeout_s  # the transfer is given up
    leading.take(leading.core.tick(leading.now))
    assert leading.core.transferring_to is None
    assert leading.core.voters == known(1, 2, 3)


# ---------------------------------------------------------------------------- removing


def test_a_removed_voter_counts_no_more_and_is_still_served() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.change(RemoveVoter(key(3)))
    end = leading.core.log.end_offset
    leading.fetch(key(3))
    assert leading.core.high_watermark == end - 1
    leading.fetch(key(2))
    assert leading.core.high_watermark == end
    views = [(view.key.id, view.is_voter) for view in leading.core.describe(leading.now)]
    assert views == [(1, True), (2, True), (3, False)]
    assert leading.core.transfer_refusal(3, leading.now) is ErrorCode.VOTER_NOT_FOUND


def test_a_leader_that_removes_itself_does_not_count_and_resigns_when_that_is_committed() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.change(RemoveVoter(key(1)))
    end = leading.core.log.end_offset
    leading.fetch(key(2))
    assert leading.core.high_watermark == end - 1  # 1 and 2 are no majority of 2 and 3
    views = [(view.key.id, view.is_voter) for view in leading.core.describe(leading.now)]
    assert views == [(2, True), (3, True), (1, False)]
    leading.sent = []
    leading.fetch(key(3))
    assert leading.core.high_watermark == end
    assert role(leading.core) is Role.RESIGNED
    told = {
        call.to: call.message
        for call in leading.calls()
        if isinstance(call.message, EndQuorumEpochRequest)
    }
    assert {to: message.preferred_successors for to, message in told.items()} == {
        2: (2, 3),
        3: (2, 3),
    }
    leading.now += 3 * TIMING.election_timeout_s
    leading.take(leading.core.tick(leading.now))
    assert role(leading.core) is Role.OBSERVER
    assert leading.core.status.leader_id is None


def test_a_leader_that_has_removed_itself_observes_as_soon_as_there_is_a_later_epoch() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.change(RemoveVoter(key(1)))
    leading.fetch(key(2))
    leading.fetch(key(3))
    assert role(leading.core) is Role.RESIGNED
    call = next(call for call in leading.calls() if isinstance(call.message, EndQuorumEpochRequest))
    later = EndQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, None, leading.core.epoch + 1)
    leading.take(leading.core.step(ResponseReceived(call.request_id, later), leading.now))
    assert role(leading.core) is Role.OBSERVER


def test_a_leader_without_itself_needs_a_majority_of_the_others() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.change(RemoveVoter(key(1)))
    leading.now += TIMING.fetch_timeout_s - 0.1
    leading.fetch(key(2), leading.core.log.end_offset - 1)
    leading.now += 0.2
    leading.take(leading.core.tick(leading.now))
    assert role(leading.core) is Role.RESIGNED  # 3 is silent


# ---------------------------------------------------------------------------- updating


def test_a_voter_moves() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    moved = voter(2, endpoint="moved:1")
    leading.change(UpdateVoter(moved))
    assert leading.core.voters == known(1, 2, 3).with_voter(moved)
    leading.fetch(key(2))
    assert leading.core.high_watermark == leading.core.log.end_offset
    leading.change(UpdateVoter(moved))  # it is so already
    assert len(leading.voters_appended()) == 1


def test_a_voter_that_supports_other_levels_says_so_and_keeps_the_rest() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    told = replace(voter(2), features=(("f", 1, 2), ("g", 0, 1)))
    leading.change(UpdateVoter(told))
    assert leading.core.voters == known(1, 2, 3).with_voter(told) != known(1, 2, 3)
    leading.fetch(key(2))
    assert leading.refused(UpdateVoter(told)) is None
    leading.change(UpdateVoter(told))  # it is so already
    assert len(leading.voters_appended()) == 1


def test_what_a_voter_supports_stays_when_its_directory_is_learned() -> None:
    told = Voter(ReplicaKey(3), "three:1", (("f", 1, 2),))
    leading = Leading(known(1, 2).with_voter(told)).established(2)
    leading.fetch(key(3))
    assert leading.core.voters.get(3) == replace(told, key=key(3))


def test_who_is_being_added_is_one_of_the_voters_to_be() -> None:
    leading = Leading(known(1, 2)).established(2)
    new = replace(voter(3), features=(("f", 1, 1),))
    leading.change(AddVoter(new, 1.0))
    assert leading.core.voters == known(1, 2)
    assert leading.core.voters_to_be == known(1, 2).with_voter(new)


def test_voters_as_of_a_snapshot() -> None:
    leading = Leading(known(1, 2, 3)).established(2, 3)
    leading.change(RemoveVoter(key(3)))
    at = leading.core.voters_offset
    assert leading.core.voters_at(at) == known(1, 2, 3)
    assert leading.core.voters_at(at + 1) == known(1, 2)


# ------------------------------------------------------------------- the driver is told


def test_every_change_of_the_voters_is_reported_once() -> None:
    leading = Leading(known(1)).established()
    moved = UpdateVoter(voter(1, endpoint="one:1"))
    ready = leading.core.change_voters(moved, leading.now, has_room=True)
    assert ready.voters == VoterSet([voter(1, endpoint="one:1")])
    assert leading.core.persisted(ready.ticket, leading.now).voters is None


def test_the_first_ready_tells_who_the_voters_are() -> None:
    core = RaftCore(
        key(1), VoterHistory(known(1, 2)), LogView(), HardState(), TIMING, random.Random(1)
    )
    assert core.start(0.0).voters == known(1, 2)
