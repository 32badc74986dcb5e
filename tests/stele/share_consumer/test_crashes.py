"""Share consumers that crash, with brokers that lose answers, move and die: the promise holds.

Whatever happens, each record is processed at least once. A record whose acceptance was answered is
never delivered again. The brokers are the dumb twin of ``tests.support.share_twin``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pytest

from stele.aio import ShareConsumer
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, ShareRecord
from tests.support.share_twin import ACCEPT, Fault, ShareTwin, append
from tests.support.stele import Stage, on_stage

PARTITIONS = 3
RECORDS = 40  # of each partition
WORKERS = 3

Offset = tuple[int, int]


class History:
    """What workers did, and what the twin has answered them."""

    def __init__(self, twin: ShareTwin) -> None:
        self._twin = twin
        self.processed: set[Offset] = set()
        self.accepted: dict[Offset, float] = {}  # when the answer came
        self.deliveries = 0

    def deliver(self, record: ShareRecord) -> None:
        self.deliveries += 1
        accepted_s = self.accepted.get((record.partition, record.offset), float("inf"))
        given_s = self._twin.entry(record.offset, "t", record.partition).given_s
        # Two members may have a record whose leader has changed, until both hear of it.
        assert given_s <= accepted_s, "it was given after it was accepted"

    def accept(self, offset: Offset) -> None:
        self.accepted.setdefault(offset, self._twin.cluster.clock.monotonic())

    @property
    def is_done(self) -> bool:
        return all(len(self._twin.outcomes("t", number)) == RECORDS for number in range(PARTITIONS))


class Life:
    """One consumer's."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.accepting: set[Offset] = set()  # of the last delivery to it

    def on_acknowledged(
        self, name: TopicPartition, offsets: Sequence[int], error: ApiError | None
    ) -> None:
        told = {(name.partition, offset) for offset in offsets}
        if error is None:
            for offset in sorted(told & self.accepting):
                self.history.accept(offset)


async def work(stage: Stage, history: History, rng: random.Random) -> None:
    """Lives of one worker. A life ends orderly, or its connections break with no word."""
    while not history.is_done:
        life = Life(history)
        consumer = stage.share_consumer(
            share_acknowledgement_mode="explicit",
            max_poll_records=rng.choice([1, 3, 20]),
            share_acquire_mode=rng.choice(["batch_optimized", "record_limit"]),
            on_acknowledged=life.on_acknowledged,
            retry_backoff_max_ms=200,
        )
        consumer.subscribe(["t"])
        try:
            for _ in range(rng.randrange(1, 12)):
                await turn(consumer, life, rng)
        except SteleError:
            pass  # a life that ends early
        await consumer.close()


async def turn(consumer: ShareConsumer, life: Life, rng: random.Random) -> None:
    for record in await consumer.poll(timeout_ms=300):
        life.history.deliver(record)
        offset = (record.partition, record.offset)
        life.accepting.discard(offset)
        await asyncio.sleep(rng.choice([0, 0, 0.05, 1.5]))
        if rng.random() < 0.2:
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
        elif rng.random() < 0.9:  # else it is forgotten
            life.history.processed.add(offset)
            life.accepting.add(offset)
            consumer.acknowledge(record)
    if rng.random() < 0.5:
        await consumer.commit()


async def trouble(stage: Stage, twin: ShareTwin, rng: random.Random) -> None:
    cluster = stage.cluster
    while True:
        await asyncio.sleep(rng.uniform(0.05, 1.0))
        what = rng.randrange(6)
        if what == 0:
            partition = cluster.partition("t", rng.randrange(PARTITIONS))
            cluster.move_leader(partition, rng.randrange(1, 4))
        elif what == 1:
            alive = [each for each in cluster.connections if not each.is_closing()]
            if alive:
                rng.choice(alive).abort()
        elif what == 2:
            twin.faults.append(Fault(is_applied=rng.random() < 0.5, breaks=True))
        elif what == 3:
            code = rng.choice([ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_RECORD_STATE])
            twin.faults.append(Fault(error=code))
        elif what == 4:
            twin.coordinator = rng.randrange(1, 4)
            twin.heartbeat_errors.append(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            twin.fetch_errors.append(ErrorCode.SHARE_SESSION_NOT_FOUND)


@pytest.mark.parametrize("seed", range(8))
@on_stage
async def test_every_record_is_processed_and_no_accepted_one_comes_back(
    stage: Stage, seed: int
) -> None:
    rng = random.Random(seed)
    twin = ShareTwin(stage.cluster, lock_s=2.0)
    twin.limit = 10**6  # no record is given up
    topic = stage.cluster.create("t", PARTITIONS)
    for partition in topic.partitions.values():
        for first in range(0, RECORDS, 8):
            append(partition, *(b"%d" % each for each in range(first, first + 8)))
    history = History(twin)
    disturbing = asyncio.get_running_loop().create_task(trouble(stage, twin, rng))
    workers = [
        asyncio.get_running_loop().create_task(work(stage, history, random.Random(rng.random())))
        for _ in range(WORKERS)
    ]
    async with asyncio.timeout(3600):
        await asyncio.gather(*workers)
    disturbing.cancel()
    every = {(number, offset) for number in range(PARTITIONS) for offset in range(RECORDS)}
    assert history.processed == every
    assert all(
        twin.outcomes("t", number) == dict.fromkeys(range(RECORDS), ACCEPT)
        for number in range(PARTITIONS)
    )
    assert history.accepted
    assert history.deliveries > len(every), "nothing went wrong: the test shows nothing"
