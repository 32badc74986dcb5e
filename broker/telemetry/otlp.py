"""What clients push: MetricsData of OpenTelemetry's protocol, read point by point.

The bytes are strangers'. A message of protobuf's library would be made whole in one turn of the
event loop, and two bytes make an element of it. So this reader goes through the fields itself, and
keeps no more than one point. Histograms and summaries are left out: no client of Kafka sends them.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from runtime.grpc.protobuf_fields import varint
from stele.errors import ApiError, ErrorCode

FIELDS_MAX: Final = 200_000
"""The most fields of a push, on all levels: some 0.3 s of work. A Java producer of 1,000 partitions
sends a fifth of them."""

FIELDS_AT_ONCE: Final = 500
"""Fields that are read in one turn."""

_SMALL_MAX: Final = 128
"""Fields of a point, an attribute or a resource, which are read without a pause."""

TEXT_MAX: Final = 200
"""Characters of a name or a value that are kept."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Attributes = tuple[tuple[str, str], ...]
"""Sorted by name."""


class Point(NamedTuple):
    """One value of one metric."""

    name: str
    attributes: Attributes
    """The resource's and the point's. If both have one of a name, the point's counts."""
    value: float
    is_delta: bool
    """Whether the value is what came in addition since the push before."""


class _Field(NamedTuple):
    number: int
    kind: int
    start: int  # of its content
    end: int


class _Reader:
    """Goes through one message, and counts what it looks at."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.left = FIELDS_MAX
        self.until_pause = FIELDS_AT_ONCE

    def fields(self, start: int, end: int) -> Iterator[_Field]:
        data, position = self.data, start
        while position < end:
            self._count()
            tag, position = _number(data, position, end)
            kind = tag & 7
            begin = position
            if kind == _BYTES:
                length, begin = _number(data, position, end)
                position = begin + length
            elif kind == _VARINT:
                _, position = _number(data, position, end)
            elif kind in (_FIXED64, _FIXED32):
                position += 8 if kind == _FIXED64 else 4
            else:
                raise _invalid(f"a field of type {kind}")
            if position > end:
                raise _invalid("a field goes past the end of its message")
            yield _Field(tag >> 3, kind, begin, position)

    def small(self, start: int, end: int) -> Iterator[_Field]:
        for count, field in enumerate(self.fields(start, end)):
            if count >= _SMALL_MAX:
                raise _invalid(f"a point or a resource of more than {_SMALL_MAX} fields")
            yield field

    def messages(self, start: int, end: int, number: int) -> Generator[None, None, list[_Field]]:
        """The messages in one field of a message."""
        found = []
        for field in self.fields(start, end):
            if field.number == number and field.kind == _BYTES:
                found.append(field)
            if self.is_pause_due():
                yield
        return found

    def is_pause_due(self) -> bool:
        if self.until_pause > 0:
            return False
        self.until_pause = FIELDS_AT_ONCE
        return True

    def _count(self) -> None:
        self.left -= 1
        self.until_pause -= 1
        if self.left < 0:
            raise ApiError(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"the metrics have more than {FIELDS_MAX} fields: subscribe to fewer metrics",
            )

    def text(self, field: _Field) -> str:
        try:
            return bytes(self.data[field.start : field.end]).decode()[:TEXT_MAX]
        except UnicodeDecodeError as error:
            raise _invalid("a text that is not UTF-8") from error


def points(data: bytes) -> Iterator[Point | None]:
    """The points of gauges and sums. None: this turn was long enough, and others may run.

    Raises ApiError: INVALID_RECORD for bytes that are no MetricsData, TELEMETRY_TOO_LARGE for more
    than ``FIELDS_MAX`` fields. The points before are valid all the same.
    """
    reader = _Reader(memoryview(data))
    for resource_metrics in reader.fields(0, len(data)):
        if resource_metrics.number == 1 and resource_metrics.kind == _BYTES:
            yield from _of_resource(reader, resource_metrics)
        if reader.is_pause_due():
            yield None


def _of_resource(reader: _Reader, message: _Field) -> Iterator[Point | None]:
    # The resource comes first, as protobuf writes fields in the order of their numbers.
    attributes: dict[str, str] = {}
    for field in reader.fields(message.start, message.end):
        if field.number == 1 and field.kind == _BYTES:
            attributes.update(_attributes(reader, field, number=1))
        elif field.number == 2 and field.kind == _BYTES:
            for metric in (yield from _paused(reader.messages(field.start, field.end, 2))):
                yield from _of_metric(reader, metric, attributes)
        if reader.is_pause_due():
            yield None


def _paused(
    work: Generator[None, None, list[_Field]],
) -> Generator[Point | None, None, list[_Field]]:
    return (yield from work)


def _of_metric(
    reader: _Reader, message: _Field, resource: dict[str, str]
) -> Iterator[Point | None]:
    name = ""
    data: list[tuple[_Field, bool]] = []
    for field in reader.small(message.start, message.end):
        if field.kind == _BYTES:
            if field.number == 1:
                name = reader.text(field)
            elif field.number in (5, 7):  # a gauge, a sum
                data.append((field, field.number == 7))
    for field, is_sum in data:
        # The temporality is behind the points, so the points wait for it.
        found = []
        temporality = 0
        for part in reader.fields(field.start, field.end):
            if part.number == 1 and part.kind == _BYTES:
                found.append(part)
            elif part.number == 2 and part.kind == _VARINT:
                temporality, _ = _number(reader.data, part.start, part.end)
            if reader.is_pause_due():
                yield None
        for part in found:
            point = _point(reader, part, name, resource, is_delta=is_sum and temporality == 1)
            if point is not None:
                yield point
            if reader.is_pause_due():
                yield None


def _point(
    reader: _Reader, message: _Field, name: str, resource: dict[str, str], *, is_delta: bool
) -> Point | None:
    """None: it has no value."""
    attributes = dict(resource)
    value: float | None = None
    for field in reader.small(message.start, message.end):
        content = reader.data[field.start : field.end]
        if field.number == 7 and field.kind == _BYTES:
            key, text = _attribute(reader, field)
            attributes[key] = text
        elif field.number == 4 and field.kind == _FIXED64:
            (value,) = struct.unpack("<d", content)
        elif field.number == 6 and field.kind == _FIXED64:
            (whole,) = struct.unpack("<q", content)
            value = float(whole)
    if value is None:
        return None
    return Point(name, tuple(sorted(attributes.items())), value, is_delta)


def _attributes(reader: _Reader, message: _Field, number: int) -> dict[str, str]:
    return dict(
        _attribute(reader, field)
        for field in reader.small(message.start, message.end)
        if field.number == number and field.kind == _BYTES
    )


def _attribute(reader: _Reader, message: _Field) -> tuple[str, str]:
    key = text = ""
    for field in reader.small(message.start, message.end):
        if field.kind == _BYTES and field.number == 1:
            key = reader.text(field)
        elif field.kind == _BYTES and field.number == 2:
            for part in reader.small(field.start, field.end):
                value = _value(reader, part)
                text = text if value is None else value
    return key, text


def _value(reader: _Reader, field: _Field) -> str | None:
    """An attribute's value as text. None: it is a list, a map, or nothing that is known."""
    if field.number == 1 and field.kind == _BYTES:
        return reader.text(field)
    if field.kind == _VARINT and field.number in (2, 3):
        number, _ = _number(reader.data, field.start, field.end)
        if field.number == 2:
            return "true" if number else "false"
        return str(number - (1 << 64) if number >= 1 << 63 else number)
    if field.number == 4 and field.kind == _FIXED64:
        (value,) = struct.unpack("<d", reader.data[field.start : field.end])
        return f"{value:g}"
    return None


def _number(data: memoryview, position: int, end: int) -> tuple[int, int]:
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    try:
        number, position = varint(data[:end], position)
    except ValueError as error:
        raise _invalid("a number without an end") from error
    return number & ((1 << 64) - 1), position


def _invalid(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD, f"not OTLP metrics: {why}")
