"""Transfer of leadership: to which voters it may go, and the effect of a second request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raft.core import RaftCore
from raft.ready import Role
from raft.timing import Timing
from stele.errors import ErrorCode
from tests.support.raft_core import FETCH, ask, leader, voter

TIMING = Timing()


def fetched_from(*voters: int) -> RaftCore:
    """A leader from which these voters, which lack its last batch, fetched at 0.25."""
    core = leader()
    for each in voters:
        ask(core, replace(FETCH, replica_id=each, max_wait_ms=0), now=0.25)
    return core


def test_to_whom_leadership_can_go() -> None:
    core = fetched_from(2)
    assert core.transfer_refusal(1, 0.25) is ErrorCode.NONE
    assert core.transfer_refusal(2, 0.25) is ErrorCode.NONE
    assert core.transfer_refusal(3, 0.25) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert core.transfer_refusal(9, 0.25) is ErrorCode.VOTER_NOT_FOUND
    assert voter().transfer_refusal(2, 0.25) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_successor_was_heard_within_the_fetch_timeout() -> None:
    core = fetched_from(2)
    last_s = 0.25 + TIMING.fetch_timeout_s
    assert core.transfer_refusal(2, last_s) is ErrorCode.NONE
    assert core.transfer_refusal(2, last_s + 0.25) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_one_at_a_time() -> None:
    core = fetched_from(2, 3)
    core.transfer(2, 0.25)
    assert core.transfer_refusal(2, 0.25) is ErrorCode.NONE
    assert core.transfer_refusal(3, 0.25) is ErrorCode.INVALID_REQUEST
    with pytest.raises(ValueError, match="cannot go to 3"):
        core.transfer(3, 0.25)


def test_asking_again_gives_no_more_time() -> None:
    core = fetched_from(2)
    core.transfer(2, 0.25)
    core.transfer(2, 0.5)
    core.tick(0.25 + TIMING.election_timeout_s)
    assert (core.status.role, core.transferring_to) == (Role.LEADER, None)


def test_to_itself_changes_nothing() -> None:
    core = fetched_from(2)
    core.transfer(1, 0.25)
    assert core.transferring_to is None
