"""The four codecs of the record batch, bounded on the way back.

What other clients write and read decides the details:

- gzip carries no modification time, so equal input is equal output.
- snappy is written raw, as librdkafka does; read both raw and in the framing of the xerial
  library, which JVM clients write.
- lz4 is the frame format with independent blocks: JVM clients refuse linked ones.
- zstd is read as a stream: a frame may lack its content size, and several may follow each other.
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
"""What one batch may grow to when its reader names no bound of its own."""


class Compression(enum.IntEnum):
    """The low three bits of a batch's attributes; names as in ``compression.type``."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def of(cls, name: str) -> Compression:
        """The codec that ``compression.type`` names. ValueError for a name it does not know."""
        try:
            return cls[name.upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in cls)
            raise ValueError(f"unknown compression type {name!r}: one of {names}") from None


class CompressionError(ApiError):
    """Bytes that are not what their codec writes, or that grow past their bound."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """``data`` in the codec's format; ``level`` None is the codec's default."""
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
    """The original of ``data``, at most ``max_bytes`` long. Raises CompressionError."""
    parts = list(decompressed(codec, data, max_bytes, chunk_bytes=max_bytes))
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)


def decompressed(
    codec: Compression, data: Buffer, max_bytes: int, *, chunk_bytes: int
) -> Iterator[bytes]:
    """The original of ``data`` in parts of ``chunk_bytes`` at the most, some of them empty.

    One part at a time is made, so that whoever must not stop for long can go on in between. A
    block of raw snappy is one part whatever its size. Raises CompressionError.
    """
    try:
        yield from _READERS[codec](memoryview(data), max_bytes, max(chunk_bytes, 1))
    except (RuntimeError, zlib.error, zstandard.ZstdError, cramjam.DecompressionError) as error:
        raise CompressionError(f"not {codec.name.lower()} data: {error}") from error


def _too_large(codec: Compression, max_bytes: int) -> CompressionError:
    return CompressionError(f"{codec.name.lower()} data grows past {max_bytes} bytes")


def _plain(data: memoryview, max_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    if len(data) > max_bytes:
        raise _too_large(Compression.NONE, max_bytes)
    yield bytes(data)


_PIECE = 64 * 1024
"""Of the input: decompressors copy what they were given and did not use yet."""

# ---------------------------------------------------------------------------------- gzip

_GZIP_WINDOW = 31  # zlib's way to say: 32 KiB of history, in a gzip frame


def _ungzip(data: memoryview, max_bytes: int, chunk_bytes: int) -> Iterator[bytes]:
    room = max_bytes
    position = 0
    pending = b""
    while True:  # a file may be several members, one after the other
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
                raise CompressionError("gzip data ends before its time")
            room -= len(part)
            pending = inflate.unconsumed_tail
            yield part
        pending = inflate.unused_data
        if not pending and position >= len(data):
            return


# -------------------------------------------------------------------------------- snappy

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = len(_XERIAL_MAGIC) + 8  # and two version numbers
_SNAPPY_MAX_RATIO = 22  # the densest element copies 64 bytes and takes 3
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
            raise CompressionError(f"a snappy block of {size} bytes where there are fewer")
        part = _unsnappy_block(view[position : position + size], room, max_bytes)
        room -= len(part)
        position += size
        yield part


def _unsnappy_block(data: Buffer, room: int, max_bytes: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > room:
        raise _too_large(Compression.SNAPPY, max_bytes)
    if size > len(data) * _SNAPPY_MAX_RATIO:  # it would be allocated before it is found false
        raise CompressionError(f"{len(data)} bytes of snappy data claim to hold {size}")
    return bytes(cramjam.snappy.decompress_raw(data))


# ----------------------------------------------------------------------------------- lz4


_LZ4_CHUNK = 64 * 1024  # what one read allocates ahead, at least


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
            pending = b""  # the frame keeps what it did not use yet
            if len(part) > room:
                raise _too_large(Compression.LZ4, max_bytes)
            if is_last and not part and not frame.eof:
                raise CompressionError("lz4 data ends before its time")
            room -= len(part)
            yield part
        pending = frame.unused_data or b""
        if not pending and position >= len(data):
            return


# ---------------------------------------------------------------------------------- zstd

_ZSTD_CHUNK = 128 * 1024  # the largest block; also what one read may allocate ahead
_ZSTD_BLOCK_HEADER_SIZE = 3
_ZSTD_RUN = 1  # the type of a block that is one byte, said often
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
    """Where the frame at ``position`` ends, by its blocks (RFC 8878 §3.1.1).

    The decompressors take a cut frame for a finished one or stop after the first, so frames are
    told apart here.
    """
    head = bytes(view[position : position + 18])  # as long as a frame's header can be
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
"""From the compressed bytes, what they may grow to, and the size of a part."""
