"""The laws of who may hold shared records, where leaders of share partitions begin, and how groups
spread partitions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.coordinator.group.share.types import (
    DescribedShareMember,
    ShareDescribeAnswer,
    ShareDescribeRequest,
    SharePartitionsAnswer,
)
from broker.coordinator.group.types import GroupState
from broker.coordinator.step import Reply, Step
from broker.share.machine import SharePartition
from broker.share.values import ReadBatch, RecordState, StateBatch
from broker.sharing.sessions import SessionKey, ShareSessions
from chaos.sim.laws.share_sessions import HoldersHaveSessions
from chaos.sim.laws.share_successions import ShareLeadersGoOn
from chaos.sim.laws.share_targets import SharePartitionsAreSpread
from chaos.sim.laws.shared_records import RecordName
from stele.errors import ErrorCode
from tests.chaos.sim.laws.test_share_windows import DONE, FREE, KEY, Bench, state
from tests.support.law_bench import PARTITION, TOPIC

MEMBER = SessionKey("g", "m")


class LeaderBench(Bench):
    """Broker 1 leads, and has share sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.scene.add(self.logs)
        self.sessions = ShareSessions(10, lambda _: None)
        self.groups: list[Any] = []
        broker: Any = self.brokers[1].node.broker
        broker.sharing.sessions = self.sessions
        broker.groups = SimpleNamespace(each_active=lambda: [(0, 5, each) for each in self.groups])
        self.holders = HoldersHaveSessions.of(self.scene)
        self.successions = ShareLeadersGoOn.of(self.scene)
        self.spread = SharePartitionsAreSpread.of(self.scene)

    def lead_in(self, epoch: int, start: int, *batches: StateBatch) -> SharePartition:
        machine = self.lead(start, *batches)
        self.led[-1].log = SimpleNamespace(leader_epoch=epoch)
        return machine


@pytest.fixture
def bench() -> LeaderBench:
    return LeaderBench()


def test_a_member_that_has_records_has_a_session(bench: LeaderBench) -> None:
    machine = bench.lead(0)
    session = bench.sessions.open(MEMBER, "connection")
    machine.acquire("m", 0, [ReadBatch(0, 1)], 10, 0)
    assert not bench.broken(bench.holders)
    assert bench.holders.looked
    bench.sessions.end(session)
    assert len(bench.broken(bench.holders)) == 2
    machine.end_session("m", 0)
    assert not bench.broken(bench.holders)


def test_a_record_that_its_member_spoke_of_may_wait_for_its_lock(bench: LeaderBench) -> None:
    machine = bench.lead(0)
    machine.acquire("m", 0, [ReadBatch(0, 0)], 10, 0)
    name = RecordName("g", (TOPIC, 0), 0)
    bench.records.of(name).spoke.add("other")
    assert len(bench.broken(bench.holders)) == 1
    bench.records.of(name).spoke.add("m")
    assert not bench.broken(bench.holders)


def test_a_record_whose_decision_is_being_written_waits_for_it(bench: LeaderBench) -> None:
    machine = bench.lead(0)
    machine.acquire("m", 0, [ReadBatch(0, 0)], 10, 0)
    (only,) = machine.ranges()
    only.write = 3
    assert not bench.broken(bench.holders)


COMMITTED = state(3, StateBatch(4, 5, DONE, 1), StateBatch(6, 6, FREE, 2))


@pytest.mark.parametrize(
    ("start", "batches", "is_wrong"),
    [
        (3, COMMITTED.batches, False),
        (7, (), False),
        (2, COMMITTED.batches, True),
        (3, COMMITTED.batches[:1], True),
        (3, (StateBatch(4, 4, DONE, 1), *COMMITTED.batches[1:]), True),
        (3, (COMMITTED.batches[0], StateBatch(6, 6, FREE, 1)), True),
        (3, (COMMITTED.batches[0], StateBatch(6, 6, RecordState.ARCHIVED, 2)), False),
    ],
)
def test_a_leader_goes_on_where_the_committed_state_ends(
    bench: LeaderBench, start: int, batches: tuple[StateBatch, ...], is_wrong: bool
) -> None:
    bench.logs.committed[KEY] = COMMITTED
    assert not bench.broken(bench.successions)
    machine = bench.lead_in(6, start, *batches)
    if not is_wrong or len(batches) == 1:
        machine.acquire("m", machine.end_offset, [ReadBatch(machine.end_offset, 9)], 10, 0)
    assert bool(bench.broken(bench.successions)) is is_wrong
    assert bench.successions.looked == 1
    assert not bench.broken(bench.successions), "once is enough"


def test_a_leader_does_not_know_what_was_committed_later(bench: LeaderBench) -> None:
    bench.broken(bench.successions)
    machine = bench.lead_in(6, 0)
    bench.led[0].machine = None  # it loads the state
    bench.logs.committed[KEY] = COMMITTED
    assert not bench.broken(bench.successions)
    bench.led[0].machine = machine
    assert not bench.broken(bench.successions)
    assert not bench.successions.looked


def test_a_former_leader_learns_the_state_with_its_first_write(bench: LeaderBench) -> None:
    bench.logs.committed[KEY] = COMMITTED
    bench.broken(bench.successions)
    bench.lead_in(4, 0)
    assert not bench.broken(bench.successions)
    assert not bench.successions.looked


class Groups:
    """A fake ``GroupMachine``: a share group in epoch 4 of which the members own these partitions
    out of so many."""

    def __init__(self, partitions: int, *owned: set[int], epochs: tuple[int, ...] = ()) -> None:
        self.epochs = epochs or (4,) * len(owned)
        self.owned = owned
        self.partitions = frozenset(range(partitions))

    def take(self, request: object, waiter: Any, now: object) -> Step:
        answer: object = SharePartitionsAnswer(
            ErrorCode.NONE, {PARTITION.topic_id: self.partitions} if self.partitions else {}
        )
        if isinstance(request, ShareDescribeRequest):
            members = [
                DescribedShareMember(
                    f"m{number}",
                    None,
                    epoch,
                    "",
                    "",
                    (TOPIC,),
                    {PARTITION.topic_id: frozenset(has)},
                )
                for number, (has, epoch) in enumerate(zip(self.owned, self.epochs, strict=True))
            ]
            answer = ShareDescribeAnswer(
                ErrorCode.NONE, "g", GroupState.STABLE, 4, 4, "simple", tuple(members)
            )
        return Step(replies=[Reply(waiter, answer, 0)])


@pytest.mark.parametrize(
    "groups",
    [
        Groups(2, {0}, {1}),
        Groups(2, {0}, {1}, {1}),
        Groups(3, {0, 1}, {2}),
        Groups(0, set(), set()),
        Groups(2),
        Groups(2, {0}, {0}, epochs=(4, 3)),
    ],
)
def test_partitions_are_spread_over_members(bench: LeaderBench, groups: Groups) -> None:
    bench.groups.append(groups)
    assert not bench.broken(bench.spread)


@pytest.mark.parametrize(
    "groups",
    [
        Groups(2, {0}, {0}),
        Groups(1, {0}, set()),
        Groups(3, {0, 1, 2}, {0}),
        Groups(2, {0}, {0}, {0}, {1}),
    ],
)
def test_a_partition_without_a_member_or_with_too_many_is_found(
    bench: LeaderBench, groups: Groups
) -> None:
    bench.groups.append(groups)
    assert len(bench.broken(bench.spread)) == 1
