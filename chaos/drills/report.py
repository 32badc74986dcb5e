"""A drill's report as Markdown and as JSON. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from chaos.drills.chain.findings import ChainFindings
from chaos.drills.history import Header, History
from chaos.drills.outages import Outage
from chaos.drills.queue.findings import QueueFindings
from chaos.drills.verdict import Verdict

Row = tuple[str, str]


def as_json(history: History, verdict: Verdict) -> dict[str, Any]:
    """Everything, for programs. The history itself is in its own file."""
    findings = verdict.findings
    return {
        "header": dataclasses.asdict(history.header),
        "green": verdict.green,
        "checks": [dataclasses.asdict(check) for check in verdict.checks],
        "acknowledged": findings.acknowledged,
        "findings": {
            field.name: [list(name) for name in getattr(findings, field.name)]
            for field in dataclasses.fields(findings)
            if field.name != "acknowledged"
        },
        "times": dataclasses.asdict(verdict.times),
        "chain": None if verdict.chain is None else dataclasses.asdict(verdict.chain),
        "queue": None if verdict.queue is None else dataclasses.asdict(verdict.queue),
        "steps": [
            {"at_ms": step.at_ms, "phase": step.phase, "text": step.text}
            for step in history.steps(
                "steady", "fault", "heal", "recovered", "failed", "end", "note"
            )
        ],
    }


def as_markdown(history: History, verdict: Verdict) -> str:
    header = history.header
    lines = [f"# {header.title}: {'green' if verdict.green else 'RED'}", ""]
    if header.control:
        lines += [f"Negative control: {header.control}. It must be red.", ""]
    lines += ["| | check | seen |", "|---|---|---|"]
    lines += [
        f"| {'ok' if check.holds else '**no**'} | {_cell(check.name)} | {_cell(check.told)} |"
        for check in verdict.checks
    ]
    lines += ["", "## What it cost", "", "| | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in cost_rows(history, verdict)]
    lines += ["", "## Course", "", "| time | phase | step |", "|---:|---|---|"]
    lines += [
        f"| {step.at_ms / 1000:.2f} s | {step.phase} | {_cell(step.text)} |"
        for step in history.steps("steady", "fault", "heal", "recovered", "failed", "end", "note")
    ]
    lines += ["", "## Setting", "", "| | |", "|---|---|"]
    lines += [f"| {_cell(name)} | {_cell(value)} |" for name, value in setting_rows(header)]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def cost_rows(history: History, verdict: Verdict) -> Iterator[Row]:
    """What the faults cost, as names and values."""
    times, found = verdict.times, verdict.findings
    yield "acknowledged", str(found.acknowledged)
    yield "lost, duplicated, reordered", _counts(found.lost, found.duplicated, found.reordered)
    yield "write outage", _outages(times.writes)
    yield "read outage", _outages(times.reads)
    if times.group:
        yield "outage of the group", _outages(times.group)
    yield "detected after", seconds(times.detected_ms)
    yield "recovered after", seconds(times.recovered_ms)
    elections = f"{times.elections}, of which unclean: {times.unclean_elections}"
    yield "elections of partitions", elections
    yield "elections of controllers", str(times.quorum_elections)
    if verdict.chain is not None:
        yield from _chain_rows(verdict.chain)
    if verdict.queue is not None:
        yield from _queue_rows(verdict.queue)


def _queue_rows(found: QueueFindings) -> Iterator[Row]:
    yield "deliveries to workers", f"{found.deliveries}, of which again: {found.again}"
    yield "poison", str(found.poison)


def _chain_rows(found: ChainFindings) -> Iterator[Row]:
    yield "into the chain", f"{found.acknowledged} acknowledged, {found.in_per_s:.0f}/s"
    yield "out of the chain", f"{found.out}, {found.out_per_s:.0f}/s"
    within = (found.latency_p50_ms, found.latency_p99_ms, found.latency_max_ms)
    half, most, longest_one = map(seconds, within)
    yield "through the chain", f"half within {half}, 99 % within {most}, all within {longest_one}"
    yield "last record out after", seconds(found.drained_ms)
    for hop in found.hops:
        took = f"half within {hop.took_p50_ms:.0f} ms, 99 % within {hop.took_p99_ms:.0f} ms"
        trouble = f"{hop.aborted} aborted, {hop.began_anew} times begun anew"
        told = f"{hop.committed} transactions of {hop.records} records, {took}; {trouble}"
        yield f"hop {hop.hop}", told


def setting_rows(header: Header) -> Iterator[Row]:
    """How the drill was set up, as names and values."""
    yield "drill", header.drill
    brokers, controllers = _ids(header.brokers), _ids(header.controllers)
    yield "cluster", f"{header.cluster}: brokers {brokers}, controllers {controllers}"
    yield "topic", f"{header.partitions} partitions, {header.replication_factor} replicas"
    for name, values in (
        ("topic's settings", header.topic_configs),
        ("nodes' settings", header.settings),
        ("workload", header.workload),
        ("versions", header.versions),
    ):
        yield name, ", ".join(f"{key}={value}" for key, value in sorted(values.items())) or "-"
    yield "seed", str(header.seed)
    yield "began", header.began


def seconds(duration_ms: float | None) -> str:
    return "-" if duration_ms is None else f"{duration_ms / 1000:.2f} s"


def longest(outages: Sequence[Outage]) -> float | None:
    return max((each.duration_ms for each in outages), default=None)


def _outages(outages: Sequence[Outage]) -> str:
    """The longest, and that of each partition."""
    if not outages:
        return "-"
    each = ", ".join(f"{outage.partition}: {seconds(outage.duration_ms)}" for outage in outages)
    return f"{seconds(longest(outages))} ({each})"


def _counts(*found: Sequence[object]) -> str:
    return ", ".join(str(len(each)) for each in found)


def _ids(nodes: Sequence[int]) -> str:
    return ", ".join(map(str, nodes))
