"""What commits that overlap with polls and with each other leave behind."""

from __future__ import annotations

import asyncio

import pytest

from stele.consumer.consumer import Consumer
from stele.errors import ApiError, CommitFailedError
from tests.support.consumer_groups import Clients, partitions, with_clients
from tests.support.one_node import HOST

ZERO = ("t", 0)


async def committed(consumer: Consumer) -> int | None:
    ((_, found),) = (await consumer.committed([ZERO])).items()
    return found and found.offset


@with_clients
async def test_a_commit_is_of_what_was_returned_before_it_began(clients: Clients) -> None:
    """The next poll returns at once, and nobody has handled its records yet."""
    await clients.create("t", 1)
    await clients.fill(2, partitions=1)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        consumer.assign(partitions(0))
        await consumer.position("t", 0)
        await asyncio.sleep(1)
        assert len(await consumer.poll(1)) == 1
        commit = consumer.commit_async()
        assert len(await consumer.poll(1)) == 1
        await commit
        assert await committed(consumer) == 1


@with_clients
async def test_commits_are_made_in_the_order_in_which_they_begin(clients: Clients) -> None:
    await clients.create("t", 1)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        consumer.assign(partitions(0))
        for first in range(0, 30, 10):
            earlier = consumer.commit_async({ZERO: first})
            cancelled = consumer.commit_async({ZERO: 99})
            cancelled.cancel()
            await consumer.commit({ZERO: first + 1})
            await earlier
            assert await committed(consumer) == first + 1


@with_clients
async def test_a_commit_is_not_overtaken_by_an_automatic_one(clients: Clients) -> None:
    await clients.create("t", 1)
    await clients.fill(2, partitions=1)
    async with clients.consumer(auto_commit_interval_ms=1_000) as consumer:
        consumer.assign(partitions(0))
        assert len(await consumer.poll(1)) == 1
        await asyncio.sleep(2)
        assert len(await consumer.poll(1)) == 1, "it begins to commit what came before"
        await consumer.commit()
        await asyncio.sleep(0.5)
        assert await committed(consumer) == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@with_clients
async def test_who_is_no_member_hears_it_from_the_commit(clients: Clients, protocol: str) -> None:
    await clients.create("t", 1)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        await consumer.commit_async()
        commit = consumer.commit_async({ZERO: 1})
        with pytest.raises(CommitFailedError, match="not a member of group readers now"):
            await commit


@with_clients
async def test_a_commit_that_gives_up_lets_no_later_one_come_first(clients: Clients) -> None:
    """The earliest is still under way. What it commits must not be what is left in the end."""
    await clients.create("t", 1)
    async with clients.consumer(enable_auto_commit=False) as consumer:
        consumer.assign(partitions(0))
        await consumer.commit({ZERO: 1})
        fabric = clients.machine.simulation.fabric
        fabric.cut("client", HOST)
        earliest = consumer.commit_async({ZERO: 2})
        with pytest.raises(ApiError, match="earlier commits have no answer yet"):
            await consumer.commit({ZERO: 3}, timeout_ms=500)
        latest = consumer.commit_async({ZERO: 4})
        await asyncio.sleep(1)
        assert not latest.done()
        fabric.heal()
        await latest
        assert earliest.done()
        assert await committed(consumer) == 4
