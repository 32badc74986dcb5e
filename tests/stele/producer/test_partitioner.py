from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from stele.producer.partitioner import (
    LONG_KEY_BYTES,
    StickyPartitioner,
    murmur2,
    murmur2_in_turns,
    partition_of,
    partitions_of,
)
from tests.support.timing import run_virtual
from tests.support.worlds import virtual


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hash_agrees_with_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_hash_agrees_with_another_implementation(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


@given(st.integers(0, 4), st.integers(-5, 5), st.integers(0, 99))
def test_a_long_key_has_the_same_hash_in_turns(slices: int, more: int, seed: int) -> None:
    key = random.Random(seed).randbytes(max(0, slices * LONG_KEY_BYTES + more))
    assert run_virtual(murmur2_in_turns(key)) == murmur2(key)


class Turns:
    """Counts the turns of the event loop until it is stopped."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def stop(self) -> int:
        self._task.cancel()
        return self.count


@virtual
async def test_a_turn_hashes_no_more_than_a_slice() -> None:
    turns = Turns()
    await murmur2_in_turns(bytes(1 << 20))
    assert turns.stop() >= (1 << 20) // LONG_KEY_BYTES - 1


@pytest.mark.parametrize(
    ("size", "count", "least"), [(0, 1000, 3), (1000, 1000, 60), (100_000, 10, 60), (9000, 10, 4)]
)
def test_partitions_of_many_keys_are_found_in_turns(size: int, count: int, least: int) -> None:
    keys = [number.to_bytes(4, "big") + bytes(size) for number in range(count)]

    async def scenario() -> None:
        turns = Turns()
        found = await partitions_of(keys, 7)
        assert turns.stop() >= least
        assert found == [partition_of(key, 7) for key in keys]

    run_virtual(scenario())


def test_partition_clears_the_sign_before_the_remainder() -> None:
    assert murmur2(b"21") >> 31 == 1
    assert partition_of(b"21", 6) == (-973932308 & 0x7FFFFFFF) % 6


def test_keyless_records_stick_for_a_batch_then_move() -> None:
    partitioner = StickyPartitioner(random.Random(1), sticky_bytes=100)
    chosen = [partitioner.choose([0, 1, 2], 25) for _ in range(40)]
    runs = [chosen[start : start + 4] for start in range(0, 40, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(a[0] != b[0] for a, b in pairwise(runs))


def test_keyless_records_spread_evenly() -> None:
    partitioner = StickyPartitioner(random.Random(2), sticky_bytes=1)
    counts = Counter(partitioner.choose(range(4), 1) for _ in range(4000))
    assert all(850 < counts[partition] < 1150 for partition in range(4))


def test_a_partition_without_leader_is_left_at_once() -> None:
    partitioner = StickyPartitioner(random.Random(3), sticky_bytes=1000)
    first = partitioner.choose([0, 1], 1)
    assert partitioner.choose([1 - first], 1) == 1 - first


def test_the_only_partition_is_chosen_again() -> None:
    partitioner = StickyPartitioner(random.Random(4), sticky_bytes=1)
    assert [partitioner.choose([7], 5) for _ in range(3)] == [7, 7, 7]


def test_none_to_choose_from_is_an_error() -> None:
    with pytest.raises(ValueError, match="no partition"):
        StickyPartitioner(random.Random(5), 1).choose([], 1)
