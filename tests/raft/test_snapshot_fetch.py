"""The transfer of a snapshot: which requests a leader answers, and which pieces a follower
accepts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raft.core import RaftCore
from raft.messages import (
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ResponseReceived,
    SnapshotId,
)
from raft.quorum import NO_DIRECTORY, VoterSet
from raft.ready import Call, Ready, Role
from stele.errors import ErrorCode
from tests.support.raft_core import ask, calls, leader, started

SNAPSHOT = SnapshotId(20, 5)
QUESTION = FetchSnapshotRequest(2, NO_DIRECTORY, 6, SNAPSHOT, 0, 1000)
PIECE = FetchSnapshotResponse(ErrorCode.NONE, 3, 5, SNAPSHOT, size=8, position=0, data=b"abcd")
VOTERS = VoterSet.of_ids(1, 2, 3)


# ------------------------------------------------------------------------------ the leader


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, ErrorCode.NONE),
        ({"epoch": 5}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"position": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_a_leader_answers(changes: dict[str, Any], error: ErrorCode) -> None:
    answer = ask(leader(), replace(QUESTION, **changes))
    assert isinstance(answer, FetchSnapshotResponse)
    assert (answer.error, answer.leader_id, answer.epoch) == (error, 1, 6)


@pytest.mark.parametrize(
    ("told", "known"), [(b"x" * 16, b"x" * 16), (b"", NO_DIRECTORY), (NO_DIRECTORY, NO_DIRECTORY)]
)
def test_who_asks_is_heard_by_its_directory(told: bytes, known: bytes) -> None:
    core = leader()
    ask(core, replace(QUESTION, replica_id=9, replica_directory_id=told), now=0.5)
    (view,) = [view for view in core.describe(0.6) if view.key.id == 9]
    assert (view.key.directory_id, view.last_fetch_at) == (known, 0.5)


# ------------------------------------------------------------------------------ the follower


def offered(node: int = 1) -> tuple[RaftCore, Call]:
    """A follower of 3 in epoch 5 whose log ends at 10, and which has asked for the snapshot."""
    core, ready = started(leader_id=3, node=node)
    (call,) = calls(ready)
    offer = FetchResponse(ErrorCode.NONE, 3, 5, snapshot=SNAPSHOT)
    (call,) = calls(core.step(ResponseReceived(call.request_id, offer), 0.1))
    assert isinstance(call.message, FetchSnapshotRequest)
    return core, call


def answered(core: RaftCore, call: Call, answer: FetchSnapshotResponse) -> Ready:
    return core.step(ResponseReceived(call.request_id, answer), 0.2)


def downloaded() -> RaftCore:
    core, call = offered()
    (call,) = calls(answered(core, call, PIECE))
    ready = answered(core, call, replace(PIECE, position=4))
    assert [piece.is_last for piece in ready.pieces] == [True]
    assert calls(ready) == []  # it is being checked
    return core


def test_pieces_come_one_after_the_other() -> None:
    core, call = offered()
    ready = answered(core, call, PIECE)
    assert [(piece.position, piece.data, piece.is_last) for piece in ready.pieces] == [
        (0, b"abcd", False)
    ]
    (call,) = calls(ready)
    assert isinstance(call.message, FetchSnapshotRequest)
    assert call.message.position == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"epoch": 4},
        {"snapshot": SnapshotId(21, 5)},
        {"position": 1},
        {"data": b""},
        {"size": 3},
        {"error": ErrorCode.SNAPSHOT_NOT_FOUND},
    ],
)
def test_pieces_that_do_not_fit_are_not_taken(changes: dict[str, Any]) -> None:
    core, call = offered()
    ready = answered(core, call, replace(PIECE, **changes))
    assert ready.pieces == []
    assert calls(ready) == []  # not at once
    (call,) = calls(core.tick(ready.deadline))
    assert not isinstance(call.message, FetchSnapshotRequest)  # what is to be fetched is asked anew


@pytest.mark.parametrize("node", [1, 4])
@pytest.mark.parametrize("leader_id", [None, 2])
def test_a_piece_that_tells_of_a_later_epoch_is_not_taken(node: int, leader_id: int | None) -> None:
    core, call = offered(node)
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_id is None else ErrorCode.NONE
    news = replace(PIECE, error=error, epoch=6, leader_id=leader_id)
    ready = answered(core, call, news)
    assert (core.epoch, core.status.leader_id) == (6, leader_id)
    assert ready.pieces == []
    ready = core.persisted(ready.ticket, 0.2)
    if leader_id is not None:  # it is asked at once
        assert [call.to for call in calls(ready)] == [leader_id]
    elif node == 4:  # an observer asks on
        assert calls(core.tick(ready.deadline))


def test_a_sound_snapshot_takes_the_place_of_the_log() -> None:
    core = downloaded()
    ready = core.snapshot_checked(SNAPSHOT, 0.3, sound=True, voters=VOTERS)
    assert ready.install == SNAPSHOT
    assert (core.log.end_offset, core.high_watermark) == (20, 20)


def test_only_the_whole_snapshot_that_was_asked_for_is_loaded() -> None:
    core = downloaded()
    assert core.snapshot_checked(SnapshotId(19, 5), 0.3, sound=True, voters=VOTERS).install is None
    core, _ = offered()
    assert core.snapshot_checked(SNAPSHOT, 0.3, sound=True, voters=VOTERS).install is None
    core, _ = started(leader_id=3)
    assert core.snapshot_checked(SNAPSHOT, 0.3, sound=True, voters=VOTERS).install is None
    assert leader().snapshot_checked(SNAPSHOT, 0.3, sound=True, voters=VOTERS).install is None


def test_one_that_is_not_sound_is_fetched_anew() -> None:
    core = downloaded()
    ready = core.snapshot_checked(SNAPSHOT, 0.3, sound=False)
    assert ready.install is None
    assert calls(core.tick(ready.deadline))
    assert core.status.role is Role.FOLLOWER
