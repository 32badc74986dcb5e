"""Checks that the records of a produced batch can be read, before a leader accepts it.

A batch that consumers cannot read stops each of them at its offset, for as long as it is kept. So
every record is checked, as in Kafka's LogValidator: lengths, offsets without gaps, no bytes left
over, decompression within bounds. Keys and values are skipped, not copied. The greatest timestamp
comes from the records, because retention and look-ups by time rely on the one in the header.

The work is done in slices. For a large batch, 0.5 µs per record and the time of decompression are
too much for one turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from stele.errors import ErrorCode
from stele.wire import native
from stele.wire.batch_errors import BatchError, RecordError, RejectedRecordsError
from stele.wire.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    CompressionError,
    decompressed,
)
from stele.world import Buffer

SLICE_RECORDS: Final = 1000
SLICE_BYTES: Final = 256 * 1024  # decompressed bytes per slice
_HEADERS_AT_ONCE: Final = 50
RECORD_ERRORS_MAX: Final = 100
"""With so many rejected records the check ends. Its batch is refused anyway."""
_EMPTY_PARTS_MAX: Final = 100  # so many empty parts in a row are no accident

# The cost of a record and of a part, as the number of bytes that can be decompressed in that time.
_RECORD_COST_BYTES: Final = SLICE_BYTES // SLICE_RECORDS + 1
_PART_COST_BYTES: Final = 4096
_CLOSE_LOOK_COST_BYTES: Final = 20 * _RECORD_COST_BYTES  # a record that is read byte by byte


class TimeDeltas(NamedTuple):
    """The allowed times of records, in milliseconds relative to the batch's base timestamp."""

    oldest_ms: int
    newest_ms: int
    base_timestamp_ms: int  # NO_TIMESTAMP is also allowed

    @classmethod
    def of(cls, base_timestamp_ms: int, oldest_ms: int, newest_ms: int) -> TimeDeltas:
        """The deltas for times from ``oldest_ms`` to ``newest_ms``, limited to 64 bits."""
        return cls(
            max(oldest_ms, -(1 << 63)) - base_timestamp_ms,
            min(newest_ms, (1 << 63) - 1) - base_timestamp_ms,
            base_timestamp_ms,
        )

    def why_not(self, time_ms: int) -> str:
        """Why a record may not have this time, relative to the base timestamp. Empty if it may."""
        time_ms += self.base_timestamp_ms
        oldest_ms = self.oldest_ms + self.base_timestamp_ms
        newest_ms = self.newest_ms + self.base_timestamp_ms
        if time_ms == -1 or oldest_ms <= time_ms <= newest_ms:
            return ""
        bound, bound_ms, key = (
            ("latest", newest_ms, "message.timestamp.after.max.ms")
            if time_ms > newest_ms
            else ("earliest", oldest_ms, "message.timestamp.before.max.ms")
        )
        return f"its timestamp is {time_ms} ms, and the {bound} allowed is {bound_ms} ms ({key})"


ANY_TIME: Final = TimeDeltas(-(1 << 63), (1 << 63) - 1, 0)
_BEFORE_ALL_MS: Final = -(1 << 65)  # older than any time delta that a record can have


class RecordCheck:
    """Checks that ``body`` has exactly ``count`` records at consecutive offsets from 0 on.

    It is an iterator that stops between slices of the work. Raises BatchError INVALID_RECORD.
    ``keys_required``: the topic is compacted, so every record needs a key. If records have no key
    or a time outside of ``times``, and all are sound otherwise, it raises RejectedRecordsError.
    """

    __slots__ = ("_slices", "newest_ms")

    def __init__(
        self,
        compression: Compression,
        body: Buffer,
        count: int,
        *,
        times: TimeDeltas = ANY_TIME,
        keys_required: bool = False,
    ) -> None:
        self.newest_ms = 0
        """The greatest time of all records, in milliseconds relative to the batch's base timestamp.
        Right when the check has come to its end."""
        # None at all where the records turn out sound at once.
        self._slices: Iterator[None] = iter(())
        if compression is Compression.NONE and count <= SLICE_RECORDS:
            # The usual case: sound records of one slice need no source of parts.
            data = bytes(body)
            number, position, self.newest_ms = whole_records(
                data, 0, 0, count, times, keys_required, _BEFORE_ALL_MS
            )
            if (number, position) == (count, len(data)):
                return
        self._slices = self._check(compression, body, count, times, keys_required)

    def __iter__(self) -> Iterator[None]:
        return self

    def __next__(self) -> None:
        return next(self._slices)

    def _check(
        self,
        compression: Compression,
        body: Buffer,
        count: int,
        times: TimeDeltas,
        keys_required: bool,
    ) -> Iterator[None]:
        """Check every record, in slices."""
        parts = decompressed(
            compression, body, DEFAULT_MAX_DECOMPRESSED_BYTES, chunk_bytes=SLICE_BYTES
        )
        source = _Source(parts, times, keys_required)
        try:
            yield from _check(source, count)
        except CompressionError as error:
            raise _invalid(error.message) from error
        self.newest_ms = source.newest_ms


def _check(source: _Source, count: int) -> Iterator[None]:
    number = 0
    while number < count:
        number = source.whole_records(number, min(count, number + SLICE_RECORDS))
        if number < count:
            if source.is_slice_done():
                yield
            yield from source.record_across_parts(number)
            number += 1
    source.begin_slice()
    while source.skip_to_next_part():
        if source.is_slice_done():
            yield
    if source.rejected:
        raise RejectedRecordsError(tuple(source.rejected))


def _invalid(message: str) -> BatchError:
    return BatchError(ErrorCode.INVALID_RECORD, message)


class _Source:
    """Reads records from parts of decompressed bytes. A part may end anywhere in a record."""

    def __init__(self, parts: Iterator[bytes], times: TimeDeltas, keys_required: bool) -> None:
        self._parts = parts
        self._times = times
        self._keys_required = keys_required
        self.newest_ms = _BEFORE_ALL_MS
        """The greatest time of the records so far, relative to the base timestamp."""
        self.rejected: list[RecordError] = []
        """The sound records so far that the topic does not take."""
        self._data = b""
        self._position = 0
        self._before = 0  # number of bytes in earlier parts
        self._empty_parts = 0  # number of empty parts since the last one that was not empty
        self._work_bytes = 0  # cost of this slice so far

    def begin_slice(self) -> None:
        self._work_bytes = 0

    def is_slice_done(self) -> bool:
        """Whether the slice is done, so that other tasks should run. If so, the next slice
        begins."""
        if self._work_bytes < SLICE_BYTES:
            return False
        self.begin_slice()
        return True

    # ------------------------------------------------------------------ within a part

    def whole_records(self, number: int, stop: int) -> int:
        """Check records from ``number`` up to ``stop``, or up to the first that needs a closer
        look: it continues in the next part, has many headers, or is unsound. Returns the number of
        that one."""
        if not self._data:
            self._next_part()
        first = number
        number, self._position, self.newest_ms = whole_records(
            self._data,
            self._position,
            first,
            stop,
            self._times,
            self._keys_required,
            self.newest_ms,
        )
        self._work_bytes += (number - first) * _RECORD_COST_BYTES
        return number

    # ----------------------------------------------------------------- one by one

    def record_across_parts(self, number: int) -> Iterator[None]:
        """Check one record, which may continue in other parts. Notes why it is rejected. Raises
        the reason if it is unsound."""
        self._work_bytes += _CLOSE_LOOK_COST_BYTES
        size = self._varint(5, f"the length of record {number}")
        end = self._offset + size
        if attributes := self._byte():
            # No attributes are defined. Kafka ignores them, but clients read them as different
            # numbers.
            raise _invalid(f"record {number} has the attributes {attributes:#x}")
        time_ms = self._varint(10, f"the time of record {number}")
        self.newest_ms = max(self.newest_ms, time_ms)
        delta = self._varint(5, f"the offset of record {number}")
        if delta != number:
            raise _invalid(f"record {number} says that it is record {delta}")
        size = self._varint(5, f"the key's length of record {number}")
        self._judge(number, time_ms, has_key=size != -1)
        yield from self._field(size, end, number, is_nullable=True)
        size = self._varint(5, f"the value's length of record {number}")
        yield from self._field(size, end, number, is_nullable=True)
        headers = self._varint(5, f"the count of headers of record {number}")
        if headers < 0 or 0 < end - self._offset < headers:
            raise _invalid(f"record {number} claims {headers} headers")
        for header in range(headers):
            if header % _HEADERS_AT_ONCE == _HEADERS_AT_ONCE - 1:
                yield
            size = self._varint(5, f"a header's name in record {number}")
            self._utf8(size, end, number)
            size = self._varint(5, f"a header's value in record {number}")
            yield from self._field(size, end, number, is_nullable=True)
        if self._offset != end:
            raise _invalid(f"record {number} does not end where it says")

    def _judge(self, number: int, time_ms: int, *, has_key: bool) -> None:
        """Note if the topic does not take a record: one reason each, the key first, as in Kafka."""
        if self._keys_required and not has_key:
            code, reason = ErrorCode.INVALID_RECORD, "it has no key, and the topic is compacted"
        elif reason := self._times.why_not(time_ms):
            code = ErrorCode.INVALID_TIMESTAMP
        else:
            return
        self.rejected.append(RecordError(number, code, reason))
        if len(self.rejected) >= RECORD_ERRORS_MAX:
            raise RejectedRecordsError(tuple(self.rejected))

    def _field(self, size: int, end: int, number: int, *, is_nullable: bool) -> Iterator[None]:
        """Skip ``size`` bytes; -1 means null."""
        if size == -1 and is_nullable:
            return
        if not 0 <= size <= end - self._offset:
            raise _invalid(f"record {number} holds {size} bytes in a field: that is impossible")
        while size > len(self._data) - self._position:
            size -= len(self._data) - self._position
            self._next_part()
            yield
        self._position += size

    def _utf8(self, size: int, end: int, number: int) -> None:
        if not 0 <= size <= end - self._offset:
            raise _invalid(f"record {number} has a header's name of {size} bytes")
        name = bytearray()
        while size > len(self._data) - self._position:
            name += self._data[self._position :]
            size -= len(self._data) - self._position
            self._next_part()
        name += self._data[self._position : self._position + size]
        self._position += size
        try:
            name.decode()
        except UnicodeDecodeError as error:
            raise _invalid(f"a header's name in record {number} is not UTF-8") from error

    def _varint(self, max_bytes: int, what: str) -> int:
        value = shift = 0
        for _ in range(max_bytes):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> (32 if max_bytes == 5 else 64):
                    break
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise _invalid(f"{what} is no varint of at most {max_bytes} bytes")

    def _byte(self) -> int:
        while self._position >= len(self._data):
            self._next_part()
        self._position += 1
        return self._data[self._position - 1]

    # ------------------------------------------------------------------ from part to part

    @property
    def _offset(self) -> int:
        return self._before + self._position

    def skip_to_next_part(self) -> bool:
        """Skip to the next part after the last record, which must be empty. False if there is
        none."""
        if self._position < len(self._data):
            raise _invalid("there are bytes behind the last record")
        return self._has_next_part()

    def _next_part(self) -> None:
        if not self._has_next_part():
            raise _invalid("the batch ends inside a record")

    def _has_next_part(self) -> bool:
        part = next(self._parts, None)
        if part is None:
            return False
        self._before += len(self._data)
        self._position = 0
        self._data = part
        self._work_bytes += len(part) + _PART_COST_BYTES
        self._empty_parts = 0 if part else self._empty_parts + 1
        if self._empty_parts > _EMPTY_PARTS_MAX:
            raise _invalid("the compressed data has too many empty parts")
        return True


def whole_records(
    data: bytes,
    position: int,
    number: int,
    stop: int,
    times: TimeDeltas,
    keys_required: bool,
    newest_ms: int,
) -> tuple[int, int, int]:
    """Skip sound records from ``number`` up to ``stop``. Returns the number of the next record, its
    position, and the greatest of ``newest_ms`` and the records' times.

    Stops at a record that is not obviously sound.
    """
    if native.NATIVE is not None:
        return native.NATIVE.whole_records(
            data, position, number, stop, times[0], times[1], keys_required, newest_ms
        )
    return _whole_records(data, position, number, stop, times, keys_required, newest_ms)


def _whole_records(
    data: bytes,
    position: int,
    number: int,
    stop: int,
    times: TimeDeltas,
    keys_required: bool,
    newest_ms: int,
) -> tuple[int, int, int]:
    """The reference.

    Short varints are read inline, since a call for each would cost too much. Key and value share a
    call. A position beyond the end of its record never comes back, so one check at the end is
    enough.
    """
    start, total = position, len(data)
    # Twice a time is what zigzag has for one of 0 or more, and the complement of what it has for
    # one below 0. So a time is compared without being decoded.
    oldest, latest, newest = times.oldest_ms * 2, times.newest_ms * 2, newest_ms * 2
    try:
        while number < stop:
            size = data[position]
            if size < 0x80:
                position += 1
            elif (high := data[position + 1]) < 0x80:
                size = size & 0x7F | high << 7
                position += 2
            else:
                size, position = _read_varint(data, position)
            end = position + (size >> 1)
            if size & 1 or end > total or data[position]:  # the attributes
                break
            time = data[position + 1]
            if time < 0x80:
                position += 2
            elif (high := data[position + 2]) < 0x80:
                time = time & 0x7F | high << 7
                position += 3
            else:
                time, position = _read_time(data, position + 1)
            if time & 1:
                time = ~time
            if not oldest <= time <= latest:
                break
            # max() would be a call for each record.
            newest = newest if newest > time else time  # noqa: FURB136
            delta = data[position]
            if delta < 0x80:
                position += 1
            elif (high := data[position + 1]) < 0x80:
                delta = delta & 0x7F | high << 7
                position += 2
            else:
                delta, position = _read_varint(data, position)
            if delta != number + number:  # the same number in zigzag
                break
            position = _skip_key_and_value(data, position, keys_required)
            position = _skip_headers(data, position) if data[position] else position + 1
            if position != end:
                break
            start = position
            number += 1
    except (IndexError, _UnsoundError, UnicodeDecodeError):
        pass
    return number, start, newest >> 1


def _skip_key_and_value(data: bytes, position: int, key_required: bool) -> int:
    """The position after both. Raises _UnsoundError, or IndexError beyond the end."""
    size = data[position]
    if size < 0x80:
        position += 1
    elif (high := data[position + 1]) < 0x80:
        size = size & 0x7F | high << 7
        position += 2
    else:
        size, position = _read_varint(data, position)
    if not size & 1:
        position += size >> 1
    elif size != 1 or key_required:
        raise _UnsoundError
    size = data[position]
    if size < 0x80:
        position += 1
    elif (high := data[position + 1]) < 0x80:
        size = size & 0x7F | high << 7
        position += 2
    else:
        size, position = _read_varint(data, position)
    if not size & 1:
        position += size >> 1
    elif size != 1:
        raise _UnsoundError
    return position


class _UnsoundError(Exception):
    """A record needs a closer look."""


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint of at most 32 bits, still in zigzag, and the position after it."""
    value = shift = 0
    for byte in data[position : position + 5]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 32:
                break
            return value, position + shift // 7
    raise _UnsoundError


def _read_time(data: bytes, position: int) -> tuple[int, int]:
    """A varint of at most 64 bits, still in zigzag, and the position after it."""
    value = shift = 0
    for byte in data[position : position + 10]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 64:
                break
            return value, position + shift // 7
    raise _UnsoundError


def _skip_headers(data: bytes, position: int) -> int:
    size, position = _read_varint(data, position)
    if size & 1 or size >> 1 > _HEADERS_AT_ONCE:
        raise _UnsoundError
    for _ in range(size >> 1):
        size, position = _read_varint(data, position)
        if size & 1:
            raise _UnsoundError
        end = position + (size >> 1)
        data[position:end].decode()
        size, position = _read_varint(data, end)
        if not size & 1:
            position += size >> 1
        elif size != 1:
            raise _UnsoundError
    return position
