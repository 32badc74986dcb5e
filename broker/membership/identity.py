"""The data with which a broker registers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metadata.directories import REPLICA_DIRECTORIES
from metadata.features import supported_ranges
from metadata.records import METADATA_VERSION
from stele.ids import PartitionId
from stele.wire.v1 import controller_pb2 as pb
from stele.wire.v1.metadata_pb2 import Endpoint, FeatureRange

NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class DirectoryHistory:
    """The earlier processes that have used a log directory, as the directory knows them."""

    directory_id: bytes
    previous_broker_epoch: int  # of the one that closed it in a clean shutdown; else -1
    incarnation_ids: tuple[bytes, ...]  # see ``storage.incarnations``


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """A broker's own description for the controller. Constant for the life of the process."""

    cluster_id: str
    broker_id: int
    incarnation_id: bytes  # 16 random bytes, new in every process
    rack: str
    histories: tuple[DirectoryHistory, ...]  # of every log directory
    directories_marked: bool  # all of them have the incarnation id on disk
    inter_broker_listener: str = ""  # by which it reaches other brokers
    unopened_directories: int = 0  # of log.dirs, that are offline since the start

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last life if every directory was shut down cleanly in it; else
        -1."""
        epochs = {each.previous_broker_epoch for each in self.histories}
        return epochs.pop() if len(epochs) == 1 else NO_EPOCH

    def registration(
        self,
        endpoints: Sequence[Endpoint],
        *,
        corrupt: Sequence[PartitionId],
        unsynced: Sequence[PartitionId],
        held: Mapping[bytes, Sequence[PartitionId]],
    ) -> pb.RegisterBrokerRequest:
        """The request. ``corrupt`` and ``unsynced`` replicas may have lost records. ``held``: the
        replicas with a sound log, by directory id."""
        return pb.RegisterBrokerRequest(
            cluster_id=self.cluster_id,
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            endpoints=endpoints,
            rack=self.rack,
            log_directories=[each.directory_id for each in self.histories],
            previous_broker_epoch=self.previous_broker_epoch,
            corrupt=_references(corrupt),
            unsynced=_references(unsynced),
            features=self._features(),
            inter_broker_listener=self.inter_broker_listener,
            directory_histories=[
                pb.DirectoryHistory(
                    directory_id=each.directory_id,
                    previous_broker_epoch=each.previous_broker_epoch,
                    incarnation_ids=each.incarnation_ids,
                    replicas=_references(held.get(each.directory_id, ())),
                )
                for each in self.histories
            ],
            directories_marked=self.directories_marked,
            unopened_directories=self.unopened_directories,
        )

    def _features(self) -> list[FeatureRange]:
        """The supported levels. A controller of an older version would count replicas in offline
        directories as lost, and refuses the broker for this."""
        ranges = supported_ranges()
        for each in ranges:
            if each.name == METADATA_VERSION and self.unopened_directories:
                each.min_level = REPLICA_DIRECTORIES
        return ranges


def _references(replicas: Sequence[PartitionId]) -> list[pb.PartitionReference]:
    return [
        pb.PartitionReference(topic_id=replica.topic_id, partition=replica.partition)
        for replica in replicas
    ]
