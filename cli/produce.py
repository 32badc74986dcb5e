"""``stele produce``: lines of a file or of standard input as records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from cli.client_properties import command_security
from cli.connection import check_topics, connect, milliseconds
from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Json, tell_wait
from cli.output import CommandError, UsageError, note, print_json
from stele.errors import SteleError, TransactionOutcomeUnknownError

if TYPE_CHECKING:
    from stele.config import Acks, CompressionName
    from stele.sync import Delivery

KeyAndValue = tuple[bytes | None, bytes]

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
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")],
    file: File = None,
    key_field: KeyField = None,
    key_separator: KeySeparator = None,
    skip_lines: SkipLines = 0,
    partition: PartitionOption = None,
    compression: Compression = "none",
    acks: AcksOption = "all",
    transactional_id: TransactionalId = None,
    transaction_timeout: TransactionTimeout = 60.0,
    as_json: Json = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Write every line as a record, and wait until all are acknowledged.

    An interrupted run says how many lines were acknowledged: write the lines after them to complete
    it. With --transactional-id it has written nothing.
    """
    from stele.sync import Producer

    parse = _parser(key_field, key_separator)
    with connect(bootstrap, timeout) as admin:
        check_topics(admin, [topic], f" Create it with: stele topic create {topic}")
    tally = Tally(acks != "0", transactional_id is not None)
    try:
        with (
            _lines(file) as lines,
            Producer(
                bootstrap,
                acks=cast("Acks", acks),
                compression=cast("CompressionName", compression),
                max_block_ms=milliseconds(timeout),
                delivery_timeout_ms=milliseconds(timeout),
                transactional_id=transactional_id,
                transaction_timeout_ms=milliseconds(transaction_timeout),
                on_wait=tell_wait,
                **command_security(),
            ) as producer,
            _progress(tally),
            nullcontext() if transactional_id is None else producer.transaction(),
        ):
            for number, line in enumerate(lines):
                if number < skip_lines:
                    continue
                key, value = parse(line.rstrip(b"\r\n"))
                tally.taken += 1
                delivery = producer.send(topic, value, key, partition=partition)
                delivery.add_done_callback(tally.counter(len(value) + len(key or b"")))
            producer.flush()
    except KeyboardInterrupt:
        note(f"stele: interrupted: {tally.unfinished()}")
        raise
    except (CommandError, SteleError) as error:
        if not tally.records and transactional_id is None:
            raise
        if isinstance(error, TransactionOutcomeUnknownError):
            raise
        raise CommandError(f"{error}; {tally.unfinished()}") from error
    if as_json:
        print_json({"records": tally.records, "bytes": tally.bytes, "acks": acks})
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
def _lines(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdin.buffer
    else:
        from cli.lines import open_lines

        with open_lines(file) as lines:
            yield lines


def _parser(key_field: int | None, key_separator: str | None) -> Callable[[bytes], KeyAndValue]:
    if key_field is not None and key_separator is not None:
        raise UsageError("give --key-field or --key-separator, not both")
    if key_field is not None:
        return lambda line: (_csv_field(line, key_field), line)
    if key_separator is not None:
        separator = key_separator.encode()
        return lambda line: _split(line, separator)
    return lambda line: (None, line)


def _csv_field(line: bytes, number: int) -> bytes:
    if b'"' in line:
        import csv

        fields = next(csv.reader([line.decode("utf-8", "surrogateescape")]))
        found = [field.encode("utf-8", "surrogateescape") for field in fields]
    else:
        found = line.split(b",", number)
    if len(found) < number:
        raise CommandError(f"--key-field {number}: the line {line[:80]!r} has fewer columns")
    return found[number - 1]


def _split(line: bytes, separator: bytes) -> KeyAndValue:
    key, found, value = line.partition(separator)
    if not found:
        text = separator.decode()
        raise CommandError(f"--key-separator {text!r}: the line {line[:80]!r} does not have it")
    return key, value


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
