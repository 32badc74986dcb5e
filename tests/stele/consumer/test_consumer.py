"""The consumer against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stele.cluster.messages import FetchAnswer, FetchRequest
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.consumer import Consumer
from stele.consumer.offset_lookup import OffsetLookup
from stele.consumer.positions import LATEST
from stele.errors import (
    ApiError,
    ClosedError,
    ConfigError,
    ErrorCode,
    OffsetOutOfRangeError,
    UnreachableError,
    UnreadableBatchError,
)
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, OffsetAndTimestamp, TimestampType
from stele.wire.batch import BatchBuilder, compute_crc, stamp
from stele.wire.compression import Compression
from stele.wire.kafka.messages.list_offsets import ListOffsetsRequest
from tests.support.stele import FakePartition, Stage, on_stage
from tests.support.stele_kafka import ANSWERS


def append(
    partition: FakePartition,
    *values: bytes,
    timestamp_ms: int = 1000,
    compression: Compression = Compression.NONE,
    log_append_time_ms: int | None = None,
    is_control: bool = False,
) -> None:
    """Append one batch as it would be in a leader's log."""
    builder = BatchBuilder()
    for value in values:
        builder.append(b"k", value, timestamp_ms=timestamp_ms, headers=[("h", b"1")])
    batch = builder.build(compression, is_control=is_control)
    stamp(
        batch,
        0,
        base_offset=partition.end_offset,
        leader_epoch=partition.leader_epoch,
        log_append_time_ms=log_append_time_ms,
    )
    partition.batches.append(batch)
    partition.end_offset += len(values)


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        polled = await consumer.poll(timeout_ms=5000)
        assert polled, f"only {len(records)} of {count}"
        records += polled
    return records


def values(records: list[ConsumerRecord]) -> list[bytes | None]:
    return [record.value for record in records]


@pytest.mark.parametrize("compression", list(Compression))
@on_stage
async def test_reads_what_is_there(stage: Stage, compression: Compression) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a", b"b", compression=compression)
    append(partition, b"c", log_append_time_ms=77)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        first, second, third = await read(consumer, 3)
        assert await consumer.poll(timeout_ms=100) == []
        assert await consumer.position("t", 0) == 3
    assert first == ConsumerRecord(
        "t", 0, 0, 1000, TimestampType.CREATE_TIME, b"k", b"a", (("h", b"1"),), 0
    )
    assert (second.offset, second.value) == (1, b"b")
    assert third[2:5] == (2, 77, TimestampType.LOG_APPEND_TIME)


@on_stage
async def test_new_records_end_the_wait(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        poll = asyncio.create_task(consumer.poll(timeout_ms=60_000))
        await asyncio.sleep(3)
        before = stage.cluster.clock.monotonic()
        append(partition, b"late")
        assert values(await poll) == [b"late"]
        assert stage.cluster.clock.monotonic() - before < 0.1


@on_stage
async def test_starts_inside_a_batch_and_seeks(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for i in range(10):
        append(partition, *(b"%d" % (i * 10 + j) for j in range(10)))
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 37)
        assert values(await consumer.poll(2)) == [b"37", b"38"]
        assert await consumer.position("t", 0) == 39
        assert values(await consumer.poll(1)) == [b"39"]
        consumer.seek("t", 0, 5)
        assert values(await consumer.poll(1)) == [b"5"]
        consumer.seek_to_beginning()
        assert values(await consumer.poll(1)) == [b"0"]
        consumer.seek_to_end(("t", 0))
        assert await consumer.position("t", 0) == 100
        assert await consumer.poll(timeout_ms=50) == []


@on_stage
async def test_iteration_hands_out_one_by_one(stage: Stage) -> None:
    append(stage.cluster.create("t").partitions[0], b"a", b"b", b"c")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        seen = []
        async for record in consumer:
            seen.append(record.value)
            assert await consumer.position("t", 0) == record.offset + 1
            if len(seen) == 2:
                break
        assert values(await consumer.poll()) == [b"c"]
    assert seen == [b"a", b"b"]


@on_stage
async def test_follows_leaders_by_hint_and_by_metadata(stage: Stage) -> None:
    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    append(partition, b"a")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        assert values(await read(consumer, 1)) == [b"a"]
        cluster.move_leader(partition, 2)
        append(partition, b"b")
        assert values(await read(consumer, 1)) == [b"b"]
        cluster.kill(2)
        await asyncio.sleep(1)
        cluster.move_leader(partition, 3)
        append(partition, b"c")
        assert values(await read(consumer, 1)) == [b"c"]
        partition.fetch_errors.extend(
            [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH] * 2
        )
        append(partition, b"d")
        assert values(await read(consumer, 1)) == [b"d"]


@on_stage
async def test_a_leader_that_hangs_is_left_for_the_next_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A paused process keeps its connections: nothing breaks, and nothing is answered."""

    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    append(partition, b"a")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        assert values(await read(consumer, 1)) == [b"a"]
        hung, fetch = partition.leader, cluster.fetch

        async def fetch_unless_hung(broker: int, request: FetchRequest) -> list[FetchAnswer]:
            if broker == hung:
                await asyncio.get_running_loop().create_future()
            return await fetch(broker, request)

        monkeypatch.setattr(cluster, "fetch", fetch_unless_hung)
        await asyncio.sleep(5)
        cluster.move_leader(partition, 2)
        append(partition, b"b")
        assert values(await read(consumer, 1)) == [b"b"]


@pytest.mark.parametrize(("policy", "expected"), [("earliest", b"8"), ("latest", b"new")])
@on_stage
async def test_out_of_range_is_reset(stage: Stage, policy: str, expected: bytes) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for i in range(10):
        append(partition, b"%d" % i)
    async with stage.consumer(auto_offset_reset=policy) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 3)
        del partition.batches[:8]
        partition.start_offset = 8
        poll = asyncio.create_task(read(consumer, 1))
        await asyncio.sleep(1)
        append(partition, b"new")
        assert (await poll)[0].value == expected


@on_stage
async def test_out_of_range_without_a_policy_is_an_error_until_a_seek(stage: Stage) -> None:
    append(stage.cluster.create("t").partitions[0], b"a")
    async with stage.consumer(auto_offset_reset="none") as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(OffsetOutOfRangeError, match="has no position"):
            await consumer.poll()
        with pytest.raises(OffsetOutOfRangeError, match="has no position"):
            await consumer.position("t", 0)
        consumer.seek("t", 0, 9)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="from 0 to 1") as failure:
                await consumer.poll()
        assert failure.value.offset == 9
        consumer.seek("t", 0, 0)
        assert values(await consumer.poll()) == [b"a"]


def test_a_corrupt_batch_is_reported_after_the_records_before_it() -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.cluster.create("t").partitions[0]
        append(partition, b"good")
        append(partition, b"broken")
        partition.batches[1][-3] ^= 1
        async with stage.consumer() as consumer:
            consumer.assign([("t", 0)])
            assert values(await consumer.poll()) == [b"good"]
            for _ in range(2):
                with pytest.raises(UnreadableBatchError, match="CRC") as failure:
                    await consumer.poll()
                assert failure.value.code is ErrorCode.CORRUPT_MESSAGE
                assert "the batch at offset 1 of t-0 cannot be read" in str(failure.value)
                assert await consumer.position("t", 0) == 1


@pytest.mark.parametrize("damage", ["codec", "count"])
@on_stage
async def test_a_batch_that_cannot_be_read_can_be_left_out(stage: Stage, damage: str) -> None:
    """The batch is in the log and its CRC is right: the leader did not check it."""

    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"good")
    append(partition, b"bad", b"bad")
    append(partition, b"after")
    batch = partition.batches[1]
    if damage == "codec":
        struct.pack_into(">h", batch, 21, Compression.GZIP)
    else:
        struct.pack_into(">i", batch, 57, 1000)
    struct.pack_into(">I", batch, 17, compute_crc(batch, 0, len(batch)))
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        assert values(await consumer.poll()) == [b"good"]
        with pytest.raises(UnreadableBatchError) as failure:
            await consumer.poll()
        error = failure.value
        assert (error.topic, error.partition) == ("t", 0)
        assert (error.offset, error.next_offset) == (1, 3)
        consumer.seek(error.topic, error.partition, error.next_offset)
        assert values(await consumer.poll()) == [b"after"]


@on_stage
async def test_control_batches_are_passed_over(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    append(partition, b"\x00\x00\x00\x01", is_control=True)
    append(partition, b"b")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        assert [record.offset for record in await read(consumer, 2)] == [0, 2]


@on_stage
async def test_pause_and_resume(stage: Stage) -> None:
    topic = stage.cluster.create("t", 2)
    for number, partition in topic.partitions.items():
        append(partition, b"%d" % number)
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        consumer.pause(("t", 1))
        assert consumer.paused() == [("t", 1)]
        assert values(await read(consumer, 1)) == [b"0"]
        assert await consumer.poll(timeout_ms=500) == []
        consumer.resume()
        assert values(await read(consumer, 1)) == [b"1"]


@on_stage
async def test_a_partition_that_stays_assigned_is_read_on(stage: Stage) -> None:
    """Its fetch is under way meanwhile."""
    topic = stage.cluster.create("t", 2)
    append(topic.partitions[0], b"a")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert values(await read(consumer, 1)) == [b"a"]
        assert await consumer.poll(timeout_ms=100) == []
        consumer.assign([("t", 0)])
        assert consumer.assignment() == [("t", 0)]
        append(topic.partitions[0], b"b")
        assert values(await read(consumer, 1)) == [b"b"]


@on_stage
async def test_no_partition_starves_another(stage: Stage) -> None:
    topic = stage.cluster.create("t", 3)
    for partition in topic.partitions.values():
        for i in range(100):
            append(partition, b"%d" % i)
    async with stage.consumer() as consumer:
        consumer.assign([("t", number) for number in range(3)])
        for number in range(3):
            await consumer.position("t", number)
        await asyncio.sleep(1)  # of virtual time: all of them are fetched ahead
        seen = []
        for _ in range(9):
            seen += [record.partition for record in await consumer.poll(10)]
    assert {seen.count(number) for number in range(3)} == {30}


@on_stage
async def test_a_fetch_that_fails_is_repeated_after_its_pause(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"v")
    loop = asyncio.get_running_loop()
    async with stage.consumer(retry_backoff_ms=100) as consumer:
        consumer.assign([("t", 0)])
        await consumer.position("t", 0)
        partition.fetch_errors.append(ErrorCode.KAFKA_STORAGE_ERROR)
        began = loop.time()
        assert values(await read(consumer, 1)) == [b"v"]
        assert 0.05 < loop.time() - began < 0.3


@on_stage
async def test_a_fetch_without_a_permission_says_which_one_is_missing(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        await consumer.position("t", 0)
        partition.fetch_errors.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        with pytest.raises(ApiError, match=r"t-0: .* may not READ the topic t: .*READ topic:t\)"):
            await consumer.poll(timeout_ms=1_000)


@on_stage
async def test_who_waits_for_records_does_not_ask_for_the_metadata(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        assert await consumer.poll(timeout_ms=1000) == []
        asked = stage.cluster.metadata_requests
        assert await consumer.poll(timeout_ms=60_000) == []
        assert stage.cluster.metadata_requests == asked


@on_stage
async def test_offsets(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    for time_ms in (100, 200, 300):
        append(partition, b"v", timestamp_ms=time_ms)
    async with stage.consumer() as consumer:
        assert await consumer.beginning_offsets([("t", 0)]) == {("t", 0): 0}
        assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 3}
        found = await consumer.offsets_for_times({("t", 0): 150})
        assert found == {("t", 0): OffsetAndTimestamp(1, 200, 0)}
        assert await consumer.offsets_for_times({("t", 0): 301}) == {("t", 0): None}
        found = await consumer.offsets_for_times({("t", 0): 0})
        assert found == {("t", 0): OffsetAndTimestamp(0, 100, 0)}
        with pytest.raises(ConfigError, match="-1 for t-0 must not be negative"):
            await consumer.offsets_for_times({("t", 0): -1})
        assert await consumer.partitions_for("t") == [0]
        assert not stage.waits, "a client that gets its answer at once complains of nothing"


@on_stage
async def test_a_slow_connection_is_not_a_missing_leader(stage: Stage) -> None:
    append(stage.cluster.create("t").partitions[0], b"v")
    stage.cluster.connect_takes_s = 1.5  # a login over TLS to a busy broker
    async with stage.consumer() as consumer:
        consumer.assign([("t", 0)])
        consumer.seek("t", 0, 0)
        assert values(await read(consumer, 1)) == [b"v"]
    assert stage.waits == []


@on_stage
async def test_a_broker_that_leaves_while_another_one_is_asked_for_offsets(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = stage.cluster.create("t", 2)
    wanted = dict.fromkeys((TopicPartition("t", number) for number in range(2)), LATEST)
    config = ConsumerConfig(bootstrap_servers=stage.cluster.bootstrap_servers)
    view = ClusterView(config, stage.world)
    lookup = OffsetLookup(view)

    async def ends() -> list[int]:
        return [answer.offset for answer in (await lookup.offsets(wanted)).values()]

    assert await ends() == [0, 0]
    stage.cluster.kill(topic.partitions[1].leader)
    stage.cluster.move_leader(topic.partitions[1], 3)
    append(topic.partitions[1], b"v")
    answer = ANSWERS[ListOffsetsRequest]

    async def answer_after_news(*asked: Any) -> Any:
        await view.refresh()
        return await answer(*asked)

    monkeypatch.setitem(ANSWERS, ListOffsetsRequest, answer_after_news)
    assert await ends() == [0, 1]
    await view.close()


@on_stage
async def test_a_partition_that_is_not_there(stage: Stage) -> None:
    stage.cluster.create("t")
    async with stage.consumer(default_api_timeout_ms=2000) as consumer:
        consumer.assign([("t", 7)])
        with pytest.raises(ApiError, match="no partition t-7") as failure:
            await consumer.poll(timeout_ms=10_000)
        assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ConfigError, match="not assigned"):
            consumer.seek("t", 0, 0)
    with pytest.raises(ClosedError):
        await consumer.poll()


@pytest.mark.parametrize("was_there", [True, False])
@on_stage
async def test_a_topic_that_comes_back_is_read_without_a_seek(
    stage: Stage, was_there: bool
) -> None:
    cluster = stage.cluster
    cluster.create("other")
    async with stage.consumer(default_api_timeout_ms=2000) as consumer:
        consumer.assign([("t", 0)])
        if was_there:
            append(cluster.create("t").partitions[0], b"old")
            assert values(await read(consumer, 1)) == [b"old"]
            del cluster.topics["t"]
        for _ in range(2):
            with pytest.raises(ApiError, match="no partition t-0"):
                await consumer.poll(timeout_ms=30_000)
        cluster.create("filler")  # another topic id than before
        append(cluster.create("t").partitions[0], b"new", b"newer")
        await asyncio.sleep(5)
        assert values(await read(consumer, 2)) == [b"new", b"newer"]


@pytest.mark.parametrize("has_position", [True, False])
@on_stage
async def test_a_partition_without_a_leader_is_not_missing(
    stage: Stage, has_position: bool
) -> None:
    """However long this lasts, and however often it was missing for a moment."""

    cluster = stage.cluster
    partition = cluster.create("t").partitions[0]
    append(partition, b"a")
    async with stage.consumer(default_api_timeout_ms=3000) as consumer:
        consumer.assign([("t", 0)])
        if has_position:
            assert values(await read(consumer, 1)) == [b"a"]
        cluster.kill(partition.leader)
        for _ in range(4):
            assert await consumer.poll(timeout_ms=3500) == []
            cluster.hide_next_topic_requests = 1
        assert await consumer.poll(timeout_ms=500) == []
        append(partition, b"b")
        cluster.move_leader(partition, 2)
        assert values(await read(consumer, 1))[-1] == b"b"


@settings(max_examples=50)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["move", "error", "seek"])), max_size=6),
    st.integers(1, 7),
)
@on_stage
async def test_every_record_once_and_in_order_through_any_weather(
    stage: Stage, sizes: list[int], events: list[tuple[int, str]], limit: int
) -> None:
    partition = stage.cluster.create("t").partitions[0]
    total = 0
    for size in sizes:
        append(partition, *(b"%d" % (total + i) for i in range(size)))
        total += size
    async with stage.consumer(max_partition_fetch_bytes=200) as consumer:
        consumer.assign([("t", 0)])
        expected = 0
        polls = 0
        pending = list(events)
        while expected < total:
            for event in [each for each in pending if each[0] <= polls]:
                pending.remove(event)
                if event[1] == "move":
                    stage.cluster.move_leader(partition, 1 + polls % 3)
                elif event[1] == "error":
                    partition.fetch_errors.append(ErrorCode.UNKNOWN_LEADER_EPOCH)
                else:
                    expected = expected // 2
                    consumer.seek("t", 0, expected)
            records = await consumer.poll(limit, timeout_ms=10_000)
            assert records
            for record in records:
                assert (record.offset, record.value) == (expected, b"%d" % expected)
                expected += 1
            polls += 1


@on_stage
async def test_a_poll_of_no_records_is_refused(stage: Stage) -> None:
    append(stage.cluster.create("t").partitions[0], b"a", b"b")
    async with stage.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(ConfigError, match="max_records=0 must be at least 1"):
            await consumer.poll(0)
        assert [each.value for each in await consumer.poll(1)] == [b"a"]


@on_stage
async def test_a_poll_without_partitions_says_what_to_do(stage: Stage) -> None:
    async with stage.consumer() as consumer:
        with pytest.raises(ConfigError, match=r"call assign\("):
            await consumer.poll()
        with pytest.raises(ConfigError, match=r"call assign\("):
            await consumer.poll_batches()
    async with stage.consumer(group_id="g") as consumer:
        with pytest.raises(ConfigError, match=r"call subscribe\(\[topic\]\) or assign\("):
            await consumer.poll()


@on_stage
async def test_a_partition_without_a_leader_holds_up_no_look_up(stage: Stage) -> None:
    partition = stage.cluster.create("t").partitions[0]
    append(partition, b"a")
    stage.cluster.create("lost").partitions[0].leader = -1
    async with stage.consumer() as consumer:
        consumer.assign([("lost", 0), ("t", 0)])
        for _ in range(3):
            consumer.seek_to_beginning(("t", 0))
            before = stage.cluster.clock.monotonic()
            assert values(await consumer.poll(timeout_ms=30_000)) == [b"a"]
            assert stage.cluster.clock.monotonic() - before < 1


@on_stage
async def test_a_silent_leader_holds_up_no_look_up_of_others(stage: Stage) -> None:
    topic = stage.cluster.create("t", 3)
    for each in topic.partitions.values():
        append(each, b"a")
    async with stage.consumer() as consumer:
        await consumer.partitions_for("t")
        stage.cluster.frozen.add(topic.partitions[0].leader)
        consumer.assign([("t", 0), ("t", 1), ("t", 2)])
        before = stage.cluster.clock.monotonic()
        assert {each.partition for each in await read(consumer, 2)} == {1, 2}
        assert stage.cluster.clock.monotonic() - before < 1
        # A leader that moves away from a silent broker is asked in the next round.
        ends = asyncio.create_task(consumer.end_offsets([("t", each) for each in range(3)]))
        await asyncio.sleep(0.5)
        stage.cluster.move_leader(topic.partitions[0], topic.partitions[1].leader)
        before = stage.cluster.clock.monotonic()
        assert set((await ends).values()) == {1}
        assert stage.cluster.clock.monotonic() - before < 10


@on_stage
async def test_every_question_ends_within_its_time(stage: Stage) -> None:
    stage.cluster.create("t").partitions[0].leader = -1
    names = [("t", 0)]
    async with stage.consumer(group_id="g", default_api_timeout_ms=5_000) as consumer:
        consumer.assign(names)
        for ask in (
            lambda **limit: consumer.position("t", 0, **limit),
            lambda **limit: consumer.beginning_offsets(names, **limit),
            lambda **limit: consumer.end_offsets(names, **limit),
            lambda **limit: consumer.offsets_for_times({("t", 0): 1}, **limit),
            lambda **limit: consumer.partitions_for("missing", **limit),
            lambda **limit: consumer.committed(names, **limit),
            lambda **limit: consumer.commit({("t", 0): 1}, **limit),
        ):
            for limit_s, limit in ((5, {}), (2, {"timeout_ms": 2_000})):
                before = stage.cluster.clock.monotonic()
                with pytest.raises((ApiError, UnreachableError)):
                    await ask(**limit)
                assert limit_s - 1.2 <= stage.cluster.clock.monotonic() - before <= limit_s + 0.1
