"""Producers: exactly once, plainly with acks=all, and weakly with acks=1."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from chaos.sim.work.site import EXACT, PATIENCE_S, PLAIN, WEAK, Site
from chaos.sim.work.work import Work
from stele.errors import ApiError


class Producers(Work):
    name = "producers"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._rng = site.rngs.of("workload")

    def start(self) -> list[Coroutine[Any, Any, None]]:
        load = self.site.load
        work = [self._produce_exactly_once(n) for n in range(load.exact_producers)]
        work += [self._write_plainly(n) for n in range(load.plain_writers)]
        work += [self._write_weakly(n) for n in range(load.weak_writers)]
        return work

    async def _produce_exactly_once(self, producer_number: int) -> None:
        site = self.site
        producer = site.patient_producer()
        number = 0
        while not site.is_done():
            partition = self._rng.randrange(site.load.partitions)
            sent = []
            for _ in range(site.load.batch_records):
                number += 1
                value = b"<e%d-%d>" % (producer_number, number)
                sent.append((value, await producer.send(EXACT, value, partition=partition)))
            for value, delivery in sent:
                told = await delivery
                if told.offset >= 0:
                    site.promise(EXACT, told.partition, told.offset, value)
            await site.pause(self._rng, site.load.exact_pause_s)
        await producer.close()

    async def _write_plainly(self, writer: int) -> None:
        site = self.site
        number = 0
        while not site.is_done():
            number += 1
            partition = self._rng.randrange(site.load.partitions)
            await site.client.produce_until_acknowledged(
                PLAIN, b"<p%d-%d>" % (writer, number), partition=partition, give_up_s=PATIENCE_S
            )
            site.promise(*site.client.acknowledged[-1])
            await site.pause(self._rng, site.load.plain_pause_s)

    async def _write_weakly(self, writer: int) -> None:
        """Write with acks=1: the record is on the leader's disk, but may get lost with it."""
        site = self.site
        number = 0
        while not site.is_done():
            number += 1
            partition = self._rng.randrange(site.load.partitions)
            value = b"<w%d-%d>" % (writer, number)
            try:
                leader = await site.client.find_leader(WEAK, partition)
                epoch = self._epoch_led(WEAK, partition, leader)
                offset = await site.client.produce(
                    WEAK, value, broker=leader, partition=partition, acks=1, timeout_s=3.0
                )
            except (ApiError, OSError):
                site.history.errors += 1
            else:
                site.history.acknowledged_weakly += 1
                # A deposed leader may have truncated the record already: check only if the broker
                # still leads in the same epoch.
                if epoch is not None and epoch == self._epoch_led(WEAK, partition, leader):
                    site.check_acknowledged(WEAK, partition, offset, value, 1)
            await site.pause(self._rng, site.load.weak_pause_s)

    def _epoch_led(self, topic: str, partition: int, broker: int) -> int | None:
        """The leader epoch by the committed metadata. None if another broker leads, or if no
        established controller knows."""
        cluster = self.site.cluster
        if cluster.established_controller is None:
            return None
        found = cluster.image.topic(topic)
        state = None if found is None else found.partitions[partition]
        return state.leader_epoch if state is not None and state.leader == broker else None
