"""One process of a transactional producer: it writes and ends one transaction after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.laws.atomic_transactions import Transaction, TransactionsAreAtomic
from chaos.sim.laws.fenced_producers import FencedProducersWriteNothing
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.transaction_client import NO_PRODUCER, ProducerEpoch, TransactionClient
from stele.errors import ApiError, ErrorCode

_RETRIED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_RETRY_S: Final = 0.1
_DECIDED: Final = (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)
"""The answers to a batch that say whether it is in the log."""


class LostError(Exception):
    """The process cannot go on with its transaction: another one has to begin."""


@dataclass(slots=True)
class Process:
    """What one process of a transactional producer has in memory. A twin that was left behind by a
    replaced process acts with it."""

    number: int
    client: TransactionClient
    fencing: FencedProducersWriteNothing
    atomic: TransactionsAreAtomic
    counts: Counter[str]
    is_done: Callable[[], bool]
    producer: ProducerEpoch = NO_PRODUCER
    transaction: Transaction | None = None
    sequences: dict[PartitionName, int] = field(default_factory=dict)  # the next ones
    added: set[object] = field(default_factory=set)  # to the transaction, as old clients do
    places: set[PartitionName] = field(default_factory=set)
    """The partitions that may be part of the transaction."""

    @property
    def transactional_id(self) -> str:
        return self.client.transactional_id

    def begin(self) -> Transaction:
        self.transaction = self.atomic.begin(self.transactional_id)
        self.added.clear()
        self.places.clear()
        return self.transaction

    async def write(self, partition: PartitionName, texts: Sequence[str]) -> list[int]:
        """Write a batch in the transaction, until it is acknowledged. Returns the offsets. Raises
        LostError."""
        transaction = self.transaction
        assert transaction is not None
        if self.client.is_old and partition not in self.added:
            await self._ask("an added partition", lambda: self.client.add(self.producer, partition))
            self.added.add(partition)
        values = [transaction.value(text) for text in texts]
        sequence = self.sequences.get(partition, 0)
        first = -1

        async def attempt() -> ErrorCode:
            nonlocal first
            if not self._is_fenced(partition):
                self.places.add(partition)
            error, first = await self.client.write(self.producer, partition, sequence, values)
            return error

        await self._ask("a batch", attempt, partition)
        self.sequences[partition] = sequence + len(values)
        for number, value in enumerate(values):
            self.atomic.wrote(transaction, value, partition, first + number)
        self.counts["batches in transactions"] += 1
        return list(range(first, first + len(values)))

    async def commit_offsets(
        self, group_id: str, commit: Callable[[], Awaitable[ErrorCode]]
    ) -> None:
        """Make offsets a part of the transaction. ``commit`` asks for it once. Raises LostError."""
        if self.client.is_old and group_id not in self.added:
            await self._ask(
                "an added group", lambda: self.client.add_offsets(self.producer, group_id)
            )
            self.added.add(group_id)
        await self._ask("a commit of offsets", commit)
        self.counts["offsets in transactions"] += 1

    async def end(self, *, commit: bool) -> None:
        """End the transaction. Raises LostError: the outcome may be unknown."""
        transaction = self.transaction
        assert transaction is not None
        self.atomic.end_asked(transaction, commit=commit)
        following = NO_PRODUCER

        async def attempt() -> ErrorCode:
            nonlocal following
            answer = await self.client.end(self.producer, commit=commit)
            if not self.client.is_old:
                following = ProducerEpoch(answer.producer_id, answer.producer_epoch)
            return ErrorCode(answer.error_code)

        await self._ask("an end of a transaction", attempt)
        self.atomic.ended(transaction, commit=commit)
        self.transaction = None
        self.counts[f"transactions {'committed' if commit else 'aborted'}"] += 1
        if following.producer_id >= 0 and following != self.producer:
            self.producer, self.sequences = following, {}

    async def abort_hastily(self, partition: PartitionName, pause_s: float) -> None:
        """Ask for the transaction's abort while its last batch is under way, and go on in the same
        epoch, as clients of before KIP-890 may. The batch may come too late for its transaction.
        Raises LostError: the outcome of the batch or of the abort is unknown."""
        transaction = self.transaction
        assert transaction is not None
        assert self.client.is_old
        if partition not in self.added:
            await self._ask("an added partition", lambda: self.client.add(self.producer, partition))
            self.added.add(partition)
        self.places.add(partition)
        values = [transaction.value("+0")]
        sequence = self.sequences.get(partition, 0)
        writing = asyncio.create_task(
            self.client.write(self.producer, partition, sequence, values), name="a hasty batch"
        )
        try:
            await asyncio.sleep(pause_s)
            await self.end(commit=False)
        finally:
            (written,) = await asyncio.gather(writing, return_exceptions=True)
        if isinstance(written, BaseException) or written[0] not in _DECIDED:
            raise LostError("a batch without an answer")
        self.counts["transactions aborted with a batch under way"] += 1
        if written[0] is ErrorCode.NONE:
            self.sequences[partition] = sequence + 1
        else:
            self.counts["batches refused that came after the end of their transaction"] += 1

    def _is_fenced(self, partition: PartitionName | None) -> bool:
        """Whether what it asks for now has to be refused. ``partition``: what it writes to."""
        part_of = None
        if self.transaction is not None and partition in self.places:
            part_of = self.transaction.name
        return self.fencing.is_fenced(self.transactional_id, self.number, part_of=part_of)

    async def _ask(
        self,
        what: str,
        attempt: Callable[[], Awaitable[ErrorCode]],
        partition: PartitionName | None = None,
    ) -> None:
        """Ask until there is an answer that decides. Raises LostError if it is a refusal."""
        while not self.is_done():
            was_fenced = self._is_fenced(partition)
            try:
                error = await attempt()
            except (ApiError, OSError):
                self.counts["transactional requests without an answer"] += 1
            else:
                if error is ErrorCode.NONE:
                    self.fencing.accepted(
                        self.transactional_id, self.number, what, was_fenced=was_fenced
                    )
                    return
                self.fencing.refused(was_fenced=was_fenced)
                if error not in _RETRIED:
                    self.counts[f"{what} refused: {error.name}"] += 1
                    raise LostError(f"{what}: {error.name}")
            await asyncio.sleep(_RETRY_S)
        raise LostError("the run is over")
