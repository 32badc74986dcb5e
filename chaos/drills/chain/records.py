"""The records of the chain, and what its processes print of them. Pure.

A value names its record: how many hops it has passed, its source, its partition, its number in
that partition from this source, and when it was sent. Hops keep partition and order, so in each
partition the numbers of a source come out as 0, 1, 2 and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

HOPS: Final = 2
TOPICS: Final = ("chain-in", "chain-between", "chain-out")
"""Hop 1 goes from the first to the second, hop 2 from there to the third."""

UNKNOWN: Final = "?"
"""The source of a value that no source and hop of the chain has made."""

_PADDING: Final = b"." * 60


class Named(NamedTuple):
    """``sent_ms``: by the monotonic clock of the machine, which all processes share."""

    hops: int
    source: str
    partition: int
    number: int
    sent_ms: float


class Run(NamedTuple):
    """Records of one source and partition whose numbers follow one another. ``latency_ms``: the
    age of the oldest, or 0 where that means nothing."""

    source: str
    partition: int
    first: int
    length: int
    latency_ms: float = 0.0


def value_of(source: str, partition: int, number: int, sent_ms: float) -> bytes:
    """The value of a record that has passed no hop."""
    return b"0 %s %d %d %.1f %s" % (source.encode(), partition, number, sent_ms, _PADDING)


def passed_on(value: bytes, hop: int) -> bytes:
    """What hop 1 or 2 makes of a value. Raises ValueError for one that has not passed exactly the
    hops before it."""
    hops, rest = value.split(b" ", 1)
    if int(hops) != hop - 1:
        raise ValueError(f"hop {hop} got a record that has passed {int(hops)} hops")
    return b"%d %s" % (hop, rest)


def named(value: bytes | None) -> Named | None:
    """None for the value of another."""
    words = (value or b"").split(b" ")
    try:
        hops, source, partition, number, sent_ms, _ = words
        return Named(int(hops), source.decode(), int(partition), int(number), float(sent_ms))
    except ValueError:
        return None


def runs_of(values: Iterable[tuple[int, bytes | None]], now_ms: float) -> list[Run]:
    """What came out: (partition of the log, value) of each record, in the order of each partition.

    A value that has not passed all hops, or is not where it was sent, is of the source ``?``.
    """
    open_runs: dict[int, Run] = {}
    done: list[Run] = []
    for partition, value in values:
        name = named(value)
        if name is None or name.hops != HOPS or name.partition != partition:
            done.append(Run(UNKNOWN, partition, 0, 1))
            continue
        run = open_runs.get(partition)
        if run is not None and run.source == name.source and run.first + run.length == name.number:
            open_runs[partition] = run._replace(length=run.length + 1)
            continue
        if run is not None:
            done.append(run)
        latency_ms = round(now_ms - name.sent_ms, 1)
        open_runs[partition] = Run(name.source, partition, name.number, 1, latency_ms)
    return done + list(open_runs.values())
