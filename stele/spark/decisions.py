"""Which writes of Spark are committed: the state of the ledger topic. Pure.

The ledger is one partition, so that everybody reads its records in one order, and comes to the same
state. A *write* is a streaming query or one batch job, a *run* is one start of it, a *batch* is a
micro-batch. Records say:

- claim: a run has begun. From here on, earlier runs of the write decide nothing.
- commit: the batch of a run is committed. It lists the prepared transactions of its tasks.
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
neither their order nor what stands. A tombstone removes a record that nobody needs any more: a
decision about a batch before the latest, all of whose transactions are finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

Kind = Literal["claim", "commit", "abort"]

_VERSION = 1


class LedgerError(Exception):
    """The ledger topic has a record that is not one of a ledger."""


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
    transactions: tuple[Prepared, ...] = ()

    def encode(self) -> bytes:
        return json.dumps(
            {
                "version": _VERSION,
                "kind": self.kind,
                "write": self.write,
                "run": self.run,
                "batch": self.batch,
                "transactions": [list(each) for each in self.transactions],
            }
        ).encode()

    @classmethod
    def decode(cls, value: bytes) -> Entry:
        """Raises LedgerError."""
        try:
            fields: dict[str, Any] = json.loads(value)
            version, kind = fields["version"], fields["kind"]
            if version != _VERSION or kind not in get_args(Kind):
                raise LedgerError(f"the ledger has a record {kind!r} of version {version!r}")
            return cls(
                kind,
                str(fields["write"]),
                str(fields["run"]),
                int(fields["batch"]),
                tuple(Prepared(str(name), str(state)) for name, state in fields["transactions"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(f"the ledger has a record {value[:80]!r}") from error


@dataclass(slots=True)
class _Write:
    runs: list[str] = field(default_factory=list)  # in the order of their first claims
    standing: dict[int, Entry] = field(default_factory=dict)  # by batch
    aborted: set[tuple[str, int]] = field(default_factory=set)
    keys: dict[bytes, int] = field(default_factory=dict)  # of decisions, with their batch


class Decisions:
    """What the records of the ledger say together."""

    def __init__(self) -> None:
        self._writes: dict[str, _Write] = {}

    def apply(self, key: bytes, entry: Entry) -> bool:
        """Take the next record. Returns whether it had an effect: a commit that stands, the first
        claim of a run, an abort."""
        write = self._writes.setdefault(entry.write, _Write())
        if entry.kind == "claim":
            if entry.run in write.runs:
                return False
            write.runs.append(entry.run)
            return True
        write.keys[key] = entry.batch
        if entry.kind == "abort":
            write.aborted.add((entry.run, entry.batch))
            return True
        is_latest = not write.runs or write.runs[-1] == entry.run
        if (
            not is_latest
            or entry.batch in write.standing
            or (entry.run, entry.batch) in write.aborted
        ):
            return False
        write.standing[entry.batch] = entry
        return True

    def standing(self, write: str, batch: int) -> Entry | None:
        """The commit of a batch that stands."""
        known = self._writes.get(write)
        return None if known is None else known.standing.get(batch)

    def all_standing(self, write: str) -> list[Entry]:
        """All commits of a write that stand and are still known, in order of their batches."""
        known = self._writes.get(write)
        return [] if known is None else [known.standing[batch] for batch in sorted(known.standing)]

    def latest_run(self, write: str) -> str | None:
        """The run that may decide; None if nobody has claimed the write."""
        known = self._writes.get(write)
        return known.runs[-1] if known is not None and known.runs else None

    def is_aborted(self, write: str, run: str, batch: int) -> bool:
        """Whether this run will never commit the batch."""
        known = self._writes.get(write)
        return known is not None and (run, batch) in known.aborted

    def has_claimed(self, write: str, run: str) -> bool:
        known = self._writes.get(write)
        return known is not None and run in known.runs

    def old_keys(self, write: str, batch: int) -> list[bytes]:
        """The records about batches before this one."""
        known = self._writes.get(write)
        return [] if known is None else [key for key, of in known.keys.items() if of < batch]


def replayed(records: Sequence[tuple[bytes, bytes | None]]) -> Decisions:
    """The state after the records of the ledger, with those that are not removed."""
    removed = {key for key, value in records if value is None}
    decisions = Decisions()
    for key, value in records:
        if value is not None and key not in removed:
            decisions.apply(key, Entry.decode(value))
    return decisions


def to_abort(decisions: Decisions, write: str, there: Mapping[str, bool], run: str) -> list[str]:
    """Which of a write's transactional ids must be aborted after a batch was decided.

    ``there``: the ids that the coordinators know, and whether their transaction is not over.
    ``run``: the latest run, whose batch is decided, so that no task of it writes.
    """
    if decisions.latest_run(write) not in (None, run):
        return []
    kept = {
        each.transactional_id for one in decisions.all_standing(write) for each in one.transactions
    }
    return [name for name, is_open in there.items() if is_open and name not in kept]
