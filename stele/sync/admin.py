"""The synchronous admin client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Unpack

from stele import aio
from stele.admin.admin import Place
from stele.admin.descriptions import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    CreatedTopic,
    NewTopic,
    TopicDescription,
)
from stele.admin.features import UPGRADE, FeatureDescription, UpdatedFeature, UpgradeType
from stele.admin.group_lag import PartitionLag
from stele.admin.groups import CommittedOffset, GroupDescription, GroupListing
from stele.admin.log_dirs import LogDirDescription, ReplicaPlace
from stele.admin.metadata_log import MetadataLog
from stele.admin.partitions import PartitionReassignment
from stele.admin.quorum import QuorumDescription
from stele.admin.share_groups import ShareGroupOffset
from stele.admin.share_windows import ShareWindow
from stele.admin.transactions import (
    LONGEST_TRANSACTION_MS,
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from stele.config import ClientOptions, ClientWorld
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.sync.access_admin import AccessAdmin


class Admin(AccessAdmin):
    """Administrates a cluster.

    >>> with Admin("127.0.0.1:9092") as admin:
    ...     admin.create_topics([NewTopic("orders", 6, 3, configs={"min.insync.replicas": "2"})])
    ...     for topic in admin.list_topics():
    ...         print(topic.name, len(topic.partitions))

    Methods may be called from any thread.

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
        super().__init__()
        self._admin = self._do(lambda: aio.Admin(bootstrap_servers, world=world, **options))

    def close(self) -> None:
        """Release all resources. Idempotent."""
        if not self._is_open or self._is_foreign:
            return
        try:
            self._run(self._admin.close)
        finally:
            self._is_open = False

    def create_topics(
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

        >>> admin.create_topics([NewTopic("orders", 6, 3, {"retention.ms": "86400000"})])
        """
        return self._run(
            lambda: self._admin.create_topics(
                topics, validate_only=validate_only, request_id=request_id
            )
        )

    def delete_topics(self, names: Sequence[str], *, request_id: bytes | None = None) -> None:
        """Delete topics with all of their records. Returns once the decision is committed; brokers
        free the disk afterwards.

        Raises BulkError, with UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist. The
        others are deleted all the same.
        """
        self._run(lambda: self._admin.delete_topics(names, request_id=request_id))

    def describe_topics(
        self, names: Sequence[str], *, linearizable: bool = True
    ) -> list[TopicDescription]:
        """The named topics, in the order of the names.

        Raises BulkError, with UNKNOWN_TOPIC_OR_PARTITION for a topic that does not exist.
        """
        return self._run(lambda: self._admin.describe_topics(names, linearizable=linearizable))

    def list_topics(self, *, linearizable: bool = True) -> list[TopicDescription]:
        """All topics, in the order of their names. Raises ApiError."""
        return self._run(lambda: self._admin.list_topics(linearizable=linearizable))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        """Add partitions to topics. ``counts``: how many partitions each topic will have in all.

        ``assignments``: by topic the replicas of each new partition. The cluster places the
        partitions of other topics by itself. Afterwards keys may go to other partitions than
        before. A topic cannot lose partitions.

        Raises BulkError, for example INVALID_PARTITIONS if a topic has that many already.

        >>> admin.create_partitions({"orders": 12})
        """
        self._run(
            lambda: self._admin.create_partitions(
                counts, assignments, validate_only=validate_only, request_id=request_id
            )
        )

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Delete the records below an offset in each partition; -1 stands for all committed
        records.

        Returns the start offsets that the logs then have on every replica that may lead. Raises
        ApiError OFFSET_OUT_OF_RANGE for an offset above the high watermark.

        >>> admin.delete_records({("orders", 0): 1500})
        """
        return self._run(lambda: self._admin.delete_records(offsets))

    def list_offsets(
        self, timestamps_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """For each partition the offset of the first record at or after a time, in milliseconds
        since 1970.

        -1 instead of a time stands for the end of the log (the high watermark), -2 for its start.
        The offset is -1 if there is no record since then. Raises ApiError.

        >>> admin.list_offsets({("orders", 0): -1})
        """
        return self._run(lambda: self._admin.list_offsets(timestamps_ms))

    def unregister_broker(self, broker_id: int, *, request_id: bytes | None = None) -> None:
        """Forget a broker that is gone for good. It must be fenced, and it must not be the only one
        with every record of some partition.

        Partitions stay assigned to it until they are reassigned. Raises ApiError, for example
        BROKER_ID_NOT_REGISTERED.
        """
        self._run(lambda: self._admin.unregister_broker(broker_id, request_id=request_id))

    def elect_leaders(
        self,
        partitions: Sequence[tuple[str, int]] = (),
        *,
        unclean: bool = False,
        request_id: bytes | None = None,
    ) -> list[TopicPartition]:
        """Elect the preferred leader of each partition: the first of its replicas.

        Without ``partitions``: of all partitions. With ``unclean=True`` instead any live replica of
        each partition without a leader, which may lose records. Returns the partitions for which a
        leader was elected; a partition that needed no election is left out.

        Raises BulkError, for example PREFERRED_LEADER_NOT_AVAILABLE or
        ELIGIBLE_LEADERS_NOT_AVAILABLE.
        """
        return self._run(
            lambda: self._admin.elect_leaders(partitions, unclean=unclean, request_id=request_id)
        )

    def alter_partition_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        request_id: bytes | None = None,
    ) -> None:
        """Move partitions to other brokers (KIP-455). ``targets``: the brokers of each partition,
        the preferred leader first. None cancels a move that is under way.

        Returns once the decision is committed. ``list_partition_reassignments`` shows the moves
        that are under way. The same target again changes nothing; another target replaces the first
        one. With ``allow_replication_factor_change=False`` a target with more or fewer replicas is
        refused.

        Raises BulkError, for example INVALID_REPLICA_ASSIGNMENT (an unknown broker),
        INVALID_REPLICATION_FACTOR, or NO_REASSIGNMENT_IN_PROGRESS for None.

        >>> admin.alter_partition_reassignments({("orders", 0): [4, 5, 6]})
        """
        self._run(
            lambda: self._admin.alter_partition_reassignments(
                targets,
                allow_replication_factor_change=allow_replication_factor_change,
                request_id=request_id,
            )
        )

    def list_partition_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are under way, of these partitions or (None) of all. Raises
        ApiError."""
        return self._run(lambda: self._admin.list_partition_reassignments(partitions))

    def describe_cluster(self, *, linearizable: bool = True) -> ClusterDescription:
        """The cluster id, the active controller and all registered brokers, including fenced ones.
        Raises ApiError."""
        return self._run(lambda: self._admin.describe_cluster(linearizable=linearizable))

    def describe_log_dirs(
        self, broker_ids: Sequence[int] = (), partitions: Sequence[tuple[str, int]] = ()
    ) -> list[LogDirDescription]:
        """The log directories of brokers with the replicas in them, by broker and path.

        Without ``broker_ids``: of all brokers in service. Without ``partitions``: with all
        replicas. Replicas that are being deleted are left out. Raises ApiError BROKER_NOT_AVAILABLE
        for a broker that is not in service.
        """
        return self._run(lambda: self._admin.describe_log_dirs(broker_ids, partitions))

    def alter_replica_log_dirs(self, wanted: Mapping[ReplicaPlace, str]) -> set[ReplicaPlace]:
        """Move replicas to other log directories of their brokers. ``wanted``: by (topic,
        partition, broker id) the path of the directory.

        The brokers copy the replicas afterwards, and ``describe_log_dirs`` shows the copies. The
        directory in which a replica already is cancels its move. Returns the replicas that their
        brokers do not have yet: they will be made in the wanted directory if they come while the
        broker's process runs.

        Raises BulkError if some were refused: LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (a directory
        of the broker is offline, or lacks room), UNKNOWN_TOPIC_OR_PARTITION. If a broker does not
        answer, others may have begun; the same call may be repeated.

        >>> admin.alter_replica_log_dirs({("orders", 0, 1): "/disks/2"})
        """
        return self._run(lambda: self._admin.alter_replica_log_dirs(wanted))

    def describe_quorum(self) -> QuorumDescription:
        """The controllers (voters) and brokers (observers) of the metadata log, with the end offset
        of each. Raises ApiError."""
        return self._run(self._admin.describe_quorum)

    def read_metadata_log(self) -> MetadataLog:
        """Every decision about the cluster that is still known, from one broker's replica of the
        metadata log.

        It works also while there is no active controller. Raises ApiError.
        """
        return self._run(self._admin.read_metadata_log)

    def transfer_leadership(self, voter_id: int) -> int:
        """Make this controller the active one. Returns the epoch in which it leads.

        Raises ApiError, for example if it is no voter or does not catch up in time.
        """
        return self._run(lambda: self._admin.transfer_leadership(voter_id))

    def add_voter(
        self, voter_id: int, directory_id: str, endpoint: str, *, cluster_id: str = ""
    ) -> None:
        """Make a running controller a voter, at ``endpoint`` (host:port), once it has caught up.

        ``directory_id``: the id of its metadata directory, as ``describe_quorum`` shows it.
        ``cluster_id``: refuse if the cluster has another id.

        Raises ApiError: DUPLICATE_VOTER, INCONSISTENT_CLUSTER_ID, REQUEST_TIMED_OUT (it did not
        catch up).
        """
        self._run(
            lambda: self._admin.add_voter(voter_id, directory_id, endpoint, cluster_id=cluster_id)
        )

    def remove_voter(self, voter_id: int, directory_id: str, *, cluster_id: str = "") -> None:
        """Remove a controller from the voters. It may be down, and it may be the leader.

        Arguments as of ``add_voter``. Raises ApiError, with VOTER_NOT_FOUND if there is no such
        voter.
        """
        self._run(lambda: self._admin.remove_voter(voter_id, directory_id, cluster_id=cluster_id))

    def describe_features(self, *, linearizable: bool = True) -> list[FeatureDescription]:
        """Every feature, with its finalized level and the levels that nodes support. Raises
        ApiError."""
        return self._run(lambda: self._admin.describe_features(linearizable=linearizable))

    def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UPGRADE,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[UpdatedFeature]:
        """Finalize levels of features, all of them or none. Level 0 disables a feature.

        ``upgrade_type``: ``UPGRADE`` only raises levels. ``SAFE_DOWNGRADE`` is refused if it would
        lose metadata. ``UNSAFE_DOWNGRADE`` is not.

        Raises BulkError INVALID_UPDATE_VERSION, with the reason in its message.

        >>> admin.update_features({"metadata.version": 4})
        """
        return self._run(
            lambda: self._admin.update_features(
                levels, upgrade_type, validate_only=validate_only, request_id=request_id
            )
        )

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        """All groups, in the order of their ids.

        ``states`` and ``types`` select groups (``Stable``, ``Empty``, …; ``classic``,
        ``consumer``, ``share``). An empty filter matches all, and case is ignored. Raises ApiError.
        """
        return self._run(lambda: self._admin.list_groups(states=states, types=types))

    def describe_groups(self, groups: Sequence[str]) -> list[GroupDescription]:
        """Groups with their members, in the order of the ids. A group that does not exist has the
        state ``Dead``.

        Raises BulkError.
        """
        return self._run(lambda: self._admin.describe_groups(groups))

    def delete_groups(self, groups: Sequence[str]) -> None:
        """Delete groups and the offsets that they have committed.

        Raises BulkError: NON_EMPTY_GROUP for a group with members, GROUP_ID_NOT_FOUND.
        """
        self._run(lambda: self._admin.delete_groups(groups))

    def list_group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Every offset that the group has committed, in the order of the partitions. Raises
        ApiError."""
        return self._run(lambda: self._admin.list_group_offsets(group))

    def group_lags(self, groups: Sequence[GroupDescription]) -> dict[str, list[PartitionLag]]:
        """By group all partitions that it has committed or that its members read, with the lag of
        each.

        ``groups``: as ``describe_groups`` returns them. The ends of the logs are asked for last. So
        a lag is never too small, and negative only if records were lost. Raises ApiError.
        """
        return self._run(lambda: self._admin.group_lags(groups))

    def alter_group_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit offsets for a group without members. The group is created if it does not exist.

        Raises BulkError UNKNOWN_MEMBER_ID if the group has members.

        >>> admin.alter_group_offsets("billing", {("orders", 0): 0})
        """
        self._run(lambda: self._admin.alter_group_offsets(group, offsets))

    def delete_group_offsets(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        """Forget what a group has committed for partitions. No member may be subscribed to their
        topics.

        Raises ApiError GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP if the members are no consumers.
        Raises BulkError GROUP_SUBSCRIBED_TO_TOPIC.
        """
        self._run(lambda: self._admin.delete_group_offsets(group, partitions))

    def list_share_group_offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a share group begins in each partition that it has read, in the order of the
        partitions.

        Raises ApiError GROUP_ID_NOT_FOUND.

        >>> for place, offset in (admin.list_share_group_offsets("letters")).items():
        ...     print(place, offset.start_offset, offset.lag)
        """
        return self._run(lambda: self._admin.list_share_group_offsets(group))

    def alter_share_group_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Let a share group without members begin at these offsets. What its members acknowledged
        above is delivered again, as for the first time.

        Raises ApiError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Raises BulkError.

        >>> admin.alter_share_group_offsets("letters", {("orders", 0): 0})
        """
        self._run(lambda: self._admin.alter_share_group_offsets(group, offsets))

    def delete_share_group_offsets(self, group: str, topics: Sequence[str]) -> None:
        """Let a share group without members forget topics. If members subscribe to them again, the
        group begins anew, where its ``share.auto.offset.reset`` says.

        Raises ApiError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Raises BulkError.
        """
        self._run(lambda: self._admin.delete_share_group_offsets(group, topics))

    def describe_share_window(
        self,
        group: str,
        partition: tuple[str, int],
        *,
        from_offset: int = 0,
        max_ranges: int = 1000,
    ) -> ShareWindow | None:
        """What the leader of a partition knows of a share group's records: at most 1000 ranges,
        from the one with ``from_offset`` on.

        None: no member of the group reads the partition from its leader, so that nobody has a
        record. Raises ApiError.

        >>> window = admin.describe_share_window("mails", ("orders", 0))
        >>> if window and window.ranges:
        ...     print(window.ranges[0].first_offset, window.ranges[0].member_id)
        """
        return self._run(
            lambda: self._admin.describe_share_window(
                group, partition, from_offset=from_offset, max_ranges=max_ranges
            )
        )

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_duration_ms: int = 0,
    ) -> list[TransactionListing]:
        """All transactional ids, in their order.

        A filter that is empty matches all. ``min_duration_ms`` selects transactions that have been
        open for longer. Raises ApiError INVALID_REQUEST for a state that does not exist.
        """
        return self._run(
            lambda: self._admin.list_transactions(
                states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[TransactionDescription]:
        """Transactional ids with their transactions, in the order of the call. Raises BulkError
        with TRANSACTIONAL_ID_NOT_FOUND."""
        return self._run(lambda: self._admin.describe_transactions(transactional_ids))

    def fence_producer(self, transactional_id: str) -> None:
        """Take the transactional id over. Its producer is fenced, and its open transaction, even a
        prepared one, is aborted.

        Raises ApiError.
        """
        self._run(lambda: self._admin.fence_producer(transactional_id))

    def forget_transactional_ids(self, transactional_ids: Iterable[str]) -> None:
        """Have the coordinators forget ids that nobody will use again, now instead of after
        ``transactional.id.expiration.ms``. Waits for the end of transactions that are decided.

        Raises BulkError: INVALID_TXN_STATE for an id with an open transaction, UNSUPPORTED_VERSION
        from brokers that are older.
        """
        self._run(lambda: self._admin.forget_transactional_ids(transactional_ids))

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent and transactional producers that the leader of each partition knows.
        Raises BulkError."""
        return self._run(lambda: self._admin.describe_producers(partitions))

    def find_hanging_transactions(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        longest_transaction_ms: int = LONGEST_TRANSACTION_MS,
    ) -> list[HangingTransaction]:
        """Transactions in these partitions that no coordinator knows. So no coordinator will ever
        end them.

        A transaction whose last record is younger than ``longest_transaction_ms`` is left out: its
        coordinator may not know the partition yet. Raises ApiError, BulkError.
        """
        return self._run(
            lambda: self._admin.find_hanging_transactions(
                partitions, longest_transaction_ms=longest_transaction_ms
            )
        )

    def abort_hanging_transaction(
        self,
        partition: tuple[str, int],
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Abort a transaction in one partition. The arguments come from
        ``find_hanging_transactions``.

        Use it for nothing else: a transaction that a coordinator still knows would be aborted in
        this partition and perhaps committed in others. Raises ApiError.
        """
        self._run(
            lambda: self._admin.abort_hanging_transaction(
                partition, producer_id, producer_epoch, coordinator_epoch
            )
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        """Set configs of resources. None restores the default. Other configs stay as they are.

        Raises BulkError with the error of each refused resource, for example INVALID_CONFIG.
        Nothing of a refused resource changes.

        >>> admin.alter_configs({ConfigResource.topic("orders"): {"retention.ms": "60000"}})
        """
        self._run(
            lambda: self._admin.alter_configs(
                changes, validate_only=validate_only, request_id=request_id
            )
        )

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, linearizable: bool = True
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        """Every config of the resources, with its effective value and where that comes from.

        Those of a broker are asked of the broker itself. Raises BulkError, for example
        UNKNOWN_TOPIC_OR_PARTITION. Raises ApiError INVALID_REQUEST for a broker that is not in
        service.
        """
        return self._run(lambda: self._admin.describe_configs(resources, linearizable=linearizable))
