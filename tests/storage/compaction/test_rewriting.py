"""What compaction keeps of one batch."""

from __future__ import annotations

import pytest

from stele.wire.batch import BatchBuilder, BatchError, check_crc, decode, read_header, stamp
from stele.wire.compression import Compression
from stele.wire.control_records import end_marker_batch
from stele.world import Buffer
from storage.compaction.offset_map import OffsetMap
from storage.compaction.rewriting import (
    HAS_DELETE_HORIZON,
    Rules,
    emptied,
    rewritten,
    rewritten_marker,
)

NOW_MS = 5_000_000


def batch_of(
    *pairs: tuple[bytes | None, bytes | None],
    compression: Compression = Compression.NONE,
    base_offset: int = 100,
) -> bytearray:
    builder = BatchBuilder(base_offset)
    for index, (key, value) in enumerate(pairs):
        builder.append(key, value, timestamp_ms=1000 * (3 - index), headers=(("name", b"x" * 200),))
    return builder.build(
        compression, producer_id=7, producer_epoch=3, base_sequence=40, leader_epoch=5
    )


def rules(latest: dict[bytes, int], **changes: object) -> Rules:
    offsets = OffsetMap(1 << 16, 0.9, 100)
    for key, offset in latest.items():
        offsets.put(key, offset)
    return Rules(offsets, 1000, NOW_MS, 1000, frozenset(), frozenset())._replace(**changes)  # type: ignore[arg-type]


def kept(batch: Buffer, by: Rules) -> Buffer | None:
    return rewritten(batch, read_header(batch), by, is_aborted=False)


def there(batch: Buffer | None) -> Buffer:
    assert batch is not None
    assert check_crc(batch, 0, read_header(batch))
    return batch


@pytest.mark.parametrize("compression", list(Compression))
def test_only_the_latest_of_a_key_stays_where_it_was(compression: Compression) -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), compression=compression)
    out = there(kept(batch, rules({b"a": 200, b"b": 101, b"c": 102})))
    before, header = read_header(batch), read_header(out)
    assert decode(out) == decode(batch)[1:]
    assert header.max_timestamp_ms == 2000  # the record with 3000 is gone
    assert header._replace(size_bytes=0, crc=0) == before._replace(
        size_bytes=0, crc=0, record_count=2, max_timestamp_ms=2000
    )


def test_a_batch_that_stays_whole_is_not_touched() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"), compression=Compression.ZSTD)
    assert kept(batch, rules({b"a": 100})) is batch


def test_a_batch_beyond_the_map_is_not_touched() -> None:
    batch = batch_of((b"a", b"1"), (b"a", None))
    assert kept(batch, rules({b"a": 101}, map_end=100)) is batch


def test_a_batch_without_records_goes_unless_it_is_wanted() -> None:
    batch = batch_of((b"a", b"1"), (b"a", b"2"), compression=Compression.LZ4)
    latest = {b"a": 300}
    assert kept(batch, rules(latest)) is None
    empty = there(kept(batch, rules(latest, kept_batches=frozenset({101}))))
    before, header = read_header(batch), read_header(empty)
    assert decode(empty) == []
    assert header == before._replace(
        size_bytes=61,
        crc=header.crc,
        attributes=0,
        record_count=0,
        base_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    assert (header.last_sequence, header.next_offset) == (41, 102)
    assert kept(empty, rules(latest, kept_batches=frozenset({101}))) is empty
    assert kept(empty, rules(latest)) is None


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
def test_a_tombstone_stays_until_its_delete_horizon(compression: Compression) -> None:
    batch = batch_of((b"a", None), (b"b", b"2"), compression=compression)
    latest = {b"a": 100, b"b": 101}
    first = there(kept(batch, rules(latest)))
    header = read_header(first)
    assert header.attributes & HAS_DELETE_HORIZON
    assert header.base_timestamp_ms == NOW_MS + 1000
    assert header.max_timestamp_ms == 3000
    assert decode(first) == decode(batch)
    # A later round neither moves the horizon nor goes by another retention.
    early = rules(latest, now_ms=NOW_MS + 999, delete_retention_ms=0)
    assert kept(first, early) is first
    last = there(kept(first, rules(latest, now_ms=NOW_MS + 1000)))
    assert decode(last) == decode(batch)[1:]
    assert read_header(last).base_timestamp_ms == NOW_MS + 1000


def test_log_append_time_stays() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None))
    header = read_header(batch)
    by = rules({b"a": 300, b"b": 101})
    stamped = bytearray(batch)
    stamp(stamped, 0, base_offset=100, leader_epoch=5, log_append_time_ms=9999)
    out = there(kept(stamped, by))
    assert [record.timestamp_ms for record in decode(out)] == [9999]
    assert read_header(out).max_timestamp_ms == 9999
    assert header.max_timestamp_ms == 3000


def test_records_with_an_empty_key_are_as_all_others() -> None:
    batch = batch_of((b"", b"1"), (b"", b"2"), (b"b", b"3"))
    assert [each.offset for each in decode(there(kept(batch, rules({b"": 101}))))] == [101, 102]


def test_records_without_a_key_go() -> None:
    batch = batch_of((None, b"1"), (b"b", b"2"))
    assert [record.offset for record in decode(there(kept(batch, rules({}))))] == [101]


def marker_left(batch: Buffer, by: Rules, *, is_needed: bool = False) -> Buffer | None:
    return rewritten_marker(batch, read_header(batch), by, is_needed=is_needed)


def test_a_marker_stays_as_long_as_it_is_needed_and_a_while_longer() -> None:
    batch = end_marker_batch(7, 3, commit=True, coordinator_epoch=1, timestamp_ms=5)
    by = rules({b"\0\0\0\1": 200})
    assert marker_left(batch, by, is_needed=True) is batch
    dated = there(marker_left(batch, by))
    header = read_header(dated)
    assert header.delete_horizon_ms == NOW_MS + 1000
    assert header.max_timestamp_ms == 5
    assert header._replace(size_bytes=0, crc=0, attributes=0, base_timestamp_ms=0) == read_header(
        batch
    )._replace(size_bytes=0, crc=0, attributes=0, base_timestamp_ms=0)
    assert decode(dated) == decode(batch)
    assert marker_left(dated, by._replace(now_ms=NOW_MS + 999)) is dated
    later = by._replace(now_ms=NOW_MS + 1000)
    assert marker_left(dated, later) is None
    assert marker_left(dated, later, is_needed=True) is dated
    assert marker_left(dated, later._replace(kept_markers=frozenset({(7, 3)}))) is dated
    assert marker_left(dated, later._replace(kept_markers=frozenset({(7, 2), (6, 3)}))) is None


def test_an_empty_control_batch_goes_as_any_marker() -> None:
    empty = emptied(
        read_header(end_marker_batch(7, 3, commit=True, coordinator_epoch=1, timestamp_ms=5))
    )
    by = rules({})
    dated = there(marker_left(empty, by))
    assert read_header(dated).delete_horizon_ms == NOW_MS + 1000
    assert marker_left(dated, by._replace(now_ms=NOW_MS + 1000)) is None


def test_a_damaged_control_batch_is_reported() -> None:
    batch = end_marker_batch(7, 3, commit=True, coordinator_epoch=1, timestamp_ms=5)
    batch[-1] ^= 1
    with pytest.raises(BatchError):
        marker_left(batch, rules({}), is_needed=True)


def test_nothing_stays_of_aborted_records() -> None:
    batch = batch_of((b"a", b"1"))
    by = rules({}, map_end=0)  # not in the map, and yet
    header = read_header(batch)
    assert rewritten(batch, header, by, is_aborted=False) is batch
    assert rewritten(batch, header, by, is_aborted=True) is None
    last = by._replace(kept_batches=frozenset({header.last_offset}))
    assert there(rewritten(batch, header, last, is_aborted=True)) == emptied(header)


def test_a_damaged_batch_is_refused() -> None:
    batch = batch_of((b"a", b"1"))
    batch[-1] ^= 1
    with pytest.raises(BatchError, match="CRC"):
        kept(batch, rules({}))
