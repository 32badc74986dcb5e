"""What administrators name and get: topics, partitions, brokers and configs, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2

_NUMBERS = 2**31  # int32
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    ``partitions`` and ``replication_factor``: -1 means the cluster's default (``num.partitions``,
    ``default.replication.factor``). ``configs``: values of the topic's own, as text.
    ``assignments``: by partition the ids of its brokers, the preferred leader first. With them the
    two numbers count for nothing.

    >>> NewTopic("orders", 6, 3, configs={"min.insync.replicas": "2"})
    >>> NewTopic("pinned", assignments={0: [1, 2], 1: [2, 3]})
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was created, or with ``validate_only`` would be."""

    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    already_done: bool = False  # an earlier attempt of this request did it


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: its leader and its replicas, as broker ids.

    ``isr``: the in-sync replicas. ``elr``: the eligible leader replicas (KIP-966), which are out of
    the ISR but have every committed record. ``unclean_elections``: how many elections may have lost
    records.
    """

    partition: int
    leader: int | None  # None while it has no leader
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]  # the first is the preferred leader
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    unclean_elections: int
    adding_replicas: tuple[int, ...] = ()  # empty unless it is being reassigned
    removing_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()  # the broker is down, or the replica's log directory is

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are missing in the ISR. Replicas that are only being added do not
        count."""
        return len(self.isr) < len(self.replicas) - len(self.adding_replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, with its partitions in order."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]  # the values that are set on the topic itself

    @property
    def replication_factor(self) -> int:
        """The number of replicas. Replicas that are being added do not count."""
        counts = (len(each.replicas) - len(each.adding_replicas) for each in self.partitions)
        return max(counts, default=0)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A registered broker. ``host`` and ``port`` speak Kafka's protocol, ``grpc_host`` and
    ``grpc_port`` gRPC. A ``fenced`` broker leads nothing.
    """

    broker_id: int
    host: str
    port: int
    grpc_host: str
    grpc_port: int
    rack: str
    fenced: bool
    in_controlled_shutdown: bool
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster and all of its registered brokers."""

    cluster_id: str
    controller_id: int | None  # the active controller; None while there is none
    brokers: tuple[BrokerDescription, ...]
    metadata_offset: int  # what the broker that answered has applied


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource that has configs: a topic, a consumer group, a subscription to clients' metrics, a
    broker, or all brokers (a broker without a name)."""

    type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """The configs of one topic."""
        return cls(TOPIC_RESOURCE, name)

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """The configs of one consumer group."""
        return cls(GROUP_RESOURCE, group_id)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """The configs of one subscription to the metrics of clients."""
        return cls(CLIENT_METRICS_RESOURCE, name)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        """The configs of one broker, or (None) the configs that all brokers share."""
        return cls(BROKER_RESOURCE, "" if broker_id is None else str(broker_id))

    @property
    def broker_id(self) -> int | None:
        """The broker whose configs these are. None: they are of something else."""
        is_one = self.type == BROKER_RESOURCE and self.name.isdecimal()
        return int(self.name) if is_one else None

    def __str__(self) -> str:
        if self.type == TOPIC_RESOURCE:
            return f"topic {self.name}"
        if self.type == GROUP_RESOURCE:
            return f"group {self.name}"
        if self.type == CLIENT_METRICS_RESOURCE:
            return f"client metrics {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a resource, with its effective value.

    ``source`` says where the value comes from, for example the topic itself or the default.
    ``type`` is the type of the value. A ``read_only`` config can be set only in a node's own
    configuration.
    """

    name: str
    value: str
    source: str
    type: str
    documentation: str
    read_only: bool


def known_node(node_id: int) -> int | None:
    return node_id if node_id >= 0 else None


def resource_message(resource: ConfigResource) -> admin_pb2.ConfigResource:
    return admin_pb2.ConfigResource(type=resource.type, name=resource.name)


def new_topic_message(topic: NewTopic) -> admin_pb2.NewTopic:
    """Raises ApiError INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR for numbers that no message
    can hold."""
    for number, what, code in (
        (topic.partitions, "partitions", ErrorCode.INVALID_PARTITIONS),
        (topic.replication_factor, "replicas", ErrorCode.INVALID_REPLICATION_FACTOR),
    ):
        if not -_NUMBERS <= number < _NUMBERS:
            raise ApiError(code, f"topic {topic.name!r} cannot have {number} {what}")
    message = admin_pb2.NewTopic(
        name=topic.name,
        partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        configs=dict(topic.configs),
    )
    for partition in sorted(topic.assignments):
        message.assignments.add(partition=partition, replicas=topic.assignments[partition])
    return message


def topic_description(topic: admin_pb2.DescribeTopicsResponse.Topic) -> TopicDescription:
    partitions = [
        PartitionDescription(
            each.partition,
            known_node(each.leader),
            each.leader_epoch,
            each.partition_epoch,
            tuple(each.replicas),
            tuple(each.isr),
            tuple(each.elr),
            each.unclean_elections,
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
            tuple(each.offline_replicas),
        )
        for each in topic.partitions
    ]
    partitions.sort(key=lambda partition: partition.partition)
    configs = dict(sorted(topic.configs.items()))
    return TopicDescription(topic.name, topic.topic_id, tuple(partitions), configs)


def broker_description(broker: admin_pb2.BrokerDescription) -> BrokerDescription:
    return BrokerDescription(
        broker.broker_id,
        broker.host,
        broker.port,
        broker.grpc_host,
        broker.grpc_port,
        broker.rack,
        broker.fenced,
        broker.in_controlled_shutdown,
        broker.broker_epoch,
    )


def config_entry(entry: admin_pb2.ConfigEntry) -> ConfigEntry:
    return ConfigEntry(
        entry.name, entry.value, entry.source, entry.type, entry.documentation, entry.read_only
    )
