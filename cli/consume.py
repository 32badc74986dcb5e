"""``stele consume``: records of topics on standard output."""

from __future__ import annotations

import enum
import re
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.client_properties import command_security
from cli.completion import complete_group, complete_topic
from cli.connection import check_topics, connect, milliseconds
from cli.group.times import begin_ms
from cli.kafka_properties import option_properties
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Properties, tell_wait
from cli.output import CommandError, UsageError, note
from cli.records.filters import Accepts, record_filter
from cli.records.line_format import LineOf, ValueForm, line_format
from cli.records.reading import last_records, records_from, records_until
from stele.topic_names import INTERNAL_PREFIX

if TYPE_CHECKING:
    from stele.ids import TopicPartition
    from stele.records import ConsumerRecord
    from stele.sync import Consumer

_IDLE_S: Final = 3.0
"""Longer than a rebalance takes, in which a member may have no partitions."""

_INSTEAD: Final = {
    "group.id": "--group",
    "isolation.level": "--isolation-level",
    "auto.offset.reset": "--offset",
    "enable.auto.commit": "--group, which commits what was printed",
    "default.api.timeout.ms": "--timeout",
}

Topics = Annotated[
    list[str] | None,
    typer.Argument(metavar="TOPIC...", help="The topics to read.", autocompletion=complete_topic),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="REGEX",
        help="Read all topics whose whole name matches, without internal ones.",
    ),
]
PartitionOption = Annotated[
    list[int] | None,
    typer.Option("--partition", min=0, help="Read only this partition; may be repeated."),
]
Offset = Annotated[
    str | None,
    typer.Option(
        "--offset",
        show_default="earliest",
        help=(
            "First offset: earliest, latest or a number. With --group: of partitions without a "
            "committed offset."
        ),
    ),
]
FromTime = Annotated[
    str | None,
    typer.Option(
        "--from-time",
        metavar="TIME",
        help=(
            "Begin with the first record of this time: 10m, 2h or 1d12h before now, 2026-11-24, "
            "2026-11-24T08:00:00, or milliseconds since 1970."
        ),
    ),
]
Last = Annotated[
    int | None,
    typer.Option("--last", min=1, metavar="N", help="Print the last N records in all."),
]
MaxRecords = Annotated[
    int | None, typer.Option("--max", min=1, help="Stop after printing this number of records.")
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Read as a member of this group, until Ctrl-C or --max.",
        autocompletion=complete_group,
    ),
]
Follow = Annotated[
    bool, typer.Option("--follow", help="Wait for further records instead of stopping.")
]
UntilEnd = Annotated[
    bool,
    typer.Option(
        "--until-end",
        help="Stop at the end that each partition has now; without --group this is the default.",
    ),
]
Key = Annotated[str | None, typer.Option("--key", help="Print only records with exactly this key.")]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME[=VALUE]",
        help="Print only records with this header; may be repeated, then all are needed.",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        help=(
            "What a line shows: value, key-value (a tab between them), json, or a text with kcat's "
            "letters: %k key, %v or %s value, %h headers, %o offset, %T time, %t topic, "
            "%p partition, %K and %S sizes."
        ),
    ),
]
Value = Annotated[
    ValueForm,
    typer.Option("--value", help="How values are shown: their bytes, JSON on one line, or hex."),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, help="Seconds without progress after which the command gives up."
    ),
]


class Isolation(enum.StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


IsolationLevel = Annotated[
    Isolation,
    typer.Option(
        "--isolation-level", help="read_committed: no records of open and aborted transactions."
    ),
]


def consume(
    topics: Topics = None,
    pattern: Pattern = None,
    partition: PartitionOption = None,
    offset: Offset = None,
    from_time: FromTime = None,
    last: Last = None,
    max_records: MaxRecords = None,
    group: Group = None,
    follow: Follow = False,
    until_end: UntilEnd = False,
    key: Key = None,
    header: Header = None,
    isolation_level: IsolationLevel = Isolation.READ_UNCOMMITTED,
    output: FormatOption = "value",
    value: Value = ValueForm.TEXT,
    properties: Properties = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Print records; stops at the end that the topics had at the start, unless --follow."""
    begin = _begin(offset, from_time, last, group)
    if follow and until_end:
        raise UsageError("--follow and --until-end exclude each other")
    if last is not None and max_records is not None:
        raise UsageError("--last and --max exclude each other: --last says how many already")
    if partition and group is not None:
        raise UsageError("--partition and --group exclude each other: the group assigns")
    matching = _pattern(topics or [], pattern)
    printer = _Printer(line_format(output, value), record_filter(key, header or []), max_records)
    from stele.config import ConsumerConfig

    given = option_properties(ConsumerConfig, properties or [], _INSTEAD)
    with connect(bootstrap, timeout) as admin:
        if matching is None:
            names = list(dict.fromkeys(topics or []))
            check_topics(admin, names)
        else:
            names = _matching(matching, [each.name for each in admin.list_topics()])
    from stele.sync import Consumer

    options: dict[str, Any] = {
        "isolation_level": isolation_level.value,
        "default_api_timeout_ms": milliseconds(timeout),
        "on_wait": tell_wait,
        **command_security(),
        **given,
    }
    if group is not None:
        options |= {"group_id": group, "enable_auto_commit": False}
    is_new_at_end = group is not None and begin.offset == "latest"
    options["auto_offset_reset"] = "latest" if is_new_at_end else "earliest"
    with Consumer(bootstrap, **options) as consumer:
        if group is not None:
            consumer.subscribe(names if matching is None else matching)
            _print_as_member(consumer, group, until_end, printer, timeout)
        else:
            partitions = _partitions(consumer, names, partition or [])
            _print_assigned(consumer, partitions, begin, follow, printer, timeout)


@dataclass(frozen=True, slots=True)
class _Begin:
    """Where reading begins: at an offset, at a time, or ``last`` records before the end."""

    offset: str
    time_ms: int | None
    last: int | None


def _begin(
    offset: str | None, from_time: str | None, last: int | None, group: str | None
) -> _Begin:
    """Raises UsageError."""
    given = [
        name
        for name, value in (("--offset", offset), ("--from-time", from_time), ("--last", last))
        if value is not None
    ]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other: each says where to begin")
    time_ms = None if from_time is None else begin_ms(from_time, time.time_ns() // 1_000_000)
    if group is not None:
        if from_time is not None or last is not None:
            raise UsageError(
                f"{given[0]} and --group exclude each other: a group goes on where it has stopped; "
                "stele group reset-offsets moves it"
            )
        if offset not in (None, "earliest", "latest"):
            raise UsageError(
                f"--offset {offset}: with --group earliest or latest; "
                "stele group reset-offsets moves a group to a number"
            )
    return _Begin(offset or "earliest", time_ms, last)


def _pattern(topics: Sequence[str], pattern: str | None) -> re.Pattern[str] | None:
    """Raises UsageError."""
    if pattern is None:
        if not topics:
            raise UsageError("which topics? Give TOPIC... or --pattern REGEX")
        return None
    if topics:
        raise UsageError("give topics or --pattern, not both")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--pattern {pattern!r} is no regular expression: {error}") from None


def _matching(pattern: re.Pattern[str], known: Iterable[str]) -> list[str]:
    names = [
        name for name in known if not name.startswith(INTERNAL_PREFIX) and pattern.fullmatch(name)
    ]
    if not names:
        raise CommandError(
            f"no topic matches --pattern {pattern.pattern!r}; it must match whole names. "
            "stele topic list shows them"
        )
    return names


class _Printer:
    """Writes the lines of accepted records, up to a number of them."""

    def __init__(self, line_of: LineOf, accepts: Accepts | None, max_records: int | None) -> None:
        self.accepts = accepts
        self._line_of = line_of
        self._max_records = max_records
        self._printed = 0

    @property
    def left(self) -> int | None:
        """How many more it prints. None: as many as come."""
        return None if self._max_records is None else self._max_records - self._printed

    @property
    def is_done(self) -> bool:
        return self.left == 0

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        if self.accepts is not None:
            records = [record for record in records if self.accepts(record)]
        shown = records[: self.left]
        if shown:
            out = sys.stdout.buffer
            out.writelines(self._line_of(record) for record in shown)
            out.flush()
            self._printed += len(shown)


def _print_as_member(
    consumer: Consumer, group: str, until_end: bool, printer: _Printer, timeout_s: float
) -> None:
    """Commits what it has printed, and what the filters have left out before that."""
    ends: dict[TopicPartition, int] = {}
    outside_since = time.monotonic()
    idle = IdleMember(group)
    while not printer.is_done:
        records = consumer.poll(min(printer.left or 1000, 1000), timeout_ms=500)
        is_member = consumer.group_metadata().generation_id >= 0
        if is_member:
            outside_since = time.monotonic()
            idle.look(bool(consumer.assignment()))
        elif time.monotonic() - outside_since > timeout_s:
            raise CommandError(f"could not join the group {group!r} within {timeout_s:g} s")
        if records:
            printer.write(records)
            consumer.commit()
        if until_end and is_member:
            own = consumer.assignment()
            if new := [name for name in own if name not in ends]:
                ends.update(consumer.end_offsets(new))
            if all(consumer.position(*name) >= ends[name] for name in own):
                return


class IdleMember:
    """Says once that a member has nothing to do."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._since: float | None = None  # infinite: this was said

    def look(self, has_partitions: bool) -> None:
        now = time.monotonic()
        if has_partitions or self._since is None:
            self._since = now
        elif now - self._since > _IDLE_S:
            self._since = float("inf")
            note(
                f"stele: this member of the group {self._group!r} has no partitions, and waits. "
                f"The partitions of all members: stele group describe {self._group} --members"
            )


def _partitions(
    consumer: Consumer, topics: Sequence[str], numbers: Sequence[int]
) -> list[TopicPartition]:
    from stele.ids import TopicPartition

    found = []
    for topic in topics:
        known = consumer.partitions_for(topic)
        for each in numbers:
            if each not in known:
                raise CommandError(f"topic {topic} has partitions 0 to {known[-1]}, not {each}")
        found += [TopicPartition(topic, each) for each in numbers or known]
    return found


def _print_assigned(
    consumer: Consumer,
    partitions: list[TopicPartition],
    begin: _Begin,
    follow: bool,
    printer: _Printer,
    timeout_s: float,
) -> None:
    consumer.assign(partitions)
    if begin.last is not None:
        ends = consumer.end_offsets(partitions)
        printer.write(last_records(consumer, ends, begin.last, printer.accepts, timeout_s))
        if not follow:
            return
        consumer.assign(partitions)
        consumer.resume()
        for name, end in ends.items():
            consumer.seek(*name, end)
    else:
        _seek(consumer, partitions, begin)
    reading = (
        records_from(consumer)
        if follow
        else records_until(consumer, consumer.end_offsets(partitions), timeout_s)
    )
    for records in reading:
        printer.write(records)
        if printer.is_done:
            return


def _seek(consumer: Consumer, partitions: list[TopicPartition], begin: _Begin) -> None:
    offset = begin.offset
    if begin.time_ms is not None:
        ends = consumer.end_offsets(partitions)  # first: records may come between the questions
        found = consumer.offsets_for_times(dict.fromkeys(partitions, begin.time_ms))
        for name, first in found.items():
            consumer.seek(*name, ends[name] if first is None else first.offset)
    elif offset == "latest":
        consumer.seek_to_end()
    elif offset == "earliest":
        consumer.seek_to_beginning()
    elif offset.isdecimal():
        _seek_to_number(consumer, partitions, int(offset))
    else:
        raise UsageError(f"--offset {offset}: use earliest, latest or a number")


def _seek_to_number(consumer: Consumer, partitions: list[TopicPartition], offset: int) -> None:
    begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    for name, begin, end in zip(partitions, begins.values(), ends.values(), strict=True):
        if not begin <= offset <= end:
            raise CommandError(
                f"--offset {offset}: {name} has {begin} to {end}, its end;"
                " choose others by --partition, or use earliest or latest"
            )
        consumer.seek(*name, offset)
