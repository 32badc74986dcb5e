"""A batch in another codec has the same records, and the same header but for codec, length and
CRC."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.wire import batch as wire
from stele.wire.compression import Compression
from stele.wire.produced import validate_produced
from stele.wire.recompression import recompress, with_body

CODECS = list(Compression)
LEVELS = {
    Compression.GZIP: [-1, 1, 9],
    Compression.LZ4: [1, 9, 17],
    Compression.ZSTD: [-131072, 3, 22],
}


def built(codec: Compression, count: int = 3, value: bytes = b"value" * 20) -> bytearray:
    builder = wire.BatchBuilder()
    for number in range(count):
        headers = [("name", b"h"), ("none", None)]
        key = None if number == 1 else b"key %d" % number
        builder.append(key, value, timestamp_ms=10**12 - number, headers=headers)
    return builder.build(
        codec, producer_id=7, producer_epoch=3, base_sequence=11, is_transactional=True
    )


@settings(max_examples=60)
@given(st.sampled_from(CODECS), st.sampled_from(CODECS), st.integers(1, 2000), st.data())
def test_nothing_but_codec_length_and_crc_changes(
    source: Compression, target: Compression, count: int, data: st.DataObject
) -> None:
    batch = built(source, count)
    header = wire.read_header(batch)
    level = data.draw(st.sampled_from([None, *LEVELS.get(target, [])]))
    size, body = recompress(source, target, level, bytes(batch[wire.HEADER_SIZE :]), 1 << 30)
    made, after = with_body(batch, header, target, body)
    assert size == len(body) == len(made) - wire.HEADER_SIZE
    assert after == validate_produced(made, len(made))
    assert after.compression is target
    assert after._replace(attributes=0, size_bytes=0, crc=0) == header._replace(
        attributes=0, size_bytes=0, crc=0
    )
    assert after.attributes & ~7 == header.attributes & ~7
    assert wire.decode(made) == wire.decode(batch)


@pytest.mark.parametrize("target", CODECS)
def test_what_becomes_too_large_is_not_given_back(target: Compression) -> None:
    body = bytes(built(Compression.ZSTD, value=bytes(range(256)) * 40)[wire.HEADER_SIZE :])
    size, packed = recompress(Compression.ZSTD, target, None, body, 1 << 20)
    assert recompress(Compression.ZSTD, target, None, body, size) == (size, packed)
    assert recompress(Compression.ZSTD, target, None, body, size - 1) == (size, b"")
