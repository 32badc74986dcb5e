"""The state of the cluster at one offset of the metadata log: immutable, cheap to derive from.

Each noun is a part, in a file of its own; images share the parts that did not change between them.
The maps inside are hash tries whose own order differs from process to process: iterate over them
only through the ``sorted`` methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from metadata.acls import Acls
from metadata.brokers import BrokerRegistration, Brokers
from metadata.client_quotas import ClientQuotas
from metadata.configs import ConfigResource, Configs
from metadata.controllers import Controllers
from metadata.delegation_tokens import DelegationTokens
from metadata.directories import REPLICA_DIRECTORIES
from metadata.feature_levels import FeatureLevels
from metadata.image_part import ImagePart
from metadata.outcomes import NO_OUTCOMES, Outcomes
from metadata.partitions import PartitionState
from metadata.producer_ids import ProducerIds
from metadata.records import METADATA_VERSION
from metadata.scram_credentials import ScramCredentials
from metadata.topics import Topic, Topics
from stele.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The whole cluster. ``offset``: of the last record taken in, control records of the
    quorum included; -1: none yet. All other fields are parts (``ImagePart``), in the order in which
    a snapshot has their records."""

    offset: int = -1
    features: FeatureLevels = field(default_factory=FeatureLevels)
    controllers: Controllers = field(default_factory=Controllers)
    brokers: Brokers = field(default_factory=Brokers)
    topics: Topics = field(default_factory=Topics)
    configs: Configs = field(default_factory=Configs)
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    outcomes: Outcomes = NO_OUTCOMES
    acls: Acls = field(default_factory=Acls)
    scram_credentials: ScramCredentials = field(default_factory=ScramCredentials)
    client_quotas: ClientQuotas = field(default_factory=ClientQuotas)
    delegation_tokens: DelegationTokens = field(default_factory=DelegationTokens)

    @property
    def waited_for(self) -> tuple[ImagePart, ...]:
        """The parts whose changes by administrators are answered when every live broker has
        applied it."""
        return (
            self.acls,
            self.scram_credentials,
            self.client_quotas,
            self.delegation_tokens,
        )

    # ---------------------------------------------------------------- brokers

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self.brokers.map.get(broker_id)

    def sorted_brokers(self) -> list[BrokerRegistration]:
        """All registrations, by id."""
        return self.brokers.sorted()

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered, not fenced and not shutting down."""
        registration = self.broker(broker_id)
        return registration is not None and registration.active

    def has_room(self, broker_id: int) -> bool:
        """Whether a broker's disks have room, by its last report."""
        registration = self.broker(broker_id)
        return registration is None or not registration.out_of_room

    def has_online(self, broker_id: int, directory_id: bytes) -> bool:
        """As ``BrokerRegistration.has_online``; True if nobody keeps account of directories."""
        if self.features.get(METADATA_VERSION, 1) < REPLICA_DIRECTORIES:
            return True
        registration = self.broker(broker_id)
        return registration is None or registration.has_online(directory_id)

    def offline_replicas(self, state: PartitionState) -> list[int]:
        """The brokers whose replicas of the partition cannot be used: they are not in service, or
        their log directory is offline."""
        return [
            broker_id
            for broker_id in state.replicas
            if (registration := self.broker(broker_id)) is None
            or registration.fenced
            or not self.has_online(broker_id, state.directory_of(broker_id))
        ]

    # ---------------------------------------------------------------- topics

    def topic(self, name: str) -> Topic | None:
        return self.topics.named(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self.topics.by_id.get(topic_id)

    def sorted_topics(self) -> list[Topic]:
        """All topics, by name."""
        return self.topics.sorted()

    def partition(self, topic_id: bytes, partition: int) -> PartitionState | None:
        return self.topics.partition(topic_id, partition)

    def named_partition(self, partition: TopicPartition) -> PartitionState | None:
        topic = self.topic(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def sorted_partitions(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Every partition with its topic and number, by topic name and number."""
        for topic in self.sorted_topics():
            for number, state in enumerate(topic.partitions):
                yield topic, number, state

    # ---------------------------------------------------------------- configs

    def config(self, resource: ConfigResource) -> Mapping[str, str]:
        """The dynamic configs of exactly this resource; order them before use."""
        return self.configs.of(resource)


PARTS: Final = tuple(each.name for each in fields(MetadataImage) if each.name != "offset")
"""The fields that are parts, in order."""

EMPTY = MetadataImage()
