"""Several Raft cores on virtual time among faults, from one seed. Invariants watch every event."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from raft.messages import (
    Batch,
    CallFailed,
    FetchRequest,
    Inbound,
    RequestReceived,
    Response,
    ResponseReceived,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from raft.quorum import ReplicaKey, VoterSet
from raft.ready import Call, Outbound, Ready, Role
from raft.timing import Timing
from tests.support.raft_node import FakeNode

CALL_TIMEOUT_S = 1.0


def directory_id(node: int, disk: int) -> bytes:
    return bytes([node, disk]) * 8


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults of a run. Every parameter is drawn from the seed."""

    drop: float
    duplicate: float
    delay_s: float
    sync_s: float
    crash_every_s: float
    partition_every_s: float
    snapshot_every_s: float
    change_every_s: float
    wipe_every_s: float

    @classmethod
    def draw(cls, rng: random.Random) -> Faults:
        return cls(
            drop=rng.choice([0.0, 0.01, 0.1]),
            duplicate=rng.choice([0.0, 0.02, 0.1]),
            delay_s=rng.choice([0.002, 0.02, 0.2]),
            sync_s=rng.choice([0.001, 0.01, 0.1]),
            crash_every_s=rng.choice([1.0, 3.0, 10.0]),
            partition_every_s=rng.choice([1.5, 4.0, 20.0]),
            snapshot_every_s=rng.choice([0.1, 0.5, 5.0]),
            change_every_s=rng.choice([0.1, 0.5, 2.0]),
            wipe_every_s=rng.choice([1.0, 4.0]),
        )


class Invariant(Protocol):
    """Looks at every event after it happened, and fails if something is broken for good."""

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None: ...

    def sending(self, simulation: Simulation, node: FakeNode, item: Outbound) -> None: ...


@dataclass(frozen=True, slots=True)
class Served:
    """A received request: its caller, and the caller's start that sent it."""

    caller: int
    life: int
    call: Call


class Simulation:
    """Nodes 1 to ``voters`` are the first voters. The nodes after them observe, and know nobody."""

    def __init__(self, seed: int, voters: int, observers: int = 0) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.faults = Faults.draw(self.rng)
        self.now = 0.0
        self.counts: Counter[str] = Counter()
        first_voters = VoterSet.of_ids(*range(1, voters + 1))
        contents: dict[SnapshotId, list[Batch]] = {}
        ids = range(1, voters + observers + 1)
        self.nodes = {
            node: FakeNode(
                node,
                first_voters if node <= voters else VoterSet([]),
                Timing(),
                random.Random(self.rng.random()),
                max_batches_per_fetch=self.rng.choice([1, 3, 100]),
                contents=contents,
                directory_id=directory_id(node, 1),
                bootstrap=tuple(-other for other in ids if other != node),
            )
            for node in ids
        }
        self.invariants: list[Invariant] = [
            OneLeaderPerEpoch(),
            OneVotePerEpoch(),
            NothingLeavesTooEarly(),
            CommittedPrefix(),
            MajorityHolds(),
        ]
        self.lost_disks: dict[ReplicaKey, list[Batch]] = {}
        self.cut: frozenset[tuple[int, int]] = frozenset()
        self.kind = True  # no faults while this is set
        self.slow_syncs_s: tuple[float, float] | None = None  # least and greatest time of a sync
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.served: list[Served] = []  # by the server's id of a received request
        self._values = itertools.count()
        self._ticks: dict[int, float] = {}

    # ---------------------------------------------------------------------------- events

    def at(self, delay_s: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay_s, next(self._order), event))

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = end

    def start_all(self) -> None:
        for node in self.nodes.values():
            self.start(node)

    def unkind(self) -> None:
        """Let the faults begin."""
        self.kind = False
        self.at(self._next(self.faults.crash_every_s), self._crash_one)
        self.at(self._next(self.faults.partition_every_s), self._partition)
        self.at(self._next(self.faults.snapshot_every_s), self._take_snapshot)

    def heal(self) -> None:
        self.kind = True
        self.cut = frozenset()
        self.start_all()

    def leaders(self) -> list[FakeNode]:
        """All nodes that believe to lead."""
        up = [node for node in self.nodes.values() if node.core is not None]
        return [node for node in up if node.running.status.role is Role.LEADER]

    def keep_proposing(self) -> None:
        for node in self.leaders():
            count = self.rng.randint(1, 3)
            payload = b"%d" % next(self._values)
            self.done(node, node.running.propose(payload, count, self.now))
            self.counts["proposals"] += 1
        self.at(self.rng.uniform(0.01, 0.2), self.keep_proposing)

    def _next(self, mean_s: float) -> float:
        return self.rng.uniform(0.0, 2 * mean_s)

    def start(self, node: FakeNode) -> None:
        """Start a node, unless it runs."""
        if node.core is not None:
            return
        ready, outbound = node.start(self.now)
        self.counts["starts"] += 1
        self._told(node, ready, outbound)

    def _crash_one(self) -> None:
        if self.kind:
            return
        node = self.rng.choice(list(self.nodes.values()))
        if node.core is not None:
            self.counts["crashes"] += 1
            node.crash(self.rng)
            self.at(self._next(1.0), lambda: self.start(node))
        self.at(self._next(self.faults.crash_every_s), self._crash_one)

    def _take_snapshot(self) -> None:
        """Some node writes a snapshot of a part of what it was delivered, and cuts its log
        there."""
        if self.kind:
            return
        node = self.rng.choice(list(self.nodes.values()))
        if node.core is not None:
            log = node.core.log
            ends = [
                batch.end_offset
                for batch in node.delivered
                if log.start_offset < batch.end_offset <= log.durable_end_offset
            ]
            if ends:
                self.counts["snapshots"] += 1
                node.take_snapshot(self.rng.choice(ends))
        self.at(self._next(self.faults.snapshot_every_s), self._take_snapshot)

    def _check_snapshot(self, node: FakeNode, life: int, snapshot: SnapshotId) -> None:
        if node.core is not None and node.life == life:
            sound = self.kind or self.rng.random() < 0.8
            self.done(node, node.check_snapshot(snapshot, self.now, sound=sound))

    def _partition(self) -> None:
        if self.kind:
            return
        self.counts["partitions"] += 1
        ids = list(self.nodes)
        away = {node for node in ids if self.rng.random() < 0.4}
        one_way = self.rng.random() < 0.3
        pairs = {(a, b) for a in away for b in ids if b not in away}
        self.cut = frozenset(pairs if one_way else pairs | {(b, a) for a, b in pairs})
        self.at(self._next(1.5), self._reconnect)
        self.at(self._next(self.faults.partition_every_s) + 0.5, self._partition)

    def _reconnect(self) -> None:
        self.cut = frozenset()

    # ---------------------------------------------------------------------------- wiring

    def done(self, node: FakeNode, ready: Ready) -> None:
        self._told(node, ready, node.apply(ready))

    def _told(self, node: FakeNode, ready: Ready, outbound: list[Outbound]) -> None:
        if ready.truncate_to is not None:
            self.counts["truncations"] += 1
        if ready.status is not None:
            self.counts[ready.status.role.value] += 1
        if ready.committed is not None:
            self.counts["commits"] += 1
        if ready.install is not None:
            self.counts["installs"] += 1
        for piece in ready.pieces:
            if piece.is_last:
                check = partial(self._check_snapshot, node, node.life, piece.snapshot)
                self.at(self.rng.uniform(0.0, 2 * self.faults.sync_s), check)
        for invariant in self.invariants:
            invariant.after(self, node, ready)
        for item in outbound:
            for invariant in self.invariants:
                invariant.sending(self, node, item)
            self._send(node, item)
        if node.wants_sync:
            node.begin_sync()
            life = node.life
            delay_s = 0.001 if self.kind else self.rng.uniform(0, self.faults.sync_s)
            if self.slow_syncs_s is not None:
                delay_s = self.rng.uniform(*self.slow_syncs_s)
            self.at(delay_s, lambda: self._end_sync(node, life))
        self._schedule_tick(node)

    def _end_sync(self, node: FakeNode, life: int) -> None:
        if node.life == life and node.syncing is not None:
            self._told(node, *node.end_sync(self.now))

    def _schedule_tick(self, node: FakeNode) -> None:
        deadline = node.deadline
        if deadline == float("inf") or self._ticks.get(node.id) == deadline:
            return
        self._ticks[node.id] = deadline
        self.at(max(0.0, deadline - self.now), lambda: self._tick(node, deadline))

    def _tick(self, node: FakeNode, deadline: float) -> None:
        if self._ticks.get(node.id) == deadline:
            del self._ticks[node.id]
        if node.core is not None and node.deadline <= self.now:
            self.done(node, node.core.tick(self.now))

    def _send(self, node: FakeNode, item: Outbound) -> None:
        if isinstance(item, Call):
            self._carry(node.id, abs(item.to), lambda: self._request(node, node.life, item))
            failure = CallFailed(item.request_id)
            life = node.life
            self.at(CALL_TIMEOUT_S, lambda: self._inbound(node, life, failure))
            return
        served, message = self.served[item.request_id], node.filled(item).message
        self._carry(node.id, served.caller, lambda: self._response(served, message))

    def _carry(self, source: int, target: int, arrive: Callable[[], None]) -> None:
        """Carry one message, which may be late, lost or doubled, and may overtake others."""
        copies = 1
        if not self.kind:
            copies = 0 if self.rng.random() < self.faults.drop else 1
            copies += self.rng.random() < self.faults.duplicate
        for _ in range(copies):
            delay_s = 0.001 if self.kind else self.rng.uniform(0.0005, self.faults.delay_s)
            self.at(delay_s, lambda: None if (source, target) in self.cut else arrive())

    def _request(self, caller: FakeNode, life: int, call: Call) -> None:
        target = self.nodes[abs(call.to)]  # a negative id names a bootstrap node
        if target.core is None:
            self._refused(caller, life, call)
            return
        self.served.append(Served(caller.id, life, call))
        received = RequestReceived(len(self.served) - 1, call.message)
        self._inbound(target, target.life, received)

    def _refused(self, caller: FakeNode, life: int, call: Call) -> None:
        """Nobody listens there, and the caller notices at once."""
        self._inbound(caller, life, CallFailed(call.request_id))
        core = caller.core
        fetch = isinstance(call.message, FetchRequest)
        if core is not None and caller.life == life and fetch and core.status.leader_id == call.to:
            self.done(caller, core.leader_unreachable(self.now))

    def _response(self, served: Served, message: Response) -> None:
        answered = ResponseReceived(served.call.request_id, message)
        self._inbound(self.nodes[served.caller], served.life, answered)

    def _inbound(self, node: FakeNode, life: int, inbound: Inbound) -> None:
        if node.core is not None and node.life == life:
            self._told(node, *node.step(inbound, self.now))


# ------------------------------------------------------------------------------ invariants


class _Watcher:
    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        """Nothing to check."""

    def sending(self, simulation: Simulation, node: FakeNode, item: Outbound) -> None:
        """Nothing to check."""


class OneLeaderPerEpoch(_Watcher):
    """An epoch has one leader, in one start of it, and that leader has every committed record."""

    def __init__(self) -> None:
        self.leaders: dict[int, tuple[int, int]] = {}

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        status = ready.status
        if status is None or status.role is not Role.LEADER:
            return
        leader = (node.id, node.life)
        assert self.leaders.setdefault(status.epoch, leader) == leader, status
        simulation.counts["epochs"] = len(self.leaders)
        truth = next(i for i in simulation.invariants if isinstance(i, CommittedPrefix)).truth
        held = node.history[: len(truth)]
        assert held == truth, f"leader {node.id} of epoch {status.epoch} lacks committed records"


class OneVotePerEpoch(_Watcher):
    """A voter supports one candidate per epoch, itself included, also across crashes."""

    def __init__(self) -> None:
        self.votes: dict[tuple[ReplicaKey, int], int] = {}

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        if node.core is not None and ready.hard_state is not None:
            assert ready.hard_state.epoch >= node.durable_hard_state.epoch

    def sending(self, simulation: Simulation, node: FakeNode, item: Outbound) -> None:
        if isinstance(item, Call):
            message = item.message
            if isinstance(message, VoteRequest) and not message.pre_vote:
                self._vote(node.key, message.epoch, node.id)
        elif isinstance(item.message, VoteResponse) and item.message.granted:
            served = simulation.served[item.request_id]
            asked = served.call.message
            if isinstance(asked, VoteRequest) and not asked.pre_vote:
                durable = node.durable_hard_state
                assert durable.epoch >= asked.epoch, "the vote is not durable"
                if durable.epoch == asked.epoch:
                    assert durable.voted_id == served.caller, "the vote is not durable"
                self._vote(node.key, asked.epoch, served.caller)

    def _vote(self, voter: ReplicaKey, epoch: int, candidate: int) -> None:
        assert self.votes.setdefault((voter, epoch), candidate) == candidate, (voter, epoch)


class NothingLeavesTooEarly(_Watcher):
    """What a message promises is on the sender's disk."""

    def sending(self, simulation: Simulation, node: FakeNode, item: Outbound) -> None:
        message = item.message
        if message.epoch > node.durable_hard_state.epoch:
            # Recovery also takes an epoch from the log.
            assert node.durable_history, message
            assert message.epoch <= node.durable_history[-1].epoch, message
        if isinstance(message, FetchRequest):
            durable = node.durable_history[-1].end_offset if node.durable_history else 0
            assert message.fetch_offset <= durable, message
        if isinstance(message, VoteRequest) and not message.pre_vote:
            assert node.durable_hard_state.voted_id == node.id, message


class CommittedPrefix(_Watcher):
    """All nodes are delivered the same records, in order, without gaps. High watermarks only
    rise."""

    def __init__(self) -> None:
        self.truth: list[Batch] = []
        self._watermarks: dict[tuple[int, int], int] = {}

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        if node.core is None:
            return
        watermark = node.core.high_watermark
        life = (node.id, node.life)
        assert watermark >= self._watermarks.get(life, -1)
        self._watermarks[life] = watermark
        if ready.committed is None and ready.install is None:
            return
        assert ready.committed is None or ready.committed[1] == watermark
        seen = len(node.delivered)
        shared = min(seen, len(self.truth))
        assert node.delivered[:shared] == self.truth[:shared], f"node {node.id}"
        self.truth.extend(node.delivered[shared:])
        end = node.delivered[-1].end_offset if node.delivered else 0
        assert end == watermark, f"node {node.id} was delivered {end} of {watermark}"


class MajorityHolds(_Watcher):
    """What a leader believes to be committed is durable on a majority of its voters.

    The content of a disk that was taken away counts: no other replica has acknowledged in its name.
    """

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        if ready.committed is None or node.running.status.role is not Role.LEADER:
            return
        held = node.history[: len(node.delivered)]
        voters = node.running.voters
        disks = {each.key: each.durable_history for each in simulation.nodes.values()}
        disks |= simulation.lost_disks
        holders = sum(
            any(
                voter.key.matches(disk) and history[: len(held)] == held
                for disk, history in disks.items()
            )
            for voter in voters.voters
        )
        assert holders >= voters.majority, f"only {holders} hold {ready.committed}"
