"""The four codecs of the record batch, with bounds on decompression.

Compatibility with other clients decides the details:

- gzip has no modification time, so that equal input gives equal output.
- snappy is written raw, as librdkafka does. It is read raw and in the framing of the xerial
  library, which JVM clients write.
- lz4 is the frame format with independent blocks, because JVM clients refuse linked ones.
- zstd is read as a stream: a frame may lack its content size, and several frames may follow each
  other.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam
import lz4.frame
import zstandard

from stele.errors import ApiError, ErrorCode
from stele.world import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
"""The most bytes to which one batch may grow, unless its reader sets another bound."""


class Compression(enum.IntEnum):
    """The low three bits of a batch's attributes. The names are those of ``compression.type``."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str) -> Compression:
        """The codec of a ``compression.type``. Raises ValueError for an unknown name."""
        try:
            return cls[name.upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"unknown compression type {name!r}: one of {names}") from None


class CompressionError(ApiError):
    """The bytes are not valid for their codec, or grow beyond their bound."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


class DecompressedSizeError(CompressionError):
    """The bytes grow beyond their bound."""


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress ``data``. A ``level`` of None is the codec's default."""
    if codec is Compression.LZ4:
        packed: bytes = lz4.frame.compress(
            data,
            compression_level=level or 0,
            block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            block_linked=False,
            store_size=False,
        )
        return packed
    if codec is Compression.ZSTD:
        return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    if codec is Compression.GZIP:
        deflate = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return deflate.compress(data) + deflate.flush()
    if codec is Compression.SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data))
    return bytes(data)


def decompress(
    codec: Compression, data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Decompress ``data`` to at most ``max_bytes``. Raises CompressionError."""
    parts = list(decompressed(codec, data, max_bytes, chunk_bytes=max_bytes))
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def decompressed(
    codec: Compression, data: Buffer, max_bytes: int, *, chunk_bytes: int
) -> Iterator[bytes]:
    """Decompress ``data`` in parts of at most ``chunk_bytes``, some of them empty.

    It makes one part at a time, so that a caller can let other tasks run between them. A block of
    raw snappy is one part of any size. Raises CompressionError.
    """
    try:
        yield from _READERS[codec](memoryview(data), max_bytes, max(chunk_bytes, 1))
    except (RuntimeError, zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise CompressionError(f"not {codec.name.lower()} data: {error}") from error


def _too_large(codec: Compression, max_bytes: int) -> CompressionError:
    return DecompressedSizeError(f"{codec.name.lower()} data grows past {max_bytes} bytes")


def _plain(data: memoryview, max_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    if len(data) > max_bytes:
        raise _too_large(Compression.NONE, max_bytes)
    yield bytes(data)


_PIECE = 64 * 1024
"""The size of a piece of the input. Decompressors copy the rest of the input that they have not
used."""

# ---------------------------------------------------------------------------------- gzip

_GZIP_WINDOW = 31  # zlib's number for 32 KiB of history in a gzip frame


def _ungzip(data: memoryview, max_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    room = max_bytes
    position = 0
    pending = b""
    while True:  # the data may be several members, one after the other
        inflate = zlib.decompressobj(_GZIP_WINDOW)
        while not inflate.eof:
            if not pending:
                pending = bytes(data[position : position + _PIECE])
                position += len(pending)
            is_last = not pending
            part = inflate.decompress(pending, min(room + 1, chunk_bytes))
            if len(part) > room:
                raise _too_large(Compression.GZIP, max_bytes)
            if is_last and not part and not inflate.eof:
                raise CompressionError("gzip data ends inside a member")
            room -= len(part)
            pending = inflate.unconsumed_tail
            yield part
        pending = inflate.unused_data
        if not pending and position >= len(data):
            return


# -------------------------------------------------------------------------------- snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = len(_XERIAL_MAGIC) + 8  # plus two version numbers
_SNAPPY_MAX_RATIO = 22  # the densest element has 3 bytes and produces 64
_INT32 = struct.Struct(">i")


def _unsnappy(view: memoryview, max_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _unsnappy_block(view, max_bytes, max_bytes)
        return
    room = max_bytes
    position = _XERIAL_HEADER_SIZE
    while position < len(view):
        if position + 4 > len(view):
            raise CompressionError("snappy data ends inside a block's length")
        (size,) = _INT32.unpack_from(view, position)
        position += 4
        if not 0 < size <= len(view) - position:
            raise CompressionError(f"a snappy block of {size} bytes, longer than the data")
        part = _unsnappy_block(view[position : position + size], room, max_bytes)
        room -= len(part)
        position += size
        yield part


def _unsnappy_block(data: Buffer, room: int, max_bytes: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > room:
        raise _too_large(Compression.SNAPPY, max_bytes)
    if size > len(data) * _SNAPPY_MAX_RATIO:  # it would be allocated before it is found wrong
        raise CompressionError(f"{len(data)} bytes of snappy data claim to hold {size}")
    return bytes(cramjam.snappy.decompress_raw(data))


# ----------------------------------------------------------------------------------- lz4


_LZ4_CHUNK = 64 * 1024  # the least that one read allocates


def _unlz4(data: memoryview, max_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    room = max_bytes
    chunk_bytes = min(chunk_bytes, max(_LZ4_CHUNK, 16 * len(data)))
    position = 0
    pending = b""
    while True:
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            is_last = False
            if not pending and frame.needs_input:
                pending = bytes(data[position : position + _PIECE])
                position += len(pending)
                is_last = not pending
            part = frame.decompress(pending, min(room + 1, chunk_bytes))
            pending = b""  # the frame keeps input that it has not used
            if len(part) > room:
                raise _too_large(Compression.LZ4, max_bytes)
            if is_last and not part and not frame.eof:
                raise CompressionError("lz4 data ends inside a frame")
            room -= len(part)
            yield part
        pending = frame.unused_data or b""
        if not pending and position >= len(data):
            return


# ---------------------------------------------------------------------------------- zstd

_ZSTD_CHUNK = 128 * 1024  # the largest block; one read may allocate as much
_ZSTD_BLOCK_HEADER_SIZE = 3
_ZSTD_RUN = 1  # the type of a block that repeats one byte
_ZSTD_CHECKSUM_SIZE = 4


def _unzstd(view: memoryview, max_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    decompressor = zstandard.ZstdDecompressor()
    room = max_bytes
    position = 0
    while position < len(view) or position == 0:
        end = _zstd_frame_end(view, position)
        frame = view[position:end]
        if zstandard.frame_content_size(frame) > room:
            raise _too_large(Compression.ZSTD, max_bytes)
        size = min(chunk_bytes, max(_ZSTD_CHUNK, 4 * len(frame)))
        with decompressor.stream_reader(frame) as reader:
            while part := reader.read(min(room + 1, size)):
                if len(part) > room:
                    raise _too_large(Compression.ZSTD, max_bytes)
                room -= len(part)
                yield part
        yield b""
        position = end


def _zstd_frame_end(view: memoryview, position: int) -> int:
    """The position where the frame at ``position`` ends according to its blocks (RFC 8878 §3.1.1).

    The decompressors take a truncated frame for a complete one, or stop after the first frame, so
    this module finds the ends.
    """
    head = bytes(view[position : position + 18])  # the longest header of a frame
    has_checksum = zstandard.get_frame_parameters(head).has_checksum
    end = position + zstandard.frame_header_size(head)
    is_last = False
    while not is_last:
        block = int.from_bytes(view[end : end + _ZSTD_BLOCK_HEADER_SIZE], "little")
        is_last = bool(block & 1)
        is_run = block >> 1 & 3 == _ZSTD_RUN
        end += _ZSTD_BLOCK_HEADER_SIZE + (1 if is_run else block >> 3)
        if end > len(view):
            break
    end += _ZSTD_CHECKSUM_SIZE if has_checksum else 0
    if end > len(view):
        raise CompressionError("zstd data ends inside a frame")
    return end


_READERS: dict[Compression, Callable[[memoryview, int, int], Iterator[bytes]]] = {
    Compression.NONE: _plain,
    Compression.GZIP: _ungzip,
    Compression.SNAPPY: _unsnappy,
    Compression.LZ4: _unlz4,
    Compression.ZSTD: _unzstd,
}
"""(compressed bytes, most bytes to which they may grow, size of a part) → parts."""
