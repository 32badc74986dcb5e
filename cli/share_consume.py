"""``stele share consume``: records of a share group on standard output."""

from __future__ import annotations

import enum
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.client_properties import command_security
from cli.connection import check_topics, connect, milliseconds
from cli.consume import FormatOption, MaxRecords, Timeout, Value
from cli.kafka_properties import option_properties
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Properties, tell_wait
from cli.output import CommandError, note
from cli.records.line_format import LineOf, ValueForm, line_format

if TYPE_CHECKING:
    from stele.ids import TopicPartition
    from stele.records import ShareRecord
    from stele.sync import ShareConsumer

_POLL_MS: Final = 500
_RECORDS_MAX: Final = 500  # of a poll, and of a fetch
_INSTEAD: Final = {
    "group.id": "GROUP",
    "share.acknowledgement.mode": "--ack",
    "default.api.timeout.ms": "--timeout",
}


class Acknowledgement(enum.StrEnum):
    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


def consume(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The share group.")],
    topics: Annotated[
        list[str], typer.Option("--topic", help="Topic to take records of; may be repeated.")
    ],
    acknowledgement: Annotated[
        Acknowledgement,
        typer.Option(
            "--ack",
            help=(
                "What becomes of a printed record. accept: it is done. release: it is delivered "
                "again, up to the delivery limit. reject: it is not delivered again."
            ),
        ),
    ] = Acknowledgement.ACCEPT,
    max_records: MaxRecords = None,
    idle: Annotated[
        float | None,
        typer.Option(
            "--until-idle", min=0.1, help="Stop after this number of seconds without a record."
        ),
    ] = None,
    output: FormatOption = "value",
    value: Value = ValueForm.TEXT,
    properties: Properties = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Take records from a share group and print them, until Ctrl-C, --max or --until-idle.

    A record is acknowledged after it was printed. A new share group begins at the end of each
    partition, unless its configuration share.auto.offset.reset is earliest.
    """
    line_of = line_format(output, value)
    from stele.config import ShareConsumerConfig

    given = option_properties(ShareConsumerConfig, properties or [], _INSTEAD)
    with connect(bootstrap, timeout) as admin:
        check_topics(admin, topics)
    from stele.sync import ShareConsumer

    options: dict[str, Any] = {
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
        # Records that are not printed are left to other members.
        "share_acquire_mode": "record_limit",
        "max_poll_records": min(max_records or _RECORDS_MAX, _RECORDS_MAX),
        "default_api_timeout_ms": milliseconds(timeout),
        "on_wait": tell_wait,
        **command_security(),
        **given,
    }
    with ShareConsumer(bootstrap, **options) as consumer:
        consumer.subscribe(topics)
        _await_membership(consumer, group, timeout)
        _print_all(consumer, acknowledgement, max_records, idle, line_of)


def _await_membership(consumer: ShareConsumer, group: str, timeout_s: float) -> None:
    """Raises CommandError. The group may have to wait until its share partitions are made."""
    until_s = time.monotonic() + timeout_s
    while not consumer.assignment():
        if time.monotonic() > until_s:
            raise CommandError(
                f"share group {group!r} has assigned no partition within {timeout_s:g} s"
            )
        consumer.put_back(consumer.poll(1, timeout_ms=100))


def _print_all(
    consumer: ShareConsumer,
    acknowledgement: Acknowledgement,
    max_records: int | None,
    idle_s: float | None,
    line_of: LineOf,
) -> None:
    printed = 0
    heard_at_s = time.monotonic()
    while max_records is None or printed < max_records:
        left = None if max_records is None else max_records - printed
        records = consumer.poll(left, timeout_ms=_POLL_MS)
        if records:
            _print(consumer, records, acknowledgement, line_of)
            printed += len(records)
            heard_at_s = time.monotonic()
        elif idle_s is not None and time.monotonic() - heard_at_s >= idle_s:
            return


def _print(
    consumer: ShareConsumer,
    records: list[ShareRecord],
    acknowledgement: Acknowledgement,
    line_of: LineOf,
) -> None:
    from stele.records import AcknowledgeType

    out = sys.stdout.buffer
    out.writelines(line_of(record) for record in records)
    out.flush()
    kind = AcknowledgeType[acknowledgement.name]
    for record in records:
        consumer.acknowledge(record, kind)
    _tell_failures(consumer.commit())


def _tell_failures(results: Mapping[TopicPartition, Exception | None]) -> None:
    for partition, error in results.items():
        if error is not None:
            note(f"{partition}: printed records may be delivered again: {error}")
