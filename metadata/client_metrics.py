"""Subscriptions to the metrics of clients: the config resource CLIENT_METRICS (KIP-714).

A subscription says which metrics the clients push that match it, and how often. Its keys and their
errors are Kafka's. It is deleted when its last key is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from metadata.config_key import ConfigKey, Scope, Type
from metadata.name_pattern import NamePattern, PatternError
from stele.errors import ApiError, ErrorCode

CLIENT_METRICS_CONFIGS: Final = 8
"""The level of metadata.version from which on there are subscriptions."""

ALL_METRICS: Final = "*"
"""As a prefix: every metric. Java's client and librdkafka compare with exactly this."""

INTERVAL_MS: Final = 300_000
_INTERVAL_MS_MIN, _INTERVAL_MS_MAX = 100, 3_600_000

CRITERIA: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What a client can be selected by."""

_VALUE_MAX: Final = 1_024
"""Characters of a client's value that an expression is tried on. A longer one matches nothing. So
the automaton of 500 states takes a tenth of a second at the very most."""

METRICS_KEY: Final = ConfigKey(
    "metrics", Type.LIST, "",
    "Prefixes of the names of the metrics that matching clients push, or * for all metrics. If "
    "empty, they push none for this subscription.",
    scope=Scope.CLIENT_METRICS,
)  # fmt: skip
INTERVAL_KEY: Final = ConfigKey(
    "interval.ms", Type.INT, str(INTERVAL_MS),
    f"How often matching clients push, from {_INTERVAL_MS_MIN} to {_INTERVAL_MS_MAX}. A client "
    "that matches several subscriptions pushes as often as the shortest says.",
    scope=Scope.CLIENT_METRICS,
)  # fmt: skip
MATCH_KEY: Final = ConfigKey(
    "match", Type.LIST, "",
    "The clients that match: CRITERION=EXPRESSION. A client has to meet all of them. Criteria: "
    + ", ".join(CRITERIA)
    + ". An expression is RE2's (Kafka: Java's), and has to match the whole value. If empty, every "
    "client.",
    scope=Scope.CLIENT_METRICS,
)  # fmt: skip
CLIENT_METRICS: Final = (METRICS_KEY, INTERVAL_KEY, MATCH_KEY)
"""Every key."""


class Subscription(NamedTuple):
    """One subscription, as it is in force."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, NamePattern], ...]
    """Criteria with their expressions, each criterion once."""

    def matches(self, client: Mapping[str, str]) -> bool:
        """``client``: the value of every criterion."""
        return all(_is_match(pattern, client[name]) for name, pattern in self.match)


def subscription_of(configs: Mapping[str, str]) -> Subscription:
    """What the configs of a subscription come to.

    Raises ApiError: INVALID_CONFIG for a value of another type and for a criterion that cannot be
    read, INVALID_REQUEST for an interval out of range. These are Kafka's errors.
    """
    metrics, interval, match = (
        key.parse(configs.get(key.name, key.default or "")) for key in CLIENT_METRICS
    )
    assert isinstance(metrics, tuple)
    assert isinstance(interval, int)
    assert isinstance(match, tuple)
    if not _INTERVAL_MS_MIN <= interval <= _INTERVAL_MS_MAX:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"interval.ms={interval}: it must be from {_INTERVAL_MS_MIN} to {_INTERVAL_MS_MAX}",
        )
    patterns: dict[str, NamePattern] = {}
    for text in match:
        name, pattern = _criterion(text)
        if name in patterns:
            raise _illegal(text, f"{name} is named twice")
        patterns[name] = pattern
    return Subscription(metrics, interval, tuple(patterns.items()))


def _criterion(text: str) -> tuple[str, NamePattern]:
    name, equals, expression = (part.strip() for part in text.partition("="))
    if not equals or not expression or "=" in expression:
        raise _illegal(text, "it must be CRITERION=EXPRESSION, with one equals sign")
    if name not in CRITERIA:
        raise _illegal(text, f"there is no criterion {name!r}: there are {', '.join(CRITERIA)}")
    try:
        return name, NamePattern(expression, of_topics=False)
    except PatternError as error:
        raise _illegal(text, f"the expression cannot be used: {error}") from error


def _illegal(text: str, why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, f"match: {text!r}: {why}")


def _is_match(pattern: NamePattern, value: str) -> bool:
    if len(value) > _VALUE_MAX:
        return False
    pattern.work = 0  # its bound is for one value, since the subscription lives long
    try:
        return pattern.matches(value)
    except PatternError:
        return False
