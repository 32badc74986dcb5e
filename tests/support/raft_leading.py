"""A leader with its voters, their disks known by letters; what it does is durable at once."""

from __future__ import annotations

import random

from raft.core import RaftCore
from raft.log_view import LogView
from raft.membership import VoterChange
from raft.messages import (
    Batch,
    FetchRequest,
    RequestReceived,
    ResponseReceived,
    VoteRequest,
    VoteResponse,
)
from raft.quorum import ReplicaKey, Voter, VoterSet
from raft.ready import Call, HardState, Ready, Reply, Role
from raft.timing import Timing
from raft.voter_history import VoterHistory
from stele.errors import ErrorCode

TIMING = Timing()
BEGIN = 0.2  # when the leader was elected


def directory(node: int, disk: str = "a") -> bytes:
    return f"{node}{disk}".encode() * 8


def key(node: int, disk: str = "a") -> ReplicaKey:
    return ReplicaKey(node, directory(node, disk))


def voter(node: int, disk: str = "a", endpoint: str = "") -> Voter:
    return Voter(key(node, disk), endpoint)


def known(*nodes: int) -> VoterSet:
    return VoterSet(voter(node) for node in nodes)


class Leading:
    """Node 1, just elected by all the other voters for epoch 1, its log durable at once."""

    def __init__(
        self, voters: VoterSet, *, at: int = 0, full: bool = False, committed: bool = False
    ) -> None:
        """``at``: where the log has the record of the voters; NO_RECORD: nowhere. ``committed``:
        a snapshot has taken the place of the log."""
        self.now = BEGIN
        start = 1 if committed else 0
        epochs = [(0, 0)]
        log = LogView(start_offset=start, end_offset=1, epochs=epochs) if at >= 0 else LogView()
        self._core = RaftCore(
            key(1),
            VoterHistory(voters, at),
            log,
            HardState(),
            TIMING,
            random.Random(1),
        )
        self.full = full
        self.appended: list[Batch] = []
        self.sent: list[Call | Reply] = []
        self.take(self.core.start(0.0))
        self.take(self.core.tick(self.now))
        for _ in ("pre-vote", "vote"):
            asked = [call for call in self.calls() if isinstance(call.message, VoteRequest)]
            self.sent = []
            for call in asked:
                answer = VoteResponse(ErrorCode.NONE, None, self.core.epoch, True)
                self.take(self.core.step(ResponseReceived(call.request_id, answer), self.now))
        assert self.core.status.role is Role.LEADER

    @property
    def core(self) -> RaftCore:
        """Takes the next event. It hears that the disk has room, unless the disk is full: room is
        never assumed."""
        if self._core.minds_room and not self.full:
            self._core.tell_room(True)
        return self._core

    def take(self, ready: Ready) -> None:
        self.appended += ready.append
        self.sent += ready.send + ready.send_after_persist
        if ready.ticket:
            self.take(self.core.persisted(ready.ticket, self.now))

    def calls(self) -> list[Call]:
        return [item for item in self.sent if isinstance(item, Call)]

    def fetch(self, replica: ReplicaKey, offset: int | None = None) -> None:
        """``replica`` has all, or everything below ``offset``, on disk."""
        end = self.core.log.end_offset if offset is None else offset
        request = FetchRequest(
            replica_id=replica.id,
            replica_directory_id=replica.directory_id,
            epoch=self.core.epoch,
            fetch_offset=end,
            last_fetched_epoch=self.core.log.epoch_of(end - 1) if end else 0,
            max_wait_ms=0,
            max_bytes=1000,
            high_watermark=-1,
        )
        self.take(self.core.step(RequestReceived(7, request), self.now))

    def established(self, *nodes: int) -> Leading:
        """The first record of the epoch, and what it leads to, is committed."""
        for _ in range(3):
            for node in nodes:
                self.fetch(key(node))
        assert self.core.high_watermark == self.core.log.end_offset
        return self

    def change(self, change: VoterChange) -> None:
        self.take(self.core.change_voters(change, self.now, has_room=not self.full))

    def refused(self, change: VoterChange) -> ErrorCode | None:
        refusal = self.core.change_refusal(change, self.now, has_room=not self.full)
        return None if refusal is None else refusal.error

    def voters_appended(self) -> list[VoterSet]:
        return [batch.new_voters for batch in self.appended if batch.new_voters is not None]
