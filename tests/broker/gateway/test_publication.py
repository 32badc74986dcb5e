"""One Publish stream without a node: what it holds, what waits for room, and how it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.gateway import publishing
from broker.gateway.publishing import (
    HELD_RECORDS_MAX,
    Publication,
    PublishOutcome,
    RefusedRecords,
    StoredRecords,
    ToPublish,
    Writers,
)
from broker.gateway.record_checks import Writable
from broker.gateway.runs import Room, Run, Written
from stele.errors import ErrorCode
from stele.wire.batch import Header
from stele.wire.record import RECORD_OVERHEAD, record_size_bound
from stele.world import RpcCode, RpcError
from tests.broker.gateway.test_record_checks import writable
from tests.support.timing import LoopClock
from tests.support.worlds import virtual

ROOM_WAIT_S = 30.0


class Checks:
    """Lets every record for topic ``t`` pass."""

    def __init__(self, context: Any, caller: Any) -> None:
        self._topic = writable(1, max_message_bytes=1 << 20, message_timestamp_type="LogAppendTime")

    def begin(self) -> None:
        pass

    def known(self, topic: str) -> Writable:
        return self._topic


class Shared:
    """Writes each run at once, unless it is to wait."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.waits = False

    def add(self, way: Any, name: Any, run: Run, batch_bytes: int) -> bool:
        self.runs.append(run)
        if not self.waits:
            run.receipt.stored(run, 0, len(run.records), Written(0, 7, -1, is_duplicate=False))
        return True


class Outlet:
    """Gives the messages of a client, and takes the outcomes while it is open."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Sequence[ToPublish] | None] = asyncio.Queue()
        self.outcomes: list[PublishOutcome] = []
        self.takes = asyncio.Event()
        self.takes.set()

    async def receive(self) -> Iterable[Sequence[ToPublish]] | None:
        message = await self.messages.get()
        return None if message is None else [message]

    async def send(self, outcomes: Sequence[PublishOutcome]) -> None:
        await self.takes.wait()
        self.outcomes += outcomes

    async def close(self) -> None:
        self.messages.put_nowait(None)


class Stream:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, room_bytes: int = 1 << 30) -> None:
        monkeypatch.setattr(publishing, "RecordChecks", Checks)
        self.shared, self.outlet, self.room = Shared(), Outlet(), Room(room_bytes)
        context = cast(Any, SimpleNamespace(clock=LoopClock()))
        writers = Writers(cast(Any, self.shared), cast(Any, None), cast(Any, None), self.room)
        self.publication = Publication(context, cast(Any, None), writers, cast(Any, self.outlet))
        self.running = asyncio.ensure_future(self.publication.run())

    def send(self, *records: ToPublish) -> None:
        self.outlet.messages.put_nowait(records)

    def codes(self) -> list[ErrorCode]:
        """Of the refused ones, for each outcome."""
        return [
            each.refusal.code for each in self.outlet.outcomes if isinstance(each, RefusedRecords)
        ]

    async def end(self) -> None:
        self.outlet.messages.put_nowait(None)
        await self.running


def record(
    value: bytes | None = b"v", key: bytes | None = None, headers: Sequence[Header] = ()
) -> ToPublish:
    return ToPublish("t", key, value, headers, None, 0)


@virtual
async def test_everything_of_a_record_counts_for_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    headers = (("name", b"value"),)
    stream.send(record(b"value", b"key"))
    stream.send(record(None, b"key"))
    stream.send(record(b"value", None))
    stream.send(record(b"value", b"key", headers))
    await stream.end()
    assert [run.size for run in stream.shared.runs] == [
        RECORD_OVERHEAD + 8,
        RECORD_OVERHEAD + 3,
        RECORD_OVERHEAD + 5,
        record_size_bound(b"key", b"value", headers),
    ]
    assert [cast(StoredRecords, each).numbers for each in stream.outlet.outcomes] == [
        [0],
        [1],
        [2],
        [3],
    ]


@virtual
async def test_records_wait_for_room_and_are_refused_if_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch, room_bytes=100)
    stream.room.take(100)
    stream.send(record(), record())
    await asyncio.sleep(ROOM_WAIT_S - 0.1)
    assert stream.outlet.outcomes == []
    await asyncio.sleep(0.2)
    assert stream.codes() == [ErrorCode.REQUEST_TIMED_OUT]
    assert cast(RefusedRecords, stream.outlet.outcomes[0]).numbers == range(2)
    stream.send(record())
    await asyncio.sleep(1.0)
    stream.room.give(1)
    await asyncio.sleep(0.1)
    assert isinstance(stream.outlet.outcomes[1], StoredRecords)
    await stream.end()
    assert len(stream.shared.runs) == 1


@virtual
async def test_a_stream_that_stops_refuses_records_without_waiting_for_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch, room_bytes=100)
    stream.room.take(100)
    await asyncio.sleep(0)
    await stream.publication.idle()
    stream.send(record())
    await asyncio.sleep(0.1)
    assert stream.codes() == [ErrorCode.BROKER_NOT_AVAILABLE]
    stream.room.give(100)
    stream.send(record())
    await stream.end()
    assert stream.codes() == [ErrorCode.BROKER_NOT_AVAILABLE] * 2
    assert stream.shared.runs == []


@virtual
async def test_a_stream_that_stops_while_its_records_wait_for_room_refuses_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch, room_bytes=100)
    stream.room.take(100)
    stream.send(record())
    await asyncio.sleep(1.0)
    idle = asyncio.ensure_future(stream.publication.idle())
    await asyncio.sleep(0.1)
    stream.room.give(100)
    await idle
    assert stream.codes() == [ErrorCode.BROKER_NOT_AVAILABLE]
    await stream.end()


@virtual
async def test_a_client_that_takes_no_results_has_no_more_records_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch)
    stream.outlet.takes.clear()
    stream.send(*[record()] * HELD_RECORDS_MAX)
    stream.send(record())
    await asyncio.sleep(1.0)
    written = sum(len(run.records) for run in stream.shared.runs)
    assert written == HELD_RECORDS_MAX
    stream.outlet.takes.set()
    await stream.end()
    assert sum(len(run.records) for run in stream.shared.runs) == HELD_RECORDS_MAX + 1


@virtual
async def test_a_stream_that_is_ended_while_it_is_full_writes_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = Stream(monkeypatch)
    stream.outlet.takes.clear()
    stream.send(*[record()] * HELD_RECORDS_MAX)
    stream.send(record())
    await asyncio.sleep(1.0)
    await stream.publication.end(RpcError(RpcCode.UNAVAILABLE, "a test"))
    with pytest.raises(RpcError, match="a test"):
        await stream.running
    assert sum(len(run.records) for run in stream.shared.runs) == HELD_RECORDS_MAX
