"""Fetch from three brokers: what consumers and followers get, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.partition.effects import BrokerStatus
from broker.replication.fetch_reader import Reading
from broker.replication.fetch_turns import TURN_BYTES
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.types import EpochEnd, FetchEntry, FetchResult, ProduceEntry
from stele.errors import ErrorCode
from tests.support.batches import make_batch
from tests.support.fetches import AskedFetch, Done
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import settled, with_brokers, with_topic
from tests.support.timing import until


@with_topic
async def test_a_consumer_waits_for_the_high_watermark_and_sees_nothing_above_it(
    cluster: ReplicaCluster,
) -> None:
    waiting = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=5_000))
    await asyncio.sleep(0.1)
    produced = asyncio.ensure_future(cluster[1].produce())
    result = await waiting
    assert (await produced).error is ErrorCode.NONE
    assert len(result.records) == 1
    assert result.high_watermark == 1
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await cluster[1].produce(acks=1)
    between = await cluster[1].fetch(1)
    assert (between.error, between.records) == (ErrorCode.NONE, [])
    at_end = await cluster[1].fetch(2)
    assert (at_end.error, at_end.records) == (ErrorCode.NONE, [])
    assert (await cluster[1].fetch(3)).error is ErrorCode.OFFSET_OUT_OF_RANGE


@with_topic
async def test_a_fetch_that_finds_nothing_is_answered_at_its_deadline(
    cluster: ReplicaCluster,
) -> None:
    start = cluster.simulation.now
    result = await cluster[1].fetch(0, max_wait_ms=300)
    assert (result.error, result.records) == (ErrorCode.NONE, [])
    assert 0.3 <= cluster.simulation.now - start < 0.33


@with_topic
async def test_who_waits_in_vain_at_a_leader_without_lease_is_sent_to_look_for_another_one(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    cluster[1].lease = False
    start = cluster.simulation.now
    below = await cluster[1].fetch(0, max_wait_ms=300)
    assert (below.error, len(below.records)) == (ErrorCode.NONE, 1)
    assert cluster.simulation.now == start
    assert (await cluster[1].fetch(1)).error is ErrorCode.NONE, "it did not wait"
    at_end = await cluster[1].fetch(1, max_wait_ms=300)
    assert at_end.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.simulation.now - start >= 0.3
    few = await cluster[1].fetch(0, max_wait_ms=300, min_bytes=1 << 20)
    assert (few.error, len(few.records)) == (ErrorCode.NONE, 1)
    cluster[1].lease = True
    assert (await cluster[1].fetch(1, max_wait_ms=300)).error is ErrorCode.NONE


@with_topic
async def test_a_leader_without_lease_goes_on_to_answer_its_followers(
    cluster: ReplicaCluster,
) -> None:
    cluster[1].lease = False
    epoch = cluster[2].epoch
    answer = await cluster[1].fetch(0, max_wait_ms=300, epoch=0, replica_id=2, replica_epoch=epoch)
    assert answer.error is ErrorCode.NONE


@with_topic
async def test_a_fetch_waits_for_its_minimum_of_bytes(cluster: ReplicaCluster) -> None:
    size = len(make_batch())
    waiting = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000, min_bytes=2 * size))
    await cluster[1].produce()
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await cluster[1].produce()
    assert sum(map(len, (await waiting).records)) == 2 * size


@pytest.mark.parametrize(("max_wait_ms", "min_bytes"), [(0, 1), (0, 1 << 20), (60_000, 0)])
@with_topic
async def test_a_fetch_that_may_not_wait_or_wants_nothing_is_answered_at_once(
    cluster: ReplicaCluster, max_wait_ms: int, min_bytes: int
) -> None:
    began = cluster.simulation.now
    nothing = await cluster[1].fetch(0, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    assert (nothing.error, nothing.records) == (ErrorCode.NONE, [])
    assert cluster.simulation.now == began
    await cluster[1].produce()
    began = cluster.simulation.now
    found = await cluster[1].fetch(0, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
    assert len(found.records) == 1
    assert cluster.simulation.now == began


@with_topic((1,), (1,), brokers=1)
async def test_a_partition_is_not_read_when_the_answer_has_no_room_for_it(
    cluster: ReplicaCluster,
) -> None:
    leader, other = cluster[1], P0._replace(partition=1)
    for partition in (P0, other):
        await leader.produce(partition=partition)
    size = len(make_batch())

    async def fetch(max_bytes: int) -> list[int]:
        def begin(done: Done) -> None:
            entries = [FetchEntry(each, 0, 1 << 20) for each in (P0, other)]
            leader.manager.fetch.begin(AskedFetch(entries, done, max_bytes=max_bytes))

        results = await leader.do(begin)
        assert [each.error for each in results] == [ErrorCode.NONE] * 2
        return [sum(map(len, each.records)) for each in results]

    assert await fetch(2 * size) == [size, size]
    leader.replica(other).log.read = None  # type: ignore[assignment, method-assign]
    assert await fetch(size) == [size, 0]
    assert await fetch(1) == [size, 0], "the first batch may be of any size"


def test_the_broker_bounds_what_a_consumer_gets_and_may_wait_for() -> None:
    """A follower is bounded by ``replica.fetch.max.bytes`` of its own broker alone."""

    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.create_topic((1, 2, 3), min_insync=2)
        await settled(cluster)
        for _ in range(3):
            await cluster[1].produce(make_batch(value=bytes(1000)))
        consumer = await cluster[1].fetch(0, max_wait_ms=60_000, min_bytes=3 * size)
        assert sum(map(len, consumer.records)) == 2 * size
        epoch = cluster[2].epoch
        follower = await cluster[1].fetch(0, epoch=0, replica_id=2, replica_epoch=epoch)
        assert sum(map(len, follower.records)) == 3 * size

    size = len(make_batch(value=bytes(1000)))
    with_brokers.run(scenario, fetch_max_bytes=2 * size)


@with_topic
async def test_who_waits_at_a_leader_hears_at_once_that_it_leads_no_more(
    cluster: ReplicaCluster,
) -> None:
    fetching = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000))
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    producing = asyncio.ensure_future(cluster[1].produce())
    await asyncio.sleep(0.1)
    cluster.change(leader=2)
    assert (await fetching).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await producing).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@with_topic
async def test_a_cancelled_fetch_is_not_answered(cluster: ReplicaCluster) -> None:
    answers: list[object] = []

    async def inside() -> None:
        asked = AskedFetch([FetchEntry(P0, 0, 1 << 20)], answers.append, max_wait_ms=60_000)
        cluster[1].manager.fetch.begin(asked)
        cluster[1].manager.fetch.withdraw(asked)
        cluster[1].manager.fetch.withdraw(asked)

    await cluster[1].process.run(inside())
    await cluster[1].produce()
    assert answers == []
    assert not cluster[1].replica().consumers


@with_topic
async def test_a_consumer_waits_for_its_minimum_of_bytes_also_if_it_names_its_last_epoch(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    began = cluster.simulation.now
    result = await cluster[1].fetch(0, max_wait_ms=300, min_bytes=1 << 20, last_epoch=0)
    assert (len(result.records), cluster.simulation.now >= began + 0.3) == (1, True)
    cluster.change(leader=2)
    await until(lambda: cluster[2].replica().machine.is_leader)
    await cluster[2].produce()
    began = cluster.simulation.now
    await until(lambda: cluster[2].replica().machine.high_watermark == 2)
    ahead = await cluster[2].fetch(2, max_wait_ms=300, min_bytes=1 << 20, last_epoch=0)
    assert ahead.diverging == EpochEnd(0, 1)
    assert cluster.simulation.now < began + 0.3, "a divergence is told at once"


@with_topic
async def test_a_reader_whose_last_epoch_the_log_lacks_has_diverged(
    cluster: ReplicaCluster,
) -> None:
    """Also where this log is longer: what it has there is of an earlier epoch."""
    leader = cluster[1]
    for _ in range(3):
        await leader.produce()
    cluster.change(leader=2)
    cluster.change(leader=1)
    await until(lambda: leader.replica().machine.leader_epoch == 2)
    assert (await leader.produce()).base_offset == 3
    assert (await leader.fetch(2, last_epoch=1)).diverging == EpochEnd(0, 3)
    assert (await leader.fetch(2, last_epoch=0)).diverging is None
    assert (await leader.fetch(4, last_epoch=2)).diverging is None


@with_topic
async def test_a_reader_in_a_later_epoch_than_the_log_knows_is_out_of_range(
    cluster: ReplicaCluster,
) -> None:
    """Nothing shows how far its history and that of the leader agree."""
    await cluster[1].produce()
    for last_epoch, error in ((1, ErrorCode.OFFSET_OUT_OF_RANGE), (0, ErrorCode.NONE)):
        found = await cluster[1].fetch(1, last_epoch=last_epoch)
        assert (found.error, found.diverging) == (error, None)


def noting(answered: list[int], number: int) -> Callable[[object], None]:
    return lambda _: answered.append(number)


@with_topic
async def test_consumers_get_one_big_answer_in_a_turn_of_the_loop(cluster: ReplicaCluster) -> None:
    batch = make_batch(value=bytes(TURN_BYTES))
    await cluster[1].produce(batch)
    answered: list[int] = []
    turns: list[int] = []

    def turn() -> None:
        turns.append(len(answered))
        if len(answered) < 4:
            asyncio.get_running_loop().call_soon(turn)

    async def inside() -> None:
        asyncio.get_running_loop().call_soon(turn)
        for number in range(5):
            asked = AskedFetch(
                [FetchEntry(P0, 0, 1 << 20)], noting(answered, number), max_wait_ms=60_000
            )
            cluster[1].manager.fetch.begin(asked)
            if number == 2:
                cluster[1].manager.fetch.withdraw(asked)

    await cluster[1].process.run(inside())
    await until(lambda: len(answered) == 4)
    assert answered == [0, 1, 3, 4]
    assert turns == [1, 2, 3, 4]


class Answers:
    """The order of some answers, and how many there were at the end of each turn of the loop."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.order: list[int] = []
        self.turns: list[int] = []

    def noting(self, number: int) -> Callable[[object], None]:
        def note(_: object) -> None:
            if not self.order:
                asyncio.get_running_loop().call_soon(self._turn)
            self.order.append(number)

        return note

    def _turn(self) -> None:
        self.turns.append(len(self.order))
        if len(self.order) < self.count:
            asyncio.get_running_loop().call_soon(self._turn)


@with_topic
async def test_consumers_woken_by_one_append_are_answered_in_turns(cluster: ReplicaCluster) -> None:
    answers = Answers(4)

    async def inside() -> None:
        for number in range(4):
            asked = AskedFetch(
                [FetchEntry(P0, 0, 1 << 20)], answers.noting(number), max_wait_ms=60_000
            )
            cluster[1].manager.fetch.begin(asked)
        entry = ProduceEntry(P0, make_batch(value=bytes(TURN_BYTES)))
        cluster[1].manager.produce.begin([entry], -1, 30_000, lambda results: None)

    await cluster[1].process.run(inside())
    await until(lambda: len(answers.order) == 4)
    assert answers.turns == [2, 3, 4]  # the first one is behind the second answer
    assert answers.order == [0, 1, 2, 3]


@with_topic
async def test_a_follower_that_is_woken_does_not_wait_for_the_turns_of_consumers(
    cluster: ReplicaCluster,
) -> None:
    leader, answered = cluster[1], list[str]()
    await leader.produce(make_batch(value=bytes(TURN_BYTES)))

    def begin(name: str, offset: int, **asked: Any) -> None:
        epoch = 0 if asked else -1
        entry = FetchEntry(P0, offset, 1 << 20, current_leader_epoch=epoch)
        fetch = AskedFetch([entry], lambda _: answered.append(name), max_wait_ms=60_000, **asked)
        leader.manager.fetch.begin(fetch)

    async def inside() -> None:
        begin("follower", 1, replica_id=2, replica_epoch=cluster[2].epoch)
        for number in range(4):
            begin(f"consumer {number}", 0)
        assert answered == ["consumer 0"]
        leader.manager.produce.begin(
            [ProduceEntry(P0, make_batch())], 0, 30_000, lambda results: None
        )
        await asyncio.sleep(0)
        assert answered == ["consumer 0", "consumer 1", "follower"]

    await leader.process.run(inside())


@with_topic
async def test_a_look_after_the_arrival_is_done_at_the_cost_of_who_asked(
    cluster: ReplicaCluster,
) -> None:
    """Whether an append wakes the fetch, or its time is over."""
    spent: list[int] = []
    answered: list[object] = []

    def spend(look: Callable[[WaitingFetch], None], waiting: WaitingFetch) -> None:
        assert not answered
        look(waiting)
        spent.append(len(answered))

    async def ask() -> None:
        asked = AskedFetch([FetchEntry(P0, 0, 1 << 20)], answered.append, max_wait_ms=500)
        asked.spend = spend
        cluster[1].manager.fetch.begin(asked)

    await cluster[1].process.run(ask())
    await until(lambda: bool(answered))
    assert spent == [1]
    spent.clear()
    answered.clear()
    await cluster[1].process.run(ask())
    await cluster[1].produce()
    await until(lambda: bool(answered))
    assert spent[-1] == 1


@with_topic
async def test_consumers_due_at_one_moment_are_answered_in_turns(cluster: ReplicaCluster) -> None:
    await cluster[1].produce(make_batch(value=bytes(TURN_BYTES)))
    answers = Answers(4)

    async def inside() -> None:
        for number in range(4):
            asked = AskedFetch(
                [FetchEntry(P0, 0, 1 << 20)],
                answers.noting(number),
                max_wait_ms=300,
                min_bytes=1 << 20,
            )
            cluster[1].manager.fetch.begin(asked)

    await cluster[1].process.run(inside())
    assert answers.order == []
    await until(lambda: len(answers.order) == 4)
    assert answers.turns == [2, 3, 4]  # the first one is behind the second answer
    assert answers.order == [0, 1, 2, 3]


@with_topic
async def test_one_that_is_due_while_it_stands_in_the_queue_is_answered_once(
    cluster: ReplicaCluster,
) -> None:
    answered: list[int] = []

    async def inside() -> None:
        for number in range(3):
            asked = AskedFetch(
                [FetchEntry(P0, 0, 1 << 20)], noting(answered, number), max_wait_ms=300
            )
            cluster[1].manager.fetch.begin(asked)
        await asyncio.sleep(0.2999)
        entry = ProduceEntry(P0, make_batch(value=bytes(TURN_BYTES)))
        cluster[1].manager.produce.begin([entry], -1, 30_000, lambda results: None)
        await asyncio.sleep(1)

    await cluster[1].process.run(inside())
    assert sorted(answered) == [0, 1, 2]


@with_topic
async def test_small_answers_of_several_turns_add_up(cluster: ReplicaCluster) -> None:
    await cluster[1].produce(make_batch(value=bytes(TURN_BYTES // 2)))
    answered: list[int] = []

    async def inside() -> None:
        for number in range(3):
            asked = AskedFetch(
                [FetchEntry(P0, 0, 1 << 20)], noting(answered, number), max_wait_ms=60_000
            )
            cluster[1].manager.fetch.begin(asked)
            if number == 0:
                await asyncio.sleep(0)
        assert answered == [0, 1]
        await asyncio.sleep(0)
        assert answered == [0, 1, 2]

    await cluster[1].process.run(inside())


@with_topic
async def test_fetches_that_stand_in_the_queue_are_answered_at_the_end(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce(make_batch(value=bytes(TURN_BYTES)))
    answered: list[int] = []

    async def inside() -> None:
        for number in range(3):
            asked = AskedFetch(
                [FetchEntry(P0, 0, 1 << 20)], noting(answered, number), max_wait_ms=60_000
            )
            cluster[1].manager.fetch.begin(asked)
        assert answered == [0]
        await cluster[1].manager.stop()
        assert answered == [0, 1, 2]

    await cluster[1].process.run(inside())
    cluster[1].kill()


@with_topic
async def test_cold_bytes_are_warmed_and_then_answered(cluster: ReplicaCluster) -> None:
    await cluster[1].produce(make_batch(5))
    cluster[1].disk.faults.cold_read = 1.0
    result = await cluster[1].fetch(0, max_wait_ms=500)
    assert len(result.records) == 1
    assert cluster[1].process.machine.disk.faults.cold_read == 1.0


@with_topic
async def test_a_client_that_poses_as_a_follower_acknowledges_nothing(
    cluster: ReplicaCluster,
) -> None:
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await cluster[1].produce(acks=1)
    for replica_id, replica_epoch, epoch, error in (
        (2, -1, 0, ErrorCode.STALE_BROKER_EPOCH),
        (2, cluster[2].epoch + 1, 0, ErrorCode.STALE_BROKER_EPOCH),
        (2, cluster[2].epoch, -1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (9, 1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        result = await cluster[1].fetch(
            1, epoch=epoch, replica_id=replica_id, replica_epoch=replica_epoch
        )
        assert result.error is error
    assert cluster[1].replica().machine.high_watermark == 0


@with_topic
async def test_a_newer_fetch_of_a_follower_without_a_session_answers_its_earlier_one(
    cluster: ReplicaCluster,
) -> None:
    """Other followers and consumers wait on."""
    leader = cluster[1]
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])

    def fetch(broker_id: int) -> asyncio.Future[FetchResult]:
        return asyncio.ensure_future(
            leader.fetch(
                0,
                epoch=0,
                max_wait_ms=60_000,
                replica_id=broker_id,
                replica_epoch=cluster[broker_id].epoch,
            )
        )

    consumer = asyncio.ensure_future(leader.fetch(0, max_wait_ms=60_000))
    other, earlier = fetch(3), fetch(2)
    await asyncio.sleep(0.1)
    began = cluster.simulation.now
    newer = fetch(2)
    assert (await earlier).error is ErrorCode.NONE
    assert cluster.simulation.now < began + 1
    assert not newer.done()
    assert not other.done()
    assert not consumer.done()
    newest = fetch(2)
    assert (await newer).records == []
    await leader.produce(acks=1)
    for waiting in (newest, other):
        assert len((await waiting).records) == 1
    assert not consumer.done(), "nothing is committed"


@with_topic
async def test_a_follower_hears_of_a_divergence_and_of_an_error_without_waiting(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    cluster.change(leader=1)
    await until(lambda: leader.replica().machine.leader_epoch == 1)
    await leader.produce()
    began = cluster.simulation.now
    for offset, last_epoch, error in (
        (1, 0, ErrorCode.NONE),
        (9, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
    ):
        answer = await leader.fetch(
            offset,
            epoch=1,
            last_epoch=last_epoch,
            max_wait_ms=60_000,
            replica_id=2,
            replica_epoch=cluster[2].epoch,
        )
        assert (answer.error, answer.records) == (error, [])
        assert (answer.diverging is not None) is (error is ErrorCode.NONE)
    assert cluster.simulation.now < began + 1


def test_an_answer_hands_over_a_bounded_number_of_producers_and_at_least_one_for_each_log() -> None:
    reading = Reading(AskedFetch([], lambda _: None), 1, BrokerStatus(), None)
    assert [reading.take_producers() for _ in range(3)] == [512, 1, 1]
