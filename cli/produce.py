"""``stele produce``: lines of a file or of standard input as records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.client_properties import command_security
from cli.completion import complete_topic
from cli.connection import check_topics, connect, milliseconds
from cli.kafka_properties import option_properties
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, Properties, tell_wait
from cli.output import CommandError, UsageError, note, print_json
from cli.records.line_input import InputFormat, record_parser
from stele.errors import SteleError, TransactionOutcomeUnknownError

if TYPE_CHECKING:
    from cli.records.json_form import GivenRecord
    from stele.sync import Delivery

# The options of the command.
File = Annotated[
    Path | None,
    typer.Option("--file", "-f", help="File to read instead of standard input (.gz, too)."),
]
KeyField = Annotated[
    int | None,
    typer.Option("--key-field", min=1, help="Number (from 1) of the CSV column that is the key."),
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", help="A line is KEY SEPARATOR VALUE.")
]
FixedKey = Annotated[str | None, typer.Option("--key", help="The key of every record.")]
NullMarker = Annotated[
    str | None,
    typer.Option(
        "--null-marker",
        metavar="TEXT",
        help="A key or value that is this text is null: such a value is a tombstone.",
    ),
]
Header = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="FILE...", help="Files that are one record each, instead of lines."),
]


FormatOption = Annotated[
    InputFormat,
    typer.Option(
        "--format",
        help=(
            "What a line is: a value (lines), or a JSON object with value, key, headers, "
            "timestamp_ms and partition, as consume --format json prints it."
        ),
    ),
]
SkipLines = Annotated[
    int,
    typer.Option(
        "--skip-lines", min=0, help="Number of first lines to leave out, e.g. 1 for a header."
    ),
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", min=0, help="Write all records to this partition.")
]
Compression = Annotated[
    str, typer.Option("--compression", help="Codec: none, gzip, snappy, lz4 or zstd.")
]
AcksOption = Annotated[
    str,
    typer.Option(
        "--acks", help="Replicas that acknowledge: all (in sync), 1 (the leader) or 0 (none)."
    ),
]
TransactionalId = Annotated[
    str | None,
    typer.Option("--transactional-id", help="Write all lines in one transaction with this id."),
]
TransactionTimeout = Annotated[
    float,
    typer.Option("--transaction-timeout", min=0.1, help="Seconds for the whole transaction."),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.1, help="Seconds without success after which the command gives up."
    ),
]


def produce(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="Topic to write to.", autocompletion=complete_topic),
    ],
    files: Files = None,
    file: File = None,
    input_format: FormatOption = InputFormat.LINES,
    key: FixedKey = None,
    key_field: KeyField = None,
    key_separator: KeySeparator = None,
    null_marker: NullMarker = None,
    header: Header = None,
    skip_lines: SkipLines = 0,
    partition: PartitionOption = None,
    compression: Compression = "none",
    acks: AcksOption = "all",
    transactional_id: TransactionalId = None,
    transaction_timeout: TransactionTimeout = 60.0,
    properties: Properties = None,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Write every line as a record, and wait until all are acknowledged.

    An interrupted run says how many lines were acknowledged: write the lines after them to complete
    it. With --transactional-id it has written nothing.
    """
    from stele.config import ProducerConfig

    if files and (file is not None or skip_lines or input_format is not InputFormat.LINES):
        raise UsageError("FILE... are whole records: leave --file, --skip-lines and --format out")
    if files and (key_field is not None or key_separator is not None):
        raise UsageError("FILE... are whole records: give --key, which all of them have")
    parse = record_parser(input_format, key, key_field, key_separator, null_marker)
    headers = tuple((name, value.encode()) for name, value in _pairs(header or []))
    options: dict[str, Any] = {
        "acks": acks,
        "compression": compression,
        "max_block_ms": milliseconds(timeout),
        "delivery_timeout_ms": milliseconds(timeout),
        "transactional_id": transactional_id,
        "transaction_timeout_ms": milliseconds(transaction_timeout),
        "on_wait": tell_wait,
        **option_properties(ProducerConfig, properties or [], {}),
    }
    with connect(bootstrap, timeout) as admin:
        check_topics(admin, [topic], f" Create it with: stele topic create {topic}")
    with _given(file, files or [], skip_lines) as items:
        records = (
            each._replace(
                headers=(*headers, *each.headers),
                partition=partition if each.partition is None else each.partition,
            )
            for each in map(parse, items)
        )
        _write(bootstrap, topic, records, options, as_json)


def _write(
    bootstrap: str,
    topic: str,
    records: Iterable[GivenRecord],
    options: dict[str, Any],
    as_json: bool,
) -> None:
    from stele.sync import Producer

    is_transactional = options["transactional_id"] is not None
    tally = Tally(str(options["acks"]) != "0", is_transactional)
    try:
        with (
            Producer(bootstrap, **options, **command_security()) as producer,
            _progress(tally),
            producer.transaction() if is_transactional else nullcontext(),
        ):
            for key, value, headers, timestamp_ms, partition in records:
                tally.taken += 1
                delivery = producer.send(topic, value, key, headers, timestamp_ms, partition)
                delivery.add_done_callback(tally.counter(len(value or b"") + len(key or b"")))
            producer.flush()
    except KeyboardInterrupt:
        note(f"stele: interrupted: {tally.unfinished()}")
        raise
    except (CommandError, SteleError) as error:
        if not tally.records and not is_transactional:
            raise
        if isinstance(error, TransactionOutcomeUnknownError):
            raise
        raise CommandError(f"{error}; {tally.unfinished()}") from error
    if as_json:
        print_json({"records": tally.records, "bytes": tally.bytes, "acks": options["acks"]})
    else:
        note(f"{tally.records} records, {tally.bytes} bytes {tally.done}")


@dataclass(slots=True)
class Tally:
    """Counts of sent, acknowledged and failed records, kept on the client's thread."""

    told_of: bool
    """Whether brokers acknowledge: not with acks=0."""
    is_transactional: bool = False
    taken: int = 0
    records: int = 0
    bytes: int = 0

    @property
    def done(self) -> str:
        return "acknowledged" if self.told_of else "sent (brokers do not acknowledge with acks=0)"

    def unfinished(self) -> str:
        """A line that says how far the work has got when it ends."""
        if self.is_transactional:
            return "the transaction was not committed: no record counts"
        open_ = self.taken - self.records
        return f"{self.records} records, {self.bytes} bytes {self.done}" + (
            f"; {open_} more were sent without an answer: they may or may not be stored"
            if open_
            else ""
        )

    def counter(self, size: int) -> Callable[[Delivery], None]:
        def count(delivery: Delivery) -> None:
            if delivery.exception() is None:
                self.records += 1
                self.bytes += size

        return count


@contextmanager
def _given(file: Path | None, files: Sequence[Path], skip_lines: int) -> Iterator[Iterable[bytes]]:
    """Lines without their ends, or whole files. Raises CommandError, also while they are read."""
    if files:
        yield map(_content, files)
    elif file is None:
        yield _without_ends(islice(sys.stdin.buffer, skip_lines, None))
    else:
        from cli.lines import open_lines

        with open_lines(file) as lines:
            yield _without_ends(islice(lines, skip_lines, None))


def _without_ends(lines: Iterable[bytes]) -> Iterator[bytes]:
    return (line.rstrip(b"\r\n") for line in lines)


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from None


def _pairs(headers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """In their order; a name may come several times. Raises UsageError."""
    for each in headers:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise UsageError(f"--header {each!r} is not of the form name=value")
        yield name, value


@contextmanager
def _progress(tally: Tally) -> Iterator[None]:
    """Finished records with records/s and MB/s, if somebody sits before standard error."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TimeElapsedColumn
    from rich.text import Text

    class Rates(ProgressColumn):
        def render(self, task: Task) -> Text:
            elapsed = task.elapsed or 1e-9
            return Text(
                f"{tally.records:,} {tally.done.split()[0]}  "
                f"{tally.records / elapsed:,.0f} records/s  "
                f"{tally.bytes / elapsed / 1e6:.1f} MB/s"
            )

    with Progress(
        SpinnerColumn(), Rates(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        progress.add_task("", total=None)
        yield
