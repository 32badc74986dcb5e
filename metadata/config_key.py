"""Configuration keys: the type and the range of each, and the reading of its value."""

from __future__ import annotations

import enum
import re
import sys
from dataclasses import dataclass

from stele.errors import ApiError, ErrorCode

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

Value = bool | int | float | str | tuple[str, ...]


class Type(enum.Enum):
    """How a value is written; the names are from Kafka's DescribeConfigs."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"  # separated by commas
    PASSWORD = "PASSWORD"  # a text that no answer shows


class Scope(enum.Enum):
    """Where a key may be set."""

    STATIC = "node"  # in server.properties and its overrides, which are read at start
    CLUSTER = "cluster"  # there, and dynamically for the cluster or for one broker
    CLUSTER_ONLY = "cluster only"  # there, and dynamically for the cluster: brokers must agree
    TOPIC = "topic"  # on a topic
    GROUP = "group"  # on a consumer group
    CLIENT_METRICS = "client metrics"  # on a subscription to clients' metrics


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key. ``default`` is written as a user would write it; None: it must be set."""

    name: str
    type: Type
    default: str | None
    doc: str
    scope: Scope = Scope.STATIC
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()
    # Values that Kafka takes and that this version refuses, each with the reason.
    not_built: tuple[tuple[str, str], ...] = ()
    # A regular expression for the whole text of a string or a list, and the same rule in words.
    pattern: tuple[str, str] | None = None
    # Kafka has the key and its tools set it, but it changes nothing here. Its doc says so.
    is_inert: bool = False
    # Keys of topics and groups: the key of the default, for topics and groups that do not set it.
    synonym: str | None = None
    # Keys that give `synonym` in a larger unit (log.retention.hours), each with its size in units
    # of `synonym`. If several are set, the smallest unit wins.
    coarser: tuple[tuple[str, int], ...] = ()

    def parse(self, text: str) -> Value:
        """The typed value. Raises ApiError INVALID_CONFIG saying what would be right."""
        text = text.strip()
        match self.type:
            case Type.BOOLEAN:
                self._check_built(text.lower(), text)
                if text.lower() not in ("true", "false"):
                    raise self._refused(text, "true or false")
                return text.lower() == "true"
            case Type.PASSWORD:
                return text
            case Type.STRING:
                self._check_pattern(text, text)
                return self._chosen(text, text)
            case Type.LIST:
                items = tuple(item.strip() for item in text.split(",") if item.strip())
                for item in items:
                    self._chosen(item, text)
                self._check_pattern(",".join(items), text)
                return items
            case Type.DOUBLE:
                greatest = sys.float_info.max
                return self._ranged(_number(text, float), text, -greatest, greatest)
            case Type.INT:
                return self._ranged(_number(text, int), text, -INT_MAX - 1, INT_MAX)
            case Type.LONG:
                return self._ranged(_number(text, int), text, -LONG_MAX - 1, LONG_MAX)

    def _chosen(self, item: str, text: str) -> str:
        self._check_built(item, text)
        if self.allowed and item not in self.allowed:
            many = "one or several of " if self.type is Type.LIST else "one of "
            raise self._refused(text, many + ", ".join(self.allowed))
        return item

    def _check_pattern(self, value: str, text: str) -> None:
        if self.pattern is not None and re.fullmatch(self.pattern[0], value) is None:
            raise self._refused(text, self.pattern[1])

    def _check_built(self, item: str, text: str) -> None:
        for value, reason in self.not_built:
            if item == value:
                raise ApiError(ErrorCode.INVALID_CONFIG, f"{self.name}={text}: {reason}")

    def _ranged(self, value: float | None, text: str, least: float, most: float) -> int | float:
        low = least if self.minimum is None else self.minimum
        high = most if self.maximum is None else self.maximum
        if self.allowed and value is not None:
            self._chosen(text, text)
        if value is None or not low <= value <= high:
            kind = "a number" if self.type is Type.DOUBLE else "a whole number"
            raise self._refused(text, f"{kind} from {low} to {high}")
        return value

    def _refused(self, text: str, wanted: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_CONFIG, f"{self.name}={text}: it must be {wanted}")


def _number(text: str, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(text)
    except ValueError:
        return None
