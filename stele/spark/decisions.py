"""Which writes of Spark are committed: the state of the ledger topic. Pure.

The ledger is one partition, so that everybody reads its records in one order, and comes to the same
state. A *write* is a streaming query or a batch job together with the topic that it writes to, a
*run* is one start of it, a *batch* is a micro-batch or a ``txnVersion``. Records say:

- claim: a run has begun. From here on, earlier runs of the write decide nothing.
- commit: the batch of a run is committed. It lists the prepared transactions of its tasks, and the
  batches of the write that were committed before.
- abort: the batch of a run is not committed, and never will be by this run.

Which commit stands follows from the order alone:

1. A commit stands if its run is the latest that has claimed the write (or nobody has), no commit
   of the batch stood before, and the run has not aborted the batch before.
2. What stands, stands for ever. Its transactions are committed by whoever finds it, in any order
   and as often as they like. Nobody aborts them.
3. A transaction that no standing commit lists may be aborted once none can list it any more: when a
   later run has claimed the write, or its run has aborted the batch, or another commit of the batch
   stands.

Each record has a key of its own. So compaction, which keeps the last record of a key, changes
neither their order nor what stands. A tombstone removes a record that nobody needs any more
(``Decisions.needless``). The last commit that stands remains. It knows which batches are decided,
so the ledger does not grow with the number of batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from stele.spark.numbers import Numbers

Kind = Literal["claim", "commit", "abort"]

_VERSION = 1


class LedgerError(Exception):
    """The ledger topic has a record that does not belong to a ledger."""


class Prepared(NamedTuple):
    """A prepared transaction of a task (KIP-939)."""

    transactional_id: str
    state: str
    """Producer id and epoch, as the producer tells them when it has prepared."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the ledger."""

    kind: Kind
    write: str
    run: str
    batch: int = -1
    """In a claim: the only batch of the run; -1 if it may have any."""
    transactions: tuple[Prepared, ...] = ()
    done: Numbers = field(default_factory=Numbers)
    """In a commit: the batches that were committed before."""
    topics: tuple[str, ...] = ()
    """In a commit: the topics that have rows of the batch, if rows name their topics."""

    def encode(self) -> bytes:
        return json.dumps(
            {
                "version": _VERSION,
                "kind": self.kind,
                "write": self.write,
                "run": self.run,
                "batch": self.batch,
                "transactions": [list(each) for each in self.transactions],
                "done": {"ranges": self.done.ranges, "floor": self.done.floor},
                "topics": self.topics,
            }
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> Entry:
        """Raises LedgerError. Older clients write no ``done`` and no ``topics``."""
        try:
            fields: dict[str, Any] = json.loads(value)
            version, kind = fields["version"], fields["kind"]
            if version != _VERSION or kind not in get_args(Kind):
                raise LedgerError(f"the ledger has a record {kind!r} of version {version!r}")
            done = fields.get("done", {"ranges": [], "floor": 0})
            return cls(
                kind,
                str(fields["write"]),
                str(fields["run"]),
                int(fields["batch"]),
                tuple(Prepared(str(name), str(state)) for name, state in fields["transactions"]),
                Numbers(
                    tuple((int(first), int(last)) for first, last in done["ranges"]),
                    int(done["floor"]),
                ),
                tuple(map(str, fields.get("topics", ()))),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(f"the ledger has a record {value[:80]!r}") from error


@dataclass(slots=True)
class _Write:
    runs: dict[str, None] = field(default_factory=dict)  # in the order of their first claims
    standing: dict[int, Entry] = field(default_factory=dict)  # by batch
    done: Numbers = field(default_factory=Numbers)
    last: Entry | None = None  # the latest commit that stands
    aborted: set[tuple[str, int]] = field(default_factory=set)
    entries: dict[bytes, Entry] = field(default_factory=dict)
    times_ms: dict[bytes, int] = field(default_factory=dict)
    void: set[bytes] = field(default_factory=set)  # commits that do not stand, repeated claims

    @property
    def latest_run(self) -> str | None:
        return next(reversed(self.runs), None)

    def take(self, entry: Entry) -> bool:
        if entry.kind == "claim":
            is_first = entry.run not in self.runs
            self.runs.setdefault(entry.run)
            return is_first
        if entry.kind == "abort":
            self.aborted.add((entry.run, entry.batch))
            return True
        if (
            self.latest_run not in (None, entry.run)
            or entry.batch in self.done
            or (entry.run, entry.batch) in self.aborted
        ):
            return False
        self.standing[entry.batch] = self.last = entry
        self.done = self.done.union(entry.done).with_number(entry.batch)
        return True

    def is_needless(self, key: bytes, before_ms: int) -> bool:
        """Three records remain: the latest commit that stands, which knows the batches that are
        decided; the claim of its run, without which it would not stand behind an earlier claim; and
        the latest claim, without which an earlier run would be the latest."""
        entry = self.entries[key]
        if key in self.void:
            return True
        if entry.kind == "commit":
            return not self._remains(entry)
        deciders = {each.run for each in self.standing.values() if self._remains(each)}
        if entry.kind == "claim" and entry.run in (self.latest_run, *deciders):
            return False
        is_old = entry.run != self.latest_run and self.times_ms[key] < before_ms
        return entry.batch in self.done or is_old

    def _remains(self, commit: Entry) -> bool:
        """Whether the latest commit that stands does not know of this one that stands."""
        assert self.last is not None  # one stands
        return commit.batch not in self.last.done

    def in_order_of_removal(self, keys: Iterable[bytes]) -> list[bytes]:
        """Void records come first: they might count without those that make them void. Commits
        that stand come last: without one of them, a void commit of its batch might stand."""

        def rank(key: bytes) -> int:
            if key in self.void:
                return 0
            return 2 if self.entries[key].kind == "commit" else 1

        return sorted(keys, key=rank)


class Decisions:
    """What the records of the ledger say together."""

    def __init__(self) -> None:
        self._writes: dict[str, _Write] = {}

    def apply(self, key: bytes, entry: Entry, time_ms: int = 0) -> bool:
        """Take the next record. Returns whether it had an effect: a commit that stands, the first
        claim of a run, an abort."""
        write = self._writes.setdefault(entry.write, _Write())
        write.entries[key], write.times_ms[key] = entry, time_ms
        if write.take(entry):
            return True
        write.void.add(key)
        return False

    def is_decided(self, write: str, batch: int) -> bool:
        """Whether a commit of the batch stands."""
        return batch in self.done(write)

    def done(self, write: str) -> Numbers:
        """The batches that are decided."""
        known = self._writes.get(write)
        return Numbers() if known is None else known.done

    def standing(self, write: str, batch: int) -> Entry | None:
        """The commit of a batch that stands. None also if it was removed since."""
        known = self._writes.get(write)
        return None if known is None else known.standing.get(batch)

    def all_standing(self, write: str) -> list[Entry]:
        """All commits of a write that stand and are still known, in order of their batches."""
        known = self._writes.get(write)
        return [] if known is None else [known.standing[batch] for batch in sorted(known.standing)]

    def latest_run(self, write: str) -> str | None:
        """The run that may decide; None if no run has claimed the write."""
        known = self._writes.get(write)
        return None if known is None else known.latest_run

    def is_aborted(self, write: str, run: str, batch: int) -> bool:
        """Whether this run will never commit the batch."""
        known = self._writes.get(write)
        return known is not None and (run, batch) in known.aborted

    def has_claimed(self, write: str, run: str) -> bool:
        known = self._writes.get(write)
        return known is not None and run in known.runs

    def needless(self, write: str, before_ms: int = 0) -> list[bytes]:
        """The keys of the records that change nothing any more, if all transactions of standing
        commits are finished. Remove them in this order.

        A commit that does not stand, or a claim that repeats another, has never changed anything. A
        claim or abort of an earlier run is needless when its batch is decided, or when it is older
        than ``before_ms``, so that no task of the run can be alive.
        """
        known = self._writes.get(write)
        if known is None:
            return []
        found = [key for key in known.entries if known.is_needless(key, before_ms)]
        return known.in_order_of_removal(found)

    def over(self, before_ms: int) -> list[str]:
        """The writes of batch jobs without a name that have been silent since then. No later run
        asks for them.
        """
        return [
            name
            for name, write in self._writes.items()
            if max(write.times_ms.values()) < before_ms
            and any(is_unnamed(each) for each in write.entries.values())
        ]

    def keys(self, write: str) -> list[bytes]:
        """All records of a write, in the order in which to remove them."""
        known = self._writes[write]
        return known.in_order_of_removal(known.entries)


SEPARATOR = "@"
"""The separator in the name of a write, between the name of the job or query and that of its
target.
"""


def is_unnamed(entry: Entry) -> bool:
    """Whether the write is named after its only run."""
    return entry.write.partition(SEPARATOR)[0] == entry.run


def to_abort(decisions: Decisions, write: str, still_open: Iterable[str], run: str) -> list[str]:
    """Which of a write's open transactions must be aborted after a batch was decided.

    ``run``: the latest run, whose batch is decided, so that no task of it writes. ``still_open``
    was listed before the ledger was read for ``decisions``. So, if no later run has claimed the
    write by then, none of its transactions is in the list.
    """
    if decisions.latest_run(write) not in (None, run):
        return []
    kept = {
        each.transactional_id for one in decisions.all_standing(write) for each in one.transactions
    }
    return [name for name in still_open if name not in kept]
