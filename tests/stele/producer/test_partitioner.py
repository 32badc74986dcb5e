from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from stele.producer.partitioner import StickyPartitioner, murmur2, partition_of


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
def test_hash_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=64))
def test_hash_agrees_with_another_implementation(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


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
