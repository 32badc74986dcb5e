"""Batches that a broker finds too large, against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import HEADER_SIZE, BatchBuilder, read_header
from stele.wire.record import EncodedRecords
from tests.support.stele import Fault, Stage, on_stage
from tests.support.timing import until

OVERHEAD = 100
"""More than a batch of one record takes besides its value."""


@on_stage
async def test_a_batch_that_is_too_large_is_sent_in_halves(stage: Stage) -> None:
    values = [b"%d" % number * 100 for number in range(8)]

    partition = stage.cluster.create("t").partitions[0]
    partition.max_batch_bytes = 300 + OVERHEAD
    async with stage.producer() as producer:
        futures = [
            await producer.send("t", value, key=b"k", headers={"h": b"1"}, timestamp_ms=9)
            for value in values
        ]
        await producer.flush()
        told = [await future for future in futures]
        assert [each.offset for each in told] == list(range(8))
        assert stage.cluster.values() == values
        assert partition.produced == 7  # 8, 4, 4 refused, and four times 2
        # Later batches are small enough at once.
        futures = [await producer.send("t", value) for value in values]
        await producer.flush()
        headers = [read_header(batch) for batch in partition.batches]
        assert partition.produced == 7 + len(headers) - 4
        assert {each.base_sequence for each in headers} == {each.base_offset for each in headers}


@on_stage
async def test_later_batches_are_as_large_as_the_larger_half(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    partition.max_batch_bytes = 700 + OVERHEAD
    async with stage.producer() as producer:
        for size in (150, 150, 300, 300):
            await producer.send("t", bytes(size))
        await producer.flush()
        for _ in range(2):
            await producer.send("t", bytes(150))
    assert [read_header(each).record_count for each in partition.batches] == [2, 2, 2]


@on_stage
async def test_encoded_records_are_sent_in_halves_as_well(stage: Stage) -> None:
    values = [b"%d" % number * 100 for number in range(8)]

    partition = stage.cluster.create("t").partitions[0]
    partition.max_batch_bytes = 300 + OVERHEAD
    builder = BatchBuilder()
    for value in values:
        builder.append(b"k", value, timestamp_ms=9, headers=[("h", b"1")])
    body = bytes(builder.build())[HEADER_SIZE:]
    async with stage.producer() as producer:
        await producer.send_encoded("t", EncodedRecords(body, len(values), 9))
        await producer.flush()
    assert stage.cluster.values() == values
    assert {read_header(batch).max_timestamp_ms for batch in partition.batches} == {9}


@on_stage
async def test_one_record_that_is_too_large_fails_alone_and_tells_the_sizes(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    partition.max_batch_bytes = 1000
    async with stage.producer() as producer:
        futures = [
            await producer.send("t", value) for value in (b"a", b"b", bytes(5000), b"c", b"d")
        ]
        with pytest.raises(ApiError, match=r"about 50\d\d bytes") as caught:
            await producer.flush()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert "max.message.bytes is 1000" in caught.value.message
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [isinstance(each, ApiError) for each in results] == [
            False, False, True, False, False,
        ]  # fmt: skip
    assert stage.cluster.values() == [b"a", b"b", b"c", b"d"]


@on_stage
async def test_a_batch_that_may_be_in_the_log_is_not_split(stage: Stage) -> None:
    """The broker would call its parts out of order, which looks like lost records."""

    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer() as producer:
        await (await producer.send("t", b"0"))
        partition.faults.append(Fault(breaks=True, applied=True))
        futures = [await producer.send("t", bytes(100)) for _ in range(3)]
        await until(lambda: partition.end_offset == 4)
        partition.max_batch_bytes = 200
        with pytest.raises(ApiError, match="Lower batch_size") as caught:
            await producer.flush()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        del futures
        await (await producer.send("t", b"1"))
    assert stage.cluster.values() == [b"0", bytes(100), bytes(100), bytes(100), b"1"]


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=30),
    limit=st.integers(120, 600),
    idempotent=st.booleans(),
    compression=st.sampled_from(["none", "lz4"]),
    faults=st.lists(st.sampled_from([False, False, True]), max_size=6),
)
@on_stage
async def test_all_that_fits_arrives_once(
    stage: Stage,
    sizes: list[int],
    limit: int,
    idempotent: bool,
    compression: str,
    faults: list[bool],
) -> None:
    """Whatever is refused as too large, and whatever fails in between."""
    values = [b"%03d" % number + bytes(size) for number, size in enumerate(sizes)]

    partition = stage.cluster.create("t").partitions[0]
    partition.max_batch_bytes = limit
    partition.faults.extend(
        Fault(ErrorCode.NOT_ENOUGH_REPLICAS) if fails else Fault() for fails in faults
    )
    producer = stage.producer(
        enable_idempotence=idempotent, compression=compression, batch_size=2000, linger_ms=3
    )
    futures = [await producer.send("t", value) for value in values]
    results = await asyncio.gather(*futures, return_exceptions=True)
    await producer.abort()
    written = [
        value
        for value, result in zip(values, results, strict=True)
        if not isinstance(result, BaseException)
    ]
    for value, result in zip(values, results, strict=True):
        if isinstance(result, BaseException):
            assert isinstance(result, ApiError)
            assert result.code is ErrorCode.MESSAGE_TOO_LARGE
            assert compression != "none" or len(value) + OVERHEAD > limit
        else:
            assert compression != "none" or len(value) < limit
    found = [value or b"" for value in stage.cluster.values()]
    # Without idempotence a batch may overtake one that was refused.
    assert (found if idempotent else sorted(found)) == written
    assert all(len(batch) <= limit for batch in partition.batches)
    offsets = [result.offset for result in results if not isinstance(result, BaseException)]
    assert (offsets if idempotent else sorted(offsets)) == list(range(len(written)))
