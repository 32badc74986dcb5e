"""Records on their way from callers' threads to the loop."""

from __future__ import annotations

import asyncio

from stele.aio import Producer
from stele.producer.arguments import new_record
from stele.sync.delivery import Delivery
from stele.sync.handover import RECORDS_PER_TURN, Handover
from tests.support.sync_clients import InMemory

TURNS = 10


async def test_batches_are_sent_while_a_caller_that_never_pauses_fills_the_buffer() -> None:
    """Lines of a large file come faster than the loop moves them. If one turn moved all of them,
    nothing would be sent before the last one is in a batch."""
    memory = InMemory()
    memory.cluster.create("t")
    async with Producer(memory.cluster.bootstrap_servers, world=memory.world) as producer:
        await producer.partitions_for("t")
        handover = Handover(producer, asyncio.get_running_loop())
        deliveries = [Delivery() for _ in range(TURNS * RECORDS_PER_TURN)]
        for delivery in deliveries:
            record = new_record("t", b"line", None, (), None, None, delivery)
            assert handover.put(record, has_waited=False)
        moving = asyncio.create_task(handover.move())
        turns_of_others = 0
        while not moving.done():
            await asyncio.sleep(0)
            turns_of_others += 1
        assert turns_of_others >= TURNS
        await producer.flush()
        assert all(delivery.done() for delivery in deliveries)
