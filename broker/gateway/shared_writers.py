"""Writes records of all streams. Those that are written in the same way to one partition share a
lane, so records of many clients share batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from broker.gateway.lane_driver import TIMEOUT_S, LaneDriver
from broker.gateway.lanes import BATCH_BYTES, Resolved
from broker.gateway.leaders import PartitionLeaders
from broker.gateway.runs import Room, Run
from broker.gateway.shared_lane import SharedLane
from stele.config import ClientWorld, CompressionName
from stele.ids import PartitionId
from stele.producer.partitioner import StickyPartitioner
from stele.wire.compression import Compression
from stele.world import Rng

LANES_MAX: Final = 10_000
"""Idle lanes beyond these are given up. The next record for the partition gets another producer
id."""
_TOPICS_MAX: Final = 1_000
"""Topics whose present partition for records without a key is remembered."""

ALL: Final = -1
LEADER: Final = 1


class Way(NamedTuple):
    """How records are written."""

    acks: int = ALL
    compression: CompressionName = "none"


class SharedWriters:
    """All lanes of one broker that belong to no publisher."""

    def __init__(
        self,
        leaders: PartitionLeaders,
        new_producer_id: Callable[[], Awaitable[int]],
        room: Room,
        world: ClientWorld,
    ) -> None:
        """``new_producer_id`` raises ApiError."""
        self._leaders = leaders
        self._new_producer_id = new_producer_id
        self._room = room
        self._world = world
        self._lanes: dict[tuple[Way, PartitionId], _Shared] = {}
        self.keyless = KeylessRecords(world.rng)

    def add(self, way: Way, partition: PartitionId, run: Run, batch_bytes: int) -> bool:
        """Write a run. ``batch_bytes``: the size of the largest batch that the topic takes, or
        less. Returns whether nothing was under way before it."""
        shared = self._lanes.get((way, partition))
        if shared is None:
            if len(self._lanes) >= LANES_MAX:
                self._give_up_one()
            shared = self._lanes[way, partition] = self._made(way, partition, batch_bytes)
        shared.lane.batch_bytes = batch_bytes  # the topic's limit may have changed
        was_idle = shared.driver.is_idle
        shared.add(run, self._world.clock.monotonic())
        return was_idle

    async def close(self) -> None:
        await asyncio.gather(*(shared.driver.close() for shared in self._lanes.values()))
        self._lanes.clear()

    def _made(self, way: Way, partition: PartitionId, batch_bytes: int) -> _Shared:
        lane: SharedLane[Run] = SharedLane(batch_bytes, is_numbered=way.acks == ALL)

        async def prepare() -> list[Resolved[Run]]:
            lane.renewed(await self._new_producer_id())
            return []

        driver = LaneDriver(
            partition,
            lane,
            prepare,
            self._leaders,
            self._room,
            self._world,
            acks=way.acks,
            compression=Compression.of(way.compression),
        )
        return _Shared(lane, driver)

    def _give_up_one(self) -> None:
        """The oldest that is idle."""
        for name, shared in self._lanes.items():
            if shared.driver.is_idle:
                del self._lanes[name]
                return


class _Shared(NamedTuple):
    lane: SharedLane[Run]
    driver: LaneDriver

    def add(self, run: Run, now_s: float) -> None:
        self.lane.add(run, len(run.records), run.size, now_s + TIMEOUT_S)
        self.driver.taken(run)


class KeylessRecords:
    """The partitions of records that have no key and name none."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._sticky: dict[bytes, StickyPartitioner] = {}

    def choose(self, topic_id: bytes, available: Sequence[int], size: int) -> int:
        """All go to one partition for a batch's worth of bytes, and then to another."""
        sticky = self._sticky.get(topic_id)
        if sticky is None:
            if len(self._sticky) >= _TOPICS_MAX:
                del self._sticky[next(iter(self._sticky))]
            sticky = self._sticky[topic_id] = StickyPartitioner(self._rng, BATCH_BYTES)
        return sticky.choose(available, size)

    def move_on(self, topic_id: bytes, available: Sequence[int]) -> None:
        """A batch was sent before it was full: spread the records."""
        sticky = self._sticky.get(topic_id)
        if sticky is not None:
            sticky.move_on(available)
