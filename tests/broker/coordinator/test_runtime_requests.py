"""Whom a runtime asks, tells and counts: on logs of the test."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.coordinator.runtime import CoordinatorRuntime
from broker.coordinator.step import Now, Producer, Step, Transaction
from broker.replication.hosted import Loaded
from stele.errors import ErrorCode
from stele.ids import PartitionId
from tests.support.coordinators import Event, Heard, HeldLog, Sums
from tests.support.timing import LoopClock
from tests.support.worlds import virtual

TOPIC_ID, OTHER_ID = b"t" * 16, b"o" * 16
NOT_COORDINATOR, LOADING = ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class SlowLog(HeldLog):
    """Takes its time to be read."""

    load_s = 0.0

    async def records(self) -> AsyncIterator[Loaded]:
        await asyncio.sleep(self.load_s)
        for each in self.loaded():
            yield each


class Hosting:
    """A runtime, and the partitions that its broker leads."""

    def __init__(self) -> None:
        self.logs: dict[int, SlowLog] = {}
        self.listeners: list[Callable[[PartitionId], None]] = []
        self.runtime = CoordinatorRuntime(
            "topic", host=self, make_machine=Sums, clock=LoopClock(), commit_timeout_ms=5_000
        )

    def when_leading(self, listener: Callable[[PartitionId], None]) -> None:
        self.listeners.append(listener)

    def host(self, partition: PartitionId) -> SlowLog | None:
        assert partition.topic_id == TOPIC_ID
        return self.logs.get(partition.partition)

    def apply(self, *changed: int, topic_id: bytes = TOPIC_ID) -> None:
        topics = {"topic": SimpleNamespace(topic_id=TOPIC_ID)}
        changes = [SimpleNamespace(topic_id=topic_id, partition=each) for each in changed]
        self.runtime.apply(
            cast(Any, SimpleNamespace(changed_partitions=changes)),
            cast(Any, SimpleNamespace(topic=topics.get)),
        )

    def lead(self, number: int, *, epoch: int = 0, load_s: float = 0.0) -> SlowLog:
        log = self.logs[number] = SlowLog()
        log.leader_epoch, log.load_s = epoch, load_s
        self.apply(number)
        return log

    def lose(self, number: int) -> None:
        self.logs.pop(number).is_led = False
        self.apply(number)

    def add(self, number: int) -> Heard:
        heard = Heard()

        def event(machine: Sums, now: Now) -> Step:
            return machine.add(b"a", 1, heard)

        self.runtime.submit(number, Event(event), heard)
        return heard

    def put(self, number: int) -> Heard:
        heard = Heard()

        def event(machine: Sums, now: Now) -> Step:
            return machine.put(b"a", 7, heard, Producer(1, 0))

        transaction = Transaction("t", Producer(1, 0), adds=True)
        self.runtime.submit_in_transaction(number, transaction, Event(event), heard)
        return heard


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@virtual
async def test_a_transaction_is_verified_before_an_event_of_it_is_decided() -> None:
    hosting = Hosting()
    assert hosting.put(0).told == [NOT_COORDINATOR]
    log = hosting.lead(0)
    assert hosting.put(0).told == [LOADING]
    await turns()
    assert log.added == []
    log.held = []
    heard = hosting.put(0)
    await turns()
    assert (heard.told, log.batches, log.added) == ([], [], ["t"])
    log.held[0]()
    await turns()
    log.commit()
    assert heard.told == [7]
    log.held, log.verdict = None, ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert hosting.put(0).told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    await turns()
    assert len(log.batches) == 1
    await hosting.runtime.stop()


@virtual
async def test_only_the_coordinator_of_an_epoch_is_informed_and_active() -> None:
    hosting = Hosting()
    runtime = hosting.runtime
    hosting.lead(1, epoch=5, load_s=1.0)
    await turns()
    assert (runtime.is_active(1, 5), list(runtime.each_active())) == (False, [])
    await asyncio.sleep(1.1)
    informed: list[tuple[int, int]] = []
    asked_of = [(0, 5), (1, 4), (1, 5), (1, 6)]
    for each in asked_of:
        runtime.inform_one(
            *each, Event(functools.partial(lambda asked, *_: informed.append(asked), each))
        )
    assert informed == [(1, 5)]
    assert [runtime.is_active(*each) for each in asked_of] == [False, False, True, False]
    assert [each[:2] for each in runtime.each_active()] == [(1, 5)]
    await runtime.stop()


@virtual
async def test_loads_are_counted() -> None:
    hosting = Hosting()
    for number, load_s in enumerate((2.0, 3.0, 1.0)):
        hosting.lead(number, load_s=load_s)
    await asyncio.sleep(4)
    counters = hosting.runtime.counters
    assert (counters.loads, counters.failed_loads) == (3, 0)
    assert counters.longest_s == pytest.approx(3.0)
    assert counters.total_s == pytest.approx(6.0)
    await hosting.runtime.stop()


@virtual
async def test_partitions_of_other_topics_are_none_of_its_own() -> None:
    hosting = Hosting()
    hosting.logs[0] = SlowLog()
    hosting.apply(0, topic_id=OTHER_ID)
    assert hosting.runtime.partitions == []
    hosting.apply(0)
    assert hosting.runtime.partitions == [0]
    await hosting.runtime.stop()
    hosting.apply(0)
    assert hosting.runtime.partitions == []


@virtual
async def test_a_coordinator_that_breaks_is_loaded_anew_if_it_still_leads() -> None:
    hosting = Hosting()
    logs = [hosting.lead(number) for number in range(2)]
    await turns()
    for number, log in enumerate(logs):
        log.failure = OSError("the disk is gone")
        heard = hosting.add(number)
        await turns()
        assert heard.told == [NOT_COORDINATOR]
        log.failure = None
    hosting.lose(1)
    assert hosting.runtime.partitions == [0]
    await asyncio.sleep(2)
    assert hosting.runtime.counters.loads == 3
    assert (hosting.runtime.is_active(0, 0), hosting.runtime.partitions) == (True, [0])
    await hosting.runtime.stop()


@virtual
async def test_a_load_that_is_given_up_is_not_gone_on_with() -> None:
    hosting = Hosting()
    hosting.lead(0, load_s=1.0)
    await turns()
    hosting.lose(0)
    hosting.lead(1, load_s=1.0)
    await turns()
    await hosting.runtime.stop()
    await asyncio.sleep(2)
    assert hosting.runtime.counters.loads == 0
    assert hosting.runtime.counters.failed_loads == 0


@virtual
async def test_a_stop_waits_for_the_loads_that_it_ends() -> None:
    hosting = Hosting()
    for number in range(2):
        hosting.lead(number, load_s=1.0)
    await turns()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert len(others) == 2
    await hosting.runtime.stop()
    assert all(each.done() for each in others)
