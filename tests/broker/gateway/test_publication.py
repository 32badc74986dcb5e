"""One Publish stream without a node: what it holds, what waits for room, and how it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.gateway import publishing
from broker.gateway.publishing import (
    HELD_BYTES_MAX,
    HELD_RECORDS_MAX,
    RESULTS_MAX,
    Publication,
    PublishOutcome,
    RefusedRecords,
    StoredRecords,
    ToPublish,
    Writers,
)
from broker.gateway.record_checks import Writable
from broker.gateway.refusals import Refusal
from broker.gateway.runs import Room, Run, Written
from broker.gateway.shared_writers import Way
from broker.gateway.stream_transactions import (
    EndOfTransaction,
    StreamTransactions,
    TransactionEnded,
)
from stele.aio import Producer
from stele.errors import ErrorCode
from stele.producer.outcomes import BatchOutcome
from stele.producer.partitioner import LONG_KEY_BYTES
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

    async def topic(self, topic: str) -> Writable:
        return self._topic

    def transactional_id(self, transactional_id: str) -> None:
        """It may be used."""


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


class Transactional:
    """The producer of a stream, which stores each record at once. It is given, and taken back."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.sent: list[bytes | None] = []

    def take(self, *options: object) -> Producer:
        return cast(Producer, self)

    def end(self, producer: Producer, close: Callable[[], Awaitable[None]]) -> None:
        self.calls.append("end")

    async def begin_transaction(self) -> None:
        self.calls.append("begin")

    async def commit_transaction(self) -> None:
        self.calls.append("commit")

    async def abort_transaction(self) -> None:
        self.calls.append("abort")

    async def send_into(
        self, receipt: Any, topic: str, value: bytes | None, *record: object
    ) -> None:
        self.sent.append(value)
        receipt.settle(BatchOutcome(topic, 0, 0, [5] * len(self.sent)), len(self.sent) - 1)


class Outlet:
    """Gives the messages of a client, and takes the outcomes while it is open."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Sequence[Sequence[ToPublish] | EndOfTransaction] | None] = (
            asyncio.Queue()
        )
        self.outcomes: list[PublishOutcome] = []
        self.message_sizes: list[int] = []  # how many outcomes each had
        self.takes = asyncio.Event()
        self.takes.set()

    async def receive(self) -> Iterable[Sequence[ToPublish] | EndOfTransaction] | None:
        return await self.messages.get()

    async def send(self, outcomes: Sequence[PublishOutcome]) -> None:
        await self.takes.wait()
        self.message_sizes.append(len(outcomes))
        self.outcomes += outcomes

    async def close(self) -> None:
        self.messages.put_nowait(None)


class Stream:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, room_bytes: int = 1 << 30) -> None:
        monkeypatch.setattr(publishing, "RecordChecks", Checks)
        self.shared, self.outlet, self.room = Shared(), Outlet(), Room(room_bytes)
        context = cast(Any, SimpleNamespace(clock=LoopClock()))
        self.transactional = Transactional()
        writers = Writers(
            cast(Any, self.shared), cast(Any, None), cast(Any, self.transactional), self.room
        )
        self.publication = Publication(context, cast(Any, None), writers, cast(Any, self.outlet))
        self.running = asyncio.ensure_future(self.publication.run())

    def send(self, *records: ToPublish) -> None:
        self.outlet.messages.put_nowait([records])

    def transact(self, *records: ToPublish, is_commit: bool | None = None) -> None:
        """``is_commit``: and end the transaction."""
        end = [] if is_commit is None else [EndOfTransaction(is_commit)]
        self.outlet.messages.put_nowait([records, *end])

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


@virtual
async def test_a_message_has_a_bounded_number_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(monkeypatch)
    stream.outlet.takes.clear()
    for _ in range(2 * RESULTS_MAX):
        stream.send(record())
    await asyncio.sleep(1.0)
    stream.outlet.takes.set()
    await stream.end()
    assert sum(stream.outlet.message_sizes) == 2 * RESULTS_MAX
    assert max(stream.outlet.message_sizes) == RESULTS_MAX


@virtual
async def test_the_key_of_a_record_that_names_its_partition_is_not_hashed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long key takes turns of the event loop."""
    hashed: list[int] = []

    async def hash_of(key: bytes) -> int:
        hashed.append(len(key))
        return 0

    monkeypatch.setattr(publishing, "murmur2_in_turns", hash_of)
    stream = Stream(monkeypatch)
    long = bytes(LONG_KEY_BYTES + 1)
    stream.send(record(key=long), record(key=None), record(key=b"k")._replace(partition=None))
    stream.send(record(key=long + b"k")._replace(partition=None))
    await stream.end()
    assert hashed == [len(long) + 1]


# ---------------------------------------------------------------------------- transactions


def transacting(monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream(monkeypatch)
    stream.publication.write_in_transactions(Way(), "x", 0)
    return stream


@virtual
async def test_a_stream_of_transactions_ends_when_all_their_ends_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = transacting(monkeypatch)
    stream.outlet.takes.clear()
    stream.transact(record(), record(), is_commit=True)
    stream.transact(is_commit=False)
    stream.transact(record(), is_commit=False)
    stream.outlet.messages.put_nowait(None)
    await asyncio.sleep(1.0)
    assert not stream.running.done()
    stream.outlet.takes.set()
    async with asyncio.timeout(1):
        await stream.running
    ended = [each for each in stream.outlet.outcomes if isinstance(each, TransactionEnded)]
    assert [each.is_committed for each in ended] == [True, False, False]
    assert stream.transactional.calls == ["begin", "commit", "begin", "abort", "end"]


@pytest.mark.parametrize(
    "large",
    [
        record(None, bytes(HELD_BYTES_MAX // 8)),
        record(bytes(HELD_BYTES_MAX // 8)),
        record(b"", None, [("h", bytes(HELD_BYTES_MAX // 8))]),
    ],
    ids=["keys", "values", "headers"],
)
@virtual
async def test_a_client_that_takes_no_results_has_a_bounded_size_of_records_read(
    monkeypatch: pytest.MonkeyPatch, large: ToPublish
) -> None:
    stream = transacting(monkeypatch)
    monkeypatch.setattr(publishing, "fault_of", lambda *_, **__: None)
    stream.outlet.takes.clear()
    for _ in range(10):
        stream.transact(large)
    await asyncio.sleep(1.0)
    assert len(stream.transactional.sent) == 8
    stream.outlet.takes.set()
    await stream.end()
    assert len(stream.transactional.sent) == 10


@virtual
async def test_a_transaction_that_lacks_records_ends_for_the_first_reason() -> None:
    transactions = StreamTransactions(cast(Producer, Transactional()))
    first, second = (
        Refusal(code, "so") for code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)
    )
    transactions.lacks(first)
    transactions.lacks(second)
    assert await transactions.end(is_commit=True) == TransactionEnded(False, first)
    assert await transactions.end(is_commit=True) == TransactionEnded(True)
