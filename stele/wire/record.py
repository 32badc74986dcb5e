"""The records in a batch. Each is a length, attributes, deltas, key, value and headers.

Layout (https://kafka.apache.org/documentation/#record): every number is a zigzag varint, and null
is the length -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from stele.wire import native
from stele.wire.batch_errors import CorruptBatchError
from stele.world import Buffer

B = TypeVar("B", bytes, memoryview)

Header = tuple[str, bytes | None]
"""Name and value of a record's header. Names may repeat."""


class Record(NamedTuple):
    """One record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


OutgoingRecord = tuple[Any, ...]
"""A record that goes into a batch. Its first five fields are the topic, the value, the key, the
headers and the time, which may be None."""


class EncodedRecords(NamedTuple):
    """The records of a batch as its body holds them, not compressed. All have the same time."""

    body: Buffer
    record_count: int  # at least 1
    timestamp_ms: int


def _compute_varint(value: int) -> bytes:
    """A zigzag varint. The protocol's varint and varlong differ only in range."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# Lengths and deltas below this are looked up in a table, which makes encoding fast. All of them
# take one or two bytes.
_TABLE_SIZE: Final = 8192
VARINTS: Final = [_compute_varint(value) for value in range(_TABLE_SIZE)]


def encode_varint(value: int) -> bytes:
    return VARINTS[value] if 0 <= value < _TABLE_SIZE else _compute_varint(value)


def encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [encode_varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (encode_varint(len(encoded)), encoded)
        parts += (b"\x01",) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


RECORD_OVERHEAD: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""The most bytes of length, attributes, times, offset and three counts of a record."""


def record_size_bound(
    key: Buffer | None, value: Buffer | None, headers: Sequence[Header] = ()
) -> int:
    """The most bytes that a record adds to a batch, some 30 above the true number."""
    size = RECORD_OVERHEAD
    size += 0 if key is None else len(key)
    size += 0 if value is None else len(value)
    for name, content in headers:
        size += 10 + len(name) * 4 + (0 if content is None else len(content))
    return size


class EncodedRun(NamedTuple):
    """Records as the body of a batch goes on with them."""

    body: bytes
    record_count: int
    size_bounds: int
    """The sum of the records' ``record_size_bound``."""
    base_ms: int
    """The time of the first record of the batch."""
    newest_ms: int
    """The greatest time of these records."""


def encode_records(
    records: list[OutgoingRecord],
    start: int,
    *,
    delta: int,
    base_ms: int | None,
    room_bytes: int,
    now_ms: int,
) -> EncodedRun | None:
    """The records from ``start`` on that a batch has room for. None: it has room for none.

    The first one gets the offset ``delta`` in the batch. ``base_ms`` is the base timestamp of the
    batch; None: the batch is empty, and takes one record of any size. Records without a time get
    ``now_ms``.
    """
    if native.NATIVE is not None:
        sound = native.NATIVE.encode_records(records, start, delta, base_ms, room_bytes, now_ms)
        if sound is not None:
            return EncodedRun._make(sound)
    parts: list[Buffer] = []
    count = size_bytes = size_bounds = 0
    times: list[int] = []
    for _, value, key, headers, own_ms, *_ in islice(records, start, None):
        bound = record_size_bound(key, value, headers)
        if base_ms is not None and size_bytes + bound > room_bytes:
            break
        time_ms = now_ms if own_ms is None else own_ms
        if base_ms is None:
            base_ms = time_ms
        head = b"\x00" + encode_varint(time_ms - base_ms) + encode_varint(delta + count)
        head += b"\x01" if key is None else encode_varint(len(key))
        value_prefix = b"\x01" if value is None else encode_varint(len(value))
        tail = encode_headers(headers) if headers else b"\x00"
        size = len(head) + len(key or b"") + len(value_prefix) + len(value or b"") + len(tail)
        prefix = encode_varint(size)
        parts += (prefix, head, key or b"", value_prefix, value or b"", tail)
        size_bytes += len(prefix) + size
        size_bounds += bound
        times.append(time_ms)
        count += 1
    if base_ms is None or not times:
        return None
    return EncodedRun(b"".join(parts), count, size_bounds, base_ms, max(times))


# ------------------------------------------------------------------------------ decoding


def decode_records(
    data: bytes,
    count: int,
    *,
    base_offset: int,
    base_timestamp_ms: int,
    append_time_ms: int | None,
) -> list[Record]:
    """All records of a batch's decompressed body. Raises CorruptBatchError unless they fill it
    exactly."""
    if native.NATIVE is not None:
        sound = native.NATIVE.decode_records(
            data, count, base_offset, base_timestamp_ms, append_time_ms, Record
        )
        if sound is not None:
            return sound
    try:
        records, end = _decode(data, count, base_offset, base_timestamp_ms)
    except IndexError:
        raise CorruptBatchError("the batch ends inside a record") from None
    except UnicodeDecodeError as error:
        raise CorruptBatchError(f"a header's name is not UTF-8: {error}") from None
    if end != len(data):
        raise CorruptBatchError(f"{len(data)} bytes of records, {end} expected")
    if append_time_ms is not None:
        return [record._replace(timestamp_ms=append_time_ms) for record in records]
    return records


# Varints of one or two bytes are read inline, five times per record: a call for each would cost
# more than everything else. For the same reason key and value share a call.

_NULL: Final = 1  # the length -1, in zigzag


def _decode(
    data: bytes, count: int, base_offset: int, base_timestamp_ms: int
) -> tuple[list[Record], int]:
    """The records, and the position after them.

    Every record must end where its length says. A slice beyond the end is too short and moves the
    position there, which the next byte or the check at the very end reveals.
    """
    records: list[Record] = []
    append = records.append
    make = tuple.__new__
    position = 0
    for _ in range(count):
        size = data[position]
        if size < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            size = size & 0x7F | high << 7
            position += 2
        else:
            size, position = _read_long_varint(data, position)
        end = position + (size >> 1)
        position += 1  # attributes: none are defined
        time = data[position]
        if time < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            time = time & 0x7F | high << 7
            position += 2
        else:
            time, position = _read_long_varint(data, position)
        delta = data[position]
        if delta < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            delta = delta & 0x7F | high << 7
            position += 2
        else:
            delta, position = _read_long_varint(data, position)
        key, value, position = _read_key_and_value(data, position)
        headers: tuple[Header, ...] = ()
        if data[position]:
            headers, position = _read_headers(data, position)
        else:
            position += 1
        if position != end or size & 1:  # odd in zigzag: a negative length
            raise CorruptBatchError(f"record {len(records)} does not end where it says")
        timestamp_ms = base_timestamp_ms + (~(time >> 1) if time & 1 else time >> 1)
        offset = base_offset + (~(delta >> 1) if delta & 1 else delta >> 1)
        append(make(Record, (offset, timestamp_ms, key, value, headers)))
    return records, position


def _read_key_and_value(data: bytes, position: int) -> tuple[bytes | None, bytes | None, int]:
    key = value = None
    size = data[position]
    if size < 0x80:
        position += 1
    elif (high := data[position + 1]) < 0x80:
        size = size & 0x7F | high << 7
        position += 2
    else:
        size, position = _read_long_varint(data, position)
    if not size & 1:
        start = position
        position += size >> 1
        key = data[start:position]
    elif size != _NULL:
        raise _negative_length(size)
    size = data[position]
    if size < 0x80:
        position += 1
    elif (high := data[position + 1]) < 0x80:
        size = size & 0x7F | high << 7
        position += 2
    else:
        size, position = _read_long_varint(data, position)
    if not size & 1:
        start = position
        position += size >> 1
        value = data[start:position]
    elif size != _NULL:
        raise _negative_length(size)
    return key, value, position


def _negative_length(size: int) -> CorruptBatchError:
    return CorruptBatchError(f"a length of {-(size + 1 >> 1)}")


def first_header(body: memoryview, name: bytes, *, among: int = 32) -> bytes | None:
    """The value of a header of the first record in a decompressed body, which need not be sound.
    None: the first ``among`` headers have none of this name.

    Raises CorruptBatchError. It takes no longer for a large record.
    """
    try:
        _, position = _read_long_varint(body, 0)
        position += 1  # attributes
        for _ in range(2):  # deltas
            _, position = _read_long_varint(body, position)
        for _ in range(2):  # key and value
            _, position = _read_bytes(body, position)
        count, position = _read_long_varint(body, position)
        for _ in range(min(count >> 1, among)):
            found, position = _read_bytes(body, position)
            value, position = _read_bytes(body, position)
            if found is not None and bytes(found) == name:
                return None if value is None else bytes(value)
    except IndexError:
        raise CorruptBatchError("the batch ends inside a record") from None
    return None


def _read_long_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A varint of any size up to 64 bits, still in zigzag, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise CorruptBatchError("a varint of more than ten bytes")
    if value >> 64:
        raise CorruptBatchError("a varint of more than 64 bits")
    return value, position


def _read_bytes(data: B, position: int) -> tuple[B | None, int]:
    size, position = _read_long_varint(data, position)
    if size == _NULL:
        return None, position
    if size & 1:
        raise _negative_length(size)
    end = position + (size >> 1)
    return data[position:end], end


def _read_headers(data: bytes, position: int) -> tuple[tuple[Header, ...], int]:
    size, position = _read_long_varint(data, position)
    if size & 1 or size >> 1 > len(data) - position:
        raise CorruptBatchError("an impossible count of headers")
    headers: list[Header] = []
    for _ in range(size >> 1):
        name, position = _read_bytes(data, position)
        if name is None:
            raise CorruptBatchError("a header without a name")
        value, position = _read_bytes(data, position)
        headers.append((name.decode(), value))
    return tuple(headers), position
