"""Replicas in a log directory that has failed, on a broker whose other directories work."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.replication.replica import Replica, ReplicaState
from stele.ids import PartitionId


def given_up(
    replicas: Iterable[Replica], broker_id: int, may_lose_records: Callable[[str], bool]
) -> list[PartitionId]:
    """The replicas to be reported as lost, so that others lead and nobody waits for them.

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
