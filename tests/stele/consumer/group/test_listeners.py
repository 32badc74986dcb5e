"""What a rebalance listener may do, and subscriptions that change, against one simulated node."""

from __future__ import annotations

import pytest

from stele.consumer.group.listener import RebalanceListener
from stele.ids import TopicPartition
from tests.support.consumer_groups import Clients, numbers, partitions, read, until, with_clients

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@both_protocols
@with_clients
async def test_a_listener_cannot_close_its_consumer(clients: Clients, protocol: str) -> None:
    """Closing waits for the poll, and the poll for the listener."""
    await clients.create()
    await clients.fill(4)
    refused: list[str] = []
    consumer = clients.consumer()

    async def close(names: list[TopicPartition]) -> None:
        with pytest.raises(RuntimeError) as failure:
            await consumer.close()
        refused.append(str(failure.value))

    consumer.subscribe(["t"], listener=RebalanceListener(on_partitions_assigned=close))
    assert numbers(await read(consumer, 4)) == list(range(4)), "it is open"
    assert set(refused) == {"a rebalance listener cannot close its consumer"}
    await consumer.close()


@both_protocols
@with_clients
async def test_a_listener_that_has_polled_cannot_close_its_consumer_either(
    clients: Clients, protocol: str
) -> None:
    await clients.create()
    refused: list[str] = []
    consumer = clients.consumer()

    async def poll_and_close(names: list[TopicPartition]) -> None:
        await consumer.poll(timeout_ms=0)
        with pytest.raises(RuntimeError) as failure:
            await consumer.close()
        refused.append(str(failure.value))

    consumer.subscribe(["t"], listener=RebalanceListener(on_partitions_assigned=poll_and_close))
    await until(lambda: bool(refused), consumer)
    await consumer.close()


@both_protocols
@with_clients
async def test_a_poll_goes_on_after_a_poll_of_the_listener(clients: Clients, protocol: str) -> None:
    """The application polls all the time, so max_poll_interval_ms never ends."""
    await clients.create()
    consumer = clients.consumer(max_poll_interval_ms=20_000)

    async def poll(names: list[TopicPartition]) -> None:
        await consumer.poll(timeout_ms=0)

    consumer.subscribe(["t"], listener=RebalanceListener(on_partitions_assigned=poll))
    assert await consumer.poll(timeout_ms=60_000) == []
    assert consumer.assignment() == partitions(0, 1, 2, 3)
    await consumer.commit({("t", 0): 0})
    assert not [each for each in clients.waits if "max_poll_interval_ms" in each]
    await consumer.close()


@both_protocols
@with_clients
async def test_a_listener_that_polls_gets_records_and_no_second_rebalance(
    clients: Clients, protocol: str
) -> None:
    await clients.create()
    calls: list[str] = []
    first, second = clients.consumer(), clients.consumer()

    async def revoked(names: list[TopicPartition]) -> None:
        calls.append("begins")
        assert await first.poll(timeout_ms=100) == []
        calls.append("ends")

    first.subscribe(["t"], listener=RebalanceListener(on_partitions_revoked=revoked))
    await until(lambda: len(first.assignment()) == 4, first)
    second.subscribe(["t"])
    await until(lambda: len(second.assignment()) == 2, first, second)
    assert calls == ["begins", "ends"]
    await first.close()
    await second.close()


@both_protocols
@with_clients
async def test_a_member_may_subscribe_to_other_topics(clients: Clients, protocol: str) -> None:
    await clients.create("t", 1)
    await clients.create("u", 1)
    async with clients.consumer() as consumer:
        consumer.subscribe(["t"])
        await until(lambda: consumer.assignment() == partitions(0), consumer)
        consumer.subscribe(["u"])
        await until(lambda: consumer.assignment() == partitions(0, topic="u"), consumer)


@both_protocols
@with_clients
async def test_a_member_that_unsubscribes_has_left_its_group(
    clients: Clients, protocol: str
) -> None:
    await clients.create("t", 1)
    await clients.fill(3, partitions=1)
    async with clients.consumer() as consumer, clients.admin() as admin:
        consumer.subscribe(["t"])
        assert numbers(await read(consumer, 3)) == [0, 1, 2]
        await consumer.unsubscribe()
        assert consumer.assignment() == []
        (group,) = await admin.describe_groups(["readers"])
        assert not group.members
        committed = await consumer.committed(partitions(0))
        assert [each and each.offset for each in committed.values()] == [3]
        consumer.assign(partitions(0))
        await consumer.commit({("t", 0): 0})
        committed = await consumer.committed(partitions(0))
        assert [each and each.offset for each in committed.values()] == [0]
