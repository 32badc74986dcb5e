"""A producer and topics that are not there yet, are deleted, or are made anew."""

from __future__ import annotations

import asyncio

import pytest

from stele.errors import (
    ApiError,
    ErrorCode,
)
from tests.support.stele import FakeCluster, FakeTopic, Fault, Stage, on_stage
from tests.support.timing import until


@on_stage
async def test_a_topic_that_does_not_exist(stage: Stage) -> None:
    producer = stage.producer(max_block_ms=3000)
    with pytest.raises(ApiError, match="stele topic create nope") as failure:
        await producer.send("nope", b"1")
    assert failure.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert any("nope" in wait for wait in stage.waits)
    await producer.close()


@on_stage
async def test_each_call_waits_for_a_topic_as_long_as_it_may(stage: Stage) -> None:
    """A call that began later does not fail with an earlier one."""
    clock = stage.cluster.clock
    async with stage.producer(max_block_ms=5000) as producer:
        began = clock.monotonic()
        first = asyncio.ensure_future(producer.send("t", b"1"))
        await asyncio.sleep(3)
        later = [asyncio.ensure_future(producer.send("t", b"%d" % each)) for each in range(2, 4)]
        with pytest.raises(ApiError, match="stele topic create t"):
            await first
        assert 4 <= clock.monotonic() - began <= 5
        await asyncio.sleep(1)
        stage.cluster.create("t")
        for each in later:
            await each
        with pytest.raises(ApiError, match="stele topic create u"):
            await producer.send("u", b"1")
    assert stage.cluster.values() == [b"2", b"3"]


@on_stage
async def test_a_topic_that_was_just_created_is_waited_for(stage: Stage) -> None:
    stage.cluster.create("t")
    stage.cluster.hide_next_topic_requests = 3
    async with stage.producer() as producer:
        await producer.send("t", b"1")
    assert stage.cluster.values() == [b"1"]


@on_stage
async def test_a_topic_that_was_made_anew_starts_new_sequences(stage: Stage) -> None:
    cluster = stage.cluster
    old = cluster.create("t").partitions[0]
    async with stage.producer(linger_ms=0) as producer:
        await (await producer.send("t", b"1"))
        del cluster.topics["t"]
        cluster.create("other")
        cluster.create("t")
        cluster.topics["gone"] = type(cluster.topics["t"])(b"t-0".ljust(16, b"."), {0: old})
        old.faults.append(Fault(ErrorCode.UNKNOWN_TOPIC_ID))
        await (await producer.send("t", b"2"))
    assert cluster.values() == [b"2"]


@on_stage
async def test_an_acknowledgement_of_a_deleted_topic_names_no_leader_of_the_one_made_anew(
    stage: Stage,
) -> None:
    cluster = stage.cluster
    cluster.create("t").partitions[0].leader_epoch = 7
    async with stage.producer(linger_ms=0, metadata_max_age_ms=1000) as producer:
        await (await producer.send("t", b"1"))
        cluster.stream_answers_take_s = 3
        acknowledged = await producer.send("t", b"2")
        await asyncio.sleep(0.5)  # written, and its answer is on the way
        cluster.stream_answers_take_s = 0.001
        del cluster.topics["t"]
        cluster.create("other")
        cluster.create("t").partitions[0].leader = 2  # of epoch 0
        await acknowledged
        await (await producer.send("t", b"3"))
    assert cluster.values() == [b"3"]


@on_stage
async def test_records_of_the_topic_made_anew_wait_for_the_answers_of_the_deleted_one(
    stage: Stage,
) -> None:
    cluster = stage.cluster
    cluster.create("t")
    async with stage.producer(linger_ms=0, metadata_max_age_ms=1000) as producer:
        await (await producer.send("t", b"1"))
        cluster.stream_answers_take_s = 5
        old = await producer.send("t", b"2")
        await asyncio.sleep(0.5)  # written, and its answer is on the way
        cluster.stream_answers_take_s = 0.001
        del cluster.topics["t"]
        cluster.create("other")
        cluster.create("t")
        await asyncio.sleep(2)  # the metadata have come
        new = await producer.send("t", b"3")
        await asyncio.sleep(1)
        assert not new.done()
        assert cluster.values() == []
        await old
        await new
    assert cluster.values() == [b"3"]


def remake(cluster: FakeCluster) -> dict[str, FakeTopic]:
    """Create topic t, delete it and create it again. Returns the topics that a lagging broker still
    has."""
    cluster.metadata_offset = 10
    old = dict(cluster.topics, t=cluster.create("t"))
    del cluster.topics["t"]
    cluster.create("other")
    cluster.create("t")
    cluster.metadata_offset = 20
    return old


@on_stage
async def test_a_broker_that_lags_does_not_bring_back_the_topic_that_had_the_name_before(
    stage: Stage,
) -> None:
    """Otherwise the producer would go to the old topic and return, and write the batch a second
    time."""

    cluster = stage.cluster
    old = remake(cluster)
    new = cluster.topics["t"].partitions[0]
    async with stage.producer(linger_ms=0, metadata_max_age_ms=1000) as producer:
        await (await producer.send("t", b"1"))
        new.faults.append(Fault(ErrorCode.REQUEST_TIMED_OUT, applied=True))
        cluster.outdated = 10, old
        await (await producer.send("t", b"2"))
    assert not cluster.is_outdated  # it was asked
    assert cluster.values() == [b"1", b"2"]


@on_stage
async def test_a_broker_that_lags_and_lacks_a_topic_does_not_open_the_way_for_an_older_one(
    stage: Stage,
) -> None:
    cluster = stage.cluster
    old = remake(cluster)
    new = cluster.topics["t"].partitions[0]
    async with stage.producer(linger_ms=0, metadata_max_age_ms=1000) as producer:
        await (await producer.send("t", b"1"))
        new.faults.append(Fault(ErrorCode.REQUEST_TIMED_OUT, applied=True))
        cluster.hide_next_topic_requests = 1
        sent = await producer.send("t", b"2")
        await until(lambda: not cluster.hide_next_topic_requests)
        cluster.outdated = 10, old
        await sent
        await until(lambda: not cluster.is_outdated)
        await (await producer.send("t", b"3"))
    assert cluster.values() == [b"1", b"2", b"3"]
