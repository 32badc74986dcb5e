"""The demo's observations, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypedDict

from rich.console import Console
from rich.table import Table

from cli.demo.sender import Outage
from cli.orders import OrderFigures
from stele.errors import SteleError

_CENT = Decimal("0.01")


class SparkCountry(TypedDict):
    country: str
    lines: int
    revenue: str


class SparkFigures(TypedDict):
    """The output of ``spark.orders --json``."""

    lines: int
    quantity: int
    revenue: str
    top_countries: list[SparkCountry]


@dataclass(slots=True)
class Report:
    lines: int
    bytes_streamed: int = 0
    stream_seconds: float = 0.0
    read_seconds: float = 0.0
    longest_pause_s: float = 0.0
    broker_killed: int = -1
    batches_in_flight: int = 0
    controller_killed: int = -1
    outages: list[Outage] = field(default_factory=list)
    leader_epochs: list[tuple[int, int]] = field(default_factory=list)
    quorum_epoch_before: int = 0
    quorum_epoch_after: int = 0
    figures: OrderFigures = field(default_factory=OrderFigures)
    spark: SparkFigures | None = None

    def check_epochs(self) -> None:
        """Elections raise epochs: if none rose, the kills hit no leader."""
        if not any(after > before for before, after in self.leader_epochs):
            raise SteleError("no leader epoch rose although a partition's leader was killed")
        if self.quorum_epoch_after <= self.quorum_epoch_before:
            raise SteleError("the quorum's epoch did not rise although its leader was killed")

    def check_spark(self) -> None:
        """Spark and the read-back count the same records."""
        if self.spark is None:
            return
        own = (self.figures.lines, self.figures.quantity, cents(self.figures.revenue))
        theirs = (self.spark["lines"], self.spark["quantity"], Decimal(self.spark["revenue"]))
        if own != theirs:
            raise SteleError(f"Spark counts {theirs}, the read-back {own}")


def cents(amount: Decimal) -> Decimal:
    return amount.quantize(_CENT)


def print_report(report: Report, console: Console) -> None:
    """The figures of the orders, then what the kills cost."""
    _print_figures(report, console)
    table = Table(title="What the kills cost", show_header=True, header_style="bold")
    table.add_column("killed -9")
    table.add_column("longest wait for an acknowledgement", justify="right")
    for outage in report.outages:
        seconds = "none came" if outage.seconds is None else f"{outage.seconds * 1000:,.0f} ms"
        table.add_row(outage.victim, seconds)
    console.print(table)
    rises = [after - before for before, after in report.leader_epochs]
    epochs = ", ".join(f"{before}→{after}" for before, after in report.leader_epochs)
    console.print(f"partition elections  {sum(rises)} (leader epochs {epochs})")
    console.print(
        f"quorum elections     {report.quorum_epoch_after - report.quorum_epoch_before} "
        f"(epoch {report.quorum_epoch_before}→{report.quorum_epoch_after})"
    )
    rate = report.lines / report.stream_seconds
    speed = report.bytes_streamed / report.stream_seconds / 1e6
    console.print(
        f"streamed             {report.lines:,} lines in {report.stream_seconds:.1f} s, "
        f"{rate:,.0f} records/s, {speed:.1f} MB/s, kills included"
    )
    console.print(
        f"read back            in {report.read_seconds:.1f} s, "
        f"{report.lines / report.read_seconds:,.0f} records/s"
    )


def _print_figures(report: Report, console: Console) -> None:
    own = report.figures
    table = Table(title="Orders", show_header=True, header_style="bold")
    table.add_column("")
    table.add_column("read back", justify="right")
    if report.spark is not None:
        table.add_column("Spark", justify="right")
    spark = report.spark
    rows: list[tuple[str, str, str]] = [
        ("lines", f"{own.lines:,}", f"{spark['lines']:,}" if spark else ""),
        ("quantity", f"{own.quantity:,}", f"{spark['quantity']:,}" if spark else ""),
        (
            "revenue",
            f"{cents(own.revenue):,}",
            f"{Decimal(spark['revenue']):,}" if spark else "",
        ),
    ]
    for place, (name, _, amount) in enumerate(own.top_countries()):
        theirs = spark["top_countries"][place] if spark else None
        rows.append(
            (
                f"{place + 1}. {name}",
                f"{cents(amount):,}",
                f"{Decimal(theirs['revenue']):,}" if theirs else "",
            )
        )
    for row in rows:
        table.add_row(*(row if spark else row[:2]))
    console.print(table)
