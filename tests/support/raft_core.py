"""A Raft core that a test calls directly, and requests that fit it."""

from __future__ import annotations

import random

from raft.core import RaftCore
from raft.log_view import LogView
from raft.messages import (
    FetchRequest,
    Request,
    RequestReceived,
    Response,
    ResponseReceived,
    VoteRequest,
    VoteResponse,
)
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet
from raft.ready import Call, HardState, Ready, Reply, Role
from raft.timing import Timing
from raft.voter_history import VoterHistory
from stele.errors import ErrorCode

VOTE = VoteRequest(
    candidate_id=2,
    candidate_directory_id=NO_DIRECTORY,
    voter_id=1,
    voter_directory_id=NO_DIRECTORY,
    epoch=6,
    last_offset=10,
    last_epoch=5,
    pre_vote=False,
)
FETCH = FetchRequest(
    replica_id=2,
    replica_directory_id=NO_DIRECTORY,
    epoch=6,
    fetch_offset=10,
    last_fetched_epoch=5,
    max_wait_ms=500,
    max_bytes=1000,
    high_watermark=-1,
)


def started(
    *,
    leader_id: int | None = None,
    node: int = 1,
    voted: int | None = None,
    voters: tuple[int, ...] = (1, 2, 3),
    bootstrap: tuple[int, ...] = (),
) -> tuple[RaftCore, Ready]:
    """Replica 1 of the voters 1, 2, 3, according to its log, in epoch 5. The log ends at offset
    10."""
    core = RaftCore(
        ReplicaKey(node, b"d" * 16),
        VoterHistory(VoterSet.of_ids(*voters), 0),
        LogView(end_offset=10, epochs=[(3, 0), (5, 6)]),
        HardState(5, leader_id, voted, NO_DIRECTORY if voted else None),
        Timing(),
        random.Random(1),
        bootstrap=bootstrap,
    )
    return core, core.start(0.0)


def voter(
    *,
    leader_id: int | None = None,
    node: int = 1,
    voted: int | None = None,
    voters: tuple[int, ...] = (1, 2, 3),
) -> RaftCore:
    """As ``started``."""
    return started(leader_id=leader_id, node=node, voted=voted, voters=voters)[0]


def leader() -> RaftCore:
    """As ``elected``."""
    return elected()[0]


def elected() -> tuple[RaftCore, Ready]:
    """The same replica, elected for epoch 6. Its leader-change batch at offset 10 is durable. The
    Ready has what it has sent since."""
    core = voter()
    pre_votes = calls(core.tick(0.2))
    ready = core.step(ResponseReceived(pre_votes[0].request_id, granted(5)), 0.2)
    votes = [item for item in ready.send_after_persist if isinstance(item, Call)]
    core.persisted(ready.ticket, 0.2)
    ready = core.step(ResponseReceived(votes[0].request_id, granted(6)), 0.2)
    assert core.status.role is Role.LEADER
    core.persisted(ready.ticket, 0.2)
    return core, ready


def granted(epoch: int) -> VoteResponse:
    return VoteResponse(ErrorCode.NONE, None, epoch, True)


def calls(ready: Ready) -> list[Call]:
    """The calls that may be sent at once."""
    return [item for item in ready.send if isinstance(item, Call)]


def ask(core: RaftCore, message: Request, now: float = 0.3) -> Response:
    """The answer to a request, whether or not it may be sent at once."""
    ready = core.step(RequestReceived(7, message), now)
    answers = [
        item.message for item in ready.send + ready.send_after_persist if isinstance(item, Reply)
    ]
    assert len(answers) == 1
    return answers[0]
