"""Reading only committed records: the filter against a twin that knows how transactions end."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.messages import (
    AbortedTransaction,
    FetchAnswer,
    FetchRequest,
    FoundOffset,
    OffsetQuestion,
)
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.positions import PartitionPosition
from stele.errors import ConfigError
from stele.ids import TopicPartition
from stele.wire.batch import BatchBuilder, read_header, stamp
from stele.wire.control_records import end_marker_batch
from tests.support.stele import Stage, on_stage

NAME = TopicPartition("t", 0)
PRODUCERS = (1, 2, 3)


class Kind(enum.Enum):
    PLAIN = enum.auto()  # idempotent, in no transaction
    DATA = enum.auto()
    COMMIT = enum.auto()
    ABORT = enum.auto()


class Written(NamedTuple):
    """One batch of a log. A marker has one."""

    kind: Kind
    producer_id: int
    records: int


class Told(NamedTuple):
    producer_id: int
    first_offset: int


class Log:
    """A partition, and what a broker and a dumb reader know of it."""

    def __init__(self, written: list[Written]) -> None:
        self.batches: list[bytearray] = []
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first and last offset
        self.committed: list[int] = []  # the offsets of records that are to be read
        self.end_offset = 0
        opened: dict[int, tuple[int, list[int]]] = {}
        for each in written:
            base = self.end_offset
            offsets = list(range(base, base + each.records))
            if each.kind is Kind.PLAIN:
                self.committed += offsets
            elif each.kind is Kind.DATA:
                opened.setdefault(each.producer_id, (base, []))[1].extend(offsets)
            elif each.producer_id in opened:
                first, records = opened.pop(each.producer_id)
                if each.kind is Kind.COMMIT:
                    self.committed += records
                else:
                    self.aborted.append((each.producer_id, first, base))
            self._append(each)
        self.last_stable_offset = min([self.end_offset, *(first for first, _ in opened.values())])
        self.committed = sorted(each for each in self.committed if each < self.last_stable_offset)

    def _append(self, written: Written) -> None:
        if written.kind in (Kind.COMMIT, Kind.ABORT):
            commit = written.kind is Kind.COMMIT
            batch = end_marker_batch(
                written.producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=5
            )
        else:
            builder = BatchBuilder()
            for number in range(written.records):
                builder.append(None, b"%d" % (self.end_offset + number), timestamp_ms=5)
            batch = builder.build(
                producer_id=written.producer_id,
                producer_epoch=0,
                base_sequence=0,
                is_transactional=written.kind is Kind.DATA,
            )
        stamp(batch, 0, base_offset=self.end_offset, leader_epoch=1)
        self.batches.append(batch)
        self.end_offset += 1 if written.kind in (Kind.COMMIT, Kind.ABORT) else written.records

    def fetch(self, offset: int, most: int) -> tuple[bytes, list[Told]]:
        """Up to ``most`` batches from ``offset`` on, below the last stable offset, and the aborted
        transactions that overlap them."""
        found = [
            each
            for each in self.batches
            if read_header(each).last_offset >= offset
            and read_header(each).base_offset < self.last_stable_offset
        ][:most]
        if not found:
            return b"", []
        end = read_header(found[-1]).next_offset
        aborted = [
            Told(producer_id, first)
            for producer_id, first, last in self.aborted
            if last >= offset and first < end
        ]
        return b"".join(found), aborted


WRITTEN = st.lists(
    st.builds(Written, st.sampled_from(Kind), st.sampled_from(PRODUCERS), st.integers(1, 3)).map(
        lambda each: each if each.kind in (Kind.PLAIN, Kind.DATA) else each._replace(records=1)
    ),
    max_size=30,
)


def position(stage: Stage, offset: int = 0) -> PartitionPosition:
    view = ClusterView(ConsumerConfig(), stage.world)
    made = PartitionPosition(NAME, PartitionRetry(NAME, view))
    made.seek(offset)
    return made


def read_all(reader: PartitionPosition, log: Log, most: int, at_once: int) -> list[int]:
    read: list[int] = []
    while True:
        data, aborted = log.fetch(reader.fetch_offset, most)
        if not data:
            return read
        reader.take_fetched(data, aborted)
        while reader.has_buffer:
            records = reader.hand_out(at_once, check_crcs=True)
            assert all(each.value == b"%d" % each.offset for each in records)
            read += [each.offset for each in records]


@pytest.mark.parametrize(
    ("written", "committed"),
    [
        ([Written(Kind.DATA, 1, 1), Written(Kind.ABORT, 1, 1), Written(Kind.DATA, 2, 1)], []),
        ([Written(Kind.DATA, 1, 1), Written(Kind.PLAIN, 1, 1), Written(Kind.ABORT, 1, 1)], [1]),
        ([Written(Kind.DATA, 1, 2), Written(Kind.PLAIN, 2, 1), Written(Kind.ABORT, 1, 1)], [2]),
    ],
    ids=["one record", "a plain record of the same producer", "of another producer"],
)
@on_stage
async def test_of_an_aborted_transaction_nothing_is_returned(
    stage: Stage, written: list[Written], committed: list[int]
) -> None:
    log = Log(written)
    assert read_all(position(stage), log, 5, 2) == log.committed == committed


@given(WRITTEN, st.integers(1, 5), st.integers(1, 4), st.data())
@on_stage
async def test_exactly_the_committed_records_are_returned(
    stage: Stage, written: list[Written], most: int, at_once: int, data: st.DataObject
) -> None:
    log = Log(written)
    start = data.draw(st.integers(0, log.last_stable_offset))

    reader = position(stage, start)
    read = read_all(reader, log, most, at_once)
    assert read == [each for each in log.committed if each >= start]
    assert reader.offset == log.last_stable_offset, "it moves past what is left out"
    assert reader.buffered_bytes == 0


@given(WRITTEN, st.integers(1, 5), st.integers(1, 300))
@on_stage
async def test_whole_batches_are_left_out_as_well(
    stage: Stage, written: list[Written], most: int, max_bytes: int
) -> None:
    log = Log(written)

    reader = position(stage)
    read: list[int] = []
    while (fetched := log.fetch(reader.fetch_offset, most))[0]:
        reader.take_fetched(*fetched)
        while reader.has_buffer:
            for each in reader.hand_out_batches(max_bytes):
                read += range(each.header.base_offset, each.header.next_offset)
    assert read == log.committed


@given(WRITTEN, st.integers(1, 5))
@on_stage
async def test_without_aborted_transactions_everything_but_markers_is_returned(
    stage: Stage, written: list[Written], most: int
) -> None:
    log = Log(written)
    log.aborted.clear()

    markers = {
        read_header(each).base_offset for each in log.batches if read_header(each).is_control
    }
    read = read_all(position(stage), log, most, 100)
    assert read == [each for each in range(log.last_stable_offset) if each not in markers]


@on_stage
async def test_the_consumer_asks_for_committed_records_and_drops_aborted_ones(stage: Stage) -> None:
    log = Log(
        [
            Written(Kind.DATA, 1, 2),
            Written(Kind.PLAIN, 2, 1),
            Written(Kind.ABORT, 1, 1),
            Written(Kind.DATA, 1, 1),
            Written(Kind.COMMIT, 1, 1),
            Written(Kind.DATA, 3, 2),
        ]
    )
    asked: list[Any] = []

    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    partition.batches, partition.end_offset = log.batches, log.end_offset
    answer = cluster.fetch

    async def fetch(broker: int, request: FetchRequest) -> list[FetchAnswer]:
        asked.append(request.is_committed)
        answers = await answer(broker, request)
        for each, part in zip(answers, request.partitions, strict=True):
            if request.is_committed:
                each.records, aborted = log.fetch(part.fetch_offset, 100)
                each.aborted_transactions = [
                    AbortedTransaction(told.producer_id, told.first_offset) for told in aborted
                ]
                each.last_stable_offset = log.last_stable_offset
        return answers

    cluster.fetch = fetch  # type: ignore[method-assign]
    async with stage.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([NAME])
        read = await consumer.poll()
        assert [each.offset for each in read] == log.committed == [2, 4]
        assert await consumer.poll(timeout_ms=100) == []
        assert await consumer.position(*NAME) == log.last_stable_offset == 6
        assert "at the last stable offset, 6" in consumer.why()[NAME]
    assert set(asked) == {True}
    async with stage.consumer() as consumer:
        consumer.assign([NAME])
        assert [each.offset for each in await consumer.poll()] == [0, 1, 2, 4, 6, 7]
    assert asked[-1] is False


def test_an_isolation_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="isolation_level='serializable' must be one of"):
        ConsumerConfig(isolation_level="serializable")  # type: ignore[arg-type]


@on_stage
async def test_the_latest_offset_is_the_last_stable_one(stage: Stage) -> None:
    asked: list[bool] = []

    cluster = stage.cluster
    cluster.create("t")
    answer = cluster.list_offsets

    def list_offsets(
        broker: int, wanted: Sequence[OffsetQuestion], *, is_committed: bool
    ) -> list[FoundOffset]:
        asked.append(is_committed)
        return answer(broker, wanted, is_committed=is_committed)

    cluster.list_offsets = list_offsets  # type: ignore[method-assign]
    async with stage.consumer(isolation_level="read_committed") as consumer:
        await consumer.end_offsets([NAME])
        consumer.assign([NAME])
        consumer.seek_to_end()
        await consumer.position(*NAME)
    assert asked == [True, True]
