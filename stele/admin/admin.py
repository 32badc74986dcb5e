"""Administration over asyncio: topics, configs, cluster, quorum. Any broker can be asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar, Unpack

from stele.admin.acls import AclAdmin
from stele.admin.client_connections import ConnectionAdmin
from stele.admin.client_metrics import ClientMetricsAdmin
from stele.admin.client_quotas import QuotaAdmin
from stele.admin.delegation_tokens import TokenAdmin
from stele.admin.descriptions import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    NewTopic,
    TopicDescription,
    broker_description,
    config_entry,
    known_node,
    new_topic_message,
    resource_message,
    topic_description,
)
from stele.admin.features import FeatureAdmin
from stele.admin.group_lag import PartitionLag, find_lags
from stele.admin.groups import CommittedOffset, GroupAdmin, GroupDescription, GroupListing
from stele.admin.grpc_calls import AdminPlane
from stele.admin.items import all_or_raise, item_error
from stele.admin.log_dirs import LogDirAdmin, LogDirDescription, ReplicaPlace
from stele.admin.maintenance import MaintenanceAdmin
from stele.admin.metadata_log import MetadataLog, read_metadata_log
from stele.admin.partitions import PartitionAdmin
from stele.admin.quorum import QuorumAdmin, QuorumDescription
from stele.admin.record_deletion import RecordDeletion
from stele.admin.requests import AdminRequests
from stele.admin.share_groups import ShareGroupAdmin
from stele.admin.share_windows import ShareWindowAdmin
from stele.admin.transactions import TransactionAdmin
from stele.admin.users import UserAdmin
from stele.cluster.view import ClusterView
from stele.config import ClientConfig, ClientOptions, ClientWorld, real_world
from stele.consumer.offset_lookup import OffsetLookup
from stele.errors import ApiError, ConfigError
from stele.forks import forks
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.wire.v1 import admin_pb2

AnswerT = TypeVar("AnswerT")
Place = TypeVar("Place", bound=tuple[str, int])
"""A topic and the number of a partition, also as a TopicPartition."""


class Admin(
    MaintenanceAdmin,
    PartitionAdmin,
    FeatureAdmin,
    TransactionAdmin,
    AclAdmin,
    UserAdmin,
    QuotaAdmin,
    TokenAdmin,
    ClientMetricsAdmin,
    ConnectionAdmin,
    ShareGroupAdmin,
    ShareWindowAdmin,
):
    """Administrates a cluster over asyncio.

    >>> async with Admin("127.0.0.1:9092") as admin:
    ...     await admin.create_topics([NewTopic("orders", 6, 3)])
    ...     for topic in await admin.list_topics():
    ...         print(topic.name, len(topic.partitions))

    **Repetitions.** A call is repeated while it fails for a passing reason (no active controller, a
    broker that is gone), for at most ``default_api_timeout_ms``. Meanwhile ``on_wait`` gets the
    reason.

    **Errors.** ApiError: the cluster refuses the request; its ``code`` is Kafka's. BulkError: it
    refuses some of several items; ``failed`` has the error of each, ``succeeded`` the results of
    the others. UnreachableError: no broker answers.

    **Changes** take effect at most once, because all attempts of a call carry one request id.
    OutcomeUnknownError means that a change may have taken effect, or may still do so. The same call
    with ``request_id=error.request_id`` finds out. A change returns when it is committed. With
    ``validate_only=True`` a call checks everything and changes nothing.

    **Descriptions** are linearizable: they show every change that was confirmed to anybody before.
    With ``linearizable=False`` they show what one broker knows, which includes every change that
    this client has made.

    A partition is a pair ``(topic, number)``, also as a TopicPartition. Options and their defaults:
    :class:`stele.config.ClientConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """``bootstrap_servers``: ``host:port`` of one or more brokers, with commas between them.
        The other brokers are found by asking these.

        ``options`` are the fields of :class:`stele.config.ClientConfig`. Raises ConfigError for an
        unknown or invalid option.
        """
        self._config = ClientConfig.of(bootstrap_servers, options)
        if world is None and forks.grpc_is_lost:
            raise ConfigError(
                "this process was forked from one that had used gRPC, which does not work after a "
                "fork, and administration needs it: make the Admin in a process of its own"
            )
        view = ClusterView(
            self._config, world or real_world(self._config.client_security()), AdminPlane
        )
        super().__init__(view, AdminRequests(view, self._config))
        self._quorum = QuorumAdmin(self._view, self._config, self._requests.ask)
        self._log_dirs = LogDirAdmin(self._requests)
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
        """Release all resources. Idempotent."""
        await self._view.close()

    # ------------------------------------------------------------------------- topics

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[CreatedTopic]:
        """Create topics. Returns them in the order of the call, once the decision is committed.

        Raises BulkError with the error of each refused topic by its name, for example
        TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION (the name), INVALID_REPLICATION_FACTOR (too
        few brokers) or INVALID_CONFIG. The others are created all the same.

        >>> await admin.create_topics([NewTopic("orders", 6, 3, {"retention.ms": "86400000"})])
        """
        request = admin_pb2.CreateTopicsRequest(
            topics=[new_topic_message(topic) for topic in topics], validate_only=validate_only
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
        """Delete topics with all of their records. Returns once the decision is committed; brokers
        free the disk afterwards.

        Raises BulkError, with UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist. The
        others are deleted all the same.
        """
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

    async def delete_records(
        self, offsets: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, int]:
        """Delete the records below an offset in each partition; -1 stands for all committed
        records.

        Returns the start offsets that the logs then have on every replica that may lead. Raises
        ApiError OFFSET_OUT_OF_RANGE for an offset above the high watermark.

        >>> await admin.delete_records({("orders", 0): 1500})
        """
        wanted = {TopicPartition(*place): offset for place, offset in offsets.items()}
        found = await RecordDeletion(self._view).offsets(wanted)
        return {name: each.offset for name, each in found.items()}

    async def list_offsets(
        self, timestamps_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition the offset of the first record at or after a time, in milliseconds
        since 1970.

        -1 instead of a time stands for the end of the log (the high watermark), -2 for its start.
        The offset is -1 if there is no record since then. Raises ApiError.

        >>> await admin.list_offsets({("orders", 0): -1})
        """
        wanted = {TopicPartition(*place): each for place, each in timestamps_ms.items()}
        return await OffsetLookup(self._view).offsets(wanted)

    async def describe_topics(
        self, names: Sequence[str], *, linearizable: bool = True
    ) -> list[TopicDescription]:
        """The named topics, in the order of the names.

        Raises BulkError, with UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist.
        """
        if not names:
            return []
        by_name = {each.name: each for each in await self._describe_topics(names, linearizable)}
        return [by_name[name] for name in names if name in by_name]

    async def list_topics(self, *, linearizable: bool = True) -> list[TopicDescription]:
        """All topics, in the order of their names. Raises ApiError."""
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
                topics.append(topic_description(each))
        return all_or_raise(failed, topics)

    async def describe_log_dirs(
        self, broker_ids: Sequence[int] = (), partitions: Sequence[tuple[str, int]] = ()
    ) -> list[LogDirDescription]:
        """The log directories of brokers with the replicas in them, by broker and path.

        Without ``broker_ids``: of all brokers in service. Without ``partitions``: with all
        replicas. Replicas that are being deleted are left out. Raises ApiError BROKER_NOT_AVAILABLE
        for a broker that is not in service.
        """
        return await self._log_dirs.describe(broker_ids, partitions)

    async def alter_replica_log_dirs(self, wanted: Mapping[ReplicaPlace, str]) -> set[ReplicaPlace]:
        """Move replicas to other log directories of their brokers. ``wanted``: by (topic,
        partition, broker id) the path of the directory.

        The brokers copy the replicas afterwards, and ``describe_log_dirs`` shows the copies. The
        directory in which a replica already is cancels its move. Returns the replicas that their
        brokers do not have yet: they will be made in the wanted directory if they come while the
        broker's process runs.

        Raises BulkError if some were refused: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (a directory
        of the broker is offline, or lacks room), UNKNOWN_TOPIC_OR_PARTITION. If a broker does not
        answer, others may have begun; the same call may be repeated.

        >>> await admin.alter_replica_log_dirs({("orders", 0, 1): "/disks/2"})
        """
        return await self._log_dirs.alter(wanted)

    # ------------------------------------------------------------------------ cluster

    async def describe_cluster(self, *, linearizable: bool = True) -> ClusterDescription:
        """The cluster id, the active controller and all registered brokers, including fenced ones.
        Raises ApiError.
        """
        response = await self._requests.ask(
            "DescribeCluster",
            admin_pb2.DescribeClusterRequest(
                min_metadata_offset=self._requests.changed_at, linearizable=linearizable
            ),
            admin_pb2.DescribeClusterResponse.FromString,
        )
        brokers = tuple(broker_description(each) for each in response.brokers)
        return ClusterDescription(
            response.cluster_id,
            known_node(response.controller_id),
            tuple(sorted(brokers, key=lambda broker: broker.broker_id)),
            response.metadata_offset,
        )

    async def describe_quorum(self) -> QuorumDescription:
        """The controllers (voters) and brokers (observers) of the metadata log, with the end offset
        of each. Raises ApiError.
        """
        return await self._quorum.describe()

    async def read_metadata_log(self) -> MetadataLog:
        """Every decision about the cluster that is still known, from one broker's replica of the
        metadata log.

        It works also while there is no active controller. Raises ApiError.
        """
        return await read_metadata_log(self._requests.ask)

    async def transfer_leadership(self, voter_id: int) -> int:
        """Make this controller the active one. Returns the epoch in which it leads.

        Raises ApiError, for example if it is no voter or does not catch up in time.
        """
        return await self._quorum.transfer_leadership(voter_id)

    async def add_voter(
        self, voter_id: int, directory_id: str, endpoint: str, *, cluster_id: str = ""
    ) -> None:
        """Make a running controller a voter, at ``endpoint`` (host:port), once it has caught up.

        ``directory_id``: the id of its metadata directory, as ``describe_quorum`` shows it.
        ``cluster_id``: refuse if the cluster has another id.

        Raises ApiError: DUPLICATE_VOTER, INCONSISTENT_CLUSTER_ID, REQUEST_TIMED_OUT (it did not
        catch up).
        """
        await self._quorum.add_voter(voter_id, directory_id, endpoint, cluster_id)

    async def remove_voter(self, voter_id: int, directory_id: str, *, cluster_id: str = "") -> None:
        """Remove a controller from the voters. It may be down, and it may be the leader.

        Arguments as of ``add_voter``. Raises ApiError, with VOTER_NOT_FOUND if there is no such
        voter.
        """
        await self._quorum.remove_voter(voter_id, directory_id, cluster_id)

    # ------------------------------------------------------------------------- groups

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        """All groups, in the order of their ids.

        ``states`` and ``types`` select groups (``Stable``, ``Empty``, …; ``classic``,
        ``consumer``, ``share``). An empty filter matches all, and case is ignored. Raises ApiError.
        """
        return await self._groups.list_groups(states, types)

    async def describe_groups(self, groups: Sequence[str]) -> list[GroupDescription]:
        """Groups with their members, in the order of the ids. A group that does not exist has the
        state ``Dead``.

        Raises BulkError.
        """
        return await self._groups.describe(groups)

    async def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete groups and the offsets that they have committed.

        Raises BulkError: NON_EMPTY_GROUP for a group with members, GROUP_ID_NOT_FOUND.
        """
        await self._groups.delete(groups)

    async def list_group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Every offset that the group has committed, in the order of the partitions. Raises
        ApiError.
        """
        return await self._groups.list_offsets(group)

    async def group_lags(self, groups: Sequence[GroupDescription]) -> dict[str, list[PartitionLag]]:
        """By group all partitions that it has committed or that its members read, with the lag of
        each.

        ``groups``: as ``describe_groups`` returns them. The ends of the logs are asked for last. So
        a lag is never too small, and negative only if records were lost. Raises ApiError.
        """
        led = {
            TopicPartition(topic.name, each.partition)
            for topic in await self.list_topics()
            for each in topic.partitions
            if each.leader is not None
        }
        return await find_lags(groups, self._groups, OffsetLookup(self._view), led)

    async def alter_group_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit offsets for a group without members. The group is created if it does not exist.

        Raises BulkError UNKNOWN_MEMBER_ID if the group has members.

        >>> await admin.alter_group_offsets("billing", {("orders", 0): 0})
        """
        names = {TopicPartition(*place): offset for place, offset in offsets.items()}
        await self._groups.alter_offsets(group, names)

    async def delete_group_offsets(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        """Forget what a group has committed for partitions. No member may be subscribed to their
        topics.

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
        """Set configs of resources. None restores the default. Other configs stay as they are.

        Raises BulkError with the error of each refused resource, for example INVALID_CONFIG.
        Nothing of a refused resource changes.

        >>> await admin.alter_configs({ConfigResource.topic("orders"): {"retention.ms": "60000"}})
        """
        request = admin_pb2.AlterConfigsRequest(validate_only=validate_only)
        for resource, values in changes.items():
            entry = request.resources.add(resource=resource_message(resource))
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
        """Every config of the resources, with its effective value and where that comes from.

        Those of a broker are asked of the broker itself. Raises BulkError, for example
        UNKNOWN_TOPIC_OR_PARTITION. Raises ApiError INVALID_REQUEST for a broker that is not in
        service.
        """
        by_broker: dict[int | None, list[ConfigResource]] = {}
        for resource in resources:
            by_broker.setdefault(resource.broker_id, []).append(resource)
        described = [
            each
            for broker_id, asked in by_broker.items()
            for each in await self._describe_configs(asked, broker_id, linearizable)
        ]
        failed: dict[str, ApiError] = {}
        found: dict[ConfigResource, list[ConfigEntry]] = {}
        for each in described:
            resource = ConfigResource(each.resource.type, each.resource.name)
            if each.error:
                failed[str(resource)] = item_error(each.error, str(resource), each.message)
            else:
                found[resource] = [config_entry(entry) for entry in each.entries]
        all_or_raise(failed, list(found.values()))
        return found

    async def _describe_configs(
        self, resources: Sequence[ConfigResource], broker_id: int | None, linearizable: bool
    ) -> Sequence[admin_pb2.DescribeConfigsResponse.Resource]:
        response = await self._requests.ask(
            "DescribeConfigs",
            admin_pb2.DescribeConfigsRequest(
                resources=[resource_message(each) for each in resources],
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            admin_pb2.DescribeConfigsResponse.FromString,
            broker_id=broker_id,
        )
        return response.resources
