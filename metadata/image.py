"""The state of the cluster at one offset of the metadata log: immutable, cheap to derive from.

Images share what did not change between them. The maps inside are hash tries whose own order
differs from process to process: iterate over them only through the ``sorted_*`` methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from immutables import Map

from metadata.outcomes import NO_OUTCOMES, Outcomes
from stele.wire.v1 import metadata_pb2 as pb

NO_LEADER = -1

RECOVERED = pb.LeaderRecoveryState.RECOVERED
RECOVERING = pb.LeaderRecoveryState.RECOVERING

PLAINTEXT = "PLAINTEXT"
GRPC = "GRPC"


class TopicPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


class ConfigResource(NamedTuple):
    """What a dynamic configuration belongs to. A broker named "" is the cluster's default."""

    type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(pb.ConfigResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> ConfigResource:
        return cls(pb.ConfigResourceType.BROKER, str(broker_id))


CLUSTER = ConfigResource(pb.ConfigResourceType.BROKER, "")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker can be reached by those who came in over ``listener``."""

    listener: str
    host: str
    port: int
    protocol: str  # PLAINTEXT or GRPC


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports, both ends included."""

    name: str
    min_level: int
    max_level: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min_level <= level <= self.max_level


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One registered broker."""

    broker_id: int
    # The offset of the registration's record, hence higher with each registration of an id.
    broker_epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    log_directories: tuple[bytes, ...] = ()
    features: tuple[FeatureRange, ...] = ()  # by name; empty: it told none
    inter_broker_listener: str = ""  # by which it reaches other brokers; "": it did not tell
    # A fenced broker leads nothing and is in no ISR, except as the last one that was in it.
    fenced: bool = True
    in_controlled_shutdown: bool = False
    out_of_room: bool = False  # a disk of it is full

    @property
    def active(self) -> bool:
        """Whether it may lead and stay in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def may_join_isr(self) -> bool:
        """Whether it may join an ISR that it is not in. Without room it would only fall behind."""
        return self.active and not self.out_of_room

    def endpoint(self, listener: str, protocol: str = PLAINTEXT) -> Endpoint | None:
        """The endpoint of that listener name and protocol, if it has one."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener and endpoint.protocol == protocol:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition. Replicas are in order of preference; the other lists are ascending sets."""

    replicas: tuple[int, ...]
    # Every record below the high watermark is on every member. A subset of `replicas`. Empty only
    # after the last member was found to have lost records: then there is no leader either.
    isr: tuple[int, ...]
    leader: int = NO_LEADER  # in `isr`, or NO_LEADER
    leader_epoch: int = 0  # higher with every change of leader, also to none
    partition_epoch: int = 0  # higher with every change
    # Eligible leader replicas (KIP-966): they left the ISR after it had gone below
    # min.insync.replicas, since when nothing was committed. Disjoint from `isr`, subset of
    # `replicas`, empty while the ISR is large enough.
    elr: tuple[int, ...] = ()
    # Were eligible until they lost records: the best choice for an unclean election.
    last_known_elr: tuple[int, ...] = ()
    # While the partition is being reassigned (KIP-455) `replicas` holds the target, in its order,
    # and then those to be removed. The three are empty otherwise; `original_replicas` is never
    # empty meanwhile, and keeps the order that a cancellation restores.
    adding_replicas: tuple[int, ...] = ()  # in `replicas`, not in `original_replicas`
    removing_replicas: tuple[int, ...] = ()  # in both, not in the target
    original_replicas: tuple[int, ...] = ()
    leader_recovery_state: pb.LeaderRecoveryState = RECOVERED
    unclean_elections: int = 0

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0]

    @property
    def is_reassigning(self) -> bool:
        return bool(self.original_replicas)

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """What the partition will have in the end; ``replicas`` while nothing moves."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)

    @property
    def replication_factor(self) -> int:
        """How many replicas count: until a reassignment is completed, those before it.

        A move must not make a partition look under-replicated, nor ask for more replicas in sync.
        """
        return len(self.original_replicas or self.replicas)


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    name: str
    topic_id: bytes  # 16 bytes; a topic deleted and made again has another
    partitions: tuple[PartitionState, ...] = ()  # by number: from 0, without gaps


def metric_name(topic: str) -> str:
    """What the names of metrics make of a topic's name: there a dot is an underscore (Kafka's
    Topic.unifyCollisionChars)."""
    return topic.replace(".", "_")


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The whole cluster. ``offset`` is that of the last record taken in, control records of the
    quorum included; -1: none yet."""

    offset: int = -1
    features: Map[str, int] = field(default_factory=Map)  # finalized levels
    brokers: Map[int, BrokerRegistration] = field(default_factory=Map)
    topics: Map[bytes, Topic] = field(default_factory=Map)  # by topic id
    topic_ids: Map[str, bytes] = field(default_factory=Map)  # name → id of exactly `topics`
    # Of `topic_ids` exactly the names with a dot or an underscore, ascending, by what metrics make
    # of them: one name, unless they were made when that was not looked at.
    metric_names: Map[str, tuple[str, ...]] = field(default_factory=Map)
    # Only what is set: no empty inner map.
    configs: Map[ConfigResource, Map[str, str]] = field(default_factory=Map)
    controllers: Map[int, bytes] = field(default_factory=Map)  # id → incarnation
    next_producer_id: int = 0
    outcomes: Outcomes = NO_OUTCOMES

    # ---------------------------------------------------------------- brokers

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.brokers.get(broker_id)

    def sorted_brokers(self) -> list[BrokerRegistration]:
        """All registrations, by id."""
        return [self.brokers[broker_id] for broker_id in sorted(self.brokers)]

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, not fenced and not shutting down."""
        registration = self.brokers.get(broker_id)
        return registration is not None and registration.active

    def has_room(self, broker_id: int) -> bool:
        """Whether a broker's disks can take more, as far as it has told."""
        registration = self.brokers.get(broker_id)
        return registration is None or not registration.out_of_room

    # ---------------------------------------------------------------- topics

    def topic(self, name: str) -> Topic | None:
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def colliding_topic(self, name: str) -> str | None:
        """A topic of another name that metrics could not tell from ``name``."""
        others = self.metric_names.get(metric_name(name), ())
        return next((other for other in others if other != name), None)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.topics.get(topic_id)

    def sorted_topics(self) -> list[Topic]:
        """All topics, by name."""
        return [self.topics[self.topic_ids[name]] for name in sorted(self.topic_ids)]

    def partition(self, topic_id: bytes, partition: int) -> PartitionState | None:
        topic = self.topics.get(topic_id)
        if topic is None or not 0 <= partition < len(topic.partitions):
            return None
        return topic.partitions[partition]

    def sorted_partitions(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Every partition with its topic and number, by topic name and number."""
        for topic in self.sorted_topics():
            for number, state in enumerate(topic.partitions):
                yield topic, number, state

    # ---------------------------------------------------------------- configs

    def config(self, resource: ConfigResource) -> Mapping[str, str]:
        """What is set dynamically on exactly this resource; order it before use."""
        return self.configs.get(resource, _NOTHING)

    def sorted_configs(self) -> list[tuple[ConfigResource, list[tuple[str, str]]]]:
        """Everything set dynamically, by resource and key."""
        return [(r, sorted(self.configs[r].items())) for r in sorted(self.configs)]


_NOTHING: Map[str, str] = Map()
EMPTY = MetadataImage()
