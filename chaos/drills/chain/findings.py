"""What became of the records that went through the chain. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from chaos.drills.chain.records import HOPS, UNKNOWN
from chaos.drills.history import Chained, History, Hop

_MOST_SHOWN = 1_000


class ChainName(NamedTuple):
    """A record's name."""

    source: str
    partition: int
    number: int

    def __str__(self) -> str:
        return f"{self.source} {self.number} of partition {self.partition}"


@dataclass(frozen=True, slots=True)
class HopCost:
    """The transactions of a hop."""

    hop: int
    committed: int
    aborted: int
    began_anew: int
    records: int
    took_p50_ms: float
    took_p99_ms: float


@dataclass(frozen=True, slots=True)
class ChainFindings:
    """The first thousand of ``lost``, ``twice`` and ``unsent`` are named."""

    acknowledged: int
    out: int
    lost: tuple[ChainName, ...]
    """Acknowledged at the beginning, and did not come out."""
    twice: tuple[ChainName, ...]
    """Came out more than once."""
    reordered: tuple[ChainName, ...]
    """Came out behind a later record of the same source and partition."""
    unsent: tuple[ChainName, ...]
    """Came out, though no source sent it."""
    unknown: int
    """Came out, and have not passed every hop once, or are nobody's."""
    drained_ms: float | None
    """From the end of the writing to the last record that came out. None: some never did."""
    in_per_s: float
    out_per_s: float
    latency_p50_ms: float
    latency_p99_ms: float
    latency_max_ms: float
    hops: tuple[HopCost, ...]


class _Lane:
    """One source in one partition: how often each number came out."""

    def __init__(self) -> None:
        self.sent = 0
        self.acked = bytearray()
        self.out = bytearray()
        self.behind: list[int] = []
        self._greatest = -1

    def mark_acked(self, first: int, count: int) -> None:
        _extend(self.acked, first + count)
        self.acked[first : first + count] = b"\x01" * count

    def mark_out(self, first: int, count: int) -> None:
        _extend(self.out, first + count)
        for number in range(first, first + count):
            self.out[number] = min(self.out[number] + 1, 255)
        # A number that comes again is not out of order as well.
        late = range(first, min(first + count, self._greatest))
        self.behind += [number for number in late if self.out[number] == 1]
        self._greatest = max(self._greatest, first + count - 1)


def _extend(counts: bytearray, size: int) -> None:
    if len(counts) < size:
        counts.extend(bytes(size - len(counts)))


def find_chain(history: History) -> ChainFindings | None:
    """None: the history has no chain."""
    lanes: dict[tuple[str, int], _Lane] = defaultdict(_Lane)
    unknown = 0
    for event in history.of(Chained):
        if event.source == UNKNOWN:
            unknown += event.count
            continue
        lane = lanes[event.source, event.partition]
        if event.stage == "sent":
            lane.sent = max(lane.sent, event.first + event.count)
        elif event.stage == "acked":
            lane.mark_acked(event.first, event.count)
        elif event.stage == "out":
            lane.mark_out(event.first, event.count)
    if not lanes and not unknown:
        return None
    acknowledged = sum(sum(lane.acked) for lane in lanes.values())
    out = sum(sum(lane.out) for lane in lanes.values())
    lost = _named(lanes, _lost)
    p50, p99, most = _latencies(history)
    began = min(each.at_ms for each in history.of(Chained))
    written_s = max(history.end_ms - began, 1.0) / 1000
    last_out = max(
        (each.at_ms for each in history.of(Chained) if each.stage == "out"), default=began
    )
    return ChainFindings(
        acknowledged=acknowledged,
        out=out,
        lost=lost,
        twice=_named(lanes, lambda lane: (n for n, count in enumerate(lane.out) if count > 1)),
        reordered=_named(lanes, lambda lane: iter(lane.behind)),
        unsent=_named(lanes, lambda lane: iter(range(lane.sent, len(lane.out)))),
        unknown=unknown,
        drained_ms=None if lost else max(0.0, last_out - history.end_ms),
        in_per_s=acknowledged / written_s,
        out_per_s=out / max(last_out - began, 1.0) * 1000,
        latency_p50_ms=p50,
        latency_p99_ms=p99,
        latency_max_ms=most,
        hops=tuple(_cost(history, hop) for hop in range(1, HOPS + 1)),
    )


def _lost(lane: _Lane) -> Iterator[int]:
    for number, is_acked in enumerate(lane.acked):
        if is_acked and (number >= len(lane.out) or not lane.out[number]):
            yield number


def _named(
    lanes: dict[tuple[str, int], _Lane], numbers: Callable[[_Lane], Iterator[int]]
) -> tuple[ChainName, ...]:
    found = []
    for (source, partition), lane in sorted(lanes.items()):
        for number in numbers(lane):
            found.append(ChainName(source, partition, number))
            if len(found) == _MOST_SHOWN:
                return tuple(found)
    return tuple(found)


def _latencies(history: History) -> tuple[float, float, float]:
    """The median, the 99th percentile and the most, of the oldest record of each run. A run counts
    as often as it has records."""
    runs = sorted(
        (each.latency_ms, each.count)
        for each in history.of(Chained)
        if each.stage == "out" and each.source != UNKNOWN
    )
    if not runs:
        return 0.0, 0.0, 0.0
    total = sum(count for _, count in runs)
    return _at(runs, total * 0.5), _at(runs, total * 0.99), runs[-1][0]


def _at(runs: list[tuple[float, int]], rank: float) -> float:
    passed = 0
    for value, count in runs:
        passed += count
        if passed >= rank:
            return value
    return runs[-1][0]


def _cost(history: History, hop: int) -> HopCost:
    mine = [each for each in history.of(Hop) if each.hop == hop]
    committed = [each for each in mine if each.outcome == "committed"]
    took = sorted((each.took_ms, 1) for each in committed)
    return HopCost(
        hop,
        committed=len(committed),
        aborted=sum(each.outcome == "aborted" for each in mine),
        began_anew=sum(each.outcome == "again" for each in mine),
        records=sum(each.records for each in committed),
        took_p50_ms=_at(took, len(took) * 0.5) if took else 0.0,
        took_p99_ms=_at(took, len(took) * 0.99) if took else 0.0,
    )
