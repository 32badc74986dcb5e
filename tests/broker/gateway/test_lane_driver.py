"""A lane's driver and a leader that does not answer."""

from __future__ import annotations

import asyncio
import random
from typing import cast

from broker.gateway.lane_driver import TIMEOUT_S, LaneDriver
from broker.gateway.lanes import Resolved
from broker.gateway.leaders import AcknowledgedBatch, PartitionLeaders
from broker.gateway.refusals import Refusal
from broker.gateway.runs import Room, Run, Written
from broker.gateway.shared_lane import SharedLane
from stele.config import ClientWorld
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.compression import Compression
from stele.world import Connector
from tests.support.timing import LoopClock
from tests.support.worlds import virtual

HANGS_S = 10.0
PARTITION = PartitionId(b"t" * 16, 0)


class HangingLeader:
    """It answers each request after ten seconds."""

    def __init__(self) -> None:
        self.batches = 0

    async def produce(
        self, partition: PartitionId, batch: bytearray, acks: int = -1
    ) -> AcknowledgedBatch:
        self.batches += 1
        await asyncio.sleep(HANGS_S)
        return AcknowledgedBatch(0, -1)


class Times:
    """When each run got its outcome."""

    def __init__(self) -> None:
        self.refused_s: list[tuple[float, ErrorCode]] = []
        self.stored_s: list[float] = []

    def stored(self, run: Run, first: int, record_count: int, written: Written) -> None:
        self.stored_s.append(asyncio.get_running_loop().time())

    def refused(self, run: Run, first: int, record_count: int, refusal: Refusal) -> None:
        self.refused_s.append((asyncio.get_running_loop().time(), refusal.code))


@virtual
async def test_a_record_waits_no_longer_than_its_time_for_a_leader_that_hangs() -> None:
    lane: SharedLane[Run] = SharedLane(1, is_numbered=True)  # every run is a batch

    async def prepare() -> list[Resolved[Run]]:
        lane.renewed(7)
        return []

    times, leader, room = Times(), HangingLeader(), Room(1000)
    driver = LaneDriver(
        PARTITION,
        lane,
        prepare,
        cast(PartitionLeaders, leader),
        room,
        ClientWorld(LoopClock(), cast(Connector, None), random.Random(1)),
        acks=-1,
        compression=Compression.NONE,
    )
    for _ in range(5):
        run = Run(times, [(None, b"v", (), 1)], [0], 250)
        lane.add(run, 1, 250, TIMEOUT_S - 5)
        driver.taken(run)
    assert room.is_full
    await asyncio.sleep(TIMEOUT_S - 4.9)
    assert times.stored_s == [HANGS_S, 2 * HANGS_S]
    assert times.refused_s == [(TIMEOUT_S - 5, ErrorCode.REQUEST_TIMED_OUT)] * 3
    assert await room.wait(0.0)
    assert leader.batches == 3, "the third has no answer yet"
    await asyncio.sleep(HANGS_S)
    assert driver.is_idle
    assert len(times.stored_s) + len(times.refused_s) == 5
    assert leader.batches == 3
