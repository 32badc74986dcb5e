"""The options of the data source, checked. Names are those of Spark's Kafka source. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from stele.config import ConsumerConfig, ConsumerOptions, ProducerConfig, ProducerOptions
from stele.errors import ConfigError
from stele.ids import TopicPartition
from stele.spark.client_settings import client_settings
from stele.spark.option_error import OptionError
from stele.spark.partition_json import numbers_of, partitions_of

EARLIEST = -2
LATEST = -1

Strategy = Literal["error", "latest"]
Isolation = Literal["read_uncommitted", "read_committed"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time."""

    timestamp_ms: int


Place = int | AtTime
"""An offset (-2: the earliest, -1: the latest), or a time."""


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: one rule for all partitions, or places for some of them."""

    default: Place
    places: Mapping[TopicPartition, Place] = field(default_factory=dict)

    def of(self, partition: TopicPartition) -> Place:
        return self.places.get(partition, self.default)


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read: those of these topics, of all topics that match, or exactly these."""

    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The topics that are named."""
        return self.topics or tuple(dict.fromkeys(each.topic for each in self.partitions))

    def has_topic(self, name: str) -> bool:
        """Whether partitions of this topic are read, if it is there. A pattern matches whole names
        of topics that are not internal."""
        if self.pattern is None:
            return name in self.names
        return self.pattern.fullmatch(name) is not None and not name.startswith("__")

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"the topics that match {self.pattern.pattern!r}"
        return ", ".join(self.topics or [str(each) for each in self.partitions])


# Options that tune parts of Spark's Kafka source that do not exist here. They are accepted, so that
# a job moves by a change of one word.
_WITHOUT_EFFECT = (
    "fetchoffset.numretries", "fetchoffset.retryintervalms", "groupidprefix",
    "kafkaconsumer.polltimeoutms",
)  # fmt: skip
_DIGITS = re.compile("[0-9]+")
_UNITS_MS = {
    "ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "h": 3_600_000, "hour": 3_600_000,
    "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip


class _Given:
    """The options that the user gave. An option that was never asked for is unknown."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        self._spelled = {name.lower(): name for name in options}
        self._known = known
        self._ignored: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        return self._values.pop(name.lower(), default).strip()

    def number(self, name: str, default: int, least: int = 0) -> int:
        value = self.text(name, str(default))
        if not _DIGITS.fullmatch(value) or int(value) < least:
            raise OptionError(
                f'option "{name}" is a whole number of at least {least}, not {value!r}'
            )
        return int(value)

    def boolean(self, name: str, default: bool) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise OptionError(f'option "{name}" is true or false, not {value!r}')
        return value == "true"

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name, choices[0]).lower()
        if value not in choices:
            raise OptionError(f'option "{name}" is one of {", ".join(choices)}, not {value!r}')
        return value

    def duration_ms(self, name: str, default: str) -> int:
        """Spark's own units, and those of its intervals: 15m, 15min, 15 minutes."""
        value = self.text(name, default)
        match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.lower())
        word = "" if match is None else match[2] or "ms"
        unit = _UNITS_MS.get(word, _UNITS_MS.get(word.removesuffix("s")))
        if match is None or unit is None:
            raise OptionError(
                f'option "{name}" is a time such as 500ms, 30s, 15m or 1 minute, not {value!r}'
            )
        return int(match[1]) * unit

    def ignore(self, name: str, *but: str) -> None:
        """An option that has no effect, unless its value is one of these."""
        value = self._values.get(name)
        if value is not None and value.strip().lower() not in but:
            del self._values[name]
            self._ignored.append(name)

    def client(self, options: type[Any], config: type[Any], **always: Any) -> dict[str, Any]:
        """The settings of a client, such as ``kafka.request.timeout.ms`` (or ``stele.…``), which
        ``config`` finds consistent together with those that it ``always`` has."""
        found = client_settings(self._values, options)
        for name in found.taken:
            del self._values[name]
        self._ignored += found.ignored
        try:
            config(**{**found.values, **always})
        except ConfigError as error:
            raise OptionError(f"the settings of the client do not fit: {error}") from None
        # Spark's user sees nothing while a client waits.
        return {"default_api_timeout_ms": 20_000, **found.values}

    def finish(self) -> tuple[str, ...]:
        """The options without an effect. Raises OptionError if another one is left."""
        for name in _WITHOUT_EFFECT:
            if self._values.pop(name, None) is not None:
                self._ignored.append(name)
        if self._values:
            name = next(iter(self._values))
            raise OptionError(
                f"unknown option {self._spelled[name]!r}; known: {', '.join(self._known)}, and "
                "settings of the client such as kafka.request.timeout.ms"
            )
        return tuple(self._spelled[name] for name in self._ignored)


_COMMON = ("bootstrap.servers", "kafka.bootstrap.servers")
_SOURCE = (
    *_COMMON, "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp",
    "endingOffsetsByTimestamp", "minPartitions", "maxRecordsPerPartition", "maxBytesPerPartition",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "failOnDataLoss",
    "includeHeaders", "kafka.group.id", "kafka.isolation.level",
)  # fmt: skip
_SINK = (*_COMMON, "topic", "exactlyOnce", "ledgerTopic", "txnAppId", "txnVersion")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read."""

    bootstrap_servers: str
    subscription: Subscription
    start: Bound
    end: Bound
    strategy: Strategy
    """What to do if no record is at or after the time at which reading begins."""
    min_partitions: int
    max_records_per_partition: int
    """0: no limit, here and below."""
    max_bytes_per_partition: int
    max_offsets_per_trigger: int
    min_offsets_per_trigger: int
    max_trigger_delay_ms: int
    fail_on_data_loss: bool
    include_headers: bool
    group_id: str
    """The consumer group to which a stream's offsets are mirrored; empty: none."""
    isolation_level: Isolation
    client: Mapping[str, Any]
    """Further settings of the consumer."""
    ignored: tuple[str, ...]
    """The options that were given and have no effect."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool = False) -> SourceOptions:
        """Check the options. Their names are case-insensitive. Raises OptionError."""
        given = _Given(options, _SOURCE)
        if is_stream:
            _refuse_ends(given)
        subscription = _subscription(given)
        return cls(
            bootstrap_servers=_bootstrap_servers(given),
            subscription=subscription,
            start=(
                _bound(given, "starting", LATEST, None)
                if is_stream
                else _bound(given, "starting", EARLIEST, LATEST)
            ),
            end=_bound(given, "ending", LATEST, EARLIEST),
            strategy=_strategy(given),
            min_partitions=given.number("minPartitions", 0),
            max_records_per_partition=given.number("maxRecordsPerPartition", 0),
            max_bytes_per_partition=given.number("maxBytesPerPartition", 256 * _MIB),
            max_offsets_per_trigger=given.number("maxOffsetsPerTrigger", 0),
            min_offsets_per_trigger=given.number("minOffsetsPerTrigger", 0),
            max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", "15m"),
            fail_on_data_loss=given.boolean("failOnDataLoss", True),
            include_headers=given.boolean("includeHeaders", False),
            group_id=given.text("kafka.group.id") or given.text("stele.group.id"),
            isolation_level=_isolation(given),
            client=given.client(ConsumerOptions, ConsumerConfig),
            ignored=given.finish(),
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write."""

    bootstrap_servers: str
    topic: str
    """Where all rows go; empty: each names its topic."""
    exactly_once: bool
    ledger_topic: str
    """Where it is recorded which writes are committed."""
    app_id: str
    app_version: int
    """A batch write of the same ``app_id`` and ``app_version`` is done once, however often it is
    repeated. Without ``app_id`` each write is one of its own."""
    client: Mapping[str, Any]
    """Further settings of the producer."""
    ignored: tuple[str, ...]
    """The options that were given and have no effect."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Check the options. Their names are case-insensitive. Raises OptionError."""
        given = _Given(options, _SINK)
        for name in ("checkpointLocation", "queryName"):
            given.text(name)  # Spark's own; it hands them on
        given.boolean("includeHeaders", True)  # headers are written where there is a column
        is_exactly_once = given.boolean("exactlyOnce", True)
        if is_exactly_once:  # which needs more than such a job asks for
            given.ignore("kafka.acks", "all", "-1")
            given.ignore("kafka.enable.idempotence", "true")
        parsed = cls(
            bootstrap_servers=_bootstrap_servers(given),
            topic=given.text("topic"),
            exactly_once=is_exactly_once,
            ledger_topic=given.text("ledgerTopic", "spark-ledger"),
            app_id=given.text("txnAppId"),
            app_version=given.number("txnVersion", 0),
            client=given.client(
                ProducerOptions,
                ProducerConfig,
                **({"transactional_id": "of exactlyOnce=true"} if is_exactly_once else {}),
            ),
            ignored=given.finish(),
        )
        if parsed.app_id and not parsed.exactly_once:
            raise OptionError('option "txnAppId" needs exactlyOnce=true')
        return parsed


def _bootstrap_servers(given: _Given) -> str:
    servers = [given.text(name) for name in (*_COMMON, "stele.bootstrap.servers")]
    found = next((each for each in servers if each), "")
    if not found:
        raise OptionError('option "bootstrap.servers" is missing, e.g. 127.0.0.1:9092')
    return found


def _isolation(given: _Given) -> Isolation:
    names = ("read_uncommitted", "read_committed")
    chosen = {given.choice(f"{prefix}.isolation.level", names) for prefix in ("kafka", "stele")}
    return "read_committed" if "read_committed" in chosen else "read_uncommitted"


def _subscription(given: _Given) -> Subscription:
    topics = tuple(name.strip() for name in given.text("subscribe").split(",") if name.strip())
    pattern, assign = given.text("subscribePattern"), given.text("assign")
    if sum(map(bool, (topics, pattern, assign))) != 1:
        raise OptionError(
            'one of the options "subscribe" (topics with commas), "subscribePattern" and "assign" '
            "is needed, and only one of them"
        )
    if pattern:
        try:
            return Subscription(pattern=re.compile(pattern))
        except re.error as error:
            raise OptionError(
                f'option "subscribePattern": {pattern!r} is no regular expression: {error}'
            ) from None
    if assign:
        return Subscription(partitions=partitions_of("assign", assign))
    return Subscription(topics=tuple(dict.fromkeys(topics)))


def _strategy(given: _Given) -> Strategy:
    value = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
    return "latest" if value == "latest" else "error"


def _refuse_ends(given: _Given) -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if given.text(name):
            raise OptionError(f'option "{name}" is for batch reads: a stream has no end')


def _bound(given: _Given, side: str, default: int, never: int | None) -> Bound:
    """A time for all wins over times by partition, and these over offsets, as in Spark's Kafka
    source. ``never``: earliest or latest, if that would read nothing."""
    name = f"{side}Offsets"
    offsets, by_time = given.text(name), given.text(f"{side}OffsetsByTimestamp")
    timestamp = given.text(f"{side}Timestamp")
    if timestamp:
        if not _DIGITS.fullmatch(timestamp):
            raise OptionError(
                f'option "{side}Timestamp" is a time in milliseconds since 1970, not {timestamp!r}'
            )
        return Bound(AtTime(int(timestamp)))
    if by_time:
        times = _times(f"{side}OffsetsByTimestamp", by_time)
        return Bound(default, {each: AtTime(time_ms) for each, time_ms in times.items()})
    if not offsets:
        return Bound(default)
    rule = {"earliest": EARLIEST, "latest": LATEST}.get(offsets.lower())
    if rule is not None and rule == never:
        raise OptionError(f'option "{name}" {_NEVER[never]}')
    if rule is not None:
        return Bound(rule)
    return Bound(default, dict(_offsets(name, offsets, never)))


_NEVER = {
    EARLIEST: "cannot be earliest: nothing would be read",
    LATEST: "of a batch read cannot be latest: nothing would be read",
}


def _offsets(option: str, value: str, never: int | None) -> dict[TopicPartition, int]:
    def wrong(offset: int) -> str:
        if offset == never:
            return f"this option {_NEVER[never]}"
        rule = "offsets are at least 0, or -2 (earliest) or -1 (latest)"
        return "" if offset >= EARLIEST else rule

    example = f'option "{option}" is earliest, latest or JSON such as {{"orders": {{"0": 23}}}}'
    return numbers_of(option, value, example, wrong)


def _times(option: str, value: str) -> dict[TopicPartition, int]:
    example = f'option "{option}" is JSON such as {{"orders": {{"0": 1767225600000}}}}'
    return numbers_of(
        option, value, example, lambda time_ms: "" if time_ms >= 0 else "times are at least 0"
    )
