"""The work of transactions: transfers between partitions, whose sum stays zero, and copies of them,
each made exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.laws.committed_offsets import CommittedOffsetsStay, Place
from chaos.sim.laws.generations import Partition
from chaos.sim.laws.transactions import TransactionsAreAtomic
from chaos.sim.work.committed_reader import CommittedReader
from chaos.sim.work.group_client import GroupClient
from chaos.sim.work.transactional_process import LostError, Process
from stele.errors import ApiError, ErrorCode

TRANSFERS: Final = "transfers"
COPIES: Final = ("copies", 0)
COPIED: Final = (TRANSFERS, 0)
"""The partition that is copied."""
COPIERS: Final = "copiers"
"""The group that keeps how far it was copied."""


@dataclass(slots=True)
class Transfer:
    """Takes something from one partition and gives it to another one."""

    partitions: list[Partition]
    rng: random.Random
    stall_s: float
    """The longest time that a process stands still in the middle."""

    async def step(self, process: Process) -> bool:
        giver, taker = self.rng.sample(self.partitions, 2)
        for _ in range(self.rng.choice([1, 1, 1, 3])):
            amount = self.rng.randrange(1, 1000)
            await process.write(giver, [f"-{amount}"])
            if self.rng.random() < 0.05:
                await asyncio.sleep(self.rng.uniform(0.0, self.stall_s))
            await process.write(taker, [f"+{amount}", "+0"])
        return self.rng.random() < 0.75


@dataclass(slots=True)
class Copying:
    """Consumes, transforms and produces: each transaction has some records of one partition, made
    into others, and the offset behind them."""

    group: GroupClient
    reader: CommittedReader
    rng: random.Random
    offsets: CommittedOffsetsStay
    _process: int = 0
    """The process that ``_position`` is of."""
    _position: int = 0
    _commits: int = 0

    async def step(self, process: Process) -> bool:
        transaction = process.transaction
        assert transaction is not None
        if process.number != self._process:
            self._position = await self._committed()
            self._process = process.number
        while True:
            read = await self.reader.read(COPIED, self._position)
            if read.records or process.is_done():
                break
            self._position = read.next_offset
            await asyncio.sleep(0.2)
        if not read.records:
            raise LostError("there is nothing to copy any more")
        some = read.records[: self.rng.randint(1, 4)]
        await process.write(COPIES, [f"of {offset}" for offset, _ in some])
        self._position = some[-1][0] + 1
        self._commits += 1
        label = f"copies {self._commits}"
        place = Place(COPIERS, *COPIED)
        change = self.offsets.commit_asked(place, f"{self._position} by {label}")
        transaction.changes.append(change)
        await process.commit_offsets(COPIERS, {COPIED: (self._position, label)})
        if self.rng.random() < 0.8:
            return True
        self._process = 0  # the position is taken back
        return False

    async def _committed(self) -> int:
        began = self.offsets.fetch_asked()
        found = await self.group.fetch([COPIED], require_stable=True)
        if COPIED not in found:
            raise ApiError(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = found[COPIED]
        told = None if committed is None else f"{committed[0]} by {committed[1]}"
        self.offsets.fetched(Place(COPIERS, *COPIED), told, began)
        return 0 if committed is None else committed[0]


@dataclass(slots=True)
class CommittedWatcher:
    """Reads all partitions again and again, and sees only what is committed."""

    reader: CommittedReader
    places: list[Partition]
    atomic: TransactionsAreAtomic
    report: Callable[[str], None]
    counts: Counter[str]
    rng: random.Random
    positions: dict[Partition, int] = field(default_factory=dict)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            place = self.rng.choice(self.places)
            try:
                await self.read(place)
            except (ApiError, OSError):
                self.counts["reads of committed records refused"] += 1
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)

    async def read(self, place: Partition) -> list[tuple[int, bytes]]:
        """What comes next in a partition. Raises ApiError, OSError."""
        read = await self.reader.read(place, self.positions.get(place, 0))
        if read.last_stable_offset > read.high_watermark:
            self.report(f"{place} is stable up to {read.last_stable_offset}, and committed less")
        for offset, value in read.records:
            self.counts["committed records seen"] += 1
            if offset >= read.last_stable_offset:
                self.report(f"{place} {offset} was read, and is not stable yet")
            self.atomic.seen(place, offset, value)
        self.positions[place] = read.next_offset
        return read.records
