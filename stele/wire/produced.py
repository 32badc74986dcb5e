"""What a producer may send: the check of a batch's bytes and of its header."""

from __future__ import annotations

from typing import Final

from stele.errors import ErrorCode
from stele.wire.batch import (
    COMPRESSION_MASK,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    read_header,
)
from stele.wire.batch_errors import (
    BatchError,
    CorruptBatchError,
    PartialBatchError,
    UnsupportedMagicError,
)
from stele.wire.compression import Compression
from stele.world import Buffer

_PRODUCED: Final = 0x3F
"""The attribute bits that a producer may use. 0x40 is the log cleaner's."""


def validate_produced(buffer: Buffer, max_bytes: int) -> BatchHeader:
    """The header of what a producer sent for one partition: exactly one sound batch.

    Raises BatchError with the code for the answer. ``max_bytes`` is ``max.message.bytes``.
    ``stele.wire.record_check`` checks the records.
    """
    if len(buffer) == 0:
        raise BatchError(ErrorCode.INVALID_RECORD, "no record batch")
    try:
        header = read_header(buffer)
    except UnsupportedMagicError as error:
        raise BatchError(ErrorCode.INVALID_RECORD, error.message) from None
    if header.size_bytes > max_bytes:
        raise BatchError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {header.size_bytes} bytes, max.message.bytes is {max_bytes}",
        )
    if header.size_bytes > len(buffer):
        raise PartialBatchError(f"{len(buffer)} bytes of a batch of {header.size_bytes}")
    if header.size_bytes < len(buffer):
        raise BatchError(ErrorCode.INVALID_RECORD, "more than one record batch")
    if not check_crc(buffer, 0, header):
        raise CorruptBatchError("the CRC does not match")
    _validate_fields(header)
    return header


def _validate_fields(header: BatchHeader) -> None:
    if header.record_count == 0 or header.record_count != header.last_offset_delta + 1:
        raise BatchError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records over {header.last_offset_delta + 1} offsets",
        )
    attributes = header.attributes
    if attributes & CONTROL:
        raise BatchError(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if attributes & LOG_APPEND_TIME:
        raise BatchError(ErrorCode.INVALID_TIMESTAMP, "producers may not set LogAppendTime")
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "unknown compression")
    if attributes & ~_PRODUCED:
        raise BatchError(ErrorCode.INVALID_RECORD, f"attributes {attributes & 0xFFFF:#x}")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise BatchError(ErrorCode.INVALID_RECORD, "a producer id without epoch or sequence")
    if attributes & TRANSACTIONAL and header.producer_id < 0:
        raise BatchError(ErrorCode.INVALID_RECORD, "a batch of a transaction without producer id")
