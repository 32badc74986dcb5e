"""A history as a picture: lanes over one axis of time, as SVG. Pure.

Lanes stretch to the width of the page, and have no text in them: a phone's width would make it
too small. Names and numbers are in the page around them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, TypeVar

from chaos.drills.history import (
    LIVE,
    Acked,
    Chained,
    Failed,
    History,
    PartitionHistory,
    QuorumState,
    Read,
    Told,
)

_WIDTH: Final = 1000
_HEIGHT: Final = 100
_BARS: Final = 120
_COLORS: Final = ("#3f7fbf", "#d98c2b", "#5a9e4b", "#a05fb4", "#c0574f", "#4aa3a2")
_NONE: Final = "#d0342c"  # no leader
_FAULT: Final = "#d0342c"
_HEAL: Final = "#2e7d32"

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class Mark:
    """A numbered moment: a vertical line in each lane, and a row of the legend."""

    number: int
    at_ms: float
    phase: str
    text: str


@dataclass(frozen=True, slots=True)
class Lane:
    """``scale``: what the top of the lane means. ``svg`` may be wide or narrow."""

    title: str
    scale: str
    svg: str


@dataclass(frozen=True, slots=True)
class Timeline:
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    end_ms: float
    colors: dict[int, str]
    """The color of each node that leads something."""


def draw(history: History) -> Timeline:
    """The whole picture."""
    end_ms = max(history.end_ms, 1.0)
    marks = tuple(
        Mark(number, step.at_ms, step.phase, step.text)
        for number, step in enumerate(
            history.steps("steady", "fault", "heal", "recovered", "failed", "end"), 1
        )
    )
    nodes = [*history.header.brokers, *history.header.controllers]
    colors = {node: _COLORS[place % len(_COLORS)] for place, node in enumerate(nodes)}
    canvas = _Canvas(end_ms, marks)
    acked = [each.at_ms for each in history.of(Acked)]
    read = [each.at_ms for each in history.of(Read) if each.reader == LIVE]
    trouble = [each.at_ms for each in history.of(Failed)]
    trouble += [each.at_ms for each in history.of(Told)]
    lanes = [
        canvas.rate("Acknowledged", acked, "#3f7fbf"),
        canvas.rate("Read", read, "#5a9e4b"),
        canvas.rate("Refusals and waits that clients told", trouble, _FAULT),
    ]
    members = [each.at_ms for each in history.of(Read) if each.reader.startswith("member-")]
    if members:
        lanes.insert(2, canvas.rate("Processed by the group", members, "#a05fb4"))
    lanes += _chain(history, canvas)
    lanes += _partitions(history, canvas, colors)
    quorum = [(each.at_ms, each.leader, f"epoch {each.epoch}") for each in history.of(QuorumState)]
    lanes.append(canvas.bands("Active controller", quorum, colors))
    return Timeline(tuple(lanes), marks, end_ms, colors)


def _chain(history: History, canvas: _Canvas) -> list[Lane]:
    chained = list(history.of(Chained))
    if not chained:
        return []
    lanes = []
    for stage, title in (("acked", "Into the chain"), ("out", "Out of the chain")):
        amounts = [(each.at_ms, each.count) for each in chained if each.stage == stage]
        lanes.append(canvas.amounts(title, amounts, "#4aa3a2"))
    return lanes


def _partitions(history: History, canvas: _Canvas, colors: dict[int, str]) -> list[Lane]:
    states: dict[int, list[PartitionHistory]] = defaultdict(list)
    for state in history.of(PartitionHistory):
        states[state.partition].append(state)
    lanes = []
    for number, each in sorted(states.items()):
        leaders = [(state.at_ms, state.leader, f"epoch {state.leader_epoch}") for state in each]
        lanes.append(canvas.bands(f"Partition {number}: leader", leaders, colors))
        sizes = [(state.at_ms, len(state.isr)) for state in each]
        most = history.header.replication_factor
        lanes.append(canvas.levels(f"Partition {number}: size of the ISR", sizes, most))
    return lanes


class _Canvas:
    """Draws lanes of one length with the same marks."""

    def __init__(self, end_ms: float, marks: Sequence[Mark]) -> None:
        self._end_ms = end_ms
        self._marks = marks

    def rate(self, title: str, moments: Iterable[float], color: str) -> Lane:
        """Bars: how many per second."""
        return self.amounts(title, [(moment, 1) for moment in moments], color)

    def amounts(self, title: str, amounts: Iterable[tuple[float, int]], color: str) -> Lane:
        """The same, of so many at each moment."""
        counts = [0] * _BARS
        for moment, amount in amounts:
            if 0 <= moment <= self._end_ms:
                counts[min(int(moment / self._end_ms * _BARS), _BARS - 1)] += amount
        most = max(counts)
        per_s = most / (self._end_ms / 1000 / _BARS)
        width = _WIDTH / _BARS
        bars = [
            _rect(place * width, _HEIGHT * (1 - count / most), width, _HEIGHT * count / most, color)
            for place, count in enumerate(counts)
            if count
        ]
        scale = f"at most {per_s:.0f}/s" if most else "none"
        return Lane(title, scale, self._svg(title, bars))

    def levels(self, title: str, changes: Sequence[tuple[float, int]], most: int) -> Lane:
        """Steps: a number that holds until the next change."""
        shapes = []
        for (begin, level), end in self._spans(changes):
            height = _HEIGHT * level / max(most, 1)
            color = "#7a8899" if level == most else "#d98c2b"
            shapes.append(
                _rect(begin, _HEIGHT - height, end - begin, height, color, f"{level} in sync")
            )
        levels = sorted({level for _, level in changes})
        return Lane(title, ", ".join(map(str, levels)) or "-", self._svg(title, shapes))

    def bands(
        self, title: str, changes: Sequence[tuple[float, int, str]], colors: dict[int, str]
    ) -> Lane:
        """Colored bands: who leads until the next change."""
        spans = self._spans([(moment, (node, told)) for moment, node, told in changes])
        shapes = []
        for (begin, (node, told)), end in spans:
            who = f"node {node}, {told}" if node >= 0 else f"nobody, {told}"
            color = colors.get(node, _NONE)
            shapes.append(_rect(begin, 0, end - begin, _HEIGHT, color, who))
        order: list[str] = []
        for _, node, _ in changes:
            name = str(node) if node >= 0 else "none"
            if order[-1:] != [name]:
                order.append(name)
        return Lane(title, " → ".join(order) or "-", self._svg(title, shapes, short=True))

    def _spans(
        self, changes: Sequence[tuple[float, ValueT]]
    ) -> list[tuple[tuple[float, ValueT], float]]:
        """((begin, value), end) of each, in the lane's units."""
        scale = _WIDTH / self._end_ms
        begins = [max(0.0, moment * scale) for moment, _ in changes]
        ends = [*begins[1:], float(_WIDTH)][: len(begins)]
        return [
            ((begin, value), min(end, _WIDTH))
            for begin, end, (_, value) in zip(begins, ends, changes, strict=True)
            if begin < _WIDTH
        ]

    def _svg(self, title: str, shapes: Iterable[str], *, short: bool = False) -> str:
        lines = []
        for mark in self._marks:
            place = mark.at_ms / self._end_ms * _WIDTH
            color = _mark_color(mark.phase)
            if color:
                lines.append(
                    f'<line x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{_HEIGHT}" '
                    f'stroke="{color}" vector-effect="non-scaling-stroke"><title>'
                    f"{mark.number}: {escape(mark.text)}</title></line>"
                )
        kind = "lane short" if short else "lane"
        return (
            f'<svg class="{kind}" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
            f'role="img" aria-label="{escape(title)}">{"".join(shapes)}{"".join(lines)}</svg>'
        )


def _mark_color(phase: str) -> str | None:
    return {"fault": _FAULT, "failed": _FAULT, "heal": _HEAL, "recovered": _HEAL}.get(phase)


def _rect(x: float, y: float, width: float, height: float, color: str, title: str = "") -> str:
    told = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" '
        f'fill="{color}">{told}</rect>'
    )
