"""Transactions of the Python client against one simulated node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.admin.features import SAFE_DOWNGRADE
from stele.aio import Consumer, Producer
from stele.errors import (
    ConfigError,
    ErrorCode,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFatalError,
)
from stele.producer.transaction_state import PreparedTransaction
from tests.support.consumer_groups import Clients, read, until, with_clients

PARTITIONS = 4


def transactional(clients: Clients, transactional_id: str = "tx", **options: Any) -> Producer:
    return clients.producer(transactional_id=transactional_id, **options)


async def committed(clients: Clients, name: str = "t", *, count: int) -> list[bytes]:
    """The values of all committed records, by partition. There must be ``count`` of them."""
    options = {"group_id": None, "isolation_level": "read_committed"}
    async with clients.consumer(**options) as consumer:
        numbers = await consumer.partitions_for(name)
        consumer.assign([(name, each) for each in numbers])
        found = await read(consumer, count) if count else []
        for each in consumer.assignment():  # nothing more is there, or held back
            ends = await consumer.end_offsets([each])
            await until(lambda at=each, end=ends[each]: _is_at(consumer, at, end), consumer)  # type: ignore[misc]
        found += await consumer.poll(timeout_ms=10)
    assert len(found) == count
    found.sort(key=lambda record: (record.partition, record.offset))
    return [each.value or b"" for each in found]


def _is_at(consumer: Consumer, place: tuple[str, int], end: int) -> bool:
    position = consumer.known_position(*place)
    return position is not None and position >= end


async def send(producer: Producer, *values: bytes, topic: str = "t") -> None:
    for number, value in enumerate(values):
        await producer.send(topic, value, partition=number % PARTITIONS)


@with_clients
async def test_committed_transactions_are_read_and_aborted_ones_are_not(clients: Clients) -> None:
    await clients.create()
    async with transactional(clients) as producer:
        for number in range(3):
            async with producer.transaction():
                await send(producer, *[b"%d" % number] * PARTITIONS)
            await producer.begin_transaction()
            await send(producer, *[b"no"] * PARTITIONS)
            await producer.flush()
            await producer.abort_transaction()
        assert await committed(clients, count=12) == [b"0", b"1", b"2"] * PARTITIONS


@with_clients
async def test_what_is_open_is_held_back(clients: Clients) -> None:
    await clients.create()
    async with (
        transactional(clients) as producer,
        clients.consumer(group_id=None, isolation_level="read_committed") as consumer,
    ):
        consumer.assign([("t", 0)])
        await producer.begin_transaction()
        await producer.send("t", b"open", partition=0)
        await producer.flush()
        await clients.fill(1)
        assert await consumer.poll(timeout_ms=700) == []
        assert "at the last stable offset, 0: an open transaction" in consumer.why()["t", 0]  # type: ignore[index]
        assert await consumer.end_offsets([("t", 0)]) == {("t", 0): 0}
        await producer.commit_transaction()
        assert [each.value for each in await read(consumer, 2)] == [b"open", b"0"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@with_clients
async def test_consume_transform_produce(clients: Clients, protocol: str) -> None:
    await clients.create()
    await clients.create("out")
    await clients.fill(40)
    options: dict[str, Any] = {
        "isolation_level": "read_committed",
        "enable_auto_commit": False,
        "max_poll_records": 7,
    }
    aborts = 0
    async with clients.consumer(**options) as consumer, transactional(clients) as producer:
        consumer.subscribe(["t"])
        done = 0
        while done < 40:
            records = await consumer.poll(timeout_ms=200)
            if not records:
                continue
            await producer.begin_transaction()
            for record in records:
                await producer.send("out", record.value, partition=record.partition)
            await producer.send_offsets(consumer)
            if aborts < 3:
                aborts += 1
                await producer.abort_transaction()
                consumer.seek_to_committed()
            else:
                await producer.commit_transaction()
                done += len(records)
        places = [("t", each) for each in range(PARTITIONS)]
        offsets = await consumer.committed(places)
        assert [each.offset for each in offsets.values() if each] == [10] * PARTITIONS
    values = await committed(clients, "out", count=40)
    assert sorted(map(int, values)) == list(range(40))


@with_clients
async def test_offsets_of_an_older_generation_are_refused(clients: Clients) -> None:
    await clients.create()
    await clients.fill(8)
    options: dict[str, Any] = {"enable_auto_commit": False}
    async with (
        clients.consumer(**options) as first,
        clients.consumer(**options) as second,
        transactional(clients) as producer,
    ):
        first.subscribe(["t"])
        await read(first, 8)
        zombie, consumed = first.group_metadata(), first.consumed_offsets()
        second.subscribe(["t"])
        await until(lambda: len(second.assignment()) == 2, first, second)
        await producer.begin_transaction()
        await send(producer, b"lost")
        with pytest.raises(TransactionAbortableError, match="gone on without this member"):
            await producer.send_group_offsets(zombie, consumed)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_offsets(first)
        offsets = await first.committed(first.assignment())
        consumed = first.consumed_offsets()
        assert offsets == {name: consumed[name]._replace(topic_id=b"") for name in consumed}
        assert len(offsets) == 2
    async with clients.consumer() as commits_by_itself, transactional(clients) as producer:
        await producer.begin_transaction()
        with pytest.raises(ConfigError, match="enable_auto_commit=False"):
            await producer.send_offsets(commits_by_itself)


@with_clients
async def test_a_second_producer_takes_over(clients: Clients) -> None:
    await clients.create()
    first, second = transactional(clients), transactional(clients)
    await first.begin_transaction()
    await send(first, b"lost", b"lost")
    await first.flush()
    async with second.transaction():
        await send(second, b"kept")
    with pytest.raises(ProducerFencedError):
        await first.commit_transaction()
    await first.close()
    await second.close()
    assert await committed(clients, count=1) == [b"kept"]


@with_clients
async def test_a_transaction_that_takes_too_long_is_aborted(clients: Clients) -> None:
    await clients.create()
    producer = transactional(clients, transaction_timeout_ms=1_000)
    await producer.begin_transaction()
    await send(producer, b"lost")
    await producer.flush()
    await asyncio.sleep(3)
    assert await committed(clients, count=0) == []
    with pytest.raises(TransactionAbortableError, match="INVALID_TXN_STATE"):
        await producer.commit_transaction()
    await producer.abort_transaction()
    async with producer.transaction():  # it goes on (KIP-360)
        await send(producer, b"kept")
    await producer.close()
    assert await committed(clients, count=1) == [b"kept"]


@with_clients
async def test_a_refused_record_costs_the_transaction_and_not_the_producer(
    clients: Clients,
) -> None:
    await clients.create()
    await clients.create("small", 1, **{"max.message.bytes": "300"})
    async with transactional(clients) as producer:
        await producer.begin_transaction()
        await send(producer, b"lost")
        await producer.send("small", bytes(2_000), partition=0)
        with pytest.raises(TransactionAbortableError, match=r"max\.message\.bytes"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await send(producer, b"kept")
    assert await committed(clients, count=1) == [b"kept"]


@with_clients
async def test_a_prepared_transaction_is_ended_by_another_process(clients: Clients) -> None:
    await clients.create()
    options: dict[str, Any] = {"transaction_two_phase_commit_enable": True}
    texts = []
    for number in range(2):
        producer = transactional(clients, f"tx-{number}", **options)
        await producer.begin_transaction()
        await send(producer, b"from %d" % number)
        texts.append(str(await producer.prepare_transaction()))
        await producer.abort()  # the process dies
    await asyncio.sleep(120)  # beyond any time-out of other transactions
    for _ in range(2):  # the decision is repeated
        async with transactional(clients, "tx-0", **options) as other:
            await other.complete_transaction(PreparedTransaction.parse(texts[0]))
        async with transactional(clients, "tx-1", **options) as other:
            await other.abort_prepared()
    assert await committed(clients, count=1) == [b"from 0"]


@with_clients
async def test_many_prepared_transactions_are_committed_over_one_view(clients: Clients) -> None:
    """One of them was ended before, and one was taken over and aborted. The others are committed
    all the same, and asking again does no harm."""
    await clients.create()
    options: dict[str, Any] = {"transaction_two_phase_commit_enable": True}
    prepared = {}
    for number in range(20):
        producer = transactional(clients, f"tx-{number}", **options)
        await producer.begin_transaction()
        await send(producer, b"from %d" % number)
        prepared[f"tx-{number}"] = await producer.prepare_transaction()
        await producer.abort()  # the process dies
    async with transactional(clients, "tx-3", **options) as other:
        await other.complete_transaction(prepared["tx-3"])
    async with clients.admin() as admin:
        await admin.fence_producer("tx-7")
    ending = clients.prepared()
    for _ in range(2):
        await ending.commit(prepared)
    await ending.close()
    values = {b"from %d" % number for number in range(20)} - {b"from 7"}
    assert set(await committed(clients, count=19)) == values


@with_clients
async def test_a_prepared_transaction_that_cannot_be_committed_stops_no_other(
    clients: Clients,
) -> None:
    await clients.create()
    producer = transactional(clients, "tx", transaction_two_phase_commit_enable=True)
    await producer.begin_transaction()
    await send(producer, b"kept")
    name = await producer.prepare_transaction()
    await producer.abort()
    ending = clients.prepared(max_block_ms=2_000)
    with pytest.raises(ConfigError, match="transactional_id=''"):
        await ending.commit({"": name, "tx": name})
    await ending.close()
    assert await committed(clients, count=1) == [b"kept"]


@with_clients(transaction_two_phase_commit_enable="false")
async def test_two_phase_commits_may_be_forbidden(clients: Clients) -> None:
    producer = transactional(clients, transaction_two_phase_commit_enable=True)
    setting = "transaction.two.phase.commit.enable=true on the brokers"
    with pytest.raises(TransactionFatalError, match=setting) as error:
        await producer.begin_transaction()
    assert error.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    await producer.close()


@with_clients
async def test_administration(clients: Clients) -> None:
    await clients.create()
    async with transactional(clients) as producer, clients.admin() as admin:
        await producer.begin_transaction()
        await send(producer, b"one", b"two")
        await producer.flush()
        (listed,) = await admin.list_transactions(states=["Ongoing"])
        (described,) = await admin.describe_transactions(["tx"])
        assert listed.producer_id == described.producer_id
        assert [each.partition for each in described.partitions] == [0, 1]
        assert described.start_time_ms is not None
        places = [("t", each) for each in range(3)]
        known = await admin.describe_producers(places)
        starts = [[each.transaction_start_offset for each in known[p]] for p in known]
        assert starts == [[0], [0], []]
        assert await admin.find_hanging_transactions(places, longest_transaction_ms=0) == []
        await admin.fence_producer("tx")
        assert await committed(clients, count=0) == []
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
        (described,) = await admin.describe_transactions(["tx"])
        assert described.partitions == ()


@with_clients
async def test_levels_of_transaction_version(clients: Clients) -> None:
    """At an old level the epoch stays from one transaction to the next."""

    await clients.create()
    async with clients.admin() as admin:
        await admin.update_features({"transaction.version": 0}, SAFE_DOWNGRADE)
    async with transactional(clients) as producer:
        for number in range(3):
            async with producer.transaction():
                await send(producer, *[b"%d" % number] * PARTITIONS)
            await producer.begin_transaction()
            await send(producer, *[b"no"] * PARTITIONS)
            await producer.abort_transaction()
        assert await committed(clients, count=12) == [b"0", b"1", b"2"] * PARTITIONS


@with_clients
async def test_offsets_of_a_topic_that_was_made_anew_abort_the_transaction(
    clients: Clients,
) -> None:
    await clients.create(partitions=1)
    await clients.fill(3, partitions=1)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await read(consumer, 3)
        async with clients.admin() as admin:
            await admin.delete_topics(["t"])
        await clients.create(partitions=1)
        async with transactional(clients) as producer:
            await producer.begin_transaction()
            with pytest.raises(TransactionAbortableError, match="was deleted"):
                await producer.send_offsets(consumer)
            await producer.abort_transaction()
