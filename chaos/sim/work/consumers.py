"""Consumers that read every partition in order, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from stele.aio import Consumer
from stele.records import ConsumerRecord


class Consumers(Work):
    name = "consumers"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._haste = site.rngs.of("haste")

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._consume() for _ in range(self.site.load.consumers)]

    async def _has_all(self, consumer: Consumer, positions: Mapping[tuple[str, int], int]) -> bool:
        """Retention may delete the last records of a partition before the consumer reads them."""
        ends = await consumer.end_offsets(self.site.partitions)
        return all(
            max(positions.get((topic, n), 0), self.site.newest_start_of(topic, n)) >= end
            for (topic, n), end in ends.items()
        )

    async def _consume(self) -> None:
        site = self.site
        consumer = site.consumer()
        consumer.assign(site.partitions)
        positions: dict[tuple[str, int], int] = {}
        while not (site.is_done() and await self._has_all(consumer, positions)):
            for record in await self._poll(consumer):
                place = record.topic, record.partition
                expected = positions.get(place, 0)
                if record.offset != expected and not (
                    expected < record.offset <= site.newest_start_of(*place)
                ):
                    site.report(f"read {place} at {record.offset} instead of {expected}")
                positions[place] = record.offset + 1
                site.read(*place, record.offset, record.value or b"")
        await consumer.close()

    async def _poll(self, consumer: Consumer) -> list[ConsumerRecord]:
        """The application breaks polls off now and then, as signals and timeouts do. The next poll
        must go on where the application is."""
        if self._haste.random() < 0.7:
            return await consumer.poll(timeout_ms=500)
        try:
            async with asyncio.timeout(self._haste.uniform(0.0, 0.3)):
                return await consumer.poll(timeout_ms=500)
        except TimeoutError:
            return []
