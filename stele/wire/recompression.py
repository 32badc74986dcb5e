"""Batches in another codec than their producer's, for ``compression.type``."""

from __future__ import annotations

from stele.wire.batch import HEADER_SIZE, BatchHeader, read_header, stamp_body
from stele.wire.compression import Compression, compress, decompress
from stele.world import Buffer


def recompress(
    source: int, target: int, level: int | None, body: bytes, max_bytes: int
) -> tuple[int, bytes]:
    """The records of a batch in the codec ``target``: their size and their bytes. If they have more
    than ``max_bytes``, only the size.

    It takes and gives plain values, since another process does it. Raises CompressionError.
    """
    packed = compress(Compression(target), decompress(Compression(source), body), level)
    return len(packed), packed if len(packed) <= max_bytes else b""


def with_body(
    batch: Buffer, header: BatchHeader, codec: Compression, body: Buffer
) -> tuple[bytearray, BatchHeader]:
    """The batch with the same records in another codec. Only attributes, length and CRC differ."""
    made = bytearray().join((memoryview(batch)[:HEADER_SIZE], body))
    stamp_body(made, header, codec)
    return made, read_header(made)
