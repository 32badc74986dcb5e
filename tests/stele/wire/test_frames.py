from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.wire.kafka import MalformedMessageError
from stele.wire.kafka.frames import CHUNK_BYTES, GROWTH_BYTES, FrameReader

SIZES = st.sampled_from([0, 1, 3, 100, CHUNK_BYTES - 4, CHUNK_BYTES - 3, CHUNK_BYTES, 90_000])


def framed(size: int, seed: int) -> bytes:
    return struct.pack(">i", size) + bytes([seed % 251]) * size


@settings(max_examples=80)
@given(
    st.lists(SIZES | st.integers(0, 2000), max_size=12),
    st.lists(st.integers(1, 70_000), min_size=1, max_size=8),
)
def test_frames_come_out_as_they_went_in(sizes: list[int], pieces: list[int]) -> None:
    stream = b"".join(framed(size, seed) for seed, size in enumerate(sizes))
    reader = FrameReader(100_000)
    frames: list[bytearray] = []
    position = turn = 0
    while position < len(stream):
        buffer = reader.get_buffer()
        size = min(len(buffer), pieces[turn % len(pieces)], len(stream) - position)
        assert size > 0
        buffer[:size] = stream[position : position + size]
        del buffer
        reader.received(size)
        position, turn = position + size, turn + 1
        while True:
            has_frame, beginning = reader.has_frame, reader.peek(7)
            frame = reader.next_frame()
            assert has_frame == (frame is not None)
            if frame is None:
                break
            assert beginning == frame[:7]
            frames.append(frame)
    assert frames == [framed(size, seed)[4:] for seed, size in enumerate(sizes)]
    assert not reader.has_partial


def test_an_announced_size_alone_takes_no_memory() -> None:
    reader = FrameReader(1 << 30)
    reader.get_buffer()[:4] = struct.pack(">i", 1 << 30)
    reader.received(4)
    assert reader.next_frame() is None
    assert reader.has_partial
    assert len(reader.get_buffer()) == GROWTH_BYTES
    reader.received(GROWTH_BYTES)
    assert reader.next_frame() is None
    assert len(reader.get_buffer()) == GROWTH_BYTES
    reader.received(GROWTH_BYTES)
    assert len(reader.get_buffer()) == 2 * GROWTH_BYTES


def test_a_frame_too_large_for_its_api_is_refused_once_its_key_is_there() -> None:
    reader = FrameReader(1 << 30, lambda key, most: most if key == 0 else GROWTH_BYTES + 5)
    for data, refused in ((struct.pack(">ib", GROWTH_BYTES + 6, 0), False), (b"\x03", True)):
        reader.get_buffer()[: len(data)] = data
        reader.received(len(data))
        if refused:
            with pytest.raises(MalformedMessageError, match="API key 3, at most"):
                reader.next_frame()
        else:
            assert reader.next_frame() is None
            assert reader.has_partial


def test_an_answer_of_an_http_server_is_recognized() -> None:
    reader = FrameReader(1 << 30)
    answer = b"HTTP/1.1 400 Bad Request\r\n"
    reader.get_buffer()[: len(answer)] = answer
    reader.received(len(answer))
    with pytest.raises(MalformedMessageError, match="speaks HTTP"):
        reader.next_frame()


@pytest.mark.parametrize("size", [-1, 101, 1 << 30])
def test_sizes_out_of_bounds_are_refused(size: int) -> None:
    reader = FrameReader(100)
    reader.get_buffer()[:4] = struct.pack(">i", size)
    reader.received(4)
    assert reader.has_frame
    with pytest.raises(MalformedMessageError, match="at most 100"):
        reader.next_frame()
