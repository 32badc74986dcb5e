"""MetricsData of OpenTelemetry's protocol, as clients push it (KIP-714).

Only what a client needs: gauges, and sums that are differences. It is written by hand, so that the
client depends on no package for a few fields.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_DELTA = 1
_GAUGE, _SUM = 5, 7


class Metric(NamedTuple):
    """One value of one metric."""

    name: str
    value: float
    attributes: Mapping[str, str] = {}
    is_delta: bool = False
    """Whether it is what came in addition since the push before."""


def metrics_data(
    metrics: Iterable[Metric], *, resource: Mapping[str, str], since_ns: int, now_ns: int
) -> bytes:
    """``resource``: attributes of the client itself. ``since_ns``: when the push before was made;
    both times are of the Unix epoch."""
    times = _fixed(2, since_ns) + _fixed(3, now_ns)
    scope = b"".join(length_delimited(2, _metric(each, times)) for each in metrics)
    return resource_metrics(length_delimited(2, scope), resource)


def resource_metrics(content: bytes, resource: Mapping[str, str]) -> bytes:
    """The fields of one ResourceMetrics, with these attributes of its resource in addition."""
    attributes = b"".join(
        length_delimited(1, _attribute(*each)) for each in sorted(resource.items())
    )
    return length_delimited(1, length_delimited(1, attributes) + content)


def _metric(metric: Metric, times: bytes) -> bytes:
    attributes = b"".join(
        length_delimited(7, _attribute(*each)) for each in sorted(metric.attributes.items())
    )
    value = struct.pack("<Bd", 4 << 3 | _FIXED64, metric.value)
    points = length_delimited(1, times + value + attributes)
    if metric.is_delta:
        points += bytes((2 << 3 | _VARINT, _DELTA, 3 << 3 | _VARINT, 1))  # monotonic, too
    return _text(1, metric.name) + length_delimited(_SUM if metric.is_delta else _GAUGE, points)


def _attribute(key: str, value: str) -> bytes:
    return _text(1, key) + length_delimited(2, _text(1, value))


def _text(number: int, text: str) -> bytes:
    return length_delimited(number, text.encode())


def length_delimited(number: int, content: bytes) -> bytes:
    """A field of bytes, of text or of a message."""
    return bytes((number << 3 | _BYTES,)) + _varint(len(content)) + content


def _fixed(number: int, value: int) -> bytes:
    return struct.pack("<BQ", number << 3 | _FIXED64, value)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
