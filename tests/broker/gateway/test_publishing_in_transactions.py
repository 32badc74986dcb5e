"""Publish in transactions, by a thin client of one simulated node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.gateway import transactional_producers
from runtime.authorization.authorizer import (
    AllowAll,
    Operation,
    Resource,
    transactional_id_resource,
)
from runtime.authorization.caller import Caller
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.one_node import HOST, on_a_node
from tests.support.thin_client import Subscribing, record
from tests.support.thin_node import create
from world.world import World

COMMIT = pb.PublishRequest.TRANSACTION_END_COMMIT
ABORT = pb.PublishRequest.TRANSACTION_END_ABORT


class Transacting:
    """One stream of Publish with a transactional id."""

    def __init__(self, world: World, transactional_id: str = "thin", **options: Any) -> None:
        self._stream = world.network.channel(Address(HOST, 9192)).stream("/stele.v1.Log/Publish")
        self._options: pb.PublishOptions | None = pb.PublishOptions(
            transactional_id=transactional_id, **options
        )
        self.results: list[pb.PublishResult] = []

    async def send(self, *records: pb.PublishRecord, end: Any = 0) -> None:
        request = pb.PublishRequest(
            topic="t", records=records, options=self._options, transaction_end=end
        )
        self._options = None
        await self._stream.send(request.SerializeToString())

    async def receive(self) -> pb.PublishResponse | None:
        payload = await self._stream.receive()
        if payload is None:
            return None
        response = pb.PublishResponse.FromString(payload)
        self.results += response.results
        return response

    async def ended(self) -> pb.TransactionEnded:
        """What became of the transaction. The results before it are in ``results``."""
        self.results = []
        while (response := await self.receive()) is not None:
            if response.HasField("transaction_ended"):
                return response.transaction_ended
        raise AssertionError("the stream has ended")

    async def break_off(self) -> None:
        await self._stream.close()


class Forbidding(AllowAll):
    """Forbids the transactional id to clients from another machine. The node itself may do
    everything, for it asks leaders."""

    def __init__(self) -> None:
        self.forbids = True

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        mine = (Operation.WRITE, transactional_id_resource("thin"))
        return caller.address == HOST or not self.forbids or (operation, resource) != mine


def values(*given: bytes) -> list[pb.PublishRecord]:
    return [record(each, partition=number % 3) for number, each in enumerate(given)]


async def committed(world: World, count: int, partitions: int = 3) -> list[bytes]:
    """What a thin reader of committed records gets, sorted."""
    reading = Subscribing(world.network.channel(Address(HOST, 9192)))
    places = await reading.start(
        pb.PartitionStart(topic="t", edge=pb.PartitionStart.EDGE_EARLIEST),
        credit=pb.Credit(records=1000),
        isolation=pb.SubscribeStart.ISOLATION_READ_COMMITTED,
    )
    assert len(places) == partitions
    found = sorted(each.value for each in await reading.records(count))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await reading.records(1)
    await reading.end()
    return found


@on_a_node
async def test_transactions_count_as_a_whole_or_not_at_all(world: World) -> None:
    await create(world)
    stream = Transacting(world)
    await stream.send(*values(b"a1", b"a2"))
    await stream.send(*values(b"a3"), end=COMMIT)
    assert await stream.ended() == pb.TransactionEnded(is_committed=True)
    numbers = sorted(each.number for each in stream.results)
    assert numbers == [0, 1, 2], "all results come before the end"
    assert not any(each.HasField("error") for each in stream.results)
    offsets = [(each.partition, each.offset) for each in stream.results if each.HasField("offset")]
    assert sorted(offsets) == [(0, 0), (0, 1), (1, 0)]
    await stream.send(*values(b"b1", b"b2", b"b3"), end=ABORT)
    assert await stream.ended() == pb.TransactionEnded(is_committed=False)
    await stream.send(end=COMMIT)  # without any record
    assert await stream.ended() == pb.TransactionEnded(is_committed=True)
    await stream.send(*values(b"c1"), end=COMMIT)
    assert (await stream.ended()).is_committed
    assert await committed(world, 4) == [b"a1", b"a2", b"a3", b"c1"]


@pytest.mark.parametrize(
    ("refused_one", "code", "is_waited_for"),
    [
        (record(b"x" * 2000), ErrorCode.MESSAGE_TOO_LARGE, False),
        (record(topic="nobody"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (record(partition=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (record(partition=0, sequence=0), ErrorCode.INVALID_REQUEST, False),
    ],
)
@on_a_node
async def test_a_refused_record_costs_the_transaction(
    world: World, refused_one: pb.PublishRecord, code: ErrorCode, *, is_waited_for: bool
) -> None:
    await create(world, max_message_bytes="1000")
    stream = Transacting(world)
    given = [*values(b"a1"), refused_one, *values(b"a2")]
    await stream.send(*given, end=COMMIT)
    ended = await stream.ended()
    assert not ended.is_committed
    assert ended.error.code == code
    assert not ended.error.maybe_written
    refused = {each.number: each.error.code for each in stream.results if each.error.code}
    assert refused[1] == refused[2] == code
    messages = {each.number: each.error.message for each in stream.results}
    assert messages[2].startswith("the transaction is lost: ")
    # It was delivered only where the topic of the next record was waited for.
    assert refused.get(0) == (None if is_waited_for else ErrorCode.TRANSACTION_ABORTABLE)
    await stream.send(*values(b"b1"), end=COMMIT)
    assert (await stream.ended()).is_committed
    assert await committed(world, 1) == [b"b1"]


@on_a_node
async def test_tombstones_and_keys_are_written_in_transactions(world: World) -> None:
    await create(world)
    stream = Transacting(world)
    given = [record(*each, partition=0) for each in ((None, b"key"), (b"", b""), (b"v",))]
    await stream.send(*given, end=COMMIT)
    assert (await stream.ended()).is_committed
    reading = Subscribing(world.network.channel(Address(HOST, 9192)))
    place = pb.PartitionStart(topic="t", edge=pb.PartitionStart.EDGE_EARLIEST)
    await reading.start(place, credit=pb.Credit(records=10))
    found = [
        tuple(getattr(each, name) if each.HasField(name) else None for name in ("key", "value"))
        for each in await reading.records(3)
    ]
    assert found == [(b"key", None), (b"", b""), (None, b"v")]
    await reading.end()


@pytest.mark.parametrize("breaks", [True, False])
@on_a_node
async def test_the_end_of_the_stream_aborts(world: World, breaks: bool) -> None:
    await create(world)
    stream = Transacting(world)
    await stream.send(*values(b"a1"))
    while not stream.results:
        await stream.receive()
    await stream.break_off()
    again = Transacting(world)
    await again.send(*values(b"b1"), end=COMMIT)
    assert (await again.ended()).is_committed
    assert await committed(world, 1) == [b"b1"]


@on_a_node
async def test_a_second_stream_fences_the_first(world: World) -> None:
    await create(world)
    first, second = Transacting(world), Transacting(world)
    await first.send(*values(b"a1"))
    while not first.results:
        await first.receive()
    await second.send(*values(b"b1"), end=COMMIT)
    assert (await second.ended()).is_committed
    await first.send(end=COMMIT)
    ended = await first.ended()
    assert ended.error.code == ErrorCode.PRODUCER_FENCED
    await first.send(*values(b"a2"), end=COMMIT)
    assert (await first.ended()).error.code == ErrorCode.PRODUCER_FENCED
    assert first.results[-1].error.code == ErrorCode.PRODUCER_FENCED
    assert await committed(world, 1) == [b"b1"]


@on_a_node
async def test_a_transaction_that_takes_too_long_is_not_committed(world: World) -> None:
    await create(world)
    stream = Transacting(world, transaction_timeout_ms=1_000)
    await stream.send(*values(b"a1"))
    await asyncio.sleep(5)
    await stream.send(end=COMMIT)
    ended = await stream.ended()
    assert not ended.is_committed
    assert ended.error.code == ErrorCode.INVALID_TXN_STATE
    await stream.send(*values(b"b1"), end=COMMIT)
    assert (await stream.ended()).is_committed
    assert await committed(world, 1) == [b"b1"]


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({"acks": pb.PublishOptions.ACKS_LEADER}, 0),
        ({"publisher_id": 5}, 0),
        ({}, 9),
        ({"transactional_id": ""}, COMMIT),
    ],
    ids=str,
)
@on_a_node
async def test_what_is_wrong_ends_the_stream(
    world: World, options: dict[str, Any], end: int
) -> None:
    await create(world)
    stream = Transacting(world, **options)
    await stream.send(end=end)
    with pytest.raises(RpcError) as error:
        await stream.receive()
    assert error.value.code is RpcCode.INVALID_ARGUMENT


@on_a_node(Forbidding())
async def test_a_caller_that_may_not_use_the_id_is_refused(world: World) -> None:
    await create(world)
    stream = Transacting(world)
    await stream.send(*values(b"a1"))
    with pytest.raises(RpcError) as error:
        await stream.receive()
    assert error.value.code is RpcCode.PERMISSION_DENIED
    assert error.value.info is not None
    assert error.value.info.reason == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


@pytest.fixture
def authorizer() -> Forbidding:
    return Forbidding()


@pytest.mark.parametrize("has_records", [True, False])
@on_a_node
async def test_a_stream_that_may_not_use_its_id_any_more_ends_and_aborts(
    world: World, authorizer: Forbidding, has_records: bool
) -> None:
    await create(world)
    authorizer.forbids = False
    stream = Transacting(world)
    await stream.send(*values(b"a1"), end=COMMIT)
    assert (await stream.ended()).is_committed
    await stream.send(*values(b"b1"))
    await stream.receive()
    authorizer.forbids = True
    await stream.send(*values(b"b2") if has_records else (), end=COMMIT)
    with pytest.raises(RpcError) as error:
        await stream.receive()
    assert error.value.code is RpcCode.PERMISSION_DENIED
    assert error.value.info is not None
    assert error.value.info.reason == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    authorizer.forbids = False
    stream = Transacting(world)
    await stream.send(*values(b"c1"), end=COMMIT)
    assert (await stream.ended()).is_committed
    assert await committed(world, 2) == [b"a1", b"c1"]


@on_a_node
async def test_transactional_streams_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_producers, "PRODUCERS_MAX", 1)

    await create(world)
    first = Transacting(world)
    await first.send(*values(b"a1"), end=COMMIT)
    assert (await first.ended()).is_committed
    second = Transacting(world, "another")
    await second.send(*values(b"b1"))
    with pytest.raises(RpcError) as error:
        await second.receive()
    assert error.value.code is RpcCode.RESOURCE_EXHAUSTED
    await first.break_off()
    await asyncio.sleep(1)
    third = Transacting(world, "another")
    await third.send(*values(b"c1"), end=COMMIT)
    assert (await third.ended()).is_committed
