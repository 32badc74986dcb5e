"""Topic views against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

import stele
from stele.config import ClientWorld
from stele.errors import ApiError, ClosedError, ConfigError, ErrorCode, UnreadableBatchError
from stele.real import RealClock
from stele.topic_view.entries import Reason
from stele.topic_view.view import TTL_HEADER, Expiry, TopicView
from stele.wire.batch import BatchBuilder, stamp
from stele.wire.compression import Compression
from tests.support.stele import FakeCluster, FakePartition, Stage, on_stage


def append(
    partition: FakePartition,
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp_ms: int = 0,
    ttl: bytes | None = None,
) -> None:
    builder = BatchBuilder()
    headers = [] if ttl is None else [(TTL_HEADER, ttl)]
    builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
    batch = builder.build(Compression.NONE)
    stamp(batch, 0, base_offset=partition.end_offset, leader_epoch=partition.leader_epoch)
    partition.batches.append(batch)
    partition.end_offset += 1


class Told:
    """What the callbacks of a view were called with."""

    def __init__(self) -> None:
        self.updates: list[tuple[bytes, bytes | None, bytes]] = []
        self.evictions: list[tuple[bytes, bytes, Reason]] = []

    def on_update(self, key: bytes, earlier: bytes | None, value: bytes) -> None:
        self.updates.append((key, earlier, value))

    def on_eviction(self, key: bytes, value: bytes, reason: Reason) -> None:
        self.evictions.append((key, value, reason))


def view_of(stage: Stage, told: Told | None = None, **options: Any) -> TopicView:
    told = told or Told()
    return TopicView(
        stage.cluster.bootstrap_servers,
        "t",
        on_update=told.on_update,
        on_eviction=told.on_eviction,
        **{**stage.options(), **options},
    )


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):  # of virtual time
        while not is_so():  # noqa: ASYNC110 - what it waits for is no event of asyncio
            await asyncio.sleep(0.01)


@on_stage
async def test_has_the_last_value_of_each_key_and_follows(stage: Stage) -> None:
    first, second = stage.cluster.create("t", 2).partitions.values()
    append(first, b"a", b"1")
    append(first, b"a", b"2")
    append(second, b"b", b"1")
    append(second, b"c", b"1")
    append(second, b"c", None)
    append(second, b"never", None)
    append(second, None, b"no key")
    told = Told()
    async with view_of(stage, told) as view:
        assert view.is_caught_up
        assert dict(view) == {b"a": b"2", b"b": b"1"}
        assert (len(view), view[b"a"], view.get(b"c"), b"b" in view) == (2, b"2", None, True)
        append(first, b"a", b"3")
        await until(lambda: view[b"a"] == b"3")
    assert told.updates[-1] == (b"a", b"2", b"3")
    assert (b"a", b"1", b"2") in told.updates
    assert told.evictions == [(b"c", b"1", Reason.DELETED)]


@on_stage
async def test_keys_end_by_their_own_time_or_by_the_default(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    now_ms = stage.cluster.clock.time_ms()
    append(partition, b"default", b"1", timestamp_ms=now_ms)
    append(partition, b"short", b"1", timestamp_ms=now_ms, ttl=b"1500")
    append(partition, b"ever", b"1", timestamp_ms=now_ms, ttl=b"none")
    append(partition, b"odd", b"1", timestamp_ms=now_ms, ttl=b"soon")
    append(partition, b"over", b"1", timestamp_ms=now_ms - 10_000)
    told = Told()
    async with view_of(stage, told, default_ttl_ms=10_000, janitor_interval_ms=4_000) as view:
        assert set(view) == {b"default", b"short", b"ever", b"odd"}
        await asyncio.sleep(2)
        assert view.get(b"short") is None  # although the janitor has not come
        assert len(view) == 5
        assert not told.evictions
        await asyncio.sleep(3)
        assert told.evictions == [
            (b"over", b"1", Reason.EXPIRED),
            (b"short", b"1", Reason.EXPIRED),
        ]
        await asyncio.sleep(10)
        assert dict(view) == {b"ever": b"1"}
        assert len(view) == 1


@on_stage
async def test_a_new_value_gives_a_key_a_new_time(stage: Stage) -> None:
    stage.cluster.create("t")
    told = Told()
    async with view_of(stage, told, janitor_interval_ms=0, default_ttl_ms=1_000) as view:
        await view.put(b"k", b"1")
        await asyncio.sleep(0.7)
        await view.put(b"k", b"2")
        await asyncio.sleep(0.7)
        assert (view[b"k"], view.evict_expired()) == (b"2", 0)
        await view.put(b"k", b"3", Expiry.NONE)
        await view.put(b"l", b"1", 300)
        await asyncio.sleep(2)
        assert (dict(view), len(view)) == ({b"k": b"3"}, 2)  # there is no janitor
        assert view.evict_expired() == 1
    assert told.evictions == [(b"l", b"1", Reason.EXPIRED)]


@on_stage
async def test_reads_its_own_writes(stage: Stage) -> None:
    stage.cluster.create("t", 3)
    async with view_of(stage) as view:
        for number in range(20):
            await view.put(b"%d" % (number % 5), b"%d" % number)
            assert view[b"%d" % (number % 5)] == b"%d" % number
        await view.delete(b"3")
        assert set(view) == {b"0", b"1", b"2", b"4"}


@on_stage
async def test_reads_a_partition_again_that_lost_its_start(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"old", b"1")
    append(partition, b"both", b"1")
    told = Told()
    async with view_of(stage, told) as view:
        stage.cluster.kill(partition.leader)  # and while the view waits, retention goes on
        for number in range(5):
            append(partition, b"both", b"%d" % number)
        del partition.batches[:4]
        partition.start_offset = 4
        stage.cluster.move_leader(partition, 2)
        await until(lambda: told.evictions != [])
        assert dict(view) == {b"both": b"4"}
        assert view.is_caught_up
    assert told.evictions == [(b"old", b"1", Reason.LOST)]


@on_stage
async def test_goes_on_after_records_that_it_had_read_have_vanished(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"kept", b"1")
    append(partition, b"lost", b"1")
    append(partition, b"changed", b"1")
    told = Told()
    async with view_of(stage, told) as view:
        partition.lose(1, leader_epoch=2)  # an unclean election
        append(partition, b"changed", b"2")
        await until(lambda: told.evictions != [])
        assert dict(view) == {b"kept": b"1", b"changed": b"2"}
        assert view.is_caught_up
        await view.put(b"later", b"3")
        assert view[b"later"] == b"3"
    assert told.evictions == [(b"lost", b"1", Reason.LOST)]


@on_stage
async def test_the_start_ends_if_nothing_comes(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"k", b"1")
    partition.fetch_errors.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 1_000)
    view = view_of(stage, default_api_timeout_ms=3_000)
    before = stage.cluster.clock.monotonic()
    with pytest.raises(ApiError, match="no record of t was read within 3 s: t-0: "):
        await view.start()
    assert 3 <= stage.cluster.clock.monotonic() - before < 4
    await view.close()


@on_stage
async def test_reads_the_new_topic_when_it_is_made_anew(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"old", b"1")
    told = Told()
    async with view_of(stage, told) as view:
        del stage.cluster.topics["t"]
        stage.cluster.create("other")
        new = stage.cluster.create("t").partitions[0]
        for number in range(3):
            append(new, b"new", b"%d" % number)
        stage.cluster.metadata_offset += 1
        await until(lambda: dict(view) == {b"new": b"2"})
    assert told.evictions == [(b"old", b"1", Reason.LOST)]


@on_stage
async def test_forgets_a_deleted_topic_and_waits_for_another(stage: Stage) -> None:
    append(stage.cluster.create("t").partitions[0], b"old", b"1")
    told = Told()
    async with view_of(stage, told, default_api_timeout_ms=5_000) as view:
        del stage.cluster.topics["t"]
        stage.cluster.metadata_offset += 1
        await until(lambda: dict(view) == {})
        assert any("t" in reason for reason in stage.waits)
        append(stage.cluster.create("t").partitions[0], b"new", b"1")
        stage.cluster.metadata_offset += 1
        await until(lambda: dict(view) == {b"new": b"1"})


@on_stage
async def test_follows_partitions_that_are_added(stage: Stage) -> None:
    topic = stage.cluster.create("t")
    async with view_of(stage, metadata_max_age_ms=1_000) as view:
        topic.partitions[1] = FakePartition(leader=2)
        append(topic.partitions[1], b"k", b"1")
        stage.cluster.metadata_offset += 1
        await until(lambda: dict(view) == {b"k": b"1"})


@on_stage
async def test_survives_a_new_leader(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with view_of(stage) as view:
        await view.put(b"k", b"1")
        stage.cluster.kill(partition.leader)
        writing = asyncio.create_task(view.put(b"k", b"2"))
        await asyncio.sleep(3)
        assert not writing.done()
        assert view[b"k"] == b"1"
        stage.cluster.move_leader(partition, 2)
        await writing
        assert view[b"k"] == b"2"


@on_stage
async def test_a_batch_that_cannot_be_read_stops_the_view_and_its_readers(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with view_of(stage) as view:
        await view.put(b"k", b"1")
        append(partition, b"k", b"2")
        partition.batches[-1][-3] ^= 0xFF
        await asyncio.sleep(1)
        with pytest.raises(UnreadableBatchError):
            view.get(b"k")
        with pytest.raises(UnreadableBatchError):
            len(view)


@on_stage
async def test_a_callback_that_fails_does_not_stop_the_view(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.cluster.create("t")

    def fail(*_: object) -> None:
        raise ValueError("the user's")

    view = TopicView(stage.cluster.bootstrap_servers, "t", on_update=fail, **stage.options())
    async with view:
        with caplog.at_level(logging.ERROR):
            await view.put(b"k", b"1")
        assert view[b"k"] == b"1"
    assert "a callback of the view of t, for key b'k', has failed" in caplog.text


@on_stage
async def test_refuses_what_makes_no_sense(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="default_ttl_ms=0"):
        view_of(stage, default_ttl_ms=0)
    with pytest.raises(ConfigError, match="janitor_interval_ms=-1"):
        view_of(stage, janitor_interval_ms=-1)
    with pytest.raises(ApiError) as refused:
        async with view_of(stage, default_api_timeout_ms=300):
            pass
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stage.cluster.create("t")
    async with view_of(stage) as view:
        with pytest.raises(ConfigError, match="ttl_ms=0"):
            await view.put(b"k", b"1", 0)
    with pytest.raises(ClosedError):
        view.get(b"k")
    await view.close()


def test_the_synchronous_view() -> None:
    """On a real loop in a thread of its own, but still against the fake cluster."""
    cluster = FakeCluster(RealClock())
    append(cluster.create("t").partitions[0], b"a", b"1")
    told = Told()
    view = stele.TopicView(
        cluster.bootstrap_servers,
        "t",
        janitor_interval_ms=0,
        on_update=told.on_update,
        on_eviction=told.on_eviction,
        world=ClientWorld(RealClock(), cluster, random.Random(1)),
    )
    with view:
        assert dict(view) == {b"a": b"1"}
        view.put(b"b", b"2")
        view.put(b"c", b"3", 1)
        view.delete(b"a")
        assert (view.is_caught_up, view[b"b"], b"a" in view) == (True, b"2", False)
        while not view.evict_expired():
            pass
        assert (view.snapshot(), len(view)) == ([(b"b", b"2")], 1)
    assert [each[::2] for each in told.evictions] == [
        (b"a", Reason.DELETED),
        (b"c", Reason.EXPIRED),
    ]
    with pytest.raises(ClosedError):
        view.snapshot()
    with pytest.raises(ClosedError):
        view.get(b"b")
    view.close()
