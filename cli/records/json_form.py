"""A record as one JSON object: what ``consume --format json`` prints and ``produce --format json``
reads."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cli.output import CommandError, did_you_mean

if TYPE_CHECKING:
    from stele.records import ConsumerRecord, ShareRecord

_BASE64: Final = "base64"
_DELIVERIES: Final = "delivery_count"
"""Records of share groups alone have it."""
FIELDS: Final = (
    *("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"),
    _DELIVERIES,
)
_IGNORED: Final = ("topic", "offset", _DELIVERIES)
"""Only a record that was read has these. ``produce`` writes to the topic of its argument."""


class GivenRecord(NamedTuple):
    """A record as a line of input says it. ``None`` of partition or time: the producer chooses."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def json_line(record: ConsumerRecord | ShareRecord, value: object) -> bytes:
    """One line. ``value`` is the form in which the record's value is shown."""
    shown: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": text_or_base64(record.key),
        "value": value,
        "headers": [[name, text_or_base64(each)] for name, each in record.headers],
    }
    if (deliveries := getattr(record, _DELIVERIES, None)) is not None:
        shown[_DELIVERIES] = deliveries
    return json.dumps(shown, ensure_ascii=False).encode() + b"\n"


def text_or_base64(data: bytes | None) -> object:
    """As text; what is not UTF-8 as an object with its base64 form."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {_BASE64: base64.b64encode(data).decode()}


def record_of_json(line: bytes) -> GivenRecord:
    """Raises CommandError."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise CommandError(f"{_start(line)} is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise CommandError(f"{_start(line)} is no JSON object with the fields of a record")
    for name in given:
        if name not in FIELDS:
            raise CommandError(
                f"{_start(line)}: a record has no field {name!r}.{did_you_mean(name, FIELDS)} "
                f"Its fields are: {', '.join(each for each in FIELDS if each not in _IGNORED)}"
            )
    if "value" not in given:
        raise CommandError(f'{_start(line)} has no "value"; a tombstone has "value": null')
    try:
        return GivenRecord(
            _bytes(given.get("key"), "key"),
            _bytes(given["value"], "value"),
            _headers(given.get("headers") or ()),
            _whole_number(given.get("timestamp_ms"), "timestamp_ms"),
            _whole_number(given.get("partition"), "partition"),
        )
    except ValueError as error:
        raise CommandError(f"{_start(line)}: {error}") from None


def _start(line: bytes) -> str:
    text = line[:60].decode(errors="replace").strip()
    return f"the line {text!r}"


def _bytes(given: Any, name: str) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, dict) and list(given) == [_BASE64] and isinstance(given[_BASE64], str):
        try:
            return base64.b64decode(given[_BASE64], validate=True)
        except binascii.Error as error:
            raise ValueError(f'the "base64" of "{name}" cannot be decoded: {error}') from None
    raise ValueError(f'"{name}" is neither a text, null nor {{"base64": TEXT}}')


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    pairs = list(given.items()) if isinstance(given, Mapping) else given
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(each, list | tuple) and len(each) == 2 and isinstance(each[0], str)
        for each in pairs
    ):
        raise ValueError('"headers" is neither an object nor a list of [name, value]')
    return tuple((name, _bytes(value, f"headers.{name}")) for name, value in pairs)


def _whole_number(given: Any, name: str) -> int | None:
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise ValueError(f'"{name}" is no whole number from 0 on')
