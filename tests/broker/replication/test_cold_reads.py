"""Ranges of logs that are not in memory: few are read at once, and none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from broker.replication.cold_reads import AT_ONCE, ColdReads
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.replica import Replica
from broker.replication.types import FetchEntry, FetchResult
from stele.ids import PartitionId
from storage.cold_range import ColdRange
from storage.log import PartitionLog
from storage.log_types import ReadResult
from tests.support.batches import make_batch
from tests.support.fetches import AskedFetch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.support.replication import settled, with_topic

P1 = PartitionId(TOPIC_ID, 1)


class SlowLog:
    """A log whose ranges are warmed when ``device`` says so."""

    def __init__(self) -> None:
        self.begun: list[ColdRange] = []
        self.device = asyncio.Semaphore(0)

    async def warm(self, cold: ColdRange) -> None:
        self.begun.append(cold)
        await self.device.acquire()


class Scene:
    def __init__(self) -> None:
        self.looked: list[WaitingFetch] = []
        self.reads = ColdReads(lambda *_: None, self.looked.append)
        self.log = SlowLog()
        self.replica = cast(Replica, object())

    def warm(self, place: int) -> WaitingFetch:
        waiting = AskedFetch([], lambda _: None)
        self.reads.warm(waiting, self.replica, cast(PartitionLog, self.log), _range(place))
        return waiting

    def warm_for_later(self, place: int) -> None:
        log = cast(PartitionLog, self.log)
        self.reads.warm_for_later(self.replica, log, _range(place))

    async def finish(self, count: int) -> None:
        for _ in range(count):
            self.log.device.release()
        await settle()


def _range(place: int) -> ColdRange:
    return ColdRange("/d/log", place, 1)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_few_ranges_are_read_at_once_in_the_order_of_their_coming() -> None:
    scene = Scene()
    fetches = [scene.warm(place) for place in range(AT_ONCE + 3)]
    await settle()
    assert scene.log.begun == [_range(place) for place in range(AT_ONCE)]
    await scene.finish(1)
    assert scene.log.begun == [_range(place) for place in range(AT_ONCE + 1)]
    assert scene.looked == fetches[:1]
    await scene.finish(AT_ONCE + 2)
    assert scene.looked == fetches


async def test_a_range_for_later_is_read_while_there_is_room_and_once() -> None:
    scene = Scene()
    for _ in range(2):
        scene.warm_for_later(0)
    await settle()
    assert scene.log.begun == [_range(0)]
    fetches = [scene.warm(place) for place in (0, 1, 2)]
    await settle()
    scene.warm_for_later(3)  # there is no room
    await scene.finish(10)
    assert scene.log.begun == [_range(place) for place in (0, 1, 2)]
    assert scene.looked == fetches


async def test_nobody_is_looked_at_after_the_stop() -> None:
    scene = Scene()
    scene.warm(0)
    await settle()
    scene.reads.stop()
    await scene.finish(1)
    assert scene.looked == []


@with_topic((1, 2, 3), (1, 2, 3))
async def test_a_cold_partition_is_warmed_though_another_one_always_has_records(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    for partition in (P0, P1):
        await leader.produce(make_batch(), partition=partition)
    await settled(cluster)
    cold_log = leader.replica(P1).log
    read, warmed = cold_log.read, asyncio.Event()

    def cold_read(offset: int, max_bytes: int, **more: object) -> ReadResult:
        if not warmed.is_set():
            return ReadResult(b"", offset, ColdRange(cold_log.segments.active.path, 0, 100))
        return cast(Callable[..., ReadResult], read)(offset, max_bytes, **more)

    async def warm(cold: ColdRange) -> None:
        warmed.set()

    cold_log.read, cold_log.warm = cold_read, warm  # type: ignore[method-assign]

    async def fetch() -> list[FetchResult]:
        entries = [FetchEntry(each, 0, 1 << 20) for each in (P0, P1)]
        return await leader.do(
            lambda done: leader.manager.fetch.begin(AskedFetch(entries, done, max_wait_ms=500))
        )

    first = await fetch()
    assert [len(each.records) for each in first] == [1, 0]
    await asyncio.wait_for(warmed.wait(), 5)
    assert [len(each.records) for each in await fetch()] == [1, 1]


@with_topic((1, 2), brokers=2)
async def test_a_fetch_that_waits_for_the_device_is_not_read_again_for_each_append(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    await leader.produce()
    log = leader.replica().log
    read, reads = log.read, list[int]()

    def count(offset: int, max_bytes: int, **more: object) -> ReadResult:
        reads.append(offset)
        return cast(Callable[..., ReadResult], read)(offset, max_bytes, **more)

    log.read = count  # type: ignore[method-assign]
    leader.disk.faults.cold_read, leader.disk.faults.extra_sync_s = 1.0, 1.0
    waiting = asyncio.ensure_future(
        leader.fetch(0, epoch=0, max_wait_ms=60_000, replica_id=2, replica_epoch=cluster[2].epoch)
    )
    for _ in range(10):
        await asyncio.sleep(0.01)
        await leader.produce(acks=0)
    assert not waiting.done()
    assert len((await waiting).records) == 1
    assert reads.count(0) == 2, "once before the device was asked, and once afterwards"
