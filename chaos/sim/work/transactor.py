"""A transactional producer: one process after the other with the same transactional id. Each may
die or stand still at any point, and may leave a twin that does not know that it was replaced."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from chaos.sim.laws.atomic_transactions import Transaction, TransactionsAreAtomic
from chaos.sim.laws.fenced_producers import FencedProducersWriteNothing
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.transaction_client import ProducerEpoch, TransactionClient
from chaos.sim.work.transactional_process import LostError, Process
from stele.errors import ApiError, ErrorCode

_GHOST_S: Final = 5.0  # so long a twin tries to do something

Step = Callable[[Process], Awaitable[bool]]
"""Writes what belongs to one transaction, which has begun. Returns whether to commit it. Raises
LostError, ApiError, OSError."""


class Bench(NamedTuple):
    """What all transactional producers of a run share."""

    fencing: FencedProducersWriteNothing
    atomic: TransactionsAreAtomic
    report: Callable[[str], None]
    counts: Counter[str]
    is_calm: Callable[[], bool]
    """Nobody dies any more."""
    is_done: Callable[[], bool]


@dataclass(slots=True)
class Transactor:
    """``run`` until all is done. What is open then is left to the coordinator's time-out, but a
    two-phase commit is finished, because it has none."""

    bench: Bench
    new_client: Callable[[], TransactionClient]
    rng: random.Random
    step: Step
    places: list[PartitionName]
    """Where a twin may write."""
    timeout_ms: int
    haste: random.Random
    """What old clients draw that do not wait for their last batch."""
    two_phase: bool = False
    process: Process = field(init=False)
    _numbers: int = 0
    _open: list[Transaction] = field(default_factory=list)
    """Transactions of former processes that may still be open, the last one at the end."""
    _ghosts: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._be_new()

    @property
    def transactional_id(self) -> str:
        return self.process.transactional_id

    async def run(self, pause_s: float) -> None:
        while not self._may_end():
            try:
                if self.process.producer.producer_id < 0:
                    await self._begin()
                else:
                    await self._transact()
            except LostError:
                self._be_new()
            except (ApiError, OSError):
                self.bench.counts["transactional requests without an answer"] += 1
                if self.process.transaction is not None:
                    self._be_new()
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
        self.process.client.connections.close()

    def _may_end(self) -> bool:
        if not self.bench.is_done():
            return False
        return not self.two_phase or not (self._open or self.process.transaction)

    def _be_new(self) -> None:
        if self._numbers and self.process.transaction is not None:
            self._open.append(self.process.transaction)
        self._numbers += 1
        bench = self.bench
        self.process = Process(
            self._numbers,
            self.new_client(),
            bench.fencing,
            bench.atomic,
            bench.counts,
            (lambda: False) if self.two_phase else bench.is_done,
        )

    # ------------------------------------------------------------------------- beginning

    async def _begin(self) -> None:
        """Take over the transactional id. A twin of a former process may act meanwhile."""
        if self._ghosts and self.rng.random() < 0.5:
            both = self._init(), self._haunt(self._ghosts.pop())
            began, _ = await asyncio.gather(*both, return_exceptions=True)
            if began is not None:
                raise began
        else:
            await self._init()

    async def _init(self) -> None:
        process = self.process
        answer = await process.client.init(
            self.timeout_ms, two_phase=self.two_phase, keep_prepared=self.two_phase
        )
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            self.bench.counts[f"InitProducerId refused: {error.name}"] += 1
            return
        self.bench.counts["processes of transactional producers"] += 1
        kept = self._kept() if answer.ongoing_txn_producer_id >= 0 else None
        self.bench.fencing.began(
            self.transactional_id, process.number, kept=None if kept is None else kept.name
        )
        for each in self._open:
            if each is not kept:
                self._was_not_kept(each)
        self._open.clear()
        process.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        if kept is not None:
            # Another process decides, which knows only whether the transaction is prepared.
            self.bench.counts["prepared transactions finished by others"] += 1
            process.transaction = kept
            if self._ghosts and self.rng.random() < 0.5:
                await self._haunt(self._ghosts.pop())
            await process.end(commit=self.rng.random() < 0.7 and kept.is_prepared)

    def _kept(self) -> Transaction | None:
        if not self._open:
            self.bench.report(
                f"{self.transactional_id} has an open transaction, and nobody has begun one"
            )
            return None
        return self._open[-1]

    def _was_not_kept(self, transaction: Transaction) -> None:
        if self.two_phase and transaction.written and not transaction.end_asked:
            self.bench.report(f"{transaction.name} was prepared, is gone, and nobody has ended it")
        self.bench.atomic.replaced(transaction)

    # ------------------------------------------------------------------------- transactions

    async def _transact(self) -> None:
        process = self.process
        transaction = process.begin()
        if process.client.is_old and self.haste.random() < 0.3:
            fresh = [each for each in self.places if each not in process.sequences]
            place = self.haste.choice(fresh or self.places)
            await process.abort_hastily(place, self.haste.uniform(0.0, 0.02))
            return
        commit = await self.step(process)
        transaction.is_prepared = True
        if self._ghosts and self.rng.random() < 0.7:
            await self._haunt(self._ghosts.pop())
        lot = 1.0 if self.bench.is_calm() else self.rng.random()
        if lot < 0.2:
            self._die()
            return
        if lot < 0.27:
            self.bench.counts["transactional producers stood still"] += 1
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * self.timeout_ms / 1000)
        await process.end(commit=commit)
        if not self.bench.is_calm() and self.rng.random() < 0.1:
            self._die()

    def _die(self) -> None:
        """Its twin may go on with the transaction, or with the next one."""
        self.bench.counts["transactional producers died"] += 1
        if self.rng.random() < 0.7:
            self._ghosts.append(self.process)
        self._be_new()

    async def _haunt(self, ghost: Process) -> None:
        """Let a twin write once more, or end its transaction, or both."""
        if ghost.transaction is None:
            transaction = ghost.begin()
            if not self.bench.fencing.is_fenced(self.transactional_id, ghost.number):
                self._open.append(transaction)
        for writes in self.rng.choice([[True], [False], [True, False]]):
            try:
                async with asyncio.timeout(_GHOST_S):
                    if writes:
                        await ghost.write(self.rng.choice(self.places), ["+0"])
                    else:
                        await ghost.end(commit=self.rng.random() < 0.6)
            except LostError:
                self.bench.counts["twins refused"] += 1
            except OSError:
                self.bench.counts["transactional requests without an answer"] += 1
        ghost.client.connections.close()
