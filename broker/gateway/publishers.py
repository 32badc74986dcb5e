"""The publisher of a stream: a lane for each partition that it writes to."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from broker.gateway.lane_driver import TIMEOUT_S, LaneDriver
from broker.gateway.lanes import Resolved
from broker.gateway.leaders import PartitionLeaders
from broker.gateway.publisher_lane import PublisherLane
from broker.gateway.refusals import Refusal
from broker.gateway.runs import Room, Run
from stele.config import ClientWorld
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.compression import Compression

LANES_MAX: Final = 1_000
"""Partitions that the publisher of one stream may write to."""


class _Own(NamedTuple):
    lane: PublisherLane[Run]
    driver: LaneDriver


class Publisher:
    """The publisher of one stream."""

    def __init__(
        self,
        publisher_id: int,
        compression: Compression,
        leaders: PartitionLeaders,
        room: Room,
        world: ClientWorld,
    ) -> None:
        self._id = publisher_id
        self._compression = compression
        self._leaders = leaders
        self._room = room
        self._world = world
        self._lanes: dict[PartitionId, _Own] = {}

    def add(self, partition: PartitionId, run: Run, batch_bytes: int) -> None:
        """Write a run of numbered records. ``batch_bytes``: the size of the largest batch that the
        topic takes, or less."""
        own = self._lanes.get(partition)
        if own is None:
            if len(self._lanes) >= LANES_MAX:
                message = f"a stream's publisher writes to at most {LANES_MAX} partitions"
                refusal = Refusal(ErrorCode.POLICY_VIOLATION, message)
                run.receipt.refused(run, 0, len(run.records), refusal)
                return
            own = self._lanes[partition] = self._made(partition, batch_bytes)
        own.lane.batch_bytes = batch_bytes  # the topic's limit may have changed
        deadline_s = self._world.clock.monotonic() + TIMEOUT_S
        own.lane.add(run.base_sequence, run, len(run.records), run.size, deadline_s)
        own.driver.taken(run)

    async def close(self) -> None:
        """Nobody waits for outcomes any more."""
        await asyncio.gather(*(own.driver.close() for own in self._lanes.values()))

    def _made(self, partition: PartitionId, batch_bytes: int) -> _Own:
        lane: PublisherLane[Run] = PublisherLane(self._id, batch_bytes)

        async def prepare() -> list[Resolved[Run]] | None:
            known = await self._leaders.describe(partition, self._id)
            if known.epoch > 0:
                message = (
                    f"publisher {self._id} was fenced: its id was used by a producer of Kafka's"
                )
                return lane.fail_all(ErrorCode.INVALID_PRODUCER_EPOCH, message)
            return [] if lane.known(known.batches, known.high_watermark) else None

        driver = LaneDriver(
            partition,
            lane,
            prepare,
            self._leaders,
            self._room,
            self._world,
            acks=-1,
            compression=self._compression,
        )
        return _Own(lane, driver)
