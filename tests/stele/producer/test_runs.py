"""Records that a producer accepts together, beside records that it accepts one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stele.errors import ApiError, ErrorCode
from stele.producer.arguments import new_record
from stele.producer.partitioner import LONG_KEY_BYTES, partition_of
from stele.producer.runs import Run, divide
from stele.records import ProducerRecord
from stele.wire import native
from stele.wire.batch import BatchBuilder, decode
from stele.wire.record import OutgoingRecord, encode_records, record_size_bound
from tests.support.stele import Fault, Stage, on_stage

MODULE, READER = native.load("auto")
needs_module = pytest.mark.skipif(MODULE is None, reason=READER)


class Text(str):
    __slots__ = ()


class Bytes(bytes):
    __slots__ = ()


DATA = (
    st.none()
    | st.binary(max_size=6)
    | st.sampled_from([b"k" * 70, b"k" * 9_000, b"k" * LONG_KEY_BYTES, b"k" * (LONG_KEY_BYTES + 1)])
)
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [Bytes(b"b"), bytearray(b"b"), Text("t"), "t", "\ud800", 1, -1, True, 1.5, 2**63, 2**70, (), []]
)
NAMES = st.text(max_size=3) | st.sampled_from(["é" * 100, "\ud800"])
HEADERS = st.lists(st.tuples(NAMES, DATA), max_size=3)
RECORDS = st.builds(
    ProducerRecord,
    st.sampled_from(["t", "t", "t", "u"]),
    DATA,
    DATA,
    st.just(()) | HEADERS | HEADERS.map(tuple),
    st.none() | st.sampled_from([0, 1, 127, 8_192, 2**62, 2**63 - 1]),
    st.none() | st.integers(0, 3),
)


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """A record with a field, or the number of its fields, that need not be plain."""
    fields: list[Any] = list(draw(RECORDS))
    at = draw(st.integers(0, 5))
    fields[at : at + 1] = draw(
        st.one_of(
            ODD.map(lambda odd: [odd]),
            st.just([]),
            st.tuples(ODD, ODD).map(lambda odd: [[odd]]),  # headers, where they stand
            st.lists(ODD, max_size=3).map(lambda odd: [odd]),
        )
    )
    return draw(st.sampled_from([tuple, list]))(fields)


def by_both(work: Any) -> tuple[Any, Any]:
    """What Python makes of it, and what the module does."""
    results = []
    for module in (None, MODULE):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(native, "NATIVE", module)
            results.append(work())
    return results[0], results[1]


@needs_module
@given(
    st.lists(RECORDS | changed(), max_size=8),
    st.integers(0, 3),
    st.integers(1, 4),
    st.sampled_from([-5, 0, 36, 200, 10_000, 2**40]),
    st.sampled_from([36, 200, 2**40]),
    st.none() | st.integers(0, 3),
    st.sampled_from([1, 40, 2**40]),
    st.sampled_from([(), (None, 7)]),
)
@example([ProducerRecord("t", b"v", b"k", [("\ud800", b"")])], 0, 1, 2**40, 2**40, 0, 1, ())
@example([ProducerRecord("t", b"v", timestamp_ms=2**63)], 0, 1, 2**40, 2**40, 0, 1, ())
@example([("t", b"v", None, (), None, True)], 0, 4, 2**40, 2**40, None, 1, (None, 7))
def test_the_module_divides_records_as_python_does(
    records: list[Any],
    start: int,
    count: int,
    room: int,
    largest: int,
    keyless: int | None,
    keyless_bytes: int,
    more: tuple[object, ...],
) -> None:
    records = [each if isinstance(each, list) else (*each, *more) for each in records]

    def run() -> tuple[Run, list[tuple[int, list[int]]]]:
        found = divide(
            records,
            start,
            "t",
            field_count=6 + len(more),
            partition_count=count,
            room_bytes=room,
            largest_bytes=largest,
            keyless_partition=keyless,
            keyless_bytes=keyless_bytes,
        )
        order = [(each, [id(record) for record in found.by_partition[each]]) for each in found[3]]
        return found, order

    reference, compiled = by_both(run)
    assert compiled == reference


@given(st.lists(RECORDS | changed(), max_size=8), st.sampled_from([0, 300, 2**40]))
def test_a_run_has_what_single_sends_would_accept_unchanged(
    records: list[OutgoingRecord], keyless: int
) -> None:
    run = divide(
        records,
        0,
        "t",
        partition_count=4,
        room_bytes=50_000,
        largest_bytes=20_000,
        keyless_partition=3,
        keyless_bytes=keyless,
    )
    size = keyless_size = 0
    by_partition: dict[int, list[OutgoingRecord]] = {}
    for record in records[: run.record_count]:
        accepted = new_record(*record, *[None])  # nobody waits for it
        topic, value, key, _, _, partition, _, bound = accepted
        assert accepted[:3] == record[:3]
        assert (topic, list(accepted.headers)) == ("t", list(record[3]))
        assert accepted[4:6] == record[4:6]
        assert value is None or type(value) is bytes
        if partition is None and key is None:
            assert keyless_size < keyless
            partition = 3
            keyless_size += bound
        elif partition is None:
            partition = partition_of(key or b"", 4)
        size += bound
        by_partition.setdefault(partition, []).append(record)
    assert run == (run.record_count, size, keyless_size, by_partition)
    assert size <= 50_000


PLAIN = st.lists(
    st.tuples(
        st.just("t"),
        DATA,
        DATA,
        st.lists(st.tuples(st.text(max_size=3) | st.just("é" * 100), DATA), max_size=3),
        st.none() | st.sampled_from([0, 1, 63, 64, 8_192, 2**62, 2**63 - 1]),
    ),
    max_size=6,
)


@given(
    PLAIN,
    st.integers(0, 2),
    st.sampled_from([0, 1, 63, 8_191, 8_192, 2**31]),
    st.none() | st.sampled_from([0, 5, 2**63 - 1]),
    st.sampled_from([-1, 0, 40, 500, 20_000, 2**40]),
)
def test_records_are_encoded_together_as_one_by_one(
    records: list[OutgoingRecord], start: int, delta: int, base_ms: int | None, room: int
) -> None:
    def run() -> Any:
        return encode_records(
            records, start, delta=delta, base_ms=base_ms, room_bytes=room, now_ms=7
        )

    reference, compiled = by_both(run) if MODULE is not None else (run(), run())
    assert compiled == reference
    if reference is None:
        assert start >= len(records) or base_ms is not None
        return
    builder = BatchBuilder()
    builder.append(None, None, timestamp_ms=reference.base_ms, offset=max(0, delta - 1))
    first_size, times = builder.size_bytes, []
    end = start + reference.record_count
    for number, (_, value, key, headers, time_ms) in enumerate(records[start:end]):
        times.append(7 if time_ms is None else time_ms)
        offset = max(1, delta) + number
        if offset < 2**31:
            builder.append(key, value, timestamp_ms=times[-1], headers=headers, offset=offset)
    assert reference.newest_ms == max(times)
    assert base_ms is not None or reference.base_ms == times[0]
    bounds = [record_size_bound(key, value, headers) for _, value, key, headers, _ in records]
    assert reference.size_bounds == sum(bounds[start:end])
    if 1 <= delta < 2**30:
        assert reference.body == bytes(builder.build()[first_size:])
    has_room = len(reference.body) + (bounds[end : end + 1] or [2**41])[0] <= room
    assert not has_room, "the next record would have fitted"


def test_a_batch_goes_on_after_records_that_came_together() -> None:
    records: list[OutgoingRecord] = [
        ("t", b"v%d" % n, None if n % 2 else b"k", [("h", b"1")], time_ms)
        for n, time_ms in enumerate([None, 9, 3, None])
    ]
    together, single = BatchBuilder(), BatchBuilder()
    for builder in (together, single):
        builder.append(b"first", b"", timestamp_ms=8)
    assert together.extend(records, 1, together.size_bytes + 70, 5) == (2, 53 + 54)
    assert together.extend(records, 3, together.size_bytes, 5) == (0, 0)
    for _, value, key, headers, time_ms in records[1:3]:
        single.append(key, value, timestamp_ms=time_ms or 5, headers=headers)
    for builder in (together, single):
        builder.append(b"last", b"", timestamp_ms=1)
    assert together.build() == single.build()
    assert together.size_bytes == single.size_bytes == len(single.build())
    assert together.record_count == 4


# ------------------------------------------------------------------------------ a producer


def many_records() -> Iterator[ProducerRecord]:
    for number in range(999):  # in one turn of the event loop
        key = None if number % 3 else b"key-%d" % (number % 40)
        partition = 2 if number % 7 == 0 else None
        headers = [("h", b"%d" % number)] if number % 5 == 0 else ()
        time_ms = 5_000 - number if number % 11 == 0 else None
        topic = "u" if 500 < number < 520 else "t"
        value: Any = bytearray(b"odd") if number % 300 == 0 else b"value-%d" % number
        yield ProducerRecord(topic, value, key, headers, time_ms, partition)


async def stored_by(stage: Stage, *, together: bool) -> dict[tuple[str, int], list[bytes]]:
    for topic in ("t", "u"):
        stage.cluster.create(topic, 4)
    async with stage.producer(batch_size=1_500, linger_ms=50) as producer:
        await producer.partitions_for("t")
        await producer.partitions_for("u")
        if together:
            await producer.send_all(many_records())
        else:
            for record in many_records():
                await producer.send(*record)
    return {
        (topic, number): [bytes(each) for each in stage.cluster.partition(topic, number).batches]
        for topic in ("t", "u")
        for number in range(4)
    }


@pytest.mark.parametrize("module", [None, pytest.param(MODULE, marks=needs_module)])
def test_the_same_batches_arrive_as_after_single_sends(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "NATIVE", module)
    found: list[Any] = []

    async def scenario(stage: Stage, together: bool) -> None:
        found.append(await stored_by(stage, together=together))

    on_stage.run(lambda stage: scenario(stage, False))
    on_stage.run(lambda stage: scenario(stage, True))
    assert sum(map(len, found[0].values())) > 15
    assert found[0] == found[1]


@on_stage
async def test_futures_in_a_batch_of_records_without_futures_tell_their_offsets(
    stage: Stage,
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.producer() as producer:
        await (await producer.send("t", b"-1"))
        partition.faults.append(Fault(ErrorCode.MESSAGE_TOO_LARGE))  # halves the batch
        await producer.send_all([ProducerRecord("t", b"%d" % n) for n in range(5)])
        middle = await producer.send("t", b"5", timestamp_ms=9)
        await producer.send_all([ProducerRecord("t", b"%d" % n) for n in range(6, 16)])
        last = await producer.send("t", b"16", timestamp_ms=10)
        await producer.send_all([ProducerRecord("t", b"17")])
        await producer.flush()
        assert [await middle, await last] == [("t", 0, 6, 9), ("t", 0, 17, 10)]
    assert stage.cluster.values() == [b"%d" % n for n in range(-1, 18)]
    assert [len(decode(batch)) for batch in partition.batches] == [1, 9, 9]


@on_stage
async def test_the_records_before_an_error_of_their_source_are_sent(stage: Stage) -> None:
    stage.cluster.create("t")

    def source() -> Iterator[ProducerRecord]:
        for number in range(1_003):
            yield ProducerRecord("t", b"%d" % number)
        raise LookupError("no more")

    async with stage.producer() as producer:
        with pytest.raises(LookupError, match="no more"):
            await producer.send_all(source())
        await producer.flush()
    assert stage.cluster.values() == [b"%d" % number for number in range(1_003)]


@on_stage
async def test_a_run_waits_for_a_partition_whose_number_is_not_known_yet(stage: Stage) -> None:
    stage.cluster.create("t", 2)
    async with stage.producer() as producer:
        await producer.partitions_for("t")
        with pytest.raises(ApiError, match="has partitions 0 to 1, not 2"):
            await producer.send_all(
                [ProducerRecord("t", b"a"), ProducerRecord("t", b"b", None, (), 1, 2)]
            )
        with pytest.raises(ValueError, match="unpack"):
            await producer.send_all([("t", b"c", None, (), 1, 1), ("t", b"short")])  # type: ignore[list-item]
        await producer.flush()
    assert {*stage.cluster.values("t", 0), *stage.cluster.values("t", 1)} == {b"a", b"c"}
