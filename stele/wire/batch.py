"""Record batch v2: the unit that producers send, disks hold, followers copy and consumers read.

Layout, big-endian (https://kafka.apache.org/documentation/#recordbatch)::

    0  base_offset i64        21  attributes i16            43  producer_id i64
    8  length i32 (of what    23  last_offset_delta i32     51  producer_epoch i16
       follows these 12)      27  base_timestamp i64        53  base_sequence i32
    12 leader_epoch i32       35  max_timestamp i64         57  record_count i32
    16 magic i8 = 2                                         61  records
    17 crc u32, CRC-32C of everything from 21 on

A broker reads and stamps headers. Only clients, and the few places that must, parse records. Offset
and leader epoch are not under the CRC, so it stays valid when they are stamped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from stele.wire.batch_errors import (
    BatchError,
    CorruptBatchError,
    PartialBatchError,
    UnsupportedMagicError,
)
from stele.wire.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    Compression,
    CompressionError,
    compress,
    decompress,
)
from stele.wire.record import (
    VARINTS,
    EncodedRecords,
    Header,
    OutgoingRecord,
    Record,
    decode_records,
    encode_headers,
    encode_records,
    encode_varint,
    record_size_bound,
)
from stele.world import Buffer

__all__ = [
    "COMPRESSION_MASK",
    "CONTROL",
    "CRC_POSITION",
    "CRC_START",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "MAGIC",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "PREFIX_SIZE",
    "TRANSACTIONAL",
    "BatchBuilder",
    "BatchError",
    "BatchHeader",
    "CorruptBatchError",
    "Header",
    "PartialBatchError",
    "Record",
    "UnsupportedMagicError",
    "batches",
    "body_of",
    "check_crc",
    "check_ends",
    "compute_crc",
    "decode",
    "encode",
    "read_header",
    "record_size_bound",
    "stamp",
    "stamp_body",
    "stamp_max_timestamp",
    "whole_size",
]

HEADER_SIZE: Final = 61
PREFIX_SIZE: Final = 12
"""The bytes of base offset and length, which the length field does not count."""
MAGIC: Final = 2

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

_CODECS: Final = tuple(Compression)  # index: the codec's number
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
"""The bit of the attributes of a batch that is part of a transaction."""
CONTROL: Final = 0x20
"""The bit of the attributes of a batch of control records."""
_DELETE_HORIZON: Final = 0x40

CRC_POSITION: Final = 17
"""Where the CRC of a batch is. It covers everything behind it."""

CRC_START: Final = 21

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_POSITION: Final = 43  # of producer id, producer epoch and base sequence
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class BatchHeader(NamedTuple):
    """The 61 bytes before the records. Times are in milliseconds since the epoch."""

    base_offset: int
    size_bytes: int  # the whole batch, including the 12 bytes that the length does not count
    leader_epoch: int
    magic: int  # always 2
    crc: int
    attributes: int
    last_offset_delta: int  # at least 0; compaction keeps it even if it removes the last record
    base_timestamp_ms: int
    max_timestamp_ms: int  # with LogAppendTime it is the time of every record
    producer_id: int  # -1: not idempotent
    producer_epoch: int
    base_sequence: int
    record_count: int  # less than last_offset_delta + 1 after compaction

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; -1 if there is none. The sequence after 2^31 - 1 is
        0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> Compression:
        """The codec. Raises CorruptBatchError for an unknown number."""
        codec = self.attributes & COMPRESSION_MASK
        if codec >= len(_CODECS):
            raise CorruptBatchError(f"unknown compression {codec}")
        return _CODECS[codec]

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def log_append_time_ms(self) -> int:
        """The time of the append, with LogAppendTime; -1 if the records have their producer's
        times."""
        return self.max_timestamp_ms if self.attributes & LOG_APPEND_TIME else NO_TIMESTAMP

    @property
    def delete_horizon_ms(self) -> int | None:
        """From when on a compaction may remove the batch's tombstones (KIP-534); None: no
        compaction has found any. The base timestamp is the horizon then."""
        return self.base_timestamp_ms if self.attributes & _DELETE_HORIZON else None

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at ``position``. The buffer need not hold the whole batch.

    Raises PartialBatchError if the buffer ends inside the header, UnsupportedMagicError for an
    older format, and CorruptBatchError for an impossible header. It does not check the CRC.
    """
    try:
        base_offset, length, leader_epoch, magic, *rest = _HEADER.unpack_from(buffer, position)
    except struct.error:
        raise PartialBatchError(
            f"{len(buffer) - position} bytes are fewer than a batch header"
        ) from None
    if magic != MAGIC:
        if magic in (0, 1):
            raise UnsupportedMagicError(magic)
        raise CorruptBatchError(f"magic {magic} at position {position}")
    size_bytes = length + PREFIX_SIZE
    if size_bytes < HEADER_SIZE:
        raise CorruptBatchError(f"a batch of {size_bytes} bytes at position {position}")
    header = BatchHeader(base_offset, size_bytes, leader_epoch, magic, *rest)
    if header.last_offset_delta < 0 or header.record_count < 0 or base_offset < 0:
        raise CorruptBatchError(f"negative counts at position {position}: {header}")
    return header


def batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch from ``position`` on, in order.

    Stops before a batch that is not whole in the buffer (see ``whole_size``). Raises as
    ``read_header`` does.
    """
    end = len(buffer)
    while end - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        following = position + header.size_bytes
        if following > end:
            return
        yield position, header
        position = following


def whole_size(buffer: Buffer, position: int = 0) -> int:
    """The number of bytes from ``position`` on that are whole batches. The rest is a part of
    one."""
    end = position
    for start, header in batches(buffer, position):
        end = start + header.size_bytes
    return end - position


def compute_crc(buffer: Buffer, position: int, size_bytes: int) -> int:
    """The CRC-32C that the batch at ``position`` should carry."""
    return crc32c(memoryview(buffer)[position + CRC_START : position + size_bytes])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch's bytes match its CRC. False for a partial batch."""
    if position + header.size_bytes > len(buffer):
        return False
    covered = memoryview(buffer)[position + CRC_START : position + header.size_bytes]
    return crc32c(covered) == header.crc


def seal(buffer: bytearray | memoryview, position: int, size_bytes: int) -> int:
    """Write the CRC of the batch at ``position``, whose other bytes are in place. Returns it."""
    crc = compute_crc(buffer, position, size_bytes)
    _CRC.pack_into(buffer, position + CRC_POSITION, crc)
    return crc


def stamp_producer(
    batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Give a batch another producer and sequence, and the CRC, which covers them."""
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    seal(batch, 0, len(batch))


def stamp(
    buffer: bytearray | memoryview,
    position: int,
    *,
    base_offset: int,
    leader_epoch: int,
    log_append_time_ms: int | None = None,
) -> None:
    """Write offset, leader epoch and time, which the leader assigns, into the batch at
    ``position``.

    With ``log_append_time_ms`` the batch gets the type LogAppendTime. Maximum timestamp and flag
    are under the CRC, which is computed again.
    """
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, leader_epoch)
    if log_append_time_ms is None:
        return
    (length,) = _INT32.unpack_from(buffer, position + 8)
    (attributes,) = _INT16.unpack_from(buffer, position + 21)
    _INT16.pack_into(buffer, position + 21, attributes | LOG_APPEND_TIME)
    _INT64.pack_into(buffer, position + 35, log_append_time_ms)
    seal(buffer, position, length + PREFIX_SIZE)


def stamp_max_timestamp(
    buffer: bytearray | memoryview, header: BatchHeader, max_timestamp_ms: int
) -> BatchHeader:
    """Correct the maximum timestamp of the batch at the start of ``buffer``, and its CRC, which
    covers it. Returns the new header. ``header`` is the present one."""
    _INT64.pack_into(buffer, 35, max_timestamp_ms)
    crc = seal(buffer, 0, header.size_bytes)
    return header._replace(max_timestamp_ms=max_timestamp_ms, crc=crc)


def stamp_body(batch: bytearray, header: BatchHeader, codec: Compression) -> None:
    """``batch`` has got other bytes after its header, in this codec: write length, codec and CRC.
    ``header`` is the one before."""
    _INT32.pack_into(batch, 8, len(batch) - PREFIX_SIZE)
    _INT16.pack_into(batch, 21, header.attributes & ~COMPRESSION_MASK | codec)
    seal(batch, 0, len(batch))


# ------------------------------------------------------------------------------ building

_NULL_LENGTH: Final = b"\x01"  # -1 in zigzag


class BatchBuilder:
    """Collects records and makes one batch of them.

    >>> builder = BatchBuilder()
    >>> builder.append(b"key", b"value", timestamp_ms=1)
    0
    >>> batch = builder.build(Compression.LZ4)
    """

    __slots__ = (
        "_base_timestamp_ms",
        "_last_delta",
        "_max_timestamp_ms",
        "_parts",
        "base_offset",
        "record_count",
        "size_bytes",
    )

    def __init__(self, base_offset: int = 0) -> None:
        self.base_offset = base_offset
        self.record_count = 0
        self.size_bytes = HEADER_SIZE  # size of the batch so far; exact while it is not compressed
        self._parts: list[Buffer] = []
        self._last_delta = -1
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp_ms: int,
        headers: Sequence[Header] = (),
        offset: int | None = None,
    ) -> int:
        """Add a record. Returns its distance from the batch's base offset.

        It gets the next offset, or ``offset``, which must be above those before. Key and value are
        copied only by ``build``, so they must not change before.
        """
        delta = self._last_delta + 1 if offset is None else self._own_delta(offset)
        if self.record_count == 0:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        time_delta = timestamp_ms - self._base_timestamp_ms
        tail = encode_headers(headers) if headers else b"\x00"
        try:
            if value is None or time_delta < 0:
                raise IndexError  # the slow way handles it
            key_bytes: Buffer = b"" if key is None else key
            key_size = len(key_bytes)
            key_prefix = _NULL_LENGTH if key is None else VARINTS[key_size]
            value_size = len(value)
            head = VARINTS[time_delta] + VARINTS[delta] + key_prefix
            value_prefix = VARINTS[value_size]
            size = 1 + len(head) + key_size + len(value_prefix) + value_size + len(tail)
            prefix = VARINTS[size]
            self._parts += (prefix, b"\x00", head, key_bytes, value_prefix, value, tail)
        except IndexError:
            prefix, size = self._put_unusual(delta, key, value, time_delta, tail)
        self.size_bytes += len(prefix) + size
        self._last_delta = delta
        self.record_count += 1
        return delta

    def fill(self, records: EncodedRecords) -> None:
        """Set the records. The builder must be empty, and takes no more records."""
        self.record_count = records.record_count
        self.size_bytes += len(records.body)
        self._parts = [records.body]
        self._last_delta = records.record_count - 1
        self._base_timestamp_ms = self._max_timestamp_ms = records.timestamp_ms

    def extend(
        self, records: list[OutgoingRecord], start: int, limit_bytes: int, now_ms: int
    ) -> tuple[int, int]:
        """Add records from ``start`` on while the batch stays within ``limit_bytes``. An empty one
        takes a record of any size. Returns how many it took, and the sum of their bounds."""
        run = encode_records(
            records,
            start,
            delta=self._last_delta + 1,
            base_ms=self._base_timestamp_ms if self.record_count else None,
            room_bytes=limit_bytes - self.size_bytes,
            now_ms=now_ms,
        )
        if run is None:
            return 0, 0
        newest_ms = max(self._max_timestamp_ms, run.newest_ms)
        self._max_timestamp_ms = newest_ms if self.record_count else run.newest_ms
        self._base_timestamp_ms = run.base_ms
        self._parts.append(run.body)
        self.size_bytes += len(run.body)
        self._last_delta += run.record_count
        self.record_count += run.record_count
        return run.record_count, run.size_bounds

    def append_record(self, record: Record) -> None:
        """Add a record at its own offset."""
        self.append(
            record.key,
            record.value,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
            offset=record.offset,
        )

    def _own_delta(self, offset: int) -> int:
        delta = offset - self.base_offset
        if not self._last_delta < delta <= 0x7FFFFFFF:
            raise ValueError(f"offset {offset} does not follow in this batch")
        return delta

    def _put_unusual(
        self, delta: int, key: bytes | None, value: bytes | None, time_delta: int, tail: bytes
    ) -> tuple[bytes, int]:
        """Encode a record that has a null, negative or long field."""
        head = b"\x00" + encode_varint(time_delta) + encode_varint(delta)
        head += b"\x01" if key is None else encode_varint(len(key))
        key = key or b""
        value_prefix = b"\x01" if value is None else encode_varint(len(value))
        value = value or b""
        size = len(head) + len(key) + len(value_prefix) + len(value) + len(tail)
        prefix = encode_varint(size)
        self._parts += (prefix, head, key, value_prefix, value, tail)
        return prefix, size

    def build(
        self,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        leader_epoch: int = NO_LEADER_EPOCH,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytearray:
        """Build the batch. May be called again. Raises ValueError if there is no record."""
        if not self.record_count:
            raise ValueError("a batch of no records")
        attributes = int(compression)
        attributes |= TRANSACTIONAL if is_transactional else 0
        attributes |= CONTROL if is_control else 0
        parts: list[Buffer] = [bytes(HEADER_SIZE)]
        if compression is Compression.NONE:
            parts += self._parts
        else:
            parts.append(compress(compression, b"".join(self._parts), level))
        batch = bytearray().join(parts)
        _HEADER.pack_into(
            batch,
            0,
            self.base_offset,
            len(batch) - PREFIX_SIZE,
            leader_epoch,
            MAGIC,
            0,
            attributes,
            self._last_delta,
            self._base_timestamp_ms,
            self._max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            self.record_count,
        )
        seal(batch, 0, len(batch))
        return batch


def encode(
    records: Iterable[Record],
    compression: Compression = Compression.NONE,
    *,
    base_offset: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    is_control: bool = False,
) -> bytearray:
    """One batch of records at their own offsets. It begins at ``base_offset`` or at the first
    record."""
    builder: BatchBuilder | None = None
    for record in records:
        if builder is None:
            builder = BatchBuilder(record.offset if base_offset is None else base_offset)
        builder.append_record(record)
    if builder is None:
        raise ValueError("a batch of no records")
    return builder.build(compression, leader_epoch=leader_epoch, is_control=is_control)


def decode(
    batch: Buffer,
    position: int = 0,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    verify_crc: bool = True,
) -> list[Record]:
    """The records of the batch at ``position``. The bytes need not be trusted. Raises
    BatchError."""
    header = read_header(batch, position)
    data = body_of(batch, position, header, max_decompressed_bytes, verify_crc=verify_crc)
    records = decode_records(
        data,
        header.record_count,
        base_offset=header.base_offset,
        base_timestamp_ms=header.base_timestamp_ms,
        append_time_ms=header.max_timestamp_ms if header.is_log_append_time else None,
    )
    if records:
        check_ends(header, records[0].offset, records[-1].offset)
    return records


def body_of(
    batch: Buffer,
    position: int,
    header: BatchHeader,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    *,
    verify_crc: bool = True,
) -> bytes:
    """The decompressed records of the batch at ``position``. Raises BatchError."""
    end = position + header.size_bytes
    if end > len(batch):
        raise PartialBatchError(f"{len(batch) - position} bytes of {header.size_bytes}")
    if verify_crc and not check_crc(batch, position, header):
        raise CorruptBatchError("the CRC does not match")
    body = memoryview(batch)[position + HEADER_SIZE : end]
    try:
        return decompress(header.compression, body, max_decompressed_bytes)
    except CompressionError as error:
        raise CorruptBatchError(error.message) from error


def check_ends(header: BatchHeader, first_offset: int, last_offset: int) -> None:
    """Raises CorruptBatchError unless the offsets of the first and of the last record are those of
    the batch."""
    if not header.base_offset <= first_offset <= last_offset <= header.last_offset:
        raise CorruptBatchError("records lie outside of their batch's offsets")
