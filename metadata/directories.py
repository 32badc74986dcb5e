"""In which log directory of its broker each replica is (KIP-858).

A directory has a random id, which stands in its ``meta.properties``. The metadata hold the ids of a
broker's directories in its registration, and the directory of a replica beside the replica. So the
controller knows which replicas are lost with a directory whose broker goes on with others.

A broker with one directory tells nothing of its replicas: the directory works as long as the broker
does. So the replicas of such brokers stay UNASSIGNED, and cost no records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REPLICA_DIRECTORIES: Final = 5
"""The level of metadata.version from which on brokers report the directories of their replicas.
Below it an image has no directories of replicas, because brokers do not report moves then: a
downgrade clears them. No log directory is offline then either, because the controller refuses a
downgrade until all are online."""

UNASSIGNED: Final = bytes(16)
"""The replica is new, or its broker has not reported its directory."""

LOST: Final = bytes(15) + b"\x01"
"""The replica is in an offline directory, and it is not known in which."""

MIGRATING: Final = bytes(15) + b"\x02"
"""Reserved by Kafka for clusters that come from ZooKeeper. Here it counts as UNASSIGNED."""

_RESERVED: Final = 100  # Kafka never makes a directory with one of the first ids


def is_reserved(directory_id: bytes) -> bool:
    """Whether this is the id of no directory."""
    return int.from_bytes(directory_id, "big") < _RESERVED


def aligned(
    replicas: Sequence[int], known_replicas: Sequence[int], known: Sequence[bytes]
) -> tuple[bytes, ...]:
    """The directories of ``replicas``. Replicas that stay keep theirs, new ones have none."""
    if not known:
        return ()
    by_broker = dict(zip(known_replicas, known, strict=True))
    return compact([by_broker.get(each, UNASSIGNED) for each in replicas])


def compact(directories: Sequence[bytes]) -> tuple[bytes, ...]:
    """Nothing where no directory is known, so that images that say the same are equal."""
    return tuple(directories) if any(each != UNASSIGNED for each in directories) else ()
