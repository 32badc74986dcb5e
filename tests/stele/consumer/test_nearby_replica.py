"""A consumer that reads from a replica nearby (KIP-392), against a fake cluster on virtual time."""

from __future__ import annotations

import pytest

from stele.cluster.messages import Leader
from stele.consumer.source import RETURN_AFTER_S, Source
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.stele.consumer.test_truncation import append, read
from tests.support.stele import FakePartition, Stage, on_stage

T0 = TopicPartition("t", 0)


def near(stage: Stage) -> FakePartition:
    """Broker 1 leads, and broker 2 is near to rack ``r2``."""
    partition = stage.cluster.create("t").partitions[0]
    partition.nearby = [2]
    return partition


def asked(stage: Stage) -> list[int]:
    """The brokers that fetches went to, each change once."""
    brokers = [broker for broker, _ in stage.cluster.fetches]
    return [each for each, before in zip(brokers, [0, *brokers], strict=False) if each != before]


@on_stage
async def test_reads_from_the_replica_that_the_leader_names(stage: Stage) -> None:
    partition = near(stage)
    append(partition, b"a")
    async with stage.consumer(client_rack="r2") as consumer:
        consumer.assign([T0])
        assert await read(consumer, 1) == [b"a"]
        append(partition, b"b")
        assert await read(consumer, 1) == [b"b"]
    assert asked(stage) == [1, 2]
    assert {rack for _, rack in stage.cluster.fetches} == {"r2"}


@on_stage
async def test_without_a_rack_the_leader_is_asked(stage: Stage) -> None:
    append(near(stage), b"a")
    async with stage.consumer() as consumer:
        consumer.assign([T0])
        assert await read(consumer, 1) == [b"a"]
    assert asked(stage) == [1]
    assert {rack for _, rack in stage.cluster.fetches} == {""}


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
@on_stage
async def test_whatever_a_replica_refuses_the_leader_is_asked_for(
    stage: Stage, error: ErrorCode
) -> None:
    partition = near(stage)
    append(partition, b"a")
    partition.nearby_errors.append(error)
    async with stage.consumer(client_rack="r2", auto_offset_reset="none") as consumer:
        consumer.assign([T0])
        consumer.seek("t", 0, 0)
        began = stage.cluster.clock.monotonic()
        assert await read(consumer, 1) == [b"a"]
        assert stage.cluster.clock.monotonic() - began < 1
        assert asked(stage) == [1, 2, 1]
        while asked(stage) == [1, 2, 1]:  # and the replica again, later
            await consumer.poll(timeout_ms=100)
        assert asked(stage) == [1, 2, 1, 2]
        assert stage.cluster.clock.monotonic() - began >= RETURN_AFTER_S


@on_stage
async def test_a_replica_that_dies_is_left_at_once(stage: Stage) -> None:
    partition = near(stage)
    append(partition, b"a")
    async with stage.consumer(client_rack="r2") as consumer:
        consumer.assign([T0])
        await read(consumer, 1)
        await consumer.poll(timeout_ms=100)
        stage.cluster.kill(2)
        append(partition, b"b")
        began = stage.cluster.clock.monotonic()
        assert await read(consumer, 1) == [b"b"]
        assert stage.cluster.clock.monotonic() - began < 1
        assert asked(stage) == [1, 2, 1]


@on_stage
async def test_a_truncation_is_reported_by_the_leader_alone(stage: Stage) -> None:
    told: list[tuple[int, int]] = []

    partition = near(stage)
    for value in (b"a", b"b"):
        append(partition, value)
    async with stage.consumer(
        client_rack="r2", on_truncation=lambda _, offset, to: told.append((offset, to))
    ) as consumer:
        consumer.assign([T0])
        await read(consumer, 2)
        partition.lose(1, leader_epoch=0)
        partition.leader_epoch = 1
        append(partition, b"x")
        assert await read(consumer, 1) == [b"x"]
        assert told == [(2, 1)]
        assert asked(stage)[:3] == [1, 2, 1]


def test_a_source_is_used_for_a_while_and_as_long_as_its_leader_leads() -> None:
    source, leader = Source(100.0), Leader(1, 5)
    assert (source.broker(leader, 0.0), source.tells_rack(0.0)) == (1, True)
    source.prefer(2, leader, 10.0)
    assert source.broker(leader, 109.9) == 2
    assert source.broker(leader, 110.0) == 1
    assert source.broker(leader, 50.0) == 1  # until it is named again
    source.prefer(2, leader, 50.0)
    assert source.broker(Leader(1, 6), 50.0) == 1
    source.prefer(2, leader, 50.0)
    source.leave(50.0)
    assert source.broker(leader, 50.0) == 1
    assert not source.tells_rack(50.0 + RETURN_AFTER_S - 0.1)
    assert source.tells_rack(50.0 + RETURN_AFTER_S)


def test_a_replica_may_be_the_broker_with_the_least_id() -> None:
    source = Source(300.0)
    leader = Leader(1, 4)
    assert source.broker(leader, 10.0) == 1
    source.prefer(0, leader, 10.0)
    assert source.broker(leader, 309.0) == 0
    assert source.broker(leader, 310.0) == 1, "the leader is asked again"
    source.leave(310.0)
    assert not source.tells_rack(311.0)
    source.prefer(0, leader, 311.0)
    assert source.tells_rack(311.0)
    assert source.broker(Leader(1, 5), 311.0) == 1, "another leader may know better"
