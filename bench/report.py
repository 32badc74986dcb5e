"""The output of a benchmark: the machine, tables, and each budget beside the measured figure."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

Cell = str | float | int | None

CAVEAT = (
    "Clients, brokers and controllers share these cores, and perhaps others do: "
    "medians and ratios within one run say more than single figures."
)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile; NaN if there are no values."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[min(max(int(rank) - 1, 0), len(ordered) - 1)]


def machine() -> dict[str, str]:
    """Cores, processor, memory, kernel."""
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _first_field("/proc/cpuinfo", "model name") or platform.machine(),
        "memory": _memory(),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    """The versions of Python, of Stele and of the packages that matter most for speed."""
    found = {"python": platform.python_version()}
    for name in ("stele-log", "uvloop", "grpcio", "protobuf", "crc32c"):
        found[name] = importlib.metadata.version(name)
    found["librdkafka"] = _librdkafka()
    return found


def _first_field(path: str, name: str) -> str:
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(name):
                    return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return ""


def _memory() -> str:
    kibibytes = _first_field("/proc/meminfo", "MemTotal").split(" ")[0]
    return f"{int(kibibytes) / (1 << 20):.0f} GiB" if kibibytes else "unknown"


def _librdkafka() -> str:
    try:
        import confluent_kafka
    except ImportError:
        return "not installed"
    return str(confluent_kafka.libversion()[0])


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that something may cost according to the design."""

    name: str
    limit: float
    unit: str

    def text(self, value: float) -> str:
        return f"{value:,.4g} {self.unit}"


PRODUCE_CPU = Budget("broker CPU per Produce request of one 16 KiB batch", 150, "µs")
SMALL_CPU = Budget("CPU of three brokers and helpers per acks=all request of one record", 400, "µs")
FETCH_CPU = Budget("broker CPU per Fetch answer of 1 MiB", 400, "µs")
IDLE_CPU = Budget("idle CPU of the cluster, 100 partitions, RF 3", 10, "% of one core")
IDLE_MEMORY = Budget("memory of an idle broker, 100 partitions", 90, "MiB")
START = Budget("start to first acknowledged record", 3, "s")
CONTROLLER_OUTAGE = Budget("kill -9 of a controller leader: metadata can change again, p99", 1, "s")
LEADER_OUTAGE = Budget("kill -9 of a partition leader: acks=all succeeds again, p99", 2, "s")
BUSY_LATENCY = Budget("acks=all produce beside four busy consumers, p99", 10, "ms")
TENANTS_RATIO = Budget("p99 of ten polite clients beside a greedy one, to quiet", 3, "times")
BACKGROUND_RATIO = {
    part: Budget(f"p99 of small writes beside {what}, to quiet", 2, "times")
    for part, what in (
        ("rolls", "rolling segments"),
        ("compaction", "a compaction"),
        ("backfill", "a cold backfill"),
        ("move", "a moving replica"),
    )
}
CONNECTION_CPU = Budget("node's CPU per new connection and its first request", 500, "µs")
REFUSAL_CPU = Budget("node's CPU per refused connection", 200, "µs")
CONNECTION_MEMORY = Budget("memory of an idle connection", 48, "KiB")
STORM_TURN = Budget("CPU of the busiest turn while 500 clients come at once", 10, "ms")
SIMULATION = Budget("CPU per virtual second of a simulated 3+3 cluster, light load", 10, "ms")


@dataclass(frozen=True, slots=True)
class _Figures:
    title: str
    columns: list[str]
    rows: list[list[Cell]]


@dataclass(frozen=True, slots=True)
class _Comparison:
    name: str
    budget: float
    measured: float
    unit: str
    met: bool


class Report:
    """Collects and prints results: with ``as_json`` one JSON document at the end, otherwise tables
    at once."""

    def __init__(self, name: str, *, as_json: bool = False) -> None:
        self.name = name
        self._as_json = as_json
        self._console = Console(width=None if Console().is_terminal else 160)
        self._tables: list[_Figures] = []
        self._comparisons: list[_Comparison] = []
        if not as_json:
            facts = {**machine(), **versions()}
            self._console.print(", ".join(f"{key} {value}" for key, value in facts.items()))
            self._console.print(CAVEAT + "\n")

    def note(self, text: str) -> None:
        """Print a line for people that says what runs now."""
        if not self._as_json:
            self._console.print(text, highlight=False)

    def table(self, title: str, columns: list[str], rows: list[list[Cell]]) -> None:
        self._tables.append(_Figures(title, columns, rows))
        if self._as_json:
            return
        headings = [column.replace(", ", "\n") for column in columns]
        shown = Table(*headings, title=title, title_justify="left")
        shown.columns[0].no_wrap = True
        for column, _ in enumerate(columns):
            if all(not isinstance(row[column], str) for row in rows):
                shown.columns[column].justify = "right"
        for row in rows:
            shown.add_row(*map(_text, row))
        self._console.print(shown)

    def compare(self, budget: Budget, measured: float) -> None:
        """Add a measured figure and its budget."""
        met = measured <= budget.limit
        self._comparisons.append(_Comparison(budget.name, budget.limit, measured, budget.unit, met))

    def finish(self) -> None:
        """Print the budgets, or with ``as_json`` everything."""
        if self._as_json:
            print(json.dumps(self._document(), indent=1))
        elif self._comparisons:
            shown = Table("what", "budget", "measured", "", title="Budgets", title_justify="left")
            for each in self._comparisons:
                budget = Budget(each.name, each.budget, each.unit)
                verdict = "[green]met[/]" if each.met else "[red]missed[/]"
                shown.add_row(
                    each.name, budget.text(each.budget), budget.text(each.measured), verdict
                )
            self._console.print(shown)

    def _document(self) -> dict[str, object]:
        return {
            "benchmark": self.name,
            "machine": machine(),
            "versions": versions(),
            "tables": [
                {
                    "title": each.title,
                    "rows": [dict(zip(each.columns, row, strict=True)) for row in each.rows],
                }
                for each in self._tables
            ],
            "budgets": [asdict(each) for each in self._comparisons],
        }


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 1000:
        return f"{cell:,.0f}"
    return f"{cell:,.1f}" if abs(cell) >= 10 else f"{cell:,.2f}"
