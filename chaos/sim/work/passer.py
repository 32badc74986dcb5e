"""Transactional producers that come once, write, and are never seen again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from chaos.sim.partition_name import PartitionName
from chaos.sim.work.transaction_client import ProducerEpoch, TransactionClient
from chaos.sim.work.transactional_process import LostError, Process
from chaos.sim.work.transactor import Bench
from stele.errors import ApiError, ErrorCode


@dataclass(slots=True)
class Passer:
    """Each has a transactional id of its own, so nobody but the coordinator ends its transaction,
    when its time is over."""

    name: str
    bench: Bench
    new_client: Callable[[str], TransactionClient]
    rng: random.Random
    places: list[PartitionName]
    timeout_ms: int

    async def run(self, pause_s: float) -> None:
        passed = 0
        while not self.bench.is_calm():
            passed += 1
            client = self.new_client(f"{self.name.replace(' ', '-')}-{passed}")
            try:
                await self._pass(client)
            except (ApiError, OSError, LostError):
                self.bench.counts["passers refused"] += 1
            client.connections.close()
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)

    async def _pass(self, client: TransactionClient) -> None:
        answer = await client.init(self.timeout_ms)
        if answer.error_code != ErrorCode.NONE:
            raise LostError
        bench = self.bench
        process = Process(
            1, client, bench.fencing, bench.atomic, bench.counts, bench.is_calm,
            ProducerEpoch(answer.producer_id, answer.producer_epoch),
        )  # fmt: skip
        process.begin()
        for place in self.rng.sample(self.places, 2):
            await process.write(place, ["+0"])
        bench.counts["transactions left open"] += 1
