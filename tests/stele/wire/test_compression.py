from __future__ import annotations

import struct

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.errors import ErrorCode
from stele.wire.compression import Compression, CompressionError, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"".join(b'{"line": %d, "country": "United Kingdom"}\n' % n for n in range(3000))


@settings(max_examples=60)
@given(st.binary(max_size=3000), st.integers(1, 50), st.sampled_from(Compression))
def test_what_is_compressed_comes_back(data: bytes, times: int, codec: Compression) -> None:
    data *= times
    for view in (data, bytearray(data), memoryview(data)):
        assert decompress(codec, compress(codec, view), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_levels_and_determinism(codec: Compression) -> None:
    assert compress(codec, TEXT) == compress(codec, TEXT)
    assert len(compress(codec, TEXT)) < len(TEXT) / 4
    for level in (1, 9):
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT


@pytest.mark.parametrize("codec", list(Compression))
def test_growth_is_bounded(codec: Compression) -> None:
    packed = compress(codec, bytes(1 << 20))
    assert len(decompress(codec, packed, 1 << 20)) == 1 << 20
    for bound in ((1 << 20) - 1, 1000, 0):
        with pytest.raises(CompressionError, match="grows past"):
            decompress(codec, packed, bound)


@pytest.mark.parametrize("codec", CODECS)
def test_cut_data_is_refused(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    for size in (0, 1, 5, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CompressionError) as caught:
            decompress(codec, packed[:size])
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@settings(max_examples=100)
@given(st.binary(max_size=200), st.sampled_from(CODECS))
def test_garbage_is_refused_or_decoded_within_bounds(data: bytes, codec: Compression) -> None:
    try:
        assert len(decompress(codec, data, 10_000)) <= 10_000
    except CompressionError:
        pass


def test_gzip_has_no_time_and_may_have_members() -> None:
    packed = compress(Compression.GZIP, TEXT)
    assert packed[4:8] == bytes(4)
    assert decompress(Compression.GZIP, packed + compress(Compression.GZIP, b"x")) == TEXT + b"x"


def xerial(*blocks: bytes) -> bytes:
    framed = b"".join(
        struct.pack(">i", len(packed)) + packed
        for packed in (bytes(cramjam.snappy.compress_raw(block)) for block in blocks)
    )
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + framed


def test_snappy_is_read_raw_and_framed() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    for data in (b"", TEXT):
        framed = xerial(data, b"tail")
        assert decompress(Compression.SNAPPY, framed) == data + b"tail"
        assert decompress(Compression.SNAPPY, memoryview(framed)) == data + b"tail"
    assert decompress(Compression.SNAPPY, xerial()) == b""


@pytest.mark.parametrize(
    "data",
    [
        xerial(TEXT)[:-1],
        xerial(TEXT) + b"\0\0",
        xerial(TEXT) + struct.pack(">i", -5),
        xerial(TEXT)[:18],
        b"\xff\xff\xff\x7f" + bytes(100),  # 256 MiB announced by a hundred bytes
    ],
)
def test_broken_snappy_is_refused(data: bytes) -> None:
    with pytest.raises(CompressionError):
        decompress(Compression.SNAPPY, data)


def test_snappy_blocks_are_bounded_together() -> None:
    data = xerial(bytes(600), bytes(600))
    assert len(decompress(Compression.SNAPPY, data, 1200)) == 1200
    with pytest.raises(CompressionError, match="grows past 1199"):
        decompress(Compression.SNAPPY, data, 1199)


def test_lz4_blocks_are_independent_and_frames_may_follow() -> None:
    packed = compress(Compression.LZ4, TEXT)
    info = lz4.frame.get_frame_info(packed)
    assert not info["block_linked"]
    assert decompress(Compression.LZ4, packed + packed) == TEXT + TEXT
    linked = lz4.frame.compress(TEXT, block_linked=True)
    assert decompress(Compression.LZ4, linked) == TEXT


def test_zstd_without_content_size_and_with_several_frames() -> None:
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    assert decompress(Compression.ZSTD, unsized) == TEXT
    assert decompress(Compression.ZSTD, unsized + compress(Compression.ZSTD, b"x")) == TEXT + b"x"
    assert decompress(Compression.ZSTD, compress(Compression.ZSTD, b"x") + unsized) == b"x" + TEXT
    with pytest.raises(CompressionError, match="grows past"):
        decompress(Compression.ZSTD, unsized, len(TEXT) - 1)


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("checked", [True, False])
def test_a_cut_zstd_frame_is_refused(sized: bool, checked: bool) -> None:
    packer = zstandard.ZstdCompressor(write_content_size=sized, write_checksum=checked)
    packed = packer.compress(TEXT + bytes(300_000))  # several blocks, one of them a run
    assert decompress(Compression.ZSTD, packed + packed) == (TEXT + bytes(300_000)) * 2
    for size in range(len(packed)):
        with pytest.raises(CompressionError):
            decompress(Compression.ZSTD, packed[:size])


def test_names() -> None:
    assert Compression.of("lz4") is Compression.LZ4
    assert Compression.of("none") is Compression.NONE
    with pytest.raises(ValueError, match="unknown compression type 'lzma': one of none, gzip"):
        Compression.of("lzma")
