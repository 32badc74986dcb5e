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
from stele.sync.face import Face


class Admin(Face):
    """Administrates a cluster. :class:`stele.admin.admin.Admin` describes the methods."""

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
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
        return self._run(
            lambda: self._admin.create_topics(
                topics, validate_only=validate_only, request_id=request_id
            )
        )

    def delete_topics(self, names: Sequence[str], *, request_id: bytes | None = None) -> None:
        self._run(lambda: self._admin.delete_topics(names, request_id=request_id))

    def describe_topics(
        self, names: Sequence[str], *, linearizable: bool = True
    ) -> list[TopicDescription]:
        return self._run(lambda: self._admin.describe_topics(names, linearizable=linearizable))

    def list_topics(self, *, linearizable: bool = True) -> list[TopicDescription]:
        return self._run(lambda: self._admin.list_topics(linearizable=linearizable))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        self._run(
            lambda: self._admin.create_partitions(
                counts, assignments, validate_only=validate_only, request_id=request_id
            )
        )

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        return self._run(lambda: self._admin.delete_records(offsets))

    def list_offsets(
        self, timestamps_ms: Mapping[Place, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return self._run(lambda: self._admin.list_offsets(timestamps_ms))

    def unregister_broker(self, broker_id: int, *, request_id: bytes | None = None) -> None:
        self._run(lambda: self._admin.unregister_broker(broker_id, request_id=request_id))

    def elect_leaders(
        self,
        partitions: Sequence[tuple[str, int]] = (),
        *,
        unclean: bool = False,
        request_id: bytes | None = None,
    ) -> list[TopicPartition]:
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
        return self._run(lambda: self._admin.list_partition_reassignments(partitions))

    def describe_cluster(self, *, linearizable: bool = True) -> ClusterDescription:
        return self._run(lambda: self._admin.describe_cluster(linearizable=linearizable))

    def describe_log_dirs(
        self, broker_ids: Sequence[int] = (), partitions: Sequence[tuple[str, int]] = ()
    ) -> list[LogDirDescription]:
        return self._run(lambda: self._admin.describe_log_dirs(broker_ids, partitions))

    def alter_replica_log_dirs(self, wanted: Mapping[ReplicaPlace, str]) -> set[ReplicaPlace]:
        return self._run(lambda: self._admin.alter_replica_log_dirs(wanted))

    def describe_quorum(self) -> QuorumDescription:
        return self._run(self._admin.describe_quorum)

    def read_metadata_log(self) -> MetadataLog:
        return self._run(self._admin.read_metadata_log)

    def transfer_leadership(self, voter_id: int) -> int:
        return self._run(lambda: self._admin.transfer_leadership(voter_id))

    def add_voter(
        self, voter_id: int, directory_id: str, endpoint: str, *, cluster_id: str = ""
    ) -> None:
        self._run(
            lambda: self._admin.add_voter(voter_id, directory_id, endpoint, cluster_id=cluster_id)
        )

    def remove_voter(self, voter_id: int, directory_id: str, *, cluster_id: str = "") -> None:
        self._run(lambda: self._admin.remove_voter(voter_id, directory_id, cluster_id=cluster_id))

    def describe_features(self, *, linearizable: bool = True) -> list[FeatureDescription]:
        return self._run(lambda: self._admin.describe_features(linearizable=linearizable))

    def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UPGRADE,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> list[UpdatedFeature]:
        return self._run(
            lambda: self._admin.update_features(
                levels, upgrade_type, validate_only=validate_only, request_id=request_id
            )
        )

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[GroupListing]:
        return self._run(lambda: self._admin.list_groups(states=states, types=types))

    def describe_groups(self, groups: Sequence[str]) -> list[GroupDescription]:
        return self._run(lambda: self._admin.describe_groups(groups))

    def delete_groups(self, groups: Sequence[str]) -> None:
        self._run(lambda: self._admin.delete_groups(groups))

    def list_group_offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return self._run(lambda: self._admin.list_group_offsets(group))

    def group_lags(self, groups: Sequence[GroupDescription]) -> dict[str, list[PartitionLag]]:
        return self._run(lambda: self._admin.group_lags(groups))

    def alter_group_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        self._run(lambda: self._admin.alter_group_offsets(group, offsets))

    def delete_group_offsets(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        self._run(lambda: self._admin.delete_group_offsets(group, partitions))

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_duration_ms: int = 0,
    ) -> list[TransactionListing]:
        return self._run(
            lambda: self._admin.list_transactions(
                states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms
            )
        )

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[TransactionDescription]:
        return self._run(lambda: self._admin.describe_transactions(transactional_ids))

    def fence_producer(self, transactional_id: str) -> None:
        self._run(lambda: self._admin.fence_producer(transactional_id))

    def forget_transactional_ids(self, transactional_ids: Iterable[str]) -> None:
        """As ``stele.aio.Admin.forget_transactional_ids``."""
        self._run(lambda: self._admin.forget_transactional_ids(transactional_ids))

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        return self._run(lambda: self._admin.describe_producers(partitions))

    def find_hanging_transactions(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        longest_transaction_ms: int = LONGEST_TRANSACTION_MS,
    ) -> list[HangingTransaction]:
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
        self._run(
            lambda: self._admin.alter_configs(
                changes, validate_only=validate_only, request_id=request_id
            )
        )

    def describe_configs(
        self, resources: Sequence[ConfigResource], *, linearizable: bool = True
    ) -> dict[ConfigResource, list[ConfigEntry]]:
        return self._run(lambda: self._admin.describe_configs(resources, linearizable=linearizable))
