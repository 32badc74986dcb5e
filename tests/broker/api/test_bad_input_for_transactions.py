"""Producers that make mistakes, by the Kafka protocol, on a whole node: what the node answers,
and what readers of committed records see in the end."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.wire.batch import batches, decode
from stele.wire.kafka.messages import (
    create_topics,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    produce,
    write_txn_markers,
)
from tests.support.batches import make_batch
from tests.support.one_node import HOST, OneNode, on_a_node
from tests.support.worlds import Scenario, gives
from world.world import World

NONE = ErrorCode.NONE


class Pair(NamedTuple):
    producer_id: int
    producer_epoch: int


class Read(NamedTuple):
    values: list[bytes | None]
    aborted: list[int]  # producer ids
    stable_offset: int
    high_watermark: int


class Client:
    """Everything about the transactional id ``t`` and the partition ``t-0``."""

    def __init__(self, connection: KafkaConnection) -> None:
        self.connection = connection

    async def ask(self, api: Any, version: int, request: Any) -> Any:
        return await self.connection.request(api, version, request, timeout_s=20)

    async def init(
        self, expected: Pair | None = None, *, timeout_ms: int = 60_000, **fields: Any
    ) -> Any:
        """Ask until no transaction is being ended."""
        find = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
        await self.ask(find_coordinator.API, 4, find)
        request = init_producer_id.InitProducerIdRequest(
            "t", timeout_ms, *(expected or (-1, -1)), **fields
        )
        while True:
            answer = await self.ask(init_producer_id.API, 6, request)
            if answer.error_code not in RETRIED:
                return answer
            await asyncio.sleep(0.05)

    async def begin(self, **fields: Any) -> Pair:
        answer = await self.init(**fields)
        assert answer.error_code == NONE
        return Pair(answer.producer_id, answer.producer_epoch)

    async def send(self, pair: Pair, value: bytes, sequence: int = 0) -> ErrorCode:
        records = make_batch(value=value, producer=(*pair, sequence), is_transactional=True)
        data = produce.TopicProduceData("t", b"", [produce.PartitionProduceData(0, bytes(records))])
        request = produce.ProduceRequest("t", -1, 10_000, [data])
        while True:
            answer = await self.ask(produce.API, 12, request)
            error = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            if error not in RETRIED:
                return error
            await asyncio.sleep(0.05)

    async def end_once(self, pair: Pair, *, commit: bool = True, version: int = 5) -> Any:
        return await self.ask(end_txn.API, version, end_txn.EndTxnRequest("t", *pair, commit))

    async def end(self, pair: Pair, *, commit: bool = True) -> tuple[ErrorCode, Pair]:
        """Ask until the markers are written."""
        while True:
            answer = await self.end_once(pair, commit=commit)
            if answer.error_code not in RETRIED:
                pair = Pair(answer.producer_id, answer.producer_epoch)
                return ErrorCode(answer.error_code), pair
            await asyncio.sleep(0.05)

    async def state(self) -> str:
        request = describe_transactions.DescribeTransactionsRequest(["t"])
        answer = await self.ask(describe_transactions.API, 0, request)
        (told,) = answer.transaction_states
        return str(told.transaction_state)

    async def until_state(self, state: str) -> None:
        for _ in range(1_000):
            if await self.state() == state:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"it is never {state}")

    async def read(self) -> Read:
        """What a consumer with read_committed gets, and whose records it leaves out."""
        read, offset = Read([], [], 1, 0), 0
        while offset < read.stable_offset:
            partition = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1_000_000)
            request = fetch.FetchRequest(
                isolation_level=1, topics=[fetch.FetchTopic("t", partitions=[partition])]
            )
            answer = await self.ask(fetch.API, 12, request)
            told = answer.responses[0].partitions[0]
            assert told.error_code == NONE
            read = read._replace(
                stable_offset=told.last_stable_offset, high_watermark=told.high_watermark
            )
            for aborted in told.aborted_transactions or ():
                if aborted.producer_id not in read.aborted:
                    read.aborted.append(aborted.producer_id)
            for position, header in batches(told.records or b""):
                offset = header.last_offset + 1
                if not header.is_control:
                    batch = told.records[position : position + header.size_bytes]
                    read.values.extend(record.value for record in decode(batch))
        return read


RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,  # the topic of coordinators is made
)


@gives("client")
def with_client(scenario: Scenario) -> None:
    async def whole(machine: OneNode, world: World) -> None:
        connection = await KafkaConnection.open(world.network, HOST, 9092, client_id="c")
        creation = create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic("t", 1, 1)], timeout_ms=5000
        )
        await connection.request(create_topics.API, 7, creation, timeout_s=10)
        await scenario(Client(connection))
        connection.close()

    on_a_node.run(whole)


@with_client
async def test_two_producers_with_one_transactional_id(client: Client) -> None:
    first = await client.begin()
    assert await client.send(first, b"lost") is NONE
    second = await client.begin()
    assert second.producer_epoch > first.producer_epoch
    assert await client.send(first, b"late", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await client.end(first))[0] is ErrorCode.PRODUCER_FENCED
    assert (await client.end(first, commit=False))[0] is ErrorCode.PRODUCER_FENCED
    assert (await client.init(first)).error_code == ErrorCode.PRODUCER_FENCED
    assert await client.send(second, b"kept") is NONE
    assert await client.send(first, b"late", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await client.end(second))[0] is NONE
    await client.until_state("CompleteCommit")
    read = await client.read()
    assert read.values == [b"lost", b"kept"]  # the client leaves the aborted one out
    assert read.aborted == [first.producer_id]
    assert read.stable_offset == read.high_watermark


@with_client
async def test_an_old_client_gets_an_error_that_it_knows(client: Client) -> None:
    first = await client.begin()
    await client.begin()
    answer = await client.end_once(first, version=1)
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    answer = await client.end_once(first, version=2)
    assert answer.error_code == ErrorCode.PRODUCER_FENCED


@with_client
async def test_wrong_ids_and_epochs(client: Client) -> None:
    pair = await client.begin()
    later = pair._replace(producer_epoch=pair.producer_epoch + 1)
    other = pair._replace(producer_id=pair.producer_id + 1_000_000)
    assert await client.send(later, b"x") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await client.send(other, b"x") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (await client.end(later))[0] is ErrorCode.PRODUCER_FENCED
    assert (await client.end(other))[0] is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert (await client.init(later)).error_code == ErrorCode.PRODUCER_FENCED
    assert await client.state() == "Empty"
    assert (await client.read()).high_watermark == 0


@with_client
async def test_a_transaction_is_ended_twice(client: Client) -> None:
    pair = await client.begin()
    assert await client.send(pair, b"a") is NONE
    error, following = await client.end(pair)
    assert (error, following.producer_epoch) == (NONE, pair.producer_epoch + 1)
    assert await client.end(pair) == (NONE, following)
    assert (await client.end(pair, commit=False))[0] is ErrorCode.INVALID_TXN_STATE
    assert (await client.end(following))[0] is ErrorCode.INVALID_TXN_STATE
    error, after = await client.end(following, commit=False)  # nothing was added
    assert (error, after.producer_epoch) == (NONE, pair.producer_epoch + 2)
    assert (await client.end(pair))[0] is ErrorCode.PRODUCER_FENCED
    assert (await client.read()).values == [b"a"]


@with_client
async def test_a_transaction_is_ended_after_its_time_is_over(client: Client) -> None:
    pair = await client.begin(timeout_ms=1_000)
    assert await client.send(pair, b"late") is NONE
    await client.until_state("CompleteAbort")
    assert (await client.end(pair))[0] is ErrorCode.INVALID_TXN_STATE
    assert await client.send(pair, b"late", 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    error, following = await client.end(pair, commit=False)
    assert (error, following.producer_epoch) == (NONE, pair.producer_epoch + 1)
    assert await client.send(following, b"next") is NONE
    assert (await client.end(following))[0] is NONE
    await client.until_state("CompleteCommit")
    assert (await client.read()).aborted == [pair.producer_id]


@with_client
async def test_a_prepared_transaction_that_nobody_finishes(client: Client) -> None:
    pair = await client.begin(enable2_pc=True, timeout_ms=1_000)
    assert await client.send(pair, b"prepared") is NONE
    await asyncio.sleep(300)
    assert await client.state() == "Ongoing"
    read = await client.read()
    assert (read.stable_offset, read.high_watermark, read.values) == (0, 1, [])
    kept = await client.init(enable2_pc=True, keep_prepared_txn=True)
    assert Pair(kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == pair
    assert await client.send(pair, b"more", 1) is NONE  # its partition is part of it already
    assert (await client.end(pair))[0] is ErrorCode.PRODUCER_FENCED
    back = Pair(kept.producer_id, kept.producer_epoch)
    assert await client.send(back, b"other") is not NONE
    await client.begin()  # to begin without the pair aborts what it prepared
    assert (await client.end(back))[0] is ErrorCode.PRODUCER_FENCED
    read = await client.read()
    assert read.stable_offset == read.high_watermark
    assert read.aborted == [pair.producer_id]


@with_client
async def test_a_prepared_transaction_is_finished_twice(client: Client) -> None:
    pair = await client.begin(enable2_pc=True)
    assert await client.send(pair, b"prepared") is NONE
    kept = await client.init(enable2_pc=True, keep_prepared_txn=True)
    back = Pair(kept.producer_id, kept.producer_epoch)
    error, following = await client.end(back)
    assert error is NONE
    assert await client.end(back) == (NONE, following)
    assert (await client.end(back, commit=False))[0] is ErrorCode.INVALID_TXN_STATE
    again = await client.init(enable2_pc=True, keep_prepared_txn=True)
    assert again.ongoing_txn_producer_id == -1
    assert await client.state() == "CompleteCommit"
    newest = Pair(again.producer_id, again.producer_epoch)
    assert await client.end(newest) == (NONE, newest)
    assert (await client.read()).values == [b"prepared"]


@with_client
async def test_a_marker_for_nobody(client: Client) -> None:
    """It ends nothing, and its epoch keeps out who is older."""

    pair = await client.begin()
    assert await client.send(pair, b"a") is NONE
    marker = write_txn_markers.WritableTxnMarker(
        pair.producer_id + 1_000_000, 0, True,
        [write_txn_markers.WritableTxnMarkerTopic("t", [0])], 0, 0,
    )  # fmt: skip
    await client.ask(write_txn_markers.API, 1, write_txn_markers.WriteTxnMarkersRequest([marker]))
    assert (await client.read()).stable_offset == 0
    assert (await client.end(pair))[0] is NONE
    await client.until_state("CompleteCommit")
    assert (await client.read()).values == [b"a"]
