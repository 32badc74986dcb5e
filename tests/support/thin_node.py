"""One simulated node, and what tests of thin clients do on it as ordinary clients."""

from __future__ import annotations

from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Consumer
from stele.config import ClientWorld
from stele.records import ConsumerRecord
from tests.support.one_node import HOST
from world.world import World

BOOTSTRAP = f"{HOST}:9092"


def client_world(world: World) -> ClientWorld:
    return ClientWorld(world.clock, world.network, world.rng)


async def create(world: World, name: str = "t", partitions: int = 3, **configs: str) -> None:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    async with Admin(BOOTSTRAP, world=client_world(world)) as admin:
        await admin.create_topics([NewTopic(name, partitions, 1, settings)])


async def remove(world: World, name: str = "t") -> None:
    async with Admin(BOOTSTRAP, world=client_world(world)) as admin:
        await admin.delete_topics([name])


async def read(world: World, name: str = "t", partitions: int = 3) -> list[ConsumerRecord]:
    """All records of a topic, by partition and offset."""
    options = {"auto_offset_reset": "earliest"}
    async with Consumer(BOOTSTRAP, world=client_world(world), **options) as consumer:  # type: ignore[arg-type]
        names = [(name, number) for number in range(partitions)]
        ends = await consumer.end_offsets(names)
        consumer.assign(names)
        found: list[ConsumerRecord] = []
        while len(found) < sum(ends.values()):
            found += await consumer.poll()
    return sorted(found, key=lambda each: (each.partition, each.offset))
