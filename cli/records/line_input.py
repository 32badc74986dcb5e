"""How ``stele produce`` makes a record of a line."""

from __future__ import annotations

import enum
from collections.abc import Callable

from cli.output import CommandError, UsageError
from cli.records.json_form import GivenRecord, record_of_json


class InputFormat(enum.StrEnum):
    """What a line is."""

    LINES = "lines"
    JSON = "json"


def record_parser(
    input_format: InputFormat,
    key: str | None,
    key_field: int | None,
    key_separator: str | None,
    null_marker: str | None,
) -> Callable[[bytes], GivenRecord]:
    """Raises UsageError. The function raises CommandError for a line that does not have what the
    options say."""
    sources = {"--key": key, "--key-field": key_field, "--key-separator": key_separator}
    given = [option for option, value in sources.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"give {' or '.join(given)}, not both: each says what the key is")
    if input_format is InputFormat.JSON:
        given += [] if null_marker is None else ["--null-marker"]
        if given:
            raise UsageError(f"{given[0]} and --format json exclude each other: lines have all")
        return record_of_json
    split = _splitter(key, key_field, key_separator)
    if null_marker is None:
        return lambda line: GivenRecord(*split(line))
    marker = null_marker.encode()

    def parse(line: bytes) -> GivenRecord:
        found_key, value = split(line)
        return GivenRecord(
            None if found_key == marker else found_key, None if value == marker else value
        )

    return parse


def _splitter(
    key: str | None, key_field: int | None, key_separator: str | None
) -> Callable[[bytes], tuple[bytes | None, bytes]]:
    if key_field is not None:
        return lambda line: (_csv_field(line, key_field), line)
    if key_separator is not None:
        if not key_separator:
            raise UsageError("--key-separator must not be empty")
        separator = key_separator.encode()
        return lambda line: _split(line, separator)
    fixed = None if key is None else key.encode()
    return lambda line: (fixed, line)


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


def _split(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        text = separator.decode()
        raise CommandError(f"--key-separator {text!r}: the line {line[:80]!r} does not have it")
    return key, value
