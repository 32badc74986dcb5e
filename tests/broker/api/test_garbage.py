"""A request is freed as soon as it is answered.

A cycle of references would keep it, and the records that it carries, until the cyclic collector
runs: after hundreds of requests, in a pause of milliseconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from broker.api import SERVED
from broker.api.handler import Served
from stele.aio import Consumer, Producer
from tests.broker.api.test_answers_like_kafka import TOPIC, request_of
from tests.support.broker_apis import Edges
from tests.support.garbage import cyclic_garbage
from tests.support.one_node import on_a_node
from tests.support.thin_node import BOOTSTRAP, client_world, create
from tests.support.worlds import virtual
from world.world import World

REQUESTS = 3
SMALL_AND_REFUSED = {
    "DescribeAclsRequest",
    "CreateDelegationTokenRequest",
    "RenewDelegationTokenRequest",
    "ExpireDelegationTokenRequest",
    "DescribeDelegationTokenRequest",
}


def of_requests(found: Counter[str]) -> dict[str, int]:
    return {
        name: count
        for name, count in found.items()
        if name.startswith(("stele.wire.", "runtime.kafka.", "broker."))
        and count >= REQUESTS
        # Handlers that word a refusal themselves leave its error, and that keeps their arguments.
        and name.rpartition(".")[2] not in SMALL_AND_REFUSED
    }


@pytest.mark.parametrize("served", SERVED, ids=lambda each: each.api.key.name)
@virtual
async def test_an_answered_request_leaves_no_cycle(served: Served) -> None:
    edges = Edges()
    edges.add_topic(TOPIC, [[1]])
    client = edges.client()
    version = served.versions[1]

    async def ask() -> None:
        await client.call(served.api, version, request_of(served.api.key.name))

    await ask()
    with cyclic_garbage() as found:
        for _ in range(REQUESTS):
            await ask()
        await asyncio.sleep(0)
    assert of_requests(found) == {}


@on_a_node
async def test_nor_do_the_requests_of_a_group_that_reads_what_is_written(world: World) -> None:
    await create(world)
    own = client_world(world)
    async with (
        Producer(BOOTSTRAP, world=own) as producer,
        Consumer(BOOTSTRAP, world=own, group_id="g") as consumer,
    ):
        consumer.subscribe(["t"])

        async def use() -> None:
            await producer.send("t", b"value")
            while not await consumer.poll():
                pass
            await consumer.commit()

        await consumer.poll()
        await use()
        with cyclic_garbage() as found:
            for _ in range(REQUESTS):
                await use()
    assert of_requests(found) == {}
