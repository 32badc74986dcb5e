"""Transactions on a real shard: what the machine and its host make of each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.coordinator.shard import Shard
from broker.coordinator.step import Request
from broker.coordinator.transaction.config import TransactionConfig
from broker.coordinator.transaction.machine import TransactionMachine
from broker.coordinator.transaction.types import (
    AddPartitionsRequest,
    DescribeRequest,
    EndRequest,
    InitRequest,
    MarkersWritten,
    TransactionRef,
)
from broker.replication.deadlines import DeadlineWheel
from stele.errors import ErrorCode
from tests.support.coordinators import Heard, HeldLog
from tests.support.timing import LoopClock, until
from tests.support.transactions import partitions
from tests.support.worlds import virtual

REF = TransactionRef("t", 7, 0)
MARKED = REF._replace(producer_epoch=1)
A0 = partitions("a0")


class Hosted:
    """A machine on a shard, whose log commits when the test says so."""

    def __init__(self, log: HeldLog) -> None:
        self.log = log
        self.calls = 0
        clock = LoopClock()
        machine = TransactionMachine(TransactionConfig(), lambda: 2, self._on_due)
        self.shard = Shard(
            machine,
            log,
            clock=clock,
            deadlines=DeadlineWheel(clock),
            commit_timeout_ms=5_000,
            on_broken=lambda: None,
        )
        self.shard.begin()
        for loaded in log.loaded():
            self.shard.replay(loaded)
        self.shard.activate()

    def _on_due(self) -> None:
        self.calls += 1

    def submit(self, request: Request[Any]) -> Heard:
        heard = Heard()
        self.shard.submit(request, heard)
        return heard

    async def ask(self, request: Request[Any]) -> Any:
        heard = self.submit(request)
        batches = len(self.log.batches)
        await until(lambda: len(self.log.batches) > batches)
        self.log.commit()
        (answer,) = heard.told
        assert answer.error is ErrorCode.NONE
        return answer

    async def begin(self, timeout_ms: int = 60_000) -> None:
        init = InitRequest("t", timeout_ms, fresh_producer_id=7)
        await self.ask(init)
        add = AddPartitionsRequest(REF, A0, client_version=2)
        await self.ask(add)

    def end(self) -> Heard:
        end = EndRequest(REF, commit=True, client_version=2)
        return self.submit(end)

    def state(self) -> str:
        value = self.shard.machine.value_of("t")
        return "" if value is None else value.state.label

    def mark(self) -> None:
        self.shard.inform(MarkersWritten(MARKED, A0))


@virtual
async def test_a_commit() -> None:
    log = HeldLog()
    hosted = Hosted(log)
    await hosted.begin()
    ended = hosted.end()
    await until(lambda: hosted.state() == "PrepareCommit")
    assert (hosted.calls, ended.told, hosted.shard.machine.due_markers()) == (0, [], [])
    log.commit()
    assert hosted.calls == 1
    assert len(ended.told) == 1
    ((ref, commit, due, version),) = hosted.shard.machine.due_markers()
    assert (ref, commit, due, version) == (MARKED, True, A0, 2)
    hosted.mark()
    await until(lambda: hosted.state() == "CompleteCommit")
    assert len(log.batches) == 4
    hosted.shard.unload()


@virtual
async def test_the_next_coordinator_goes_on_when_the_decision_is_committed() -> None:
    log = HeldLog()
    hosted = Hosted(log)
    await hosted.begin()
    hosted.end()
    await until(lambda: hosted.state() == "PrepareCommit")
    hosted.shard.unload()

    successor = Hosted(log)
    assert successor.calls == 0  # the decision is not known to be committed
    log.commit()
    await until(lambda: successor.calls == 1)
    (due,) = successor.shard.machine.due_markers()
    assert due.ref == MARKED
    successor.mark()
    await until(lambda: successor.state() == "CompleteCommit")
    successor.shard.unload()


@virtual
async def test_an_end_that_the_log_refuses_is_recorded_later() -> None:
    """Nobody tells the coordinator again that the markers are written."""
    log = HeldLog()
    hosted = Hosted(log)
    await hosted.begin()
    hosted.end()
    await until(lambda: hosted.state() == "PrepareCommit")
    log.commit()
    log.no_writes = ErrorCode.NOT_ENOUGH_REPLICAS
    hosted.mark()
    other = hosted.submit(DescribeRequest("t"))
    await until(lambda: bool(other.told))
    assert hosted.state() == "PrepareCommit"
    log.no_writes = ErrorCode.NONE
    await until(lambda: hosted.state() == "CompleteCommit")
    hosted.shard.unload()


@virtual
async def test_a_time_out() -> None:
    log = HeldLog()
    hosted = Hosted(log)
    await hosted.begin(timeout_ms=2_000)
    await until(lambda: hosted.state() == "PrepareAbort")
    log.commit()
    (due,) = hosted.shard.machine.due_markers()
    assert (due.ref, due.commit) == (MARKED, False)
    hosted.shard.unload()


@pytest.mark.parametrize("timeout", [False, True])
@virtual
async def test_a_transaction_has_as_many_partitions_as_can_end(timeout: bool) -> None:
    """A transaction takes no partition with which the record of its end would fit into no batch."""
    log = HeldLog(max_batch_bytes=4096)
    hosted = Hosted(log)
    await hosted.begin()
    count = 0
    while True:
        count += 1
        add = AddPartitionsRequest(REF, partitions(f"b{count:010}"), client_version=2)
        heard = hosted.submit(add)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        log.commit()
        if heard.told == [ErrorCode.INVALID_REQUEST]:
            break
    assert count > 100
    if timeout:
        await asyncio.sleep(61)
    else:
        hosted.end()
    await until(lambda: hosted.state() == ("PrepareAbort" if timeout else "PrepareCommit"))
    hosted.shard.unload()


@virtual
async def test_a_transaction_whose_end_fits_into_no_batch_keeps_nobody_waiting() -> None:
    """max.message.bytes was lowered under an open transaction: others are aborted in time, and this
    one when it is raised again."""
    log = HeldLog()
    hosted = Hosted(log)
    await hosted.begin()
    names = [f"b{number}" for number in range(500)]
    add = AddPartitionsRequest(REF, partitions(*names), client_version=2)
    await hosted.ask(add)
    init = InitRequest("u", 60_000, fresh_producer_id=8)
    await hosted.ask(init)
    other = AddPartitionsRequest(TransactionRef("u", 8, 0), A0, client_version=2)
    await hosted.ask(other)
    log.max_batch_bytes = 1000
    await asyncio.sleep(61)
    value = hosted.shard.machine.value_of("u")
    assert value is not None
    assert value.state.label == "PrepareAbort"
    assert hosted.state() == "Ongoing"
    log.max_batch_bytes = 1 << 20
    await asyncio.sleep(60)
    assert hosted.state() == "PrepareAbort"
    hosted.shard.unload()
