"""A drill's report as one HTML page that needs nothing else: no script, no font, no picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from chaos.drills.history import Header, History
from chaos.drills.report import cost_rows, setting_rows
from chaos.drills.timeline import Timeline, draw
from chaos.drills.verdict import Verdict

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.45 system-ui, sans-serif; margin: 0 auto; padding: 1rem; max-width: 60rem; }
h1 { font-size: 1.5rem; margin: .2rem 0; } h2 { font-size: 1.15rem; margin: 1.6rem 0 .4rem; }
.verdict { padding: .1rem .6rem; border-radius: .3rem; color: #fff; font-weight: 600; }
.green { background: #2e7d32; } .red { background: #c62828; }
table { border-collapse: collapse; width: 100%; }
td { padding: .25rem .5rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td:last-child { overflow-wrap: anywhere; min-width: 7rem; } td:first-child { min-width: 5.5rem; }
.ok { color: #2e7d32; } .no { color: #c62828; font-weight: 600; }
.name, .axis { display: flex; justify-content: space-between; gap: 1rem; font-size: .9rem; }
.name { margin-top: .45rem; } .axis { opacity: .75; }
.name span + span { opacity: .75; text-align: right; }
svg.lane { display: block; width: 100%; height: 3.2rem; background: var(--soft); }
svg.short { height: 1.3rem; }
.key { display: inline-block; margin-right: .9rem; }
.key i { display: inline-block; width: .9rem; height: .9rem; margin-right: .3rem; }
.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
"""


def page(history: History, verdict: Verdict) -> str:
    """The whole page."""
    header = history.header
    color, word = ("green", "green") if verdict.green else ("red", "red")
    parts = [
        f"<h1>{escape(header.title)}</h1>",
        f'<p><span class="verdict {color}">{word}</span> {escape(_of_what(header))}</p>',
        *_section("Verdict", _checks(verdict)),
        *_section("Timeline", _timeline(draw(history))),
        *_section("What it cost", _table(cost_rows(history, verdict))),
        *_section("Setting", _table(setting_rows(header))),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(header.drill)}: {word}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _of_what(header: Header) -> str:
    control = f"negative control: {header.control}; " if header.control else ""
    return (
        f"{control}{header.drill} on a {header.cluster} cluster, seed {header.seed}, {header.began}"
    )


def _section(title: str, parts: Iterable[str]) -> Iterable[str]:
    yield f"<h2>{title}</h2>"
    yield from parts


def _checks(verdict: Verdict) -> Iterable[str]:
    signs = {True: '<span class="ok">✓</span>', False: '<span class="no">✗</span>'}
    yield from _html_table(
        (f"{signs[check.holds]} {escape(check.name)}", escape(check.told))
        for check in verdict.checks
    )


def _timeline(timeline: Timeline) -> Iterable[str]:
    for lane in timeline.lanes:
        yield (
            f'<div class="name"><span>{escape(lane.title)}</span>'
            f"<span>{escape(lane.scale)}</span></div>{lane.svg}"
        )
    yield (
        f'<div class="axis"><span>0 s</span><span>{timeline.end_ms / 2000:.1f} s</span>'
        f"<span>{timeline.end_ms / 1000:.1f} s</span></div>"
    )
    keys = "".join(
        f'<span class="key"><i style="background:{color}"></i>{node}</span>'
        for node, color in timeline.colors.items()
    )
    yield f'<p>Leaders: {keys}<span class="key"><i style="background:#d0342c"></i>none</span></p>'
    yield "<p>Red lines are faults, green lines are recoveries:</p>"
    yield from _html_table(
        (_time(mark.at_ms), escape(mark.phase), escape(mark.text)) for mark in timeline.marks
    )


def _time(at_ms: float) -> str:
    return f'<span class="time">{at_ms / 1000:.2f} s</span>'


def _table(rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield from _html_table([escape(cell) for cell in row] for row in rows)


def _html_table(rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield "<table>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>"
    yield "</table>"
