"""Administration over asyncio: topics, configs, cluster, quorum. Any broker can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TypeVar, Unpack

from stele.admin.features import (
    UPGRADE,
    FeatureAdmin,
    FeatureDescription,
    UpdatedFeature,
    UpgradeType,
)
from stele.admin.group_lag import PartitionLag, find_lags
from stele.admin.groups import CommittedOffset, GroupAdmin, GroupDescription, GroupListing
from stele.admin.items import all_or_raise, item_error
from stele.admin.log_dirs import LogDirAdmin, LogDirDescription, ReplicaPlace
from stele.admin.maintenance import MaintenanceAdmin
from stele.admin.metadata_log import MetadataLog, read_metadata_log
from stele.admin.partitions import PartitionAdmin, PartitionReassignment
from stele.admin.quorum import QuorumAdmin, QuorumDescription
from stele.admin.record_deletion import RecordDeletion
from stele.admin.requests import AdminRequests
from stele.admin.transactions import TransactionAdmin
from stele.cluster.view import ClusterView
from stele.config import ClientConfig, ClientOptions, ClientWorld, real_world
from stele.consumer.offset_lookup import OffsetLookup
from stele.errors import ApiError, ConfigError
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.wire.v1 import admin_pb2

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
GROUP_RESOURCE = 32

Answer = TypeVar("Answer")
Place = TypeVar("Place", bound=tuple[str, int])
"""A topic and the number of a partition, also as a TopicPartition."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the cluster's default. ``assignments``: partition → replicas."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    topic_id: bytes
    partitions: int
    replication_factor: int
    already_done: bool = False  # an earlier attempt of this request did it


@dataclass(frozen=True, slots=True)
class PartitionDescription:
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

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are missing in the ISR. Replicas that are only being added do not
        count."""
        return len(self.isr) < len(self.replicas) - len(self.adding_replicas)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str]  # the values that are set on the topic itself

    @property
    def replication_factor(self) -> int:
        """The number of replicas without those that are only being added."""
        counts = (len(each.replicas) - len(each.adding_replicas) for each in self.partitions)
        return max(counts, default=0)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
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
    cluster_id: str
    controller_id: int | None  # the active controller; None while there is none
    brokers: tuple[BrokerDescription, ...]
    metadata_offset: int  # what the broker that answered has applied


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource that has configs: a topic, a consumer group, a broker, or all brokers (a broker
    without a name)."""

    type: int
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(TOPIC_RESOURCE, name)

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        return cls(GROUP_RESOURCE, group_id)

    @classmethod
    def broker(cls, broker_id: int | None = None) -> ConfigResource:
        return cls(BROKER_RESOURCE, "" if broker_id is None else str(broker_id))

    def __str__(self) -> str:
        if self.type == TOPIC_RESOURCE:
            return f"topic {self.name}"
        if self.type == GROUP_RESOURCE:
            return f"group {self.name}"
        return f"broker {self.name}" if self.name else "all brokers"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str
    source: str
    type: str
    documentation: str
    read_only: bool


class Admin(TransactionAdmin):
    """Administrates a cluster.

    Every call is repeated while it fails for a passing reason (there is no active controller, a
    broker is gone), for at most ``default_api_timeout_ms``. ``on_wait`` is told the reason. Raises
    ApiError if the cluster refuses a request, BulkError if it refuses some of several items, and
    UnreachableError.

    A change takes effect at most once, because all its attempts carry one request id.
    OutcomeUnknownError means that it may have taken effect, or may still do so. The same call with
    the error's ``request_id`` finds out. Descriptions are linearizable: they show every change that
    was confirmed to anybody before. With ``linearizable=False`` they show what one broker knows,
    which includes at least all changes that this client has made.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self._config = ClientConfig.of(bootstrap_servers, options)
        if self._config.plane != "grpc":
            raise ConfigError(
                f"plane={self._config.plane!r}: administration is only built over gRPC, which a "
                "process cannot use that was forked from one that had used it"
            )
        super().__init__(ClusterView(self._config, world or real_world()))
        self._requests = AdminRequests(self._view, self._config)
        self._quorum = QuorumAdmin(self._view, self._config, self._requests.ask)
        self._features = FeatureAdmin(self._requests)
        self._maintenance = MaintenanceAdmin(self._requests)
        self._partitions = PartitionAdmin(self._requests)
        self._log_dirs = LogDirAdmin(self._view)
        self._groups = GroupAdmin(self._view)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._view.close()

    # ------------------------------------------------------------------------- topics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[CreatedTopic]:
        """Create topics. Returns once the decision is committed."""
        request = admin_pb2.CreateTopicsRequest(
            topics=[_new_topic(topic) for topic in topics], validate_only=validate_only
        )
        response = await self._requests.change(
            "CreateTopics", request, admin_pb2.CreateTopicsResponse.FromString, request_id
        )
        failed: dict[str, ApiError] = {}
        created: list[CreatedTopic] = []
        for each in response.topics:
            if each.error:
                failed[each.name] = item_error(each.error, f"topic {each.name!r}", each.message)
            else:
                created.append(
                    CreatedTopic(
                        each.name,
                        each.topic_id,
                        each.partitions,
                        each.replication_factor,
                        response.already_done,
                    )
                )
        return all_or_raise(failed, created)

    async def delete_topics(self, names: Sequence[str], *, request_id: bytes | None = None) -> None:
        request = admin_pb2.DeleteTopicsRequest(names=names)
        response = await self._requests.change(
            "DeleteTopics", request, admin_pb2.DeleteTopicsResponse.FromString, request_id
        )
        failed = {
            each.name: item_error(each.error, f"topic {each.name!r}", each.message)
            for each in response.topics
            if each.error
        }
        all_or_raise(failed, [each.name for each in response.topics if not each.error])

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        """Add partitions to topics. ``counts`` is the number that each topic will have in all.

        ``assignments``: the replicas of each new partition, for topics that the cluster should not
        place. Afterwards keys go to other partitions than before.
        """
        await self._maintenance.create_partitions(
            counts, assignments or {}, validate_only=validate_only, request_id=request_id
        )

    async def delete_records(
        self, offsets: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset (-1: all committed ones) of each partition.

        Returns the start offsets that the logs then have on every replica that may lead. Raises
        ApiError OFFSET_OUT_OF_RANGE for an offset that is not committed.
        """
        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        found = await RecordDeletion(self._view).offsets(wanted)
        return {name: each.offset for name, each in found.items()}

    async def list_offsets(
        self, timestamps_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition the offset of the first record at or after a time in milliseconds.

        -1 stands for the end (the high watermark), -2 for the start of the log. The offset is -1 if
        there is no record since then.
        """
        wanted = {TopicPartition(*place): each for place, each in timestamps_ms.items()}
        return await OffsetLookup(self._view).offsets(wanted)

    async def describe_topics(
        self, names: Sequence[str], *, linearizable: bool = True
    ) -> list[TopicDescription]:
        """The named topics, in the order of the names."""
        if not names:
            return []
        by_name = {each.name: each for each in await self._describe_topics(names, linearizable)}
        return [by_name[name] for name in names if name in by_name]

    async def list_topics(self, *, linearizable: bool = True) -> list[TopicDescription]:
        """All topics in order of their names."""
        return sorted(await self._describe_topics((), linearizable), key=lambda topic: topic.name)

    async def _describe_topics(
        self, names: Sequence[str], linearizable: bool
    ) -> list[TopicDescription]:
        response = await self._requests.ask(
            "DescribeTopics",
            admin_pb2.DescribeTopicsRequest(
                names=names,
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            admin_pb2.DescribeTopicsResponse.FromString,
        )
        failed: dict[str, ApiError] = {}
        topics: list[TopicDescription] = []
        for each in response.topics:
            if each.error:
                failed[each.name] = item_error(each.error, f"topic {each.name!r}", each.message)
            else:
                topics.append(_topic(each))
        return all_or_raise(failed, topics)

    async def elect_leaders(
        self,
        partitions: Sequence[tuple[str, int]] = (),
        *,
        unclean: bool = False,
        request_id: bytes | None = None,
    ) -> list[TopicPartition]:
        """Elect preferred leaders, or (``unclean``) any live replica for partitions without a
        leader.

        Without ``partitions``: for all partitions. Returns those for which a leader was elected,
        without those that needed no election. An unclean election may lose records.
        """
        return await self._partitions.elect_leaders(
            partitions, unclean=unclean, request_id=request_id
        )

    async def alter_partition_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        request_id: bytes | None = None,
    ) -> None:
        """Move partitions to other brokers (KIP-455). None cancels a move that is under way.

        Returns once the decision is committed. ``list_partition_reassignments`` shows what is still
        under way. The same target again changes nothing; another target replaces the first one.
        """
        await self._partitions.alter_reassignments(
            targets,
            allow_replication_factor_change=allow_replication_factor_change,
            request_id=request_id,
        )

    async def list_partition_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are under way, of these partitions or (None) of all."""
        return await self._partitions.list_reassignments(partitions)

    async def describe_log_dirs(
        self, broker_ids: Sequence[int] = (), partitions: Sequence[tuple[str, int]] = ()
    ) -> list[LogDirDescription]:
        """The directories by broker and path. Without ``broker_ids``: of all brokers in service.
        Without ``partitions``: with all their replicas. Those that are being deleted are left out.
        """
        return await self._log_dirs.describe(broker_ids, partitions)

    async def alter_replica_log_dirs(self, wanted: Mapping[ReplicaPlace, str]) -> set[ReplicaPlace]:
        """Let replicas be in other directories of their brokers. The brokers copy them afterwards:
        ``describe_log_dirs`` shows the copies. The directory in which a replica is cancels its
        move.

        Returns the replicas that their brokers do not have yet. They will be made in the wanted
        directory, if they come while the broker's process runs.
        Raises BulkError if some were refused: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (a directory
        of the broker is offline, or lacks room), UNKNOWN_TOPIC_OR_PARTITION. If a broker does not
        answer, others may have begun; the same call may be repeated.
        """
        return await self._log_dirs.alter(wanted)

    # ------------------------------------------------------------------------ cluster

    async def describe_cluster(self, *, linearizable: bool = True) -> ClusterDescription:
        """All registered brokers, including fenced ones."""
        response = await self._requests.ask(
            "DescribeCluster",
            admin_pb2.DescribeClusterRequest(
                min_metadata_offset=self._requests.changed_at, linearizable=linearizable
            ),
            admin_pb2.DescribeClusterResponse.FromString,
        )
        brokers = tuple(_broker(each) for each in response.brokers)
        return ClusterDescription(
            response.cluster_id,
            _known(response.controller_id),
            tuple(sorted(brokers, key=lambda broker: broker.broker_id)),
            response.metadata_offset,
        )

    async def unregister_broker(self, broker_id: int, *, request_id: bytes | None = None) -> None:
        """Forget a broker that is gone for good. It must be fenced, and it must not be the only one
        with every record of some partition.

        Partitions stay assigned to it until they are reassigned.
        """
        await self._maintenance.unregister_broker(broker_id, request_id=request_id)

    async def describe_quorum(self) -> QuorumDescription:
        """The controllers (voters) and brokers (observers) of the metadata log."""
        return await self._quorum.describe()

    async def read_metadata_log(self) -> MetadataLog:
        """Every decision about the cluster that is still known, from one broker's replica. It works
        also while there is no active controller."""
        return await read_metadata_log(self._requests.ask)

    async def transfer_leadership(self, voter_id: int) -> int:
        """Make that controller the active one. Returns the epoch in which it leads."""
        return await self._quorum.transfer_leadership(voter_id)

    async def add_voter(
        self, voter_id: int, directory_id: str, endpoint: str, *, cluster_id: str = ""
    ) -> None:
        """Make a running controller a voter, at ``endpoint`` (host:port), once it has caught up.

        ``directory_id``: the id of its metadata directory. ``cluster_id``: refuse if the cluster
        has another id.
        """
        await self._quorum.add_voter(voter_id, directory_id, endpoint, cluster_id)

    async def remove_voter(self, voter_id: int, directory_id: str, *, cluster_id: str = "") -> None:
        """Remove a controller from the voters. It may be down, and it may be the leader."""
        await self._quorum.remove_voter(voter_id, directory_id, cluster_id)

    # ----------------------------------------------------------------------- features

    async def describe_features(self, *, linearizable: bool = True) -> list[FeatureDescription]:
        """Every feature, with its finalized level and the levels that nodes support."""
        return await self._features.describe(linearizable=linearizable)

    async def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UPGRADE,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[UpdatedFeature]:
        """Finalize levels of features, all of them or none. Level 0 disables a feature.

        ``SAFE_DOWNGRADE`` is refused if it would lose something. ``UNSAFE_DOWNGRADE`` is not.
        """
        return await self._features.update(
            dict(levels), upgrade_type, validate_only=validate_only, request_id=request_id
        )

    # ------------------------------------------------------------------------- groups

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        """All groups in order of their ids. A filter that is empty matches all; case is ignored."""
        return await self._groups.list_groups(states, types)

    async def describe_groups(self, groups: Sequence[str]) -> list[GroupDescription]:
        """In the order of the ids. A group that does not exist has the state ``Dead``."""
        return await self._groups.describe(groups)

    async def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete groups and their offsets. Raises BulkError."""
        await self._groups.delete(groups)

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Everything that the group has committed, in order of the partitions."""
        return await self._groups.list_offsets(group)

    async def group_lags(self, groups: Sequence[GroupDescription]) -> dict[str, list[PartitionLag]]:
        """By group, all partitions that it has committed or that its members read.

        ``groups``: as ``describe_groups`` gives them. The ends of the logs are asked for last, so a
        lag is never too small, and negative only if records were lost.
        """
        led = {
            TopicPartition(topic.name, each.partition)
            for topic in await self.list_topics()
            for each in topic.partitions
            if each.leader is not None
        }
        return await find_lags(groups, self._groups, OffsetLookup(self._view), led)

    async def alter_group_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit offsets for a group without members, which is created if there is none.

        Raises BulkError UNKNOWN_MEMBER_ID if the group has members.
        """
        names = {TopicPartition(*place): offset for place, offset in offsets.items()}
        await self._groups.alter_offsets(group, names)

    async def delete_group_offsets(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        """Forget what a group has committed for partitions of topics to which no member is
        subscribed.

        Raises ApiError GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP if the members are no consumers.
        Raises BulkError GROUP_SUBSCRIBED_TO_TOPIC.
        """
        await self._groups.delete_offsets(group, [TopicPartition(*each) for each in partitions])

    # ------------------------------------------------------------------------ configs

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        """Set configs. None restores the default. Other configs stay as they are."""
        request = admin_pb2.AlterConfigsRequest(validate_only=validate_only)
        for resource, values in changes.items():
            entry = request.resources.add(resource=_resource(resource))
            for name, value in values.items():
                entry.changes.add(name=name, value=value)
        response = await self._requests.change(
            "AlterConfigs", request, admin_pb2.AlterConfigsResponse.FromString, request_id
        )
        failed: dict[str, ApiError] = {}
        for each in response.resources:
            if each.error:
                name = str(ConfigResource(each.resource.type, each.resource.name))
                failed[name] = item_error(each.error, name, each.message)
        all_or_raise(failed, [])

    async def describe_configs(
        self, resources: Sequence[ConfigResource], *, linearizable: bool = True
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        response = await self._requests.ask(
            "DescribeConfigs",
            admin_pb2.DescribeConfigsRequest(
                resources=[_resource(each) for each in resources],
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            admin_pb2.DescribeConfigsResponse.FromString,
        )
        failed: dict[str, ApiError] = {}
        found: dict[ConfigResource, list[ConfigEntry]] = {}
        for each in response.resources:
            resource = ConfigResource(each.resource.type, each.resource.name)
            if each.error:
                failed[str(resource)] = item_error(each.error, str(resource), each.message)
            else:
                found[resource] = [_config_entry(entry) for entry in each.entries]
        all_or_raise(failed, list(found.values()))
        return found


def _known(node_id: int) -> int | None:
    return node_id if node_id >= 0 else None


def _resource(resource: ConfigResource) -> admin_pb2.ConfigResource:
    return admin_pb2.ConfigResource(type=resource.type, name=resource.name)


def _new_topic(topic: NewTopic) -> admin_pb2.NewTopic:
    message = admin_pb2.NewTopic(
        name=topic.name,
        partitions=-1 if topic.assignments else topic.partitions,
        replication_factor=-1 if topic.assignments else topic.replication_factor,
        configs=dict(topic.configs),
    )
    for partition in sorted(topic.assignments):
        message.assignments.add(partition=partition, replicas=topic.assignments[partition])
    return message


def _topic(topic: admin_pb2.DescribeTopicsResponse.Topic) -> TopicDescription:
    partitions = [
        PartitionDescription(
            each.partition,
            _known(each.leader),
            each.leader_epoch,
            each.partition_epoch,
            tuple(each.replicas),
            tuple(each.isr),
            tuple(each.elr),
            each.unclean_elections,
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for each in topic.partitions
    ]
    partitions.sort(key=lambda partition: partition.partition)
    configs = dict(sorted(topic.configs.items()))
    return TopicDescription(topic.name, topic.topic_id, tuple(partitions), configs)


def _broker(broker: admin_pb2.BrokerDescription) -> BrokerDescription:
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


def _config_entry(entry: admin_pb2.ConfigEntry) -> ConfigEntry:
    return ConfigEntry(
        entry.name, entry.value, entry.source, entry.type, entry.documentation, entry.read_only
    )
