"""How long a drill's partitions took no writes, and how long readers waited. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from chaos.drills.history import (
    LIVE,
    Acked,
    Committed,
    Failed,
    History,
    PartitionHistory,
    QuorumState,
    Read,
    Sent,
)

GROUP = "member-"
"""How the names of readers begin that are members of the group."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The longest one of a partition: when it began, and how long it was."""

    partition: int
    from_ms: float
    duration_ms: float


@dataclass(frozen=True, slots=True)
class Times:
    """``None``: it did not happen, or nothing measures it."""

    writes: tuple[Outage, ...]
    """Per partition: the longest time without an acknowledgement, from the first fault on, in which
    a record waited for one or had been refused."""
    reads: tuple[Outage, ...]
    """Per partition: the longest time that an acknowledged record waited for the live reader."""
    group: tuple[Outage, ...]
    """Per partition: the longest time that an acknowledged record waited for the group."""
    detected_ms: float | None
    """From the first fault to the first change of a leader, an ISR or the quorum's epoch."""
    recovered_ms: float | None
    """From the last step that heals to the whole cluster."""
    elections: int
    quorum_elections: int
    unclean_elections: int
    isr_least: int | None
    regressions: int
    """Committed offsets of the group that went back."""


def measure(history: History) -> Times:
    """Measure everything of a history."""
    changes = list(_by_partition(history).values())
    return Times(
        writes=_write_outages(history),
        reads=_waits(history, lambda reader: reader == LIVE),
        group=_waits(history, lambda reader: reader.startswith(GROUP)),
        detected_ms=_detected(history),
        recovered_ms=_recovered(history),
        elections=sum(each[-1].leader_epoch - each[0].leader_epoch for each in changes),
        quorum_elections=_quorum_elections(history),
        unclean_elections=sum(
            each[-1].unclean_elections - each[0].unclean_elections for each in changes
        ),
        isr_least=min((len(state.isr) for each in changes for state in each), default=None),
        regressions=_regressions(history.of(Committed)),
    )


def _by_partition(history: History) -> dict[int, list[PartitionHistory]]:
    found: dict[int, list[PartitionHistory]] = defaultdict(list)
    for state in history.of(PartitionHistory):
        found[state.partition].append(state)
    return found


# -------------------------------------------------------------------------------- outages


def _write_outages(history: History) -> tuple[Outage, ...]:
    """A partition is out while records wait, or have failed, and it acknowledges none. One that
    refuses everything at once is out as well."""
    began = history.first_fault_ms
    if began is None:
        return ()
    end = history.end_ms
    marks: dict[int, list[tuple[float, int, int]]] = {
        number: [] for number in range(history.header.partitions)
    }
    for event in history.events:
        if isinstance(event, Sent):
            marks[event.partition].append((event.at_ms, 0, 1))
        elif isinstance(event, Acked | Failed):
            marks[event.partition].append((event.at_ms, isinstance(event, Acked), -1))
    return tuple(
        _longest_silence(partition, sorted(each), began, end) for partition, each in marks.items()
    )


def _longest_silence(
    partition: int, marks: list[tuple[float, int, int]], began: float, end: float
) -> Outage:
    """``marks``: (time, whether it is an acknowledgement, change of the number that waits)."""
    waiting = 0
    silent_since: float | None = None
    longest = Outage(partition, began, 0.0)

    def ends_at(moment: float) -> None:
        nonlocal longest
        if silent_since is not None:
            start = max(silent_since, began)
            if min(moment, end) - start > longest.duration_ms:
                longest = Outage(partition, start, min(moment, end) - start)

    for moment, is_ack, change in marks:
        if is_ack:
            ends_at(moment)
            silent_since = None
        waiting += change
        if waiting > 0 and silent_since is None:
            silent_since = moment
    ends_at(end)
    return longest


def _waits(history: History, is_reader: Callable[[str], bool]) -> tuple[Outage, ...]:
    """The longest wait of a record between its acknowledgement and its first reading."""
    began = history.first_fault_ms
    reads = [each for each in history.of(Read) if is_reader(each.reader)]
    if began is None or not reads:
        return ()
    first_read: dict[tuple[int, int], float] = {}
    for read in reads:
        place = (read.partition, read.offset)
        first_read[place] = min(read.at_ms, first_read.get(place, read.at_ms))
    end = max(history.end_ms, *first_read.values())
    longest: dict[int, Outage] = {
        number: Outage(number, began, 0.0) for number in range(history.header.partitions)
    }
    for acked in history.of(Acked):
        if acked.offset < 0:
            continue
        # A record that was read before its acknowledgement has not waited.
        waited = first_read.get((acked.partition, acked.offset), end)
        start = max(acked.at_ms, began)
        if waited - start > longest[acked.partition].duration_ms:
            longest[acked.partition] = Outage(acked.partition, start, waited - start)
    return tuple(longest.values())


# ---------------------------------------------------------------------------- other times


def _detected(history: History) -> float | None:
    """The observer polls, so this is late by one interval of it at most."""
    began = history.first_fault_ms
    if began is None:
        return None
    changes = [
        event.at_ms
        for event in history.events
        if isinstance(event, PartitionHistory | QuorumState) and event.at_ms > began
    ]
    return min(changes) - began if changes else None


def _recovered(history: History) -> float | None:
    heals = history.steps("heal")
    recoveries = history.steps("recovered")
    if not heals or not recoveries or recoveries[-1].at_ms < heals[-1].at_ms:
        return None
    return recoveries[-1].at_ms - heals[-1].at_ms


def _quorum_elections(history: History) -> int:
    epochs = [state.epoch for state in history.of(QuorumState)]
    return max(epochs) - epochs[0] if epochs else 0


def _regressions(commits: Iterable[Committed]) -> int:
    """In one partition a group's offset only rises, whichever member commits it."""
    greatest: dict[int, int] = {}
    count = 0
    for commit in commits:
        if commit.offset < greatest.get(commit.partition, 0):
            count += 1
        greatest[commit.partition] = max(commit.offset, greatest.get(commit.partition, 0))
    return count
