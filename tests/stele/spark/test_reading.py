"""How a task fetches ahead, and puts polls together before it makes columns of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele import Consumer
from stele.cluster.messages import FetchAnswer, FetchRequest
from stele.consumer.positions import RawBatch
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.spark import reading
from stele.spark.kept_clients import KeptClients
from stele.spark.offsets import OffsetRange
from stele.spark.options import SourceOptions
from stele.spark.reading import together
from stele.wire.batch import BatchBuilder, BatchHeader, Record, encode, read_header, stamp
from tests.support.sync_clients import InMemory

NAME = TopicPartition("orders", 0)
HEADER = read_header(encode([Record(0, 0, None, b"x", ())]))
POLLS = st.lists(
    st.lists(st.tuples(st.integers(1, 30_000), st.integers(70, 6_000_000)), max_size=4)
)


def batch(header: BatchHeader) -> RawBatch:
    return RawBatch(NAME, b"", 0, header, 0)


def made(polls: Sequence[Sequence[tuple[int, int]]]) -> list[list[RawBatch]]:
    found, offset = [], 0
    for poll in polls:
        one = []
        for records, size_bytes in poll:
            header = HEADER._replace(
                base_offset=offset, record_count=records, size_bytes=size_bytes
            )
            one.append(batch(header))
            offset += records
        found.append(one)
    return found


def is_enough(batches: Sequence[RawBatch]) -> bool:
    records = sum(each.header.record_count for each in batches)
    return records >= 20_000 or sum(each.header.size_bytes for each in batches) >= 4 * 1024 * 1024


@given(POLLS)
def test_polls_are_put_together_in_order_until_they_are_enough(
    shapes: list[list[tuple[int, int]]],
) -> None:
    polls = made(shapes)
    expected: list[list[RawBatch]] = [[]]
    for poll in polls:
        expected[-1] = expected[-1] + poll
        if is_enough(expected[-1]):
            expected.append([])
    assert list(together(polls)) == [each for each in expected if each]


def test_no_more_polls_are_taken_than_one_list_needs() -> None:
    """Large records fill the memory of a task after few rows: rows alone are no bound."""
    polls = made([[(1, 1024 * 1024)] * 4] * 3)
    taken = 0

    def counted() -> Iterator[list[RawBatch]]:
        nonlocal taken
        for poll in polls:
            taken += 1
            yield poll

    for number, found in enumerate(together(counted()), 1):
        assert taken == number
        assert len(found) == 4
    assert taken == 3


# ------------------------------------------------------------------------- fetching ahead


class DumbServer:
    """A broker in memory that counts what was fetched and is in no row yet, and what is asked of it
    at the same time."""

    def __init__(self, batches: int) -> None:
        self.memory = InMemory()
        self.partition = self.memory.cluster.create("t").partitions[0]
        for offset in range(batches):
            builder = BatchBuilder()
            builder.append(None, bytes(10_000), timestamp_ms=1)
            data = builder.build()
            stamp(data, 0, base_offset=offset, leader_epoch=0)
            self.partition.batches.append(data)
        self.partition.end_offset = batches
        self.batch_bytes = len(self.partition.batches[0])
        self.refused_from = batches
        self.fetched_bytes = 0
        self.asked = self.most_asked = 0
        self.changed = threading.Condition()
        self._fetch = self.memory.cluster.fetch
        self.memory.cluster.fetch = self.fetch  # type: ignore[method-assign]

    async def fetch(self, broker: int, request: FetchRequest) -> list[FetchAnswer]:
        self.asked += 1
        self.most_asked = max(self.most_asked, self.asked)
        answers = await self._fetch(broker, request)
        self.asked -= 1
        if request.partitions[0].fetch_offset >= self.refused_from:
            answers[0].code, answers[0].records = ErrorCode.TOPIC_AUTHORIZATION_FAILED, b""
        with self.changed:
            self.fetched_bytes += sum(len(each.records) for each in answers)
            self.changed.notify_all()
        return answers

    def wait_until_fetched(self, size_bytes: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.fetched_bytes >= size_bytes, timeout=30)


def read_from(
    server: DumbServer, monkeypatch: pytest.MonkeyPatch, **settings: int
) -> Iterator[pa.RecordBatch]:
    def opened(options: SourceOptions) -> Consumer:
        return server.memory.consumer(auto_offset_reset="none", **settings)

    monkeypatch.setattr(reading, "readers", KeptClients(opened, lambda options: 1, idle_s=0.0))
    monkeypatch.setattr(reading, "_POLL_BYTES", 2 * server.batch_bytes)
    monkeypatch.setattr(reading, "_ENOUGH_BYTES", 2 * server.batch_bytes)
    options = SourceOptions.parse({"bootstrap.servers": "b:1", "subscribe": "t"})
    range_ = OffsetRange("t", 0, 0, server.partition.end_offset)
    return reading.read_range(options, range_)


def test_several_fetches_are_answered_while_spark_has_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = DumbServer(40)
    size = server.batch_bytes
    settings = {"max_partition_fetch_bytes": 2 * size, "prefetch_bytes": 9 * size}
    threads = set(threading.enumerate())
    rows = read_from(server, monkeypatch, **settings)
    read = next(rows).num_rows
    for _ in range(3):  # Spark takes its time: the task runs no line of its own
        server.wait_until_fetched(min((read + 9) * size, 40 * size))
        read += next(rows).num_rows
        assert server.fetched_bytes <= (read + 9 + 2) * size, "two batches come in an answer"
    assert read + sum(each.num_rows for each in rows) == 40
    assert (server.fetched_bytes, server.most_asked) == (40 * size, 1)
    reading.readers.close_idle()
    left = {each.name for each in set(threading.enumerate()) - threads}
    assert left <= {"stele-client", "stele-spark-clients"}, "those of all clients of the process"


def test_an_error_of_a_fetch_ahead_comes_after_all_rows_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = DumbServer(12)
    server.refused_from = 8
    settings = {"max_partition_fetch_bytes": 2 * server.batch_bytes}
    rows = read_from(server, monkeypatch, **settings)
    found = [next(rows).num_rows]
    server.wait_until_fetched(8 * server.batch_bytes)
    with pytest.raises(ApiError, match="may not READ the topic"):
        found.extend(each.num_rows for each in rows)
    assert sum(found) == 8
