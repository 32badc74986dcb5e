"""Turns the options of the data source into the offset ranges that Spark's tasks read. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass

EARLIEST = -2
LATEST = -1

_OPTIONS = {
    "bootstrap.servers": "",
    "default.api.timeout.ms": "20000",
    "subscribe": "",
    "startingoffsets": "earliest",
    "endingoffsets": "latest",
    "minpartitions": "0",
    "includeheaders": "false",
    "failondataloss": "true",
}


class OptionError(ValueError):
    """An option of the data source is missing, unknown or has an invalid value."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: one rule for all partitions, or offsets for some of them.

    As in Spark's Kafka source, an offset of -2 is the earliest, and -1 the latest.
    """

    default: int
    offsets: Mapping[tuple[str, int], int]

    def of(self, topic: str, partition: int) -> int:
        return self.offsets.get((topic, partition), self.default)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read, checked."""

    bootstrap_servers: str
    default_api_timeout_ms: int
    """How long to look for the cluster and its topics. Spark's user sees nothing meanwhile."""
    topics: tuple[str, ...]
    start: Bound
    end: Bound
    min_partitions: int
    include_headers: bool
    fail_on_data_loss: bool

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Check the options. Names are case-insensitive, and may have ``kafka.`` before a client
        setting.

        Raises OptionError.
        """
        values = dict(_OPTIONS)
        for name, value in options.items():
            key = name.lower().removeprefix("kafka.")
            if key not in _OPTIONS:
                raise OptionError(f"unknown option {name!r}; known: {', '.join(sorted(_OPTIONS))}")
            values[key] = value
        topics = tuple(name.strip() for name in values["subscribe"].split(",") if name.strip())
        if not values["bootstrap.servers"]:
            raise OptionError('option "bootstrap.servers" is missing, e.g. 127.0.0.1:9092')
        if not topics:
            raise OptionError('option "subscribe" is missing: one topic, or several with commas')
        return cls(
            bootstrap_servers=values["bootstrap.servers"],
            default_api_timeout_ms=max(
                _whole_number("default.api.timeout.ms", values["default.api.timeout.ms"]), 1
            ),
            topics=topics,
            start=_bound("startingOffsets", values["startingoffsets"]),
            end=_bound("endingOffsets", values["endingoffsets"]),
            min_partitions=_whole_number("minPartitions", values["minpartitions"]),
            include_headers=_boolean("includeHeaders", values["includeheaders"]),
            fail_on_data_loss=_boolean("failOnDataLoss", values["failondataloss"]),
        )


def _bound(option: str, value: str) -> Bound:
    rule = {"earliest": EARLIEST, "latest": LATEST}.get(value.strip().lower())
    if rule is not None:
        return Bound(rule, {})
    try:
        parsed = json.loads(value)
        offsets = {
            (str(topic), int(partition)): int(offset)
            for topic, partitions in parsed.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(
            f'option "{option}" is earliest, latest or JSON such as {{"orders": {{"0": 23}}}}, '
            f"not {value!r}"
        ) from error
    if any(offset < EARLIEST for offset in offsets.values()):
        raise OptionError(f'option "{option}": offsets are at least 0, or -2 earliest, -1 latest')
    return Bound(EARLIEST if option == "startingOffsets" else LATEST, offsets)


def _whole_number(option: str, value: str) -> int:
    if not value.strip().isdigit():
        raise OptionError(f'option "{option}" is a whole number, not {value!r}')
    return int(value)


def _boolean(option: str, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        raise OptionError(f'option "{option}" is true or false, not {value!r}')
    return value.strip().lower() == "true"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets that one task reads: from ``start`` up to, but not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def records(self) -> int:
        return self.end - self.start


def split(ranges: list[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Divide the longest ranges so that there are about ``min_partitions``. Empty ones are left
    out.

    The pieces of a range are in proportion to its share of the records, as in Spark's Kafka source.
    """
    ranges = [each for each in ranges if each.records > 0]
    total = sum(each.records for each in ranges)
    if len(ranges) >= min_partitions:
        return ranges
    pieces = []
    for each in ranges:
        count = min(each.records, max(1, round(each.records / total * min_partitions)))
        cuts = [each.start + each.records * number // count for number in range(count + 1)]
        pieces += [
            OffsetRange(each.topic, each.partition, low, high)
            for low, high in itertools.pairwise(cuts)
        ]
    return pieces
