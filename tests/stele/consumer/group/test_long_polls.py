"""A poll that waits long goes on with its group as soon as there is something to do."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.consumer_groups import Clients, numbers, partitions, read, until, with_clients

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])
LONG_MS = 300_000
SOON_S = 15.0
"""The session lasts 10 s, and a heartbeat comes each second."""


@both_protocols
@with_clients
async def test_it_takes_its_share_when_the_group_gives_it(clients: Clients, protocol: str) -> None:
    await clients.create("t", 1)
    await clients.fill(3, partitions=1)
    async with clients.consumer() as consumer, asyncio.timeout(SOON_S):
        consumer.subscribe(["t"])
        assert numbers(await consumer.poll(timeout_ms=LONG_MS)) == [0, 1, 2]


@both_protocols
@with_clients
async def test_it_gives_up_what_another_member_is_to_get_and_takes_it_back(
    clients: Clients, protocol: str
) -> None:
    await clients.create("t", 2)
    first, second = clients.consumer(), clients.consumer()
    first.subscribe(["t"])
    await until(lambda: len(first.assignment()) == 2, first)
    polling = asyncio.create_task(first.poll(timeout_ms=LONG_MS))
    second.subscribe(["t"])
    async with asyncio.timeout(SOON_S):
        await until(lambda: len(second.assignment()) == 1, second)
    await asyncio.sleep(1)
    assert len(first.assignment()) == 1
    await clients.fill(2, partitions=2)
    assert len(await read(second, 1)) == len(await polling) == 1
    polling = asyncio.create_task(first.poll(timeout_ms=LONG_MS))
    await second.close()
    await asyncio.sleep(SOON_S)
    assert first.assignment() == partitions(0, 1)
    await clients.fill(2, partitions=2, first=2)
    async with asyncio.timeout(SOON_S):
        found = await polling
        while len(found) < 2:
            found += await first.poll(timeout_ms=LONG_MS)
    assert numbers(found) == [2, 3]
    await first.close()


@both_protocols
@with_clients
async def test_it_takes_partitions_that_are_added(clients: Clients, protocol: str) -> None:
    await clients.create("t", 1)
    async with clients.consumer(metadata_max_age_ms=2_000) as consumer:
        consumer.subscribe(["t"])
        await until(lambda: len(consumer.assignment()) == 1, consumer)
        polling = asyncio.create_task(consumer.poll(timeout_ms=LONG_MS))
        await clients.grow("t", 2)
        await asyncio.sleep(SOON_S)
        assert consumer.assignment() == partitions(0, 1)
        await clients.fill(2, partitions=2)
        async with asyncio.timeout(SOON_S):
            assert await polling
