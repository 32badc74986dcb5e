"""Drills one after the other, each on a cluster of its own, and what is written about them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final

from chaos.drills.chain.chain import ChainOptions
from chaos.drills.cluster import DrillCluster, DrillProcesses
from chaos.drills.drill import Control, Drill
from chaos.drills.history import History, read_history
from chaos.drills.needs import Need
from chaos.drills.page import page
from chaos.drills.planted import plant_all
from chaos.drills.process_faults import ProcessFaults
from chaos.drills.report import as_json, as_markdown
from chaos.drills.run import HISTORY_FILE, DrillOutcome, run_drill
from chaos.drills.verdict import Verdict, judge

MARKDOWN_FILE: Final = "report.md"
JSON_FILE: Final = "report.json"
PAGE_FILE: Final = "report.html"
LOGS: Final = "logs"

OpenCluster = Callable[[Drill, Path], AbstractAsyncContextManager[DrillCluster]]
"""Takes the drill, and a directory for the logs of the nodes of a drill that is not green."""


@asynccontextmanager
async def processes(drill: Drill, logs: Path) -> AsyncIterator[DrillCluster]:
    """A cluster of processes in a temporary directory. Its logs are kept in ``logs``."""
    directory = Path(tempfile.mkdtemp(prefix="stele-drill-"))
    is_secure = Need.SECURITY in drill.needs
    faults = ProcessFaults(drill.needs)
    moves = Need.MOVE in drill.needs
    cluster = DrillProcesses(directory, drill.settings, faults, is_secure=is_secure, moves=moves)
    try:
        await cluster.open()
        yield cluster
    finally:
        await cluster.close()
        _keep_logs(directory, logs)
        shutil.rmtree(directory, ignore_errors=True)


def _keep_logs(directory: Path, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for log in sorted(directory.glob("*/node.log")):
        shutil.copy(log, logs / f"{log.parent.name}.log")


async def perform(
    drill: Drill,
    directory: Path,
    seed: int,
    open_cluster: OpenCluster,
    control: Control | None = None,
    chain: ChainOptions | None = None,
) -> DrillOutcome:
    """Run one drill on a cluster that is opened for it, and write everything about it.

    Raises SteleError if the cluster does not start.
    """
    shutil.rmtree(directory, ignore_errors=True)
    async with open_cluster(drill, directory / LOGS) as cluster:
        outcome = await run_drill(
            drill, cluster, directory, seed=seed, control=control, chain=chain
        )
    write_reports(outcome.history, outcome.verdict, directory)
    if outcome.verdict.green:
        shutil.rmtree(directory / LOGS, ignore_errors=True)
    return outcome


def write_reports(history: History, verdict: Verdict, directory: Path) -> None:
    """Write the report as Markdown, as JSON and as a page, beside the history."""
    (directory / MARKDOWN_FILE).write_text(as_markdown(history, verdict), encoding="utf-8")
    (directory / JSON_FILE).write_text(json.dumps(as_json(history, verdict), indent=1) + "\n")
    (directory / PAGE_FILE).write_text(page(history, verdict), encoding="utf-8")


def recorded(directory: Path) -> list[tuple[Path, History, Verdict]]:
    """Every history below a directory, judged anew, in the order of their paths.

    Raises HistoryError for a history that cannot be read.
    """
    found = []
    for file in sorted(directory.glob(f"*/{HISTORY_FILE}")):
        history = read_history(file)
        found.append((file.parent, history, judge(history)))
    return found


async def prove(
    drill: Drill,
    directory: Path,
    seed: int,
    open_cluster: OpenCluster,
    chain: ChainOptions | None = None,
) -> tuple[bool, str]:
    """Run a drill's negative control. Returns whether it turned red as it must, and what was seen.

    A drill without a control of its own must be green, and each planted fault must turn it red.
    """
    control = drill.control
    outcome = await perform(drill, directory, seed, open_cluster, control, chain)
    broken = [check.name for check in outcome.verdict.broken]
    if control is not None:
        if any(control.breaks in name for name in broken):
            return True, f"red with {control.what}: {'; '.join(broken)}"
        seen = "; ".join(broken) or "it was green"
        return False, f"with {control.what} it had to break {control.breaks!r}: {seen}"
    if broken:
        return False, f"it was to be green before anything is planted: {'; '.join(broken)}"
    caught, missed = plant_all(outcome.history)
    if missed or not caught:
        return False, f"green although this was planted: {', '.join(missed) or 'nothing'}"
    return True, f"red with each of {len(caught)} planted faults: {', '.join(caught)}"
