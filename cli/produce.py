"""``stele produce``: lines of a file or of standard input as records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, cast

import typer

from cli.options import DEFAULT_BOOTSTRAP_SERVER, Bootstrap, Timeout, tell_wait
from cli.output import CommandError, did_you_mean, note

if TYPE_CHECKING:
    from stele.config import Acks, CompressionName
    from stele.sync import Delivery

KeyAndValue = tuple[bytes | None, bytes]


def produce(
    topic: str,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read from here (.gz too), not stdin.")
    ] = None,
    key_field: Annotated[
        int | None,
        typer.Option("--key-field", min=1, help="The CSV column (from 1) that is the key."),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", help="A line is KEY SEPARATOR VALUE.")
    ] = None,
    skip_lines: Annotated[
        int, typer.Option("--skip-lines", min=0, help="Leave out the first lines, e.g. a header.")
    ] = 0,
    partition: Annotated[int | None, typer.Option("--partition", min=0)] = None,
    compression: Annotated[
        str, typer.Option("--compression", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    acks: Annotated[str, typer.Option("--acks", help="all, 1 or 0.")] = "all",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP_SERVER,
    timeout: Timeout = 30.0,
) -> None:
    """Write every line as a record; ends when all are acknowledged."""
    from stele.sync import Producer

    parse = _parser(key_field, key_separator)
    _check_topic(topic, bootstrap, timeout)
    with (
        _lines(file) as lines,
        Producer(
            bootstrap,
            acks=cast("Acks", acks),
            compression=cast("CompressionName", compression),
            on_wait=tell_wait,
        ) as producer,
    ):
        tally = Tally()
        with _progress(tally):
            for number, line in enumerate(lines):
                if number < skip_lines:
                    continue
                key, value = parse(line.rstrip(b"\r\n"))
                delivery = producer.send(topic, value, key, partition=partition)
                delivery.add_done_callback(tally.counter(len(value) + len(key or b"")))
            producer.flush()
    note(f"{tally.records} records, {tally.bytes} bytes acknowledged")


@dataclass(slots=True)
class Tally:
    """Acknowledged so far; counted on the client's thread."""

    records: int = 0
    bytes: int = 0

    def counter(self, size: int) -> Callable[[Delivery], None]:
        def count(delivery: Delivery) -> None:
            if delivery.exception() is None:
                self.records += 1
                self.bytes += size

        return count


def _check_topic(topic: str, bootstrap: str, timeout_s: float) -> None:
    """A typo is told at once instead of after a minute's wait for the topic to appear."""
    from stele.sync import Admin

    with Admin(bootstrap, default_api_timeout_ms=int(timeout_s * 1000), on_wait=tell_wait) as admin:
        known = [each.name for each in admin.list_topics()]
    if topic not in known:
        raise CommandError(
            f"there is no topic {topic!r}.{did_you_mean(topic, known)} "
            f"Create it with: stele topic create {topic}"
        )


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
        raise CommandError("give --key-field or --key-separator, not both")
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
    """Acknowledged records with records/s and MB/s, if somebody sits before standard error."""
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
                f"{tally.records:,} acknowledged  {tally.records / elapsed:,.0f} records/s  "
                f"{tally.bytes / elapsed / 1e6:.1f} MB/s"
            )

    with Progress(
        SpinnerColumn(), Rates(), TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        progress.add_task("", total=None)
        yield
