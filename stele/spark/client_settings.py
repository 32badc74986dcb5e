"""Settings of Kafka's clients, as jobs for Spark's Kafka source and sink have them. Pure.

Each is one of four: a setting of our client, of the same or of another name; one that tunes what
is not there, which has no effect and is named in the log; one that the source or sink decides,
which is refused with the reason; or unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args, get_type_hints

from stele.config import ClientOptions, ConsumerOptions, ProducerOptions
from stele.spark.option_error import OptionError

PREFIXES = ("kafka.", "stele.")

_OUR_NAMES = {
    "compression.type": "compression",
    "max.in.flight.requests.per.connection": "max_in_flight",
}

WITHOUT_EFFECT = frozenset(
    {
        # Ours try again until delivery.timeout.ms or default.api.timeout.ms is over.
        "retries", "reconnect.backoff.ms", "reconnect.backoff.max.ms",
        # Sockets and names.
        "send.buffer.bytes", "receive.buffer.bytes", "connections.max.idle.ms",
        "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms",
        "client.dns.lookup",
        # Reports.
        "metric.reporters", "metrics.num.samples", "metrics.recording.level",
        "metrics.sample.window.ms", "auto.include.jmx.reporter",
        # Metadata.
        "metadata.max.idle.ms", "metadata.recovery.strategy",
        "metadata.recovery.rebootstrap.trigger.ms", "allow.auto.create.topics",
        "exclude.internal.topics",
        # The sink's rows without keys go anywhere, in batches of their own.
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
        "partitioner.ignore.keys", "compression.gzip.level", "compression.lz4.level",
        "compression.zstd.level",
        # Tasks read partitions that the driver has chosen, and have no group.
        "partition.assignment.strategy", "group.instance.id", "group.protocol",
        "group.remote.assignor", "auto.commit.interval.ms", "internal.leave.group.on.close",
        # A prepared transaction has no time-out.
        "transaction.timeout.ms",
    }
)  # fmt: skip

_DECIDED = {
    "auto.offset.reset": "the options startingOffsets and failOnDataLoss say it",
    "enable.auto.commit": "the checkpoint has the offsets of a query",
    "key.deserializer": "keys are bytes: use functions of Spark",
    "value.deserializer": "values are bytes: use functions of Spark",
    "key.serializer": "keys are bytes or strings: use functions of Spark",
    "value.serializer": "values are bytes or strings: use functions of Spark",
    "interceptor.classes": "the client of Stele runs no classes of Java",
    "partitioner.class": "the key decides as in Kafka's own, or the column partition",
    "transactional.id": "the option exactlyOnce decides about transactions",
    "transaction.two.phase.commit.enable": "the option exactlyOnce decides about transactions",
    "on.wait": "it is a function",
    "on.truncation": "it is a function",
}


class ClientSettings(NamedTuple):
    values: dict[str, Any]
    """Keyword arguments of our client."""
    taken: frozenset[str]
    """The options that are settings of a client, by the names that were given."""
    ignored: tuple[str, ...]
    """The settings without an effect."""


def client_settings(options: Mapping[str, str], kind: type[Any]) -> ClientSettings:
    """The settings among options such as ``kafka.request.timeout.ms``, whose names are lower-case.
    ``kind``: ConsumerOptions or ProducerOptions. Raises OptionError."""
    kinds = get_type_hints(kind)
    of_both = set(get_type_hints(ConsumerOptions)) | set(get_type_hints(ProducerOptions))
    values: dict[str, Any] = {}
    taken, ignored = [], []
    for option, value in options.items():
        if not option.startswith(PREFIXES):
            continue
        name = option.partition(".")[2].replace("_", ".")
        if name in _DECIDED:
            raise OptionError(f'option "{option}" cannot be set: {_DECIDED[name]}')
        key = _OUR_NAMES.get(name, name.replace(".", "_"))
        if name not in WITHOUT_EFFECT and key in kinds:
            values[key] = _value(option, value, kinds[key])
        elif name in WITHOUT_EFFECT or key in of_both:
            ignored.append(option)
        else:
            continue
        taken.append(option)
    return ClientSettings(values, frozenset(taken), tuple(ignored))


def of_all_clients(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that every client has, whatever it is for."""
    names = get_type_hints(ClientOptions)
    return {key: each for key, each in values.items() if key in names}


def of_admins(values: Mapping[str, Any]) -> dict[str, Any]:
    """Administration is built over gRPC alone."""
    return of_all_clients(values)


def _value(name: str, value: str, kind: Any) -> Any:
    kinds = {kind, *get_args(kind)}
    try:
        if bool in kinds and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        if int in kinds:
            return int(value)
        if float in kinds:
            return float(value)
    except ValueError:
        raise OptionError(f'option "{name}" is a number, not {value!r}') from None
    return value.strip()
