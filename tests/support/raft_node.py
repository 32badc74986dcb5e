"""A Raft replica for tests: the real core on a disk of lists, which forgets what was not synced."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from raft.core import RaftCore
from raft.log_view import LogView
from raft.messages import Batch, FetchResponse, FetchSnapshotResponse, Inbound, SnapshotId
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet
from raft.ready import HardState, Outbound, ReadRange, Ready, Reply
from raft.timing import Timing
from raft.voter_history import VoterHistory
from stele.errors import ErrorCode
from stele.world import Rng

PIECE_BYTES = 2
SNAPSHOT_BYTES = 3


@dataclass(slots=True)
class Sync:
    """A sync under way: what will be durable when it ends, and what may be sent then."""

    ticket: int
    log: list[Batch]
    hard_state: HardState
    outbound: list[Outbound]


@dataclass(slots=True)
class FakeNode:
    """Carries out Readys as ``raft.ready`` says, but syncs only when the test says so."""

    id: int
    voters: VoterSet  # the voters in its configuration
    timing: Timing
    rng: Rng
    max_batches_per_fetch: int = 100
    durable_log: list[Batch] = field(default_factory=list)
    durable_hard_state: HardState = field(default_factory=HardState)
    log: list[Batch] = field(default_factory=list)
    hard_state: HardState = field(default_factory=HardState)
    core: RaftCore | None = None  # None while down
    life: int = 0
    deadline: float = float("inf")
    # What was committed since its start, in order.
    delivered: list[Batch] = field(default_factory=list)
    truncations: int = 0
    ticket: int = 0
    waiting: list[Outbound] = field(default_factory=list)
    syncing: Sync | None = None
    # The newest snapshot here; it is durable at once and has SNAPSHOT_BYTES bytes.
    snapshot: SnapshotId | None = None
    received: SnapshotId | None = None  # the snapshot of the last pieces
    # The content of snapshots on all nodes: everything from the beginning of the log.
    contents: dict[SnapshotId, list[Batch]] = field(default_factory=dict)
    directory_id: bytes = NO_DIRECTORY
    bootstrap: tuple[int, ...] = ()  # other nodes to ask, as negative ids

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def _voter_history(self) -> VoterHistory:
        history = VoterHistory(self.voters)
        if self.snapshot is not None and (voters := self.voters_in(self.snapshot)) is not None:
            history.reset(voters, self.snapshot.end_offset - 1)
        for batch in self.log:
            if batch.new_voters is not None:
                history.append(batch.base_offset, batch.new_voters)
        return history

    def voters_in(self, snapshot: SnapshotId) -> VoterSet | None:
        """The voters in a snapshot."""
        found = [batch.new_voters for batch in self.contents[snapshot] if batch.new_voters]
        return found[-1] if found else None

    def check_snapshot(self, snapshot: SnapshotId, now: float, *, sound: bool) -> Ready:
        voters = self.voters_in(snapshot)
        return self.running.snapshot_checked(snapshot, now, sound=sound, voters=voters)

    @property
    def running(self) -> RaftCore:
        """The core, ready for the next event: the disk has room for its effects."""
        assert self.core is not None, f"node {self.id} is down"
        if self.core.minds_room:
            self.core.tell_room(True)
        return self.core

    @property
    def history(self) -> list[Batch]:
        """The log, including what its snapshot replaces."""
        return self._before_the_log() + self.log

    @property
    def durable_history(self) -> list[Batch]:
        return self._before_the_log() + self.durable_log

    def _before_the_log(self) -> list[Batch]:
        return [] if self.snapshot is None else list(self.contents.get(self.snapshot, ()))

    def start(self, now: float) -> tuple[Ready, list[Outbound]]:
        assert self.core is None
        self.life += 1
        self.log = list(self.durable_log)
        self.delivered = self._before_the_log()
        self.hard_state = self.durable_hard_state
        self.core = RaftCore(
            self.key,
            self._voter_history(),
            view_of(self.log, self.snapshot),
            self.hard_state,
            self.timing,
            self.rng,
            snapshot=self.snapshot,
            bootstrap=self.bootstrap,
            is_founder=self.voters.get(self.id) is not None,
        )
        ready = self.core.start(now)
        return ready, self.apply(ready)

    def apply(self, ready: Ready) -> list[Outbound]:
        """Carry out a Ready. Returns what may be sent at once."""
        for piece in ready.pieces:
            self.received = piece.snapshot
        if ready.install is not None:
            self.snapshot = ready.install
            self.log, self.durable_log = [], []
            self.delivered = self._before_the_log()
            if self.syncing is not None:
                self.syncing.log = []  # a snapshot replaced its files
        if ready.truncate_to is not None:
            self.truncations += 1
            while self.log and self.log[-1].end_offset > ready.truncate_to:
                dropped = self.log.pop()
                if dropped.base_offset < ready.truncate_to:
                    count = ready.truncate_to - dropped.base_offset
                    self.log.append(replace(dropped, count=count))
        self.log.extend(ready.append)
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        self.ticket = max(self.ticket, ready.ticket)
        self.waiting.extend(ready.send_after_persist)
        self.deadline = ready.deadline
        if ready.committed is not None:
            first, end = ready.committed
            self.delivered.extend(b for b in self.log if first <= b.base_offset < end)
        return ready.send

    @property
    def wants_sync(self) -> bool:
        return self.core is not None and self.syncing is None and self.ticket > 0

    def begin_sync(self) -> None:
        assert self.wants_sync
        self.syncing = Sync(self.ticket, list(self.log), self.hard_state, self.waiting)
        self.ticket, self.waiting = 0, []

    def end_sync(self, now: float) -> tuple[Ready, list[Outbound]]:
        """End the sync: release what waited for it, and tell the core."""
        sync, self.syncing = self.syncing, None
        assert sync is not None
        self.durable_log, self.durable_hard_state = sync.log, sync.hard_state
        ready = self.running.persisted(sync.ticket, now)
        return ready, sync.outbound + self.apply(ready)

    def wipe(self, directory_id: bytes) -> None:
        """Replace the disk of a stopped node by another one, formatted to join the existing
        quorum."""
        assert self.core is None
        self.directory_id, self.voters = directory_id, VoterSet([])
        self.durable_log, self.durable_hard_state = [], HardState()
        self.log, self.hard_state, self.snapshot, self.received = [], HardState(), None, None

    def crash(self, rng: random.Random | None = None) -> None:
        """Lose what was not synced; with ``rng``, keep a part of it, as a disk may."""
        if rng is not None:
            self._survive(rng)
        self.core = None
        self.deadline = float("inf")
        self.ticket, self.waiting, self.syncing = 0, [], None
        self.delivered = []

    def _survive(self, rng: random.Random) -> None:
        if rng.random() < 0.5:
            self.durable_hard_state = self.hard_state
        if rng.random() < 0.5:
            common = 0
            for ours, durable in zip(self.log, self.durable_log, strict=False):
                if ours != durable:
                    break
                common += 1
            self.durable_log = self.log[: rng.randint(common, len(self.log))]

    def filled(self, reply: Reply) -> Reply:
        """The reply with the records that it must carry."""
        message = reply.message
        if isinstance(message, FetchSnapshotResponse) and message.error is ErrorCode.NONE:
            if message.snapshot != self.snapshot:
                return Reply(reply.request_id, replace(message, error=ErrorCode.SNAPSHOT_NOT_FOUND))
            data = bytes(min(PIECE_BYTES, SNAPSHOT_BYTES - message.position))
            return Reply(reply.request_id, replace(message, data=data, size=SNAPSHOT_BYTES))
        if reply.read is None:
            return reply
        assert isinstance(reply.message, FetchResponse)
        return Reply(reply.request_id, replace(reply.message, batches=self.read(reply.read)))

    def read(self, wanted: ReadRange) -> tuple[Batch, ...]:
        found = [batch for batch in self.log if batch.end_offset > wanted.offset]
        return tuple(found[: self.max_batches_per_fetch])

    def take_snapshot(self, offset: int) -> None:
        """Write a snapshot of everything below ``offset``, and cut the log there."""
        snapshot = SnapshotId(offset, self.running.log.epoch_of(offset - 1))
        content = [batch for batch in self.delivered if batch.end_offset <= offset]
        assert self.contents.setdefault(snapshot, content) == content
        self.snapshot = snapshot
        self.running.snapshot_taken(snapshot, offset)
        self.log = [batch for batch in self.log if batch.base_offset >= offset]
        self.durable_log = [batch for batch in self.durable_log if batch.base_offset >= offset]
        if self.syncing is not None:
            self.syncing.log = [b for b in self.syncing.log if b.base_offset >= offset]

    def step(self, inbound: Inbound, now: float) -> tuple[Ready, list[Outbound]]:
        ready = self.running.step(inbound, now)
        return ready, self.apply(ready)


def view_of(log: list[Batch], snapshot: SnapshotId | None = None) -> LogView:
    start = 0 if snapshot is None else snapshot.end_offset
    epochs = [] if snapshot is None else [(snapshot.epoch, start - 1)]
    for batch in log:
        if not epochs or batch.epoch > epochs[-1][0]:
            epochs.append((batch.epoch, batch.base_offset))
    end_offset = log[-1].end_offset if log else start
    return LogView(start_offset=start, end_offset=end_offset, epochs=epochs)
