"""The ledger of exactly-once writes as a reader of the whole topic finds it: the dumb twin of a
process's copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stele.spark.decisions import Decisions, Entry


class Record(NamedTuple):
    """A record of the ledger topic."""

    key: bytes
    value: bytes | None
    """None: a tombstone."""
    time_ms: int = 0


def replayed(records: Sequence[Record]) -> Decisions:
    """The state after the records of the ledger that are not removed."""
    decisions = Decisions()
    for key, value, time_ms in present(records):
        if value is not None:
            decisions.apply(key, Entry.decode(value), time_ms)
    return decisions


def present(records: Sequence[Record]) -> list[Record]:
    """The records that are not removed, without tombstones."""
    removed = {each.key for each in records if each.value is None}
    return [each for each in records if each.key not in removed]
