"""``stele consume``: records of a topic on standard output."""

from __future__ import annotations

import enum
import json
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from cli.client_properties import command_security
from cli.connection import check_topics, connect, milliseconds
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, tell_wait
from cli.output import CommandError, UsageError

if TYPE_CHECKING:
    from stele.ids import TopicPartition
    from stele.records import ConsumerRecord
    from stele.sync import Consumer


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, help="Seconds without progress after which the command gives up."
    ),
]


class Isolation(enum.StrEnum):
    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


class Format(enum.StrEnum):
    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to read.")],
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", min=0, help="Read only this partition; may be repeated."),
    ] = None,
    offset: Annotated[
        str,
        typer.Option(
            "--offset",
            help=(
                "First offset: earliest, latest or a number. With --group: of partitions without a "
                "committed offset."
            ),
        ),
    ] = "earliest",
    max_records: Annotated[
        int | None, typer.Option("--max", min=1, help="Stop after this number of records.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", help="Read as a member of this group, until Ctrl-C or --max."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for further records instead of stopping.")
    ] = False,
    isolation_level: Annotated[
        Isolation,
        typer.Option(
            "--isolation-level",
            help="read_committed: no records of open and aborted transactions.",
        ),
    ] = Isolation.READ_UNCOMMITTED,
    output: Annotated[
        Format,
        typer.Option(
            "--format", help="What a line shows: value, key-value (a tab between them) or json."
        ),
    ] = Format.VALUE,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Print records; stops at the end that the topic had at the start, unless --follow."""
    from stele.sync import Consumer

    with connect(bootstrap, timeout) as admin:
        check_topics(admin, [topic])
    if group is not None:
        if partition:
            raise UsageError("--partition and --group exclude each other: the group assigns")
        _consume_in_group(
            bootstrap, topic, group, offset, max_records, isolation_level, output, timeout
        )
        return
    with Consumer(
        bootstrap,
        auto_offset_reset="earliest",
        isolation_level=isolation_level.value,
        default_api_timeout_ms=milliseconds(timeout),
        on_wait=tell_wait,
        **command_security(),
    ) as consumer:
        _assign(consumer, topic, partition or [], offset)
        ends = {} if follow else consumer.end_offsets(consumer.assignment())
        _print_all(consumer, ends, max_records, follow, output, timeout)


def _consume_in_group(
    bootstrap: str,
    topic: str,
    group: str,
    offset: str,
    max_records: int | None,
    isolation_level: Isolation,
    output: Format,
    timeout_s: float,
) -> None:
    """Exactly what was printed is committed."""
    from stele.sync import Consumer

    if offset not in ("earliest", "latest"):
        raise UsageError(
            f"--offset {offset}: with --group earliest or latest; "
            "stele group reset-offsets moves a group to a number"
        )
    out = sys.stdout.buffer
    printed = 0
    with Consumer(
        bootstrap,
        group_id=group,
        enable_auto_commit=False,
        isolation_level=isolation_level.value,
        auto_offset_reset="latest" if offset == "latest" else "earliest",
        default_api_timeout_ms=milliseconds(timeout_s),
        on_wait=tell_wait,
        **command_security(),
    ) as consumer:
        consumer.subscribe([topic])
        outside_since = time.monotonic()
        while max_records is None or printed < max_records:
            left = 1000 if max_records is None else max_records - printed
            records = consumer.poll(min(left, 1000), timeout_ms=500)
            if consumer.group_metadata().generation_id >= 0:
                outside_since = time.monotonic()
            elif time.monotonic() - outside_since > timeout_s:
                raise CommandError(f"could not join the group {group!r} within {timeout_s:g} s")
            if records:
                out.writelines(_line(record, output) for record in records)
                out.flush()
                printed += len(records)
                consumer.commit()


def _assign(consumer: Consumer, topic: str, partitions: list[int], offset: str) -> None:
    known = consumer.partitions_for(topic)
    for each in partitions:
        if each not in known:
            raise CommandError(f"topic {topic} has partitions 0 to {known[-1]}, not {each}")
    names = [(topic, each) for each in partitions or known]
    consumer.assign(names)
    if offset == "latest":
        consumer.seek_to_end()
    elif offset == "earliest":
        consumer.seek_to_beginning()
    elif offset.isdecimal():
        _seek(consumer, names, int(offset))
    else:
        raise UsageError(f"--offset {offset}: use earliest, latest or a number")


def _seek(consumer: Consumer, names: list[tuple[str, int]], offset: int) -> None:
    begins, ends = consumer.beginning_offsets(names), consumer.end_offsets(names)
    for name, begin, end in zip(names, begins.values(), ends.values(), strict=True):
        if not begin <= offset <= end:
            raise CommandError(
                f"--offset {offset}: {name[0]}-{name[1]} has {begin} to {end}, its end;"
                " choose others by --partition, or use earliest or latest"
            )
        consumer.seek(*name, offset)


def _print_all(
    consumer: Consumer,
    ends: dict[TopicPartition, int],
    max_records: int | None,
    follow: bool,
    output: Format,
    timeout_s: float,
) -> None:
    """Raises CommandError when ``timeout_s`` pass without a record that is known to be there."""
    out = sys.stdout.buffer
    printed = 0
    silent_since = time.monotonic()
    unread = {name for name, end in ends.items() if consumer.position(*name) < end}
    while follow or unread:
        left = None if max_records is None else max_records - printed
        if left == 0:
            break
        records = consumer.poll(min(left or 1000, 1000), timeout_ms=500)
        if records or follow:
            silent_since = time.monotonic()
        elif time.monotonic() - silent_since > timeout_s:
            name = min(unread)
            raise CommandError(
                f"{name}: no record came for {timeout_s:g} s at offset {consumer.position(*name)}, "
                f"{ends[name]} not reached"
            )
        for record in records:
            end = ends.get((record.topic, record.partition))  # type: ignore[call-overload]
            if end is None or record.offset < end:
                out.write(_line(record, output))
                printed += 1
        out.flush()
        for name in list(unread):
            if consumer.position(*name) >= ends[name]:
                unread.discard(name)
                consumer.pause(name)


def _line(record: ConsumerRecord, output: Format) -> bytes:
    if output is Format.VALUE:
        return (record.value or b"") + b"\n"
    if output is Format.KEY_VALUE:
        return (record.key or b"") + b"\t" + (record.value or b"") + b"\n"
    return (
        json.dumps(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
            },
            ensure_ascii=False,
        ).encode()
        + b"\n"
    )


def _text(data: bytes | None) -> object:
    """As text; what is not UTF-8 as an object with its base64 form."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        import base64

        return {"base64": base64.b64encode(data).decode()}
