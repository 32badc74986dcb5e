"""The work of transactions: transfers between partitions, whose sum stays zero, and copies of them,
each made exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.laws.atomic_transactions import RISKY, TransactionsAreAtomic
from chaos.sim.laws.committed_offsets import CommittedOffsetsStay, Place
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.committed_reader import CommittedReader
from chaos.sim.work.seat import Seat
from chaos.sim.work.transactional_process import LostError, Process
from stele.errors import ApiError, ErrorCode

TRANSFERS: Final = "transfers"
COPIES: Final = ("copies", 0)
COPIED: Final = [(TRANSFERS, 0), (TRANSFERS, 1)]
"""The partitions that are copied."""
COPIERS: Final = "copiers"
"""The group of the copying clients. Its offsets say how far they have copied."""


@dataclass(slots=True)
class Transfer:
    """Takes something from one partition and gives it to another one."""

    partitions: list[PartitionName]
    rng: random.Random
    stall_s: float
    """The longest time that a process stands still in the middle."""
    risks: bool = False
    """Now and then it writes to ``RISKY``, too."""

    async def step(self, process: Process) -> bool:
        giver, taker = self.rng.sample(self.partitions, 2)
        for _ in range(self.rng.choice([1, 1, 1, 3])):
            amount = self.rng.randrange(1, 1000)
            await process.write(giver, [f"-{amount}"])
            if self.rng.random() < 0.05:
                await asyncio.sleep(self.rng.uniform(0.0, self.stall_s))
            await process.write(taker, [f"+{amount}", "+0"])
            if self.risks and self.rng.random() < 0.5:
                await process.write(RISKY, ["+0"])
        return self.rng.random() < 0.75


@dataclass(slots=True)
class Copying:
    """Consumes, transforms and produces: each transaction has some records of one partition, made
    into others, and the offset behind them."""

    seat: Seat
    reader: CommittedReader
    rng: random.Random
    offsets: CommittedOffsetsStay
    label: Iterator[str]
    """The names of commits."""
    _process: int = 0
    """The process that ``_positions`` are of."""
    _positions: dict[PartitionName, int] = field(default_factory=dict)
    """The positions in the partitions that it owns; empty if they are not known."""

    async def step(self, process: Process) -> bool:
        transaction = process.transaction
        assert transaction is not None
        if process.number != self._process:
            self._process = process.number
            self._positions = {}
            if self.rng.random() < 0.5:
                self.seat.leave()
        source, records = await self._read(process)
        some = records[: self.rng.randint(1, 4)]
        member = self.seat.me
        await process.write(COPIES, [f"of {source[1]} {offset}" for offset, _ in some])
        lot = self.rng.random()
        if lot < 0.05:
            await self._tarry()
        position, label = some[-1][0] + 1, next(self.label)
        change = self.offsets.commit_asked(Place(COPIERS, *source), f"{position} by {label}")
        transaction.changes.append(change)

        async def commit() -> ErrorCode:
            was_over = self.seat.is_over
            error = await process.client.commit_offsets(
                process.producer, COPIERS, {source: (position, label)}, member
            )
            self.seat.told(error, "offsets of a transaction", was_over=was_over)
            return error

        await process.commit_offsets(COPIERS, commit)
        if lot > 0.9:
            await self._tarry()
        if self.rng.random() < 0.8:
            self._positions[source] = position
            return True
        self._positions = {}  # they are taken back
        return False

    async def _tarry(self) -> None:
        """Somebody else may own the partition then."""
        await asyncio.sleep(self.rng.uniform(0.0, 4.0))

    async def _read(self, process: Process) -> tuple[PartitionName, list[tuple[int, bytes]]]:
        """Committed records of a partition that it owns. Raises LostError: it is over."""
        while not process.is_done():
            if not await self.seat.keep():
                self._positions = {}
            if self.seat.partitions and not self._positions:
                self._positions = await self._committed(self.seat.partitions)
            for source, position in self._positions.items():
                read = await self.reader.read(source, position)
                if read.records:
                    return source, read.records
                self._positions[source] = read.next_offset
            await asyncio.sleep(0.2)
        raise LostError("there is nothing to copy any more")

    async def _committed(self, partitions: list[PartitionName]) -> dict[PartitionName, int]:
        began = self.offsets.fetch_asked()
        found = await self.seat.client.fetch(partitions, require_stable=True)
        if len(found) < len(partitions):
            raise ApiError(ErrorCode.UNSTABLE_OFFSET_COMMIT)
        positions = {}
        for partition, committed in found.items():
            told = None if committed is None else f"{committed[0]} by {committed[1]}"
            self.offsets.fetched(Place(COPIERS, *partition), told, began)
            positions[partition] = 0 if committed is None else committed[0]
        return positions


@dataclass(slots=True)
class CommittedWatcher:
    """Reads all partitions again and again, and sees only what is committed."""

    reader: CommittedReader
    places: list[PartitionName]
    atomic: TransactionsAreAtomic
    report: Callable[[str], None]
    counts: Counter[str]
    rng: random.Random
    positions: dict[PartitionName, int] = field(default_factory=dict)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            place = self.rng.choice(self.places)
            try:
                await self.read(place)
            except (ApiError, OSError) as error:
                self.counts["reads of committed records refused"] += 1
                if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self.positions.pop(place, None)
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)

    async def read(self, place: PartitionName) -> list[tuple[int, bytes]]:
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
