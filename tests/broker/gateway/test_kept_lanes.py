"""How many lanes the writers of a broker keep, and the publisher of a stream."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import cast

import pytest

from broker.gateway import publishers, shared_writers
from broker.gateway.leaders import AcknowledgedBatch, KnownProducer, PartitionLeaders
from broker.gateway.publishers import Publisher
from broker.gateway.refusals import Refusal
from broker.gateway.runs import Room, Run, Written
from broker.gateway.shared_writers import KeylessRecords, SharedWriters, Way
from stele.config import ClientWorld
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import read_header
from stele.wire.compression import Compression
from stele.world import Connector
from tests.support.timing import LoopClock
from tests.support.worlds import virtual

BATCH_BYTES = 1000


def partition(number: int) -> PartitionId:
    return PartitionId(b"t" * 16, number)


def world() -> ClientWorld:
    return ClientWorld(LoopClock(), cast(Connector, None), random.Random(1))


class Leaders:
    """Writes everything, unless the partition's leader hangs, and knows no producer. Notes the
    partition, the producer id and the sequence of each batch."""

    def __init__(self) -> None:
        self.stamps: list[tuple[int, int, int]] = []
        self.hanging: dict[int, asyncio.Event] = {}

    async def produce(
        self, partition: PartitionId, batch: bytearray, acks: int = -1
    ) -> AcknowledgedBatch:
        header = read_header(batch)
        self.stamps.append((partition.partition, header.producer_id, header.base_sequence))
        if partition.partition in self.hanging:
            await self.hanging[partition.partition].wait()
        return AcknowledgedBatch(0, -1)

    async def describe(self, partition: PartitionId, producer_id: int) -> KnownProducer:
        return KnownProducer(-1, [], 0)


class Outcomes:
    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def stored(self, run: Run, first: int, record_count: int, written: Written) -> None:
        self.codes.append(ErrorCode.NONE)

    def refused(self, run: Run, first: int, record_count: int, refusal: Refusal) -> None:
        self.codes.append(refusal.code)

    def run(self, sequence: int = -1) -> Run:
        return Run(self, [(None, b"v", (), 1)], [0], 100, sequence)


class Shared:
    """Writers that keep two lanes. Producer ids are 1, 2, …."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shared_writers, "LANES_MAX", 2)
        self.leaders, self.outcomes = Leaders(), Outcomes()
        ids = itertools.count(1)

        async def new_producer_id() -> int:
            return next(ids)

        self.writers = SharedWriters(
            cast(PartitionLeaders, self.leaders), new_producer_id, Room(1 << 20), world()
        )

    async def write(self, *numbers: int) -> None:
        for number in numbers:
            self.writers.add(Way(), partition(number), self.outcomes.run(), BATCH_BYTES)
            await asyncio.sleep(0.1)

    @property
    def ids(self) -> list[tuple[int, int]]:
        """The partition and the producer id of each batch."""
        return [(number, producer_id) for number, producer_id, _ in self.leaders.stamps]


@virtual
async def test_as_many_lanes_are_kept_as_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Shared(monkeypatch)
    await shared.write(0, 1, 0, 1)
    assert shared.leaders.stamps == [(0, 1, 0), (1, 2, 0), (0, 1, 1), (1, 2, 1)]
    await shared.write(2, 1, 0)  # the oldest one was given up
    assert shared.leaders.stamps[4:] == [(2, 3, 0), (1, 2, 2), (0, 4, 0)]


@virtual
async def test_a_lane_with_records_under_way_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shared = Shared(monkeypatch)
    shared.leaders.hanging[0] = asyncio.Event()
    await shared.write(0, 1, 2)
    shared.leaders.hanging[2] = asyncio.Event()
    await shared.write(2, 3)
    assert shared.ids == [(0, 1), (1, 2), (2, 3), (2, 3), (3, 4)]
    for hanging in shared.leaders.hanging.values():
        hanging.set()
    await asyncio.sleep(0.1)
    assert shared.outcomes.codes == [ErrorCode.NONE] * 5
    await shared.write(0)
    assert shared.ids[-1] == (0, 1), "the lane is the one that was busy"


@virtual
async def test_a_publisher_writes_to_as_many_partitions_as_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishers, "LANES_MAX", 2)
    leaders, outcomes = Leaders(), Outcomes()
    publisher = Publisher(
        9, Compression.NONE, cast(PartitionLeaders, leaders), Room(1 << 20), world()
    )
    for number, sequence in ((0, 0), (1, 0), (2, 0), (0, 1)):
        publisher.add(partition(number), outcomes.run(sequence), BATCH_BYTES)
        await asyncio.sleep(0.1)
    assert outcomes.codes == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.NONE,
    ]
    assert leaders.stamps == [(0, 9, 0), (1, 9, 0), (0, 9, 1)]


def test_records_without_a_key_move_on_only_where_one_was_written() -> None:
    keyless = KeylessRecords(random.Random(1))
    topic_id, available = b"t" * 16, [0, 1, 2, 3]
    keyless.move_on(topic_id, available)  # nothing was written yet
    chosen = keyless.choose(topic_id, available, 1)
    assert {keyless.choose(topic_id, available, 1) for _ in range(50)} == {chosen}
    keyless.move_on(topic_id, available)
    assert keyless.choose(topic_id, available, 1) != chosen
