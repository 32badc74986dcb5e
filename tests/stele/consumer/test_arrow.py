"""Polls as tables of Apache Arrow, beside polls that return records."""

from __future__ import annotations

import enum
import struct
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.columns import SCHEMA
from stele.consumer.consumer import Consumer, ConsumerRecords
from stele.errors import ConfigError, UnreadableBatchError
from stele.wire.batch import HEADER_SIZE, PREFIX_SIZE, BatchBuilder, seal, stamp
from stele.wire.compression import Compression
from tests.support.stele import FakePartition, Stage, on_stage

pytestmark = pytest.mark.usefixtures("each_reader")

TOPICS = ("t", "u")


class Kind(enum.Enum):
    DATA = enum.auto()
    CONTROL = enum.auto()
    UNREADABLE = enum.auto()
    GAP = enum.auto()  # compaction has removed every second record
    EMPTY = enum.auto()  # compaction has removed all records


DATA = st.none() | st.binary(max_size=3)
RECORDS = st.lists(
    st.tuples(DATA, DATA, st.integers(0, 9), st.lists(st.tuples(st.text(max_size=2), DATA))),
    min_size=1,
    max_size=3,
)
BATCHES = st.lists(
    st.tuples(
        st.sampled_from([Kind.DATA] * 5 + [each for each in Kind if each is not Kind.DATA]),
        RECORDS,
        st.sampled_from([Compression.NONE, Compression.GZIP]),
    ),
    max_size=5,
)


def append(partition: FakePartition, kind: Kind, records: Any, compression: Compression) -> None:
    builder = BatchBuilder()
    for number, (key, value, time_ms, headers) in enumerate(records):
        offset = number * 2 if kind is Kind.GAP else number
        builder.append(key, value, timestamp_ms=time_ms, headers=headers, offset=offset)
    if kind is Kind.EMPTY:
        compression = Compression.NONE
    batch = builder.build(compression, is_control=kind is Kind.CONTROL)
    if kind is Kind.EMPTY:
        del batch[HEADER_SIZE:]
        struct.pack_into(">i", batch, 8, HEADER_SIZE - PREFIX_SIZE)
        struct.pack_into(">i", batch, HEADER_SIZE - 4, 0)  # the number of records
        seal(batch, 0, HEADER_SIZE)
    stamp(batch, 0, base_offset=partition.end_offset, leader_epoch=partition.leader_epoch)
    if kind is Kind.UNREADABLE:
        batch[HEADER_SIZE] ^= 1
    partition.batches.append(batch)
    partition.end_offset += 2 * len(records) - 1 if kind is Kind.GAP else len(records)


async def read(consumer: Consumer, poll: Any) -> tuple[pa.Table, list[Any]]:
    """Everything, and what happened in each partition: (errors, the position at the end)."""
    found = []
    errors: list[tuple[str, int]] = []
    while True:
        try:
            rows = await poll(timeout_ms=1_000)
        except UnreadableBatchError as error:
            errors.append((error.topic, error.offset))
            consumer.seek(error.topic, error.partition, error.next_offset)
            continue
        if not len(rows):
            break
        found.append(rows if isinstance(rows, pa.Table) else rows.to_arrow())
    ends = [consumer.known_position(topic, 0) for topic in TOPICS]
    table = pa.concat_tables(found) if found else ConsumerRecords().to_arrow()
    return table.sort_by([("topic", "ascending"), ("offset", "ascending")]), [sorted(errors), ends]


@settings(max_examples=60)
@given(BATCHES, BATCHES, st.integers(0, 5), st.sampled_from([1, 100, 200, 1 << 20]))
def test_tables_have_what_polls_return(
    first: list[Any], second: list[Any], start: int, max_bytes: int
) -> None:
    async def scenario(stage: Stage) -> None:
        for topic, batches in zip(TOPICS, (first, second), strict=True):
            partition = stage.cluster.create(topic).partitions[0]
            for each in batches:
                append(partition, *each)
        results = []
        for is_table in (False, True):
            async with stage.consumer() as consumer:
                consumer.assign([(topic, 0) for topic in TOPICS])
                for topic in TOPICS:
                    end = stage.cluster.partition(topic).end_offset
                    consumer.seek(topic, 0, min(start, end))

                async def tables(timeout_ms: float, consumer: Consumer = consumer) -> pa.Table:
                    return await consumer.poll_arrow(max_bytes, timeout_ms)

                results.append(await read(consumer, tables if is_table else consumer.poll))
        assert results[0][1] == results[1][1]
        assert results[0][0].equals(results[1][0])

    on_stage.run(scenario)


@on_stage
async def test_a_table_begins_after_the_records_that_were_returned(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    records: list[Any] = [(None, b"%d" % number, 1, []) for number in range(4)]
    append(partition, Kind.DATA, records, Compression.NONE)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        assert [each.offset for each in await consumer.poll(1, timeout_ms=5_000)] == [0]
        table = await consumer.poll_arrow(timeout_ms=5_000, include_headers=False)
        assert table["offset"].to_pylist() == [1, 2, 3]
        assert table.column_names == [each.name for each in SCHEMA][:-1]
        assert (await consumer.poll_arrow(timeout_ms=100)).schema.equals(SCHEMA)
        append(partition, Kind.DATA, records, Compression.NONE)
        assert [each.offset for each in await consumer.poll(timeout_ms=5_000)] == [4, 5, 6, 7]


@on_stage
async def test_rows_that_could_not_be_made_come_again(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, Kind.DATA, [(None, b"a", 1, [])], Compression.NONE)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("stele.column_decoder.pa.record_batch", _out_of_memory)
            with pytest.raises(MemoryError):
                await consumer.poll_arrow(timeout_ms=5_000)
        assert consumer.known_position("t", 0) == 0
        assert (await consumer.poll_arrow(timeout_ms=5_000)).num_rows == 1


def _out_of_memory(*arguments: object, **options: object) -> None:
    raise MemoryError


@on_stage
async def test_a_poll_of_tables_needs_pyarrow_and_says_so(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        with pytest.MonkeyPatch.context() as patched:
            patched.delitem(sys.modules, "stele.column_decoder", raising=False)
            patched.setitem(sys.modules, "pyarrow", None)
            with pytest.raises(ConfigError, match=r"pip install 'stele-log-client\[arrow\]'"):
                await consumer.poll_arrow()


@on_stage
async def test_a_partition_that_is_paused_gives_no_rows(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, Kind.DATA, [(None, b"a", 1, [])], Compression.NONE)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        consumer.pause()
        assert (await consumer.poll_arrow(timeout_ms=1_000)).num_rows == 0
        consumer.resume()
        assert (await consumer.poll_arrow(timeout_ms=5_000)).num_rows == 1
