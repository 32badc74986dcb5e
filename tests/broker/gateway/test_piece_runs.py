"""Which records of a piece are written together, and to which partition each goes."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest

from broker.gateway.lanes import BATCH_BYTES
from broker.gateway.piece_runs import RUN_RECORDS_MAX, PieceRuns
from broker.gateway.publishers import Publisher
from broker.gateway.record_checks import Writable
from broker.gateway.refusals import Refusal
from broker.gateway.runs import Run, Written
from broker.gateway.shared_writers import SharedWriters, Way
from stele.producer.partitioner import murmur2, partition_of, partition_of_hash
from tests.broker.gateway.test_record_checks import writable

LIMIT = 439
"""The bytes of a batch of the topic."""


class Keyless:
    """Chooses partition 1, and counts how often it was to move on."""

    def __init__(self) -> None:
        self.moves = 0

    def choose(self, topic_id: bytes, available: list[int], size: int) -> int:
        return 1

    def move_on(self, topic_id: bytes, available: list[int]) -> None:
        self.moves += 1


class Added(NamedTuple):
    partition: int
    numbers: list[int]
    size: int
    base_sequence: int


class Writer:
    """Takes runs: of a publisher, or shared."""

    def __init__(self, *, is_idle: bool = True) -> None:
        self.added: list[Added] = []
        self.keyless = Keyless()
        self._is_idle = is_idle

    def take(self, name: Any, run: Run) -> bool:
        self.added.append(Added(name.partition, run.numbers, run.size, run.base_sequence))
        return self._is_idle


class Shared(Writer):
    def add(self, way: Way, name: Any, run: Run, batch_bytes: int) -> bool:
        assert batch_bytes in (LIMIT, BATCH_BYTES)
        return self.take(name, run)


class Own(Writer):
    def add(self, name: Any, run: Run, batch_bytes: int) -> None:
        self.take(name, run)


class Holding:
    """Counts the bytes that wait for their outcome."""

    def __init__(self) -> None:
        self.bytes = 0

    def held(self, size: int) -> None:
        self.bytes += size

    def stored(self, run: Run, first: int, record_count: int, written: Written) -> None:
        raise AssertionError

    def refused(self, run: Run, first: int, record_count: int, refusal: Refusal) -> None:
        raise AssertionError


def runs_into(writer: Writer, holding: Holding | None = None) -> PieceRuns:
    publisher = cast(Publisher, writer) if isinstance(writer, Own) else None
    return PieceRuns(holding or Holding(), cast(SharedWriters, writer), Way(), publisher)


def add(
    runs: PieceRuns, topic: Writable, *sizes: int, partition: int = 0, sequences: Any = None
) -> None:
    for number, size in enumerate(sizes):
        sequence = None if sequences is None else sequences[number]
        runs.add(topic, partition, sequence, number, (None, b"v", (), 0), size)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([200, 239], [[0, 1]]),
        ([200, 240], [[0], [1]]),
        ([500, 1], [[0], [1]]),
        ([0] * (RUN_RECORDS_MAX + 1), [[*range(RUN_RECORDS_MAX)], [RUN_RECORDS_MAX]]),
    ],
)
def test_a_run_has_as_much_as_a_batch_of_its_topic_takes(
    sizes: list[int], expected: list[list[int]]
) -> None:
    writer, holding = Shared(), Holding()
    runs = runs_into(writer, holding)
    topic = writable()
    assert topic.batch_bytes == LIMIT
    add(runs, topic, *sizes)
    assert [each.numbers for each in writer.added] == expected[:-1]
    runs.write()
    assert [each.numbers for each in writer.added] == expected
    assert holding.bytes == sum(sizes)
    runs.write()  # nothing is left
    assert len(writer.added) == len(expected)


@pytest.mark.parametrize(
    ("sequences", "expected"),
    [
        ([0, 1, 2], [(0, [0, 1, 2])]),
        ([5, 6, 8], [(5, [0, 1]), (8, [2])]),
        ([5, 5, 6], [(5, [0]), (5, [1, 2])]),
    ],
)
def test_the_numbers_of_a_publishers_run_have_no_gap(
    sequences: list[int], expected: list[tuple[int, list[int]]]
) -> None:
    writer = Own()
    runs = runs_into(writer)
    add(runs, writable(), 1, 1, 1, sequences=sequences)
    runs.write()
    assert [(each.base_sequence, each.numbers) for each in writer.added] == expected


def test_records_of_no_publisher_have_no_numbers() -> None:
    writer = Shared()
    runs = runs_into(writer)
    topic = writable()
    add(runs, topic, 1, 1)
    add(runs, topic, 1, partition=1)
    runs.write()
    assert writer.added == [Added(0, [0, 1], 2, -1), Added(1, [0], 1, -1)]


def test_a_key_has_its_partition() -> None:
    """Whether its hash was made before or not."""
    runs, topic = runs_into(Shared()), writable(*range(7))
    keys = [b"", b"a", b"b", bytes(10_000)]
    for key in keys:
        assert runs.choose(topic, key, 1, {}) == partition_of(key, 7)
    hashes = {key: murmur2(key) + 1 for key in keys[2:]}
    for key in keys[2:]:
        assert runs.choose(topic, key, 1, hashes) == partition_of_hash(hashes[key], 7)
    assert runs.choose(topic, b"a", 1, hashes) == partition_of(b"a", 7)
    assert runs.choose(topic, None, 1, hashes) == 1


@pytest.mark.parametrize(
    ("size", "partition", "is_idle", "moves"),
    [
        (1, 1, True, 1),
        (BATCH_BYTES // 2 - 1, 1, True, 1),
        (BATCH_BYTES // 2, 1, True, 0),
        (1, 0, True, 0),
        (1, 1, False, 0),
    ],
)
def test_records_without_keys_move_on_behind_a_small_batch_that_is_sent_at_once(
    size: int, partition: int, is_idle: bool, moves: int
) -> None:
    """Of the partition that was chosen for them. Otherwise they would all go to one partition."""
    writer = Shared(is_idle=is_idle)
    runs = runs_into(writer)
    topic = writable(max_message_bytes=1 << 30)
    runs.choose(topic, None, size, {})
    add(runs, topic, size, partition=partition)
    runs.write()
    assert writer.keyless.moves == moves
