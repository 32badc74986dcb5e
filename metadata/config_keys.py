"""Every configuration key, declared once.

Names and defaults are Apache Kafka's wherever Kafka has the key; where ours differ, the line of
documentation says so. A topic key is declared under its topic name; the key that gives its
default in ``server.properties`` and for the whole cluster is derived from it (``retention.ms`` →
``log.retention.ms``).
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from stele.errors import ApiError, ErrorCode

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

HOUR_MS = 3_600_000
MINUTE_MS = 60_000

Value = bool | int | float | str | tuple[str, ...]


class Type(enum.Enum):
    """How a value is written; the names are those of Kafka's DescribeConfigs."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"  # separated by commas


class Scope(enum.Enum):
    """Where a key may be set; each also in the places after it in this order: file, cluster."""

    STATIC = "node"  # server.properties and its overrides only; read at start
    CLUSTER = "cluster"  # also dynamically, for the cluster or for one broker
    CLUSTER_ONLY = "cluster only"  # as CLUSTER, but must be the same on every broker
    TOPIC = "topic"  # on a topic


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
    # Topic keys: the key of the default for topics that do not set it.
    synonym: str | None = None
    # Coarser spellings of `synonym` and how many of its units one of theirs is; the finest wins.
    coarser: tuple[tuple[str, int], ...] = ()

    def parse(self, text: str) -> Value:
        """The typed value. Raises ApiError INVALID_CONFIG saying what would be right."""
        text = text.strip()
        match self.type:
            case Type.BOOLEAN:
                if text.lower() not in ("true", "false"):
                    raise self._refused(text, "true or false")
                return text.lower() == "true"
            case Type.STRING:
                return self._chosen(text, text)
            case Type.LIST:
                items = tuple(item.strip() for item in text.split(",") if item.strip())
                for item in items:
                    self._chosen(item, text)
                return items
            case Type.DOUBLE:
                return self._ranged(_number(text, float), text)
            case Type.INT:
                return self._ranged(_number(text, int), text, -INT_MAX - 1, INT_MAX)
            case Type.LONG:
                return self._ranged(_number(text, int), text, -LONG_MAX - 1, LONG_MAX)

    def _chosen(self, item: str, text: str) -> str:
        if self.allowed and item not in self.allowed:
            raise self._refused(text, "one of " + ", ".join(self.allowed))
        return item

    def _ranged(
        self, value: float | None, text: str, least: float = -LONG_MAX, most: float = LONG_MAX
    ) -> int | float:
        low = least if self.minimum is None else self.minimum
        high = most if self.maximum is None else self.maximum
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


# ---------------------------------------------------------------------------------- topics

_TOPIC = (
    ConfigKey(
        "cleanup.policy", Type.LIST, "delete",
        "What happens to old segments. Only deletion is built.",
        allowed=("delete",), synonym="log.cleanup.policy",
    ),
    ConfigKey(
        "compression.type", Type.STRING, "producer",
        "The codec on disk: what the producer chose. Batches are never compressed anew.",
        allowed=("producer",), synonym="compression.type",
    ),
    ConfigKey(
        "flush.messages", Type.LONG, "1",
        "A replica acknowledges only what is on disk when this is 1 (Kafka's default: never); a "
        "larger number leaves flushing to the page cache until so many records have come.",
        minimum=1, synonym="log.flush.interval.messages",
    ),
    ConfigKey(
        "index.interval.bytes", Type.INT, "4096",
        "How many bytes of log one entry of the offset index stands for.",
        minimum=0, synonym="log.index.interval.bytes",
    ),
    ConfigKey(
        "max.message.bytes", Type.INT, "1048588",
        "The largest record batch that is accepted, in bytes as it is written.",
        minimum=0, synonym="message.max.bytes",
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", Type.LONG, str(HOUR_MS),
        "How far ahead of the broker's clock a record's CreateTime may be.",
        minimum=0, synonym="log.message.timestamp.after.max.ms",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", Type.LONG, str(LONG_MAX),
        "How far behind the broker's clock a record's CreateTime may be.",
        minimum=0, synonym="log.message.timestamp.before.max.ms",
    ),
    ConfigKey(
        "message.timestamp.type", Type.STRING, "CreateTime",
        "Whose time a record carries: the producer's or the leader's at the append.",
        allowed=("CreateTime", "LogAppendTime"), synonym="log.message.timestamp.type",
    ),
    ConfigKey(
        "min.insync.replicas", Type.INT, "1",
        "How many replicas must be in sync for acks=all to be accepted. In the cluster's state "
        "from the first start, so that all brokers agree on it.",
        minimum=1, synonym="min.insync.replicas",
    ),
    ConfigKey(
        "retention.bytes", Type.LONG, "-1",
        "How large a partition may grow before its oldest segments are deleted; -1: unlimited.",
        minimum=-1, synonym="log.retention.bytes",
    ),
    ConfigKey(
        "retention.ms", Type.LONG, str(168 * HOUR_MS),
        "How long records are kept at least; -1: for ever.",
        minimum=-1, synonym="log.retention.ms",
        coarser=(("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)),
    ),
    ConfigKey(
        "segment.bytes", Type.INT, "1073741824",
        "How large a segment file grows before the next one is begun.",
        minimum=1024, synonym="log.segment.bytes",
    ),
    ConfigKey(
        "segment.index.bytes", Type.INT, "10485760",
        "How large a segment's index may grow before the next segment is begun.",
        minimum=16, synonym="log.index.size.max.bytes",
    ),
    ConfigKey(
        "segment.ms", Type.LONG, str(168 * HOUR_MS),
        "How old a segment's first record may become before the next segment is begun.",
        minimum=1, synonym="log.roll.ms", coarser=(("log.roll.hours", HOUR_MS),),
    ),
    ConfigKey(
        "unclean.leader.election.enable", Type.BOOLEAN, "false",
        "Whether a replica that may lack committed records may lead when no other can.",
        synonym="unclean.leader.election.enable",
    ),
)  # fmt: skip

# Keys that the controller reads as well as the leader: they must agree, so one broker alone
# cannot have its own.
_AGREED = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})


# ---------------------------------------------------------------------------------- nodes

_NODE = (
    # Who this node is.
    ConfigKey("node.id", Type.INT, None, "This node's number, unique in the cluster.", minimum=0),
    ConfigKey(
        "process.roles", Type.LIST, "broker,controller",
        "What this node is: broker, controller or both.", allowed=("broker", "controller"),
    ),
    ConfigKey(
        "cluster.id", Type.STRING, "",
        "The cluster this node belongs to. When set, a directory of another cluster is refused; "
        "else the directory's own id counts.",
    ),
    ConfigKey(
        "broker.rack", Type.STRING, "",
        "Where the broker stands (a rack, a zone, a host): replicas are spread over the racks.",
    ),
    ConfigKey(
        "log.dirs", Type.LIST, "/tmp/stele-logs",
        "The directories that hold partitions.",
    ),
    ConfigKey(
        "metadata.log.dir", Type.STRING, "",
        "The directory of the metadata log; the first of log.dirs when empty.",
    ),
    # How it is reached.
    ConfigKey(
        "listeners", Type.LIST, "PLAINTEXT://127.0.0.1:9092",
        "Where a broker serves the Kafka protocol: NAME://host:port. An empty host is 127.0.0.1 "
        "(Kafka: all interfaces), port 0 a free one.",
    ),
    ConfigKey(
        "advertised.listeners", Type.LIST, "",
        "The addresses told to clients, by listener name; those of listeners when empty.",
    ),
    ConfigKey(
        "grpc.listeners", Type.LIST, "PLAINTEXT://127.0.0.1:9192",
        "Where a broker serves gRPC, under the same names as listeners.",
    ),
    ConfigKey(
        "grpc.advertised.listeners", Type.LIST, "",
        "The gRPC addresses told to those who came in over the Kafka listener of that name; "
        "those of grpc.listeners when empty.",
    ),
    ConfigKey(
        "inter.broker.listener.name", Type.STRING, "",
        "The listener that brokers and controllers use towards brokers; the first when empty.",
    ),
    ConfigKey(
        "listener.security.protocol.map", Type.LIST,
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The security protocol of each listener: NAME:PROTOCOL. Only PLAINTEXT is built: no node "
        "starts with a listener that is mapped to another, nor with one that is not mapped and "
        "has SSL, TLS or SASL in its name. All other names are PLAINTEXT (Kafka: must be mapped).",
    ),
    ConfigKey(
        "controller.listener", Type.STRING, "127.0.0.1:9093",
        "Where a controller serves gRPC: host:port.",
    ),
    ConfigKey(
        "controller.advertised.listener", Type.STRING, "",
        "Where the other nodes reach this controller: host:port. When empty, its entry in "
        "controller.quorum.voters, or else controller.listener.",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers", Type.LIST, "",
        "Controllers to ask who leads the quorum: host:port, some of those that vote now.",
    ),
    ConfigKey(
        "controller.quorum.voters", Type.LIST, "",
        "The first voters of a new quorum: id@host:port, the same on every node. When they have "
        "changed since, the metadata log says who votes. Empty: stele format says who begins.",
    ),
    ConfigKey(
        "metrics.listener", Type.STRING, "127.0.0.1:9404",
        "Where /metrics is served: host:port; nowhere when empty.",
    ),
    # Connections and requests.
    ConfigKey(
        "socket.request.max.bytes", Type.INT, "104857600",
        "The largest request; a connection that sends a larger one is closed.", minimum=1,
    ),
    ConfigKey(
        "queued.max.requests", Type.INT, "500",
        "How many requests of one connection may wait for their answers before the broker stops "
        "reading from it.", minimum=1,
    ),
    ConfigKey(
        "connections.max.idle.ms", Type.LONG, "600000",
        "How long a connection may be silent before it is closed; -1: for ever.", minimum=-1,
    ),
    ConfigKey(
        "fetch.max.bytes", Type.INT, "57671680",
        "The most bytes one answer to a client's fetch holds.", minimum=1024,
    ),
    # The quorum.
    ConfigKey(
        "controller.quorum.election.timeout.ms", Type.INT, "1000",
        "How long a candidate waits for votes, and a voter without leader for one to appear.",
        minimum=1,
    ),
    ConfigKey(
        "controller.quorum.fetch.timeout.ms", Type.INT, "2000",
        "How long a voter does without an answer of the leader before it seeks election, and a "
        "leader without fetches of a majority before it resigns.", minimum=1,
    ),
    ConfigKey(
        "controller.quorum.election.backoff.max.ms", Type.INT, "1000",
        "The longest random pause after an election without winner.", minimum=0,
    ),
    ConfigKey(
        "controller.quorum.request.timeout.ms", Type.INT, "2000",
        "How long an answer of another node of the control plane is awaited.", minimum=1,
    ),
    ConfigKey(
        "metadata.log.max.record.bytes.between.snapshots", Type.LONG, "20971520",
        "After how many bytes of metadata records a snapshot is written.", minimum=1,
    ),
    ConfigKey(
        "metadata.log.max.snapshot.interval.ms", Type.LONG, "3600000",
        "After how long a snapshot is written if there is anything new; 0: only by bytes.",
        minimum=0,
    ),
    # Brokers and controllers.
    ConfigKey(
        "broker.heartbeat.interval.ms", Type.INT, "2000",
        "How often a broker sends a heartbeat to the controller.", minimum=1,
    ),
    ConfigKey(
        "broker.session.timeout.ms", Type.INT, "9000",
        "How long a silent broker counts as alive. One whose process ended is noticed at once.",
        minimum=1,
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms", Type.INT, "60000",
        "How long a broker goes on asking to be registered while another process holds its id;"
        " then it stops.",
        minimum=1,
    ),
    ConfigKey(
        "controlled.shutdown.enable", Type.BOOLEAN, "true",
        "Whether a broker moves its leaders elsewhere before it stops.",
    ),
    ConfigKey(
        "auto.leader.rebalance.enable", Type.BOOLEAN, "true",
        "Whether leadership returns by itself to the preferred (first) replicas.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds", Type.LONG, "300",
        "How often the controller looks for partitions led by another than the preferred replica.",
        minimum=1,
    ),
    ConfigKey(
        "leader.imbalance.per.broker.percentage", Type.INT, "10",
        "The share of a broker's preferred partitions led elsewhere above which they return.",
        minimum=0, maximum=100,
    ),
    # Topics.
    ConfigKey(
        "auto.create.topics.enable", Type.BOOLEAN, "true",
        "Whether asking a broker for a topic that does not exist makes it.",
    ),
    ConfigKey(
        "num.partitions", Type.INT, "1",
        "How many partitions a topic has that does not say.", minimum=1,
        scope=Scope.CLUSTER_ONLY,
    ),
    ConfigKey(
        "default.replication.factor", Type.INT, "1",
        "How many replicas a partition has whose topic does not say.", minimum=1,
        maximum=32767, scope=Scope.CLUSTER_ONLY,
    ),
    # Replication.
    ConfigKey(
        "replica.lag.time.max.ms", Type.LONG, "30000",
        "How long a follower may lag behind the leader's end before it leaves the ISR.", minimum=1,
    ),
    ConfigKey(
        "replica.fetch.max.bytes", Type.INT, "1048576",
        "The most bytes of one partition in one fetch of a follower.", minimum=0,
    ),
    ConfigKey(
        "replica.fetch.response.max.bytes", Type.INT, "10485760",
        "The most bytes in one fetch of a follower.", minimum=0,
    ),
    ConfigKey(
        "replica.fetch.wait.max.ms", Type.INT, "500",
        "How long a follower's fetch waits at the leader for something new.", minimum=0,
    ),
    ConfigKey(
        "replica.fetch.min.bytes", Type.INT, "1",
        "How many bytes a follower's fetch waits for.", minimum=0,
    ),
    ConfigKey(
        "replica.fetch.backoff.ms", Type.INT, "1000",
        "How long a partition rests after an error in a follower's fetch.", minimum=0,
    ),
    ConfigKey(
        "replica.high.watermark.checkpoint.interval.ms", Type.INT, "5000",
        "How often high watermarks and recovery points are written to disk. What lies above them"
        " is looked through after a crash.",
        minimum=1,
    ),
    # The log.
    ConfigKey(
        "log.retention.check.interval.ms", Type.LONG, "300000",
        "How often segments are looked through for those that may go.", minimum=1,
    ),
    ConfigKey(
        "producer.id.expiration.ms", Type.INT, "86400000",
        "How long an idle idempotent producer is remembered.", minimum=1,
    ),
)  # fmt: skip


def _synonym(key: ConfigKey) -> ConfigKey:
    """The key that gives a topic key its default for the node and for the cluster."""
    scope = Scope.CLUSTER_ONLY if key.name in _AGREED else Scope.CLUSTER
    doc = f"{key.name} of topics that do not set it. {key.doc}"
    if key.synonym == key.name:
        doc = key.doc
    return replace(key, name=key.synonym or "", doc=doc, scope=scope, synonym=None, coarser=())


def _coarser_synonyms(key: ConfigKey) -> Iterable[ConfigKey]:
    for name, factor in key.coarser:
        unit = name.rpartition(".")[2]
        yield ConfigKey(
            name, Type.INT, "", f"{key.synonym} in {unit}; a finer spelling wins over it.",
            minimum=None if key.minimum is None else min(key.minimum, 1),
            maximum=LONG_MAX // factor if LONG_MAX // factor < INT_MAX else None,
        )  # fmt: skip


def _by_name(keys: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    return MappingProxyType({key.name: key for key in sorted(keys, key=lambda key: key.name)})


TOPIC_KEYS: Mapping[str, ConfigKey] = _by_name(replace(key, scope=Scope.TOPIC) for key in _TOPIC)
"""What may be set on a topic."""

NODE_KEYS: Mapping[str, ConfigKey] = _by_name(
    (
        *_NODE,
        *(_synonym(key) for key in _TOPIC),
        *(coarse for key in _TOPIC for coarse in _coarser_synonyms(key)),
    )
)
"""What may stand in server.properties; those not of scope STATIC also dynamically."""


# ---------------------------------------------------------------------------------- validation


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that was probably meant."""
    found = difflib.get_close_matches(name, sorted(names), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown(name: str, names: Iterable[str], what: str) -> str:
    """A message for a key that does not exist, with the nearest one that does."""
    near = nearest(name, names)
    return f"there is no {what} {name}" + (f"; did you mean {near}?" if near else "")


def validate_topic_config(name: str, value: str) -> None:
    """Check one setting of a topic. Raises ApiError INVALID_CONFIG."""
    key = TOPIC_KEYS.get(name)
    if key is None:
        message = unknown(name, TOPIC_KEYS, "topic configuration")
        for topic_key in TOPIC_KEYS.values():
            if name == topic_key.synonym or name in dict(topic_key.coarser):
                message = f"{name} is a broker's; on a topic it is {topic_key.name}"
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    key.parse(value)


def validate_broker_config(name: str, value: str | None, *, one_broker: bool) -> None:
    """Check one dynamic setting (None: its removal) of the cluster or of one broker.

    Raises ApiError INVALID_CONFIG.
    """
    key = NODE_KEYS.get(name)
    if key is None:
        message = unknown(name, NODE_KEYS, "configuration")
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
    if key.scope is Scope.STATIC:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{name} is read at start only: set it in server.properties and restart the node",
        )
    if key.scope is Scope.CLUSTER_ONLY and one_broker:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{name} must be the same on all brokers: set it for all"
        )
    if value is not None:
        key.parse(value)
    elif name == "min.insync.replicas":
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "the cluster's min.insync.replicas cannot be removed: set it to another value",
        )
