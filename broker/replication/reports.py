"""This broker's reports to the controller about its logs and their directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.replication.assignments import id_of
from broker.replication.relaxed_flush import RelaxedFlush
from broker.replication.replica import Replica, ReplicaState
from broker.replication.replicas import Replicas
from metadata.directories import REPLICA_DIRECTORIES
from metadata.effective import unclean_election_enabled
from metadata.features import metadata_version
from runtime.config.node import NodeConfig
from stele.ids import PartitionId
from storage.directory import LogDirectory


class ReplicaReports:
    """Reads only."""

    def __init__(
        self,
        replicas: Replicas,
        directories: Mapping[LogDirectory, RelaxedFlush],
        config: NodeConfig,
    ) -> None:
        self._replicas = replicas
        self._directories = directories
        self._config = config

    @property
    def has_online_directory(self) -> bool:
        return any(directory.offline is None for directory in self._directories)

    @property
    def failed_directories(self) -> list[bytes]:
        """The ids of those that have failed since they were opened."""
        return [id_of(each) for each in self._directories if each.offline is not None]

    def corrupt(self) -> list[PartitionId]:
        """Replicas found corrupt and not yet rebuilt. Also the replicas of a failed directory in
        which the controller does not know them: all of them below the metadata.version at which it
        knows directories, and those whose move into the directory was not settled."""
        corrupt = [
            PartitionId(topic_id, key.partition)
            for directory in self._directories
            for key, topic_id in sorted(directory.corrupt_topic_ids.items())
            if topic_id is not None
        ]
        image, static = self._replicas.metadata.image, self._config.raw
        knows_directories = metadata_version(image) >= REPLICA_DIRECTORIES
        return corrupt + given_up(
            [each for each in self._replicas if not (knows_directories and each.is_settled)],
            self._replicas.broker_id,
            lambda topic: unclean_election_enabled(image, topic, static),
        )

    def held(self) -> dict[bytes, list[PartitionId]]:
        """Replicas with a sound log, by directory id."""
        return {
            id_of(directory): [
                PartitionId(log.topic_id, key.partition)
                for key, log in directory.logs.items()
                if log.topic_id is not None
            ]
            for directory in self._directories
        }

    def unsynced(self) -> list[PartitionId]:
        """Replicas that may have lost acknowledged records: flush relaxed, unclean shutdown."""
        return [partition for relaxed in self._directories.values() for partition in relaxed.lossy]


def given_up(
    replicas: Iterable[Replica], broker_id: int, may_lose_records: Callable[[str], bool]
) -> list[PartitionId]:
    """The replicas in a failed directory of a broker whose other directories work, that are to be
    reported as lost, so that others lead and nobody waits for them.

    Not reported is a replica that alone has everything, unless its topic may lose records: the next
    start may be able to read the directory. Its partition is refused until then. A replica that is
    in neither ISR nor ELR has been reported, or nobody relies on it.
    """
    return [
        replica.id
        for replica in replicas
        if replica.state is ReplicaState.OFFLINE
        and replica.directory.offline is not None
        and (broker_id in replica.complete_members)
        and (len(replica.complete_members) > 1 or may_lose_records(replica.topic))
    ]
