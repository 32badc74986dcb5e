"""``stele verify mirror``: whether topics of two clusters have the same records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.command_list import CommandList
from cli.connection import milliseconds
from cli.options import EXIT_NOT_WELL, Json, tell_wait
from cli.output import CommandError, print_json, print_table
from cli.records.comparison import Comparison, Difference
from cli.records.reading import records_until

if TYPE_CHECKING:
    from stele.records import ConsumerRecord
    from stele.sync import Consumer

app = typer.Typer(cls=CommandList, help="Compare what two clusters hold.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Without it Typer would make the only command the program."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one partition. ``missing``: records of the source that are not in the target
    (yet). ``surplus``: the other way round."""

    topic: str
    partition: int
    same: int
    missing: int
    surplus: int
    difference: Difference | None

    @property
    def is_same(self) -> bool:
        return not (self.missing or self.surplus or self.difference)


@app.command()
def mirror(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics of the source.")],
    source: Annotated[
        str, typer.Option("--source", help="Brokers of the source, of Stele or Kafka: host:port,…")
    ],
    target: Annotated[
        str, typer.Option("--target", help="Brokers of the target, of Stele or Kafka: host:port,…")
    ],
    prefix: Annotated[
        str, typer.Option("--prefix", help="Before the names in the target, such as 'kafka.'.")
    ] = "",
    source_config: Annotated[
        str | None,
        typer.Option("--source-config", metavar="FILE", help="Properties of the source's client."),
    ] = None,
    target_config: Annotated[
        str | None,
        typer.Option("--target-config", metavar="FILE", help="Properties of the target's client."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds without progress: give up.")
    ] = 30.0,
    as_json: Json = False,
) -> int:
    """Read topics of both clusters and compare keys, values, headers and times in order.

    Offsets may differ. Exit status 3: something is missing, too much, or not the same.
    """
    found: list[Verdict] = []
    with (
        _reader(source, source_config, timeout) as ours,
        _reader(target, target_config, timeout) as theirs,
    ):
        for topic in topics:
            found += _compared(ours, theirs, topic, prefix + topic, timeout)
    if as_json:
        print_json(found)
    else:
        columns = ("TOPIC", "PARTITION", "SAME", "MISSING", "SURPLUS", "FIRST DIFFERENCE")
        print_table(columns, map(_row, found))
    return 0 if all(each.is_same for each in found) else EXIT_NOT_WELL


def _reader(servers: str, config: str | None, timeout_s: float) -> Consumer:
    from stele.security.properties import security_options
    from stele.sync import Consumer

    security: Any = security_options(config) if config else {}
    return Consumer(
        servers,
        isolation_level="read_committed",
        auto_offset_reset="none",
        default_api_timeout_ms=milliseconds(timeout_s),
        on_wait=tell_wait,
        **security,
    )


def _compared(
    ours: Consumer, theirs: Consumer, topic: str, mirrored: str, timeout_s: float
) -> Iterator[Verdict]:
    """Raises CommandError, SteleError."""
    partitions, others = ours.partitions_for(topic), theirs.partitions_for(mirrored)
    if partitions != others:
        raise CommandError(
            f"topic {topic!r} has {len(partitions)} partitions, and {mirrored!r} in the target has "
            f"{len(others)}"
        )
    for partition in partitions:
        comparison = Comparison()
        source = _records(ours, topic, partition, timeout_s)
        target = _records(theirs, mirrored, partition, timeout_s)
        while not comparison.is_over:
            of_source = comparison.wants_source
            comparison.take(next(source if of_source else target, None), of_source=of_source)
        yield Verdict(
            topic,
            partition,
            comparison.same,
            comparison.missing,
            comparison.surplus,
            comparison.difference,
        )


def _records(
    consumer: Consumer, topic: str, partition: int, timeout_s: float
) -> Iterator[list[ConsumerRecord]]:
    """All records that are there now. Raises CommandError after ``timeout_s`` without one."""
    from stele.ids import TopicPartition

    name = TopicPartition(topic, partition)
    consumer.assign([name])
    begin, end = consumer.beginning_offsets([name]), consumer.end_offsets([name])
    consumer.seek(topic, partition, begin[name])
    yield from records_until(consumer, end, timeout_s)


def _row(found: Verdict) -> tuple[object, ...]:
    first = found.difference
    told = "-"
    if first is not None:
        what = " and ".join(first.fields)
        told = f"{what} at offset {first.source_offset} (target: {first.target_offset})"
    return found.topic, found.partition, found.same, found.missing, found.surplus, told
