"""Record batches as producers send them."""

from __future__ import annotations

from stele.wire.batch import BatchBuilder, BatchHeader, read_header
from stele.wire.compression import Compression
from stele.world import Buffer


def make_batch(
    count: int = 1,
    *,
    size: int = 10,
    value: bytes | None = None,
    timestamp_ms: int = 1_000_000,
    producer: tuple[int, int, int] | None = None,
    compression: Compression = Compression.NONE,
    base_offset: int = 0,
    leader_epoch: int = 0,
    is_transactional: bool = False,
) -> bytearray:
    """A batch of ``count`` records one millisecond apart. ``size``: of each value, where ``value``
    says nothing else; ``producer``: id, epoch, first sequence."""
    builder = BatchBuilder(base_offset)
    content = b"v" * size if value is None else value
    for index in range(count):
        builder.append(b"key", content, timestamp_ms=timestamp_ms + index)
    producer_id, epoch, sequence = producer or (-1, -1, -1)
    return builder.build(
        compression,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        leader_epoch=leader_epoch,
        is_transactional=is_transactional,
    )


def header_of(batch: Buffer) -> BatchHeader:
    return read_header(batch)
