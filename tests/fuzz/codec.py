"""Changed requests, decoded in one go and in slices: what must hold for each."""

from __future__ import annotations

import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any, Final

from broker.api import SERVED
from stele.wire import kafka as wire
from stele.wire.kafka import definitions
from stele.wire.kafka.primitives import SLICE_ELEMENTS
from tests.fuzz.bytes import mutated
from tests.fuzz.messages import request_of

BASE_BYTES: Final = 50_000
"""What a decoding may take whatever the request is."""

LINES_PER_TURN: Final = 100 * SLICE_ELEMENTS
"""Lines of the decoder between two turns of the event loop. An element takes a few dozen."""

BASE_CPU_S: Final = 0.02
CPU_S_PER_MB: Final = 2.0
"""Of a decoding in the whole. A megabyte of the smallest elements takes a second at most."""

_POOL: Final = 12

KINDS: Final = [
    (definitions.find(each.api.key).name, version)
    for each in SERVED
    for version in range(each.api.min_version, each.api.max_version + 1)
]
"""Every API with every version."""


class Pool:
    """Some requests of one API and version, as frames."""

    def __init__(self, rng: random.Random, name: str, version: int) -> None:
        key = next(each.key for each in definitions.all_apis() if each.name == name)
        api = wire.api_of(key)
        self.frames: list[bytes] = []
        for number in range(_POOL):
            client_id = rng.choice((None, "", "c", "c" * 300))
            message = request_of(rng, api, version)
            buffers = wire.encode_request(api, version, number, client_id, message)
            self.frames.append(b"".join(buffers)[wire.SIZE_BYTES :])

    def changed(self, rng: random.Random) -> bytearray:
        return mutated(rng, rng.choice(self.frames), self.frames)


Decoded = tuple[Any, Any] | str
"""Header and message, or the name of the error."""


def decoded(frame: bytearray) -> Decoded:
    """Anything but the errors of the codec is raised."""
    try:
        return wire.decode_request(frame)
    except (wire.MalformedMessageError, wire.UnsupportedRequestError) as error:
        return type(error).__name__


def sliced(
    frame: bytearray, step: Callable[[Generator[None, None, Any]], None] | None = None
) -> Decoded:
    """As ``decoded``, in slices. ``step`` runs one, and raises what it raises."""
    try:
        header, position, api = wire.read_request_header(frame)
        slices = api.decode_request_in_slices(header.api_version, frame, position)
        try:
            while True:
                (step or next)(slices)
        except StopIteration as end:
            return header, end.value
    except (wire.MalformedMessageError, wire.UnsupportedRequestError) as error:
        return type(error).__name__


def check(frame: bytearray) -> str:
    """Decode in both ways, which must agree. Returns what came of it."""
    before = bytes(frame)
    whole = decoded(frame)
    parts = sliced(frame)
    # repr, because a number that is none is not equal to itself
    assert whole == parts or repr(whole) == repr(parts), "in slices it is something else"
    assert frame == before, "decoding changes the frame"
    return whole if isinstance(whole, str) else "message"


def check_memory(frame: bytearray) -> None:
    """Decoding takes no more memory than the connection counts for a request of this size."""
    decoded(frame)  # compiles the decoder
    key = int.from_bytes(frame[:2], "big", signed=True)
    tracemalloc.start()
    try:
        held = decoded(frame)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held is not None
    most = BASE_BYTES + wire.memory_of_request(key, len(frame))
    if key in wire.KEYS_WITH_RECORDS:
        most += wire.memory_of_elements(len(frame))  # counted if it has many elements
    assert peak <= most, f"{peak} bytes of memory for {len(frame)} bytes"


def check_turns(frame: bytearray) -> None:
    """No slice runs more than a bounded number of lines."""
    lines = 0

    def count(frame_: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += 1
        return count

    def step(slices: Generator[None, None, Any]) -> None:
        nonlocal lines
        lines = 0
        before = sys.gettrace()
        sys.settrace(count)
        try:
            next(slices)
        finally:
            sys.settrace(before)
            assert lines <= LINES_PER_TURN, f"{lines} lines in one turn"

    sliced(frame, step)


def check_cpu(frame: bytearray) -> None:
    """Of several attempts the fastest counts, because others work on the machine, too."""
    most = BASE_CPU_S + CPU_S_PER_MB * len(frame) / 1e6
    took = []
    for _ in range(3):
        began = time.thread_time()
        decoded(frame)
        took.append(time.thread_time() - began)
        if took[-1] <= most:
            return
    raise AssertionError(f"{min(took):.3f} s for {len(frame)} bytes")
