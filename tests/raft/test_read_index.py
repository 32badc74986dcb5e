"""A leader is confirmed only by answers to questions asked after the read began."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from raft.core import RaftCore
from raft.log_view import LogView
from raft.membership import RemoveVoter
from raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    CallFailed,
    Inbound,
    ResponseReceived,
    VoteRequest,
    VoteResponse,
)
from raft.quorum import ReplicaKey, VoterSet
from raft.ready import Call, HardState, Ready, Role
from raft.timing import Timing
from raft.voter_history import VoterHistory
from stele.errors import ErrorCode
from tests.support.raft_leading import Leading, key, known
from tests.support.raft_node import FakeNode
from tests.support.raft_simulation import Simulation


def leader(*voters: int) -> RaftCore:
    """Voter 1, which all others have just elected."""
    core = RaftCore(
        ReplicaKey(1),
        VoterHistory(VoterSet.of_ids(*voters)),
        LogView(),
        HardState(),
        Timing(),
        random.Random(1),
    )
    core.start(0.0)
    readies = [core.tick(100.0)]
    for ready in readies:  # grows while it is gone through
        if ready.ticket:
            readies.append(core.persisted(ready.ticket, 100.0))
        for call in asked(ready, VoteRequest):
            yes = VoteResponse(ErrorCode.NONE, None, core.epoch, True)
            readies.append(core.step(ResponseReceived(call.request_id, yes), 100.0))
    assert core.status.role is Role.LEADER
    return core


def asked(ready: Ready, kind: type) -> list[Call]:
    calls = [item for item in (*ready.send, *ready.send_after_persist) if isinstance(item, Call)]
    return [call for call in calls if isinstance(call.message, kind)]


def agree(core: RaftCore, call: Call, now: float = 100.5) -> Ready:
    answer = BeginQuorumEpochResponse(ErrorCode.NONE, 1, core.epoch)
    return core.step(ResponseReceived(call.request_id, answer), now)


def test_a_lone_voter_is_its_own_majority() -> None:
    core = leader(1)
    number, ready = core.confirm_leadership(100.5)
    assert core.reads_confirmed == number
    assert not asked(ready, BeginQuorumEpochRequest)


def test_a_majority_of_answers_confirms() -> None:
    core = leader(1, 2, 3, 4, 5)
    number, ready = core.confirm_leadership(100.5)
    calls = asked(ready, BeginQuorumEpochRequest)
    assert [call.to for call in calls] == [2, 3, 4, 5]
    agree(core, calls[0])
    agree(core, calls[0])
    assert core.reads_confirmed < number, "one voter counts once"
    agree(core, calls[3])
    assert core.reads_confirmed == number


def test_a_read_that_comes_meanwhile_waits_for_the_next_round() -> None:
    core = leader(1, 2, 3)
    first, ready = core.confirm_leadership(100.5)
    calls = asked(ready, BeginQuorumEpochRequest)
    second, ready = core.confirm_leadership(100.5)
    third, _ = core.confirm_leadership(100.5)
    assert second == third == first + 1
    assert not asked(ready, BeginQuorumEpochRequest)
    ready = agree(core, calls[0])
    assert core.reads_confirmed == first
    anew = asked(ready, BeginQuorumEpochRequest)
    assert [call.to for call in anew] == [2, 3]
    agree(core, calls[1])
    assert core.reads_confirmed == first, "the answer is to a question of the first round"
    agree(core, anew[1])
    assert core.reads_confirmed == second


def test_a_refusal_is_no_answer_and_silent_voters_are_asked_again() -> None:
    core = leader(1, 2, 3)
    number, ready = core.confirm_leadership(100.5)
    two, three = asked(ready, BeginQuorumEpochRequest)
    refusal = BeginQuorumEpochResponse(ErrorCode.INVALID_VOTER_KEY, 1, core.epoch)
    ready = core.step(ResponseReceived(two.request_id, refusal), 100.5)
    assert core.reads_confirmed < number
    ready = core.step(CallFailed(three.request_id), 100.5)
    ready = core.tick(ready.deadline)
    again = asked(ready, BeginQuorumEpochRequest)
    assert {call.to for call in again} <= {2, 3}
    assert again
    agree(core, again[0])
    assert core.reads_confirmed == number


def test_a_later_epoch_ends_leadership_and_confirms_nothing() -> None:
    core = leader(1, 2, 3)
    number, ready = core.confirm_leadership(100.5)
    call = asked(ready, BeginQuorumEpochRequest)[0]
    newer = BeginQuorumEpochResponse(ErrorCode.FENCED_LEADER_EPOCH, 2, core.epoch + 1)
    core.step(ResponseReceived(call.request_id, newer), 100.5)
    assert core.status.role is not Role.LEADER
    assert core.reads_confirmed < number


def test_an_answer_of_an_earlier_epoch_confirms_nothing() -> None:
    core = leader(1, 2, 3)
    number, ready = core.confirm_leadership(100.5)
    call = asked(ready, BeginQuorumEpochRequest)[0]
    late = BeginQuorumEpochResponse(ErrorCode.NONE, 1, core.epoch - 1)
    core.step(ResponseReceived(call.request_id, late), 100.5)
    assert core.reads_confirmed < number


def test_an_announcement_of_the_epoch_is_no_question_of_the_round() -> None:
    core = leader(1, 2, 3)
    two, three = core.outstanding.values()
    number, _ = core.confirm_leadership(100.5)
    agree(core, two)
    assert core.reads_confirmed < number
    ready = core.step(CallFailed(three.request_id), 100.5)
    assert ready.deadline == 100.5 + Timing().fetch_timeout_s / 4, "nobody is to be asked again"


def test_who_was_removed_meanwhile_is_not_asked_again() -> None:
    leading = Leading(known(1, 2, 3, 4)).established(2, 3, 4)
    number, ready = leading.core.confirm_leadership(leading.now)
    calls = {call.to: call for call in asked(ready, BeginQuorumEpochRequest)}
    leading.change(RemoveVoter(key(4)))
    for other in (3, 4):
        ready = leading.core.step(CallFailed(calls[other].request_id), leading.now)
    again = asked(leading.core.tick(ready.deadline), BeginQuorumEpochRequest)
    assert [call.to for call in again] == [3]
    agree(leading.core, again[0], ready.deadline)
    assert leading.core.reads_confirmed == number


# --------------------------------------------------------------------- among faults


@dataclass(frozen=True, slots=True)
class Read:
    node: FakeNode
    life: int
    epoch: int
    number: int
    high_watermark: int  # the reader's own when it began: what it would answer with
    newest: int  # the highest that any replica had ever known by then


class Readers:
    """An invariant of the simulation: every leader reads now and then."""

    def __init__(self) -> None:
        self.newest = -1
        self.reads: list[Read] = []
        self.counts: Counter[str] = Counter()

    def after(self, simulation: Simulation, node: FakeNode, ready: Ready) -> None:
        core = node.core
        if core is None:
            return
        self.newest = max(self.newest, core.high_watermark)
        waiting, self.reads = self.reads, []
        for read in waiting:
            leads = (
                read.life == read.node.life
                and read.node.core is not None
                and read.node.core.status.role is Role.LEADER
                and read.node.core.epoch == read.epoch
            )
            if not leads:
                self.counts["refused"] += 1
            elif read.node.core.reads_confirmed >= read.number:  # type: ignore[union-attr]
                self.counts["answered"] += 1
                assert read.high_watermark >= read.newest, f"seed {simulation.seed}: {read}"
            else:
                self.reads.append(read)

    def sending(self, simulation: Simulation, node: FakeNode, item: object) -> None:
        """Nothing to check."""

    def read(self, simulation: Pausing) -> None:
        for node in simulation.leaders():
            self.read_at(simulation, node)
        simulation.at(simulation.rng.uniform(0.005, 0.1), lambda: self.read(simulation))

    def read_at(self, simulation: Pausing, node: FakeNode) -> None:
        core = node.core
        if core is None or core.status.role is not Role.LEADER:
            return
        start = core.epoch_start_offset
        if start is None or core.high_watermark <= start:
            return
        self.counts["stale leaders"] += core.high_watermark < self.newest
        begun = Read(node, node.life, core.epoch, 0, core.high_watermark, self.newest)
        number, ready = core.confirm_leadership(simulation.now)
        self.reads.append(replace(begun, number=number))
        simulation.done(node, ready)


class Pausing(Simulation):
    """Leaders stand still for a while, and then go on as if nothing had happened.

    Messages to a paused node wait, and arrive after the read with which it wakes up.
    """

    def __init__(self, seed: int, voters: int) -> None:
        super().__init__(seed, voters)
        self.paused: dict[int, list[Callable[[], None]]] = {}
        self.readers = Readers()
        self.invariants.append(self.readers)

    def pause_leaders(self) -> None:
        for node in [] if self.kind else self.leaders():
            self.paused[node.id] = []
            self.at(self.rng.uniform(0.5, 6.0), partial(self.resume, node))
        self.at(self.rng.uniform(1.0, 5.0), self.pause_leaders)

    def resume(self, node: FakeNode) -> None:
        self.readers.read_at(self, node)
        for event in self.paused.pop(node.id):
            event()

    def _put_off(self, node: FakeNode, event: Callable[[], None]) -> bool:
        if node.id in self.paused:
            self.paused[node.id].append(event)
        return node.id in self.paused

    def _inbound(self, node: FakeNode, life: int, inbound: Inbound) -> None:
        if not self._put_off(node, lambda: self._inbound(node, life, inbound)):
            super()._inbound(node, life, inbound)

    def _tick(self, node: FakeNode, deadline: float) -> None:
        if not self._put_off(node, lambda: self._tick(node, deadline)):
            super()._tick(node, deadline)

    def _end_sync(self, node: FakeNode, life: int) -> None:
        if not self._put_off(node, lambda: self._end_sync(node, life)):
            super()._end_sync(node, life)

    def leaders(self) -> list[FakeNode]:
        return [node for node in super().leaders() if node.id not in self.paused]


def test_no_confirmed_read_is_older_than_what_was_committed_before_it_began() -> None:
    total: Counter[str] = Counter()
    for seed in range(12):
        simulation = Pausing(seed, 3 if seed % 2 else 5)
        simulation.start_all()
        simulation.keep_proposing()
        simulation.run_for(2.0)
        simulation.readers.read(simulation)
        simulation.unkind()
        simulation.pause_leaders()
        simulation.run_for(20.0)
        simulation.heal()
        simulation.run_for(8.0)
        total += simulation.readers.counts
    assert total["answered"] > 500, total
    assert total["refused"] > 10, total
    assert total["stale leaders"] > 5, total
