"""What transactional producers were told, and what readers of committed records saw."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from chaos.sim.laws.committed_offsets import OffsetChange
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Scene
from chaos.sim.partition_name import PartitionName

RISKY: Final = ("extra-transfers", 0)
"""A partition that allows unclean elections. Records may be lost there, and whole
transactions with them. What is left is judged."""


class Fate(enum.Enum):
    """What is known of the outcome of a transaction."""

    OPEN = "nobody has asked for its commit"
    ASKED = "its commit was asked for"
    COMMITTED = "it was committed"
    ABORTED = "it was aborted"


@dataclass(slots=True)
class Transaction:
    """One transaction. Each of its values begins with its name, which no other one has."""

    name: str
    fate: Fate = Fate.OPEN
    written: dict[bytes, tuple[PartitionName, int]] = field(default_factory=dict)
    """Partition and offset of each value whose writing was acknowledged."""
    is_prepared: bool = False
    """All that belongs to it was written."""
    end_asked: bool = False
    changes: list[OffsetChange] = field(default_factory=list)
    """Changes of committed offsets, which take effect with the transaction."""
    _values: int = 0  # made so far

    def value(self, text: str) -> bytes:
        """A value that no other record has."""
        self._values += 1
        return f"{self.name} {text} #{self._values}".encode()


class TransactionsAreAtomic(Law):
    """A transaction is committed as a whole or not at all. Readers of committed records see nothing
    of a transaction before somebody has asked for its commit, and nothing at all if it was aborted.
    What they have seen once is committed.
    """

    name = "transactions are atomic"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._transactions: dict[str, Transaction] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def begin(self, transactional_id: str) -> Transaction:
        name = f"{transactional_id}/{len(self._transactions)}"
        begun = self._transactions[name] = Transaction(name)
        return begun

    def wrote(
        self, transaction: Transaction, value: bytes, place: PartitionName, offset: int
    ) -> None:
        """A write was acknowledged."""
        transaction.written[value] = place, offset

    def end_asked(self, transaction: Transaction, *, commit: bool) -> None:
        """Somebody asks for its end."""
        transaction.end_asked = True
        if commit and transaction.fate is Fate.OPEN:
            transaction.fate = Fate.ASKED

    def ended(self, transaction: Transaction, *, commit: bool) -> None:
        """Its outcome was answered, or follows from answers."""
        outcome, other = Fate.COMMITTED, Fate.ABORTED
        if not commit:
            outcome, other = other, outcome
        self.looked += 1
        if transaction.fate is other:
            self._report(transaction, f"now it was told that {outcome.value}")
        transaction.fate = outcome
        for change in transaction.changes:
            if commit:
                change.confirmed()
            else:
                change.refused()
        transaction.changes.clear()

    def replaced(self, transaction: Transaction) -> None:
        """Another process has the transactional id now, and has not kept the transaction. So it
        was aborted, unless its commit had been asked for."""
        if transaction.fate is Fate.OPEN:
            self.ended(transaction, commit=False)

    def seen(self, place: PartitionName, offset: int, value: bytes) -> None:
        """A reader of committed records has got this record."""
        transaction = self._of(value)
        if transaction is None:
            self._scene.report(f"{place} {offset}: {value!r} belongs to no transaction")
            return
        self.looked += 1
        if transaction.fate in (Fate.OPEN, Fate.ABORTED):
            self._report(transaction, f"{value!r} was read at {place} {offset}")
        written = transaction.written.get(value, (place, offset))
        # After an unclean election, the copy of an older leader counts: it took the same batch
        # without an answer, at an offset of its own.
        if written[0] != place or (written[1] != offset and place != RISKY):
            self._report(transaction, f"{value!r} was read at {place} {offset}, and written once")
        if transaction.fate is Fate.ASKED:
            transaction.fate = Fate.COMMITTED

    def judge(self, found: Mapping[PartitionName, Iterable[tuple[int, bytes]]]) -> int:
        """All committed records, when everything has ended. Returns how many transactions were
        committed."""
        places: dict[bytes, tuple[PartitionName, int]] = {}
        for place, records in found.items():
            for offset, value in records:
                if value in places:
                    self._scene.report(f"{value!r} is at {places[value]} and at {place} {offset}")
                places[value] = place, offset
                self.seen(place, offset, value)
        committed = 0
        for each in self._transactions.values():
            missing = [
                value
                for value, (place, _) in each.written.items()
                if value not in places and place != RISKY
            ]
            self.looked += bool(each.written)
            if each.fate is Fate.COMMITTED:
                committed += 1
                if missing:
                    self._report(each, f"{missing} of {len(each.written)} are missing")
        return committed

    def committed(self) -> Iterator[tuple[bytes, tuple[PartitionName, int]]]:
        """The values of committed transactions whose writing was acknowledged, and their places."""
        for each in self._transactions.values():
            if each.fate is Fate.COMMITTED:
                yield from each.written.items()

    def _of(self, value: bytes) -> Transaction | None:
        return self._transactions.get(value.decode().partition(" ")[0])

    def _report(self, transaction: Transaction, what: str) -> None:
        self._scene.report(f"transaction {transaction.name} ({transaction.fate.value}): {what}")
