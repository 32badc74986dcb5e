"""The request to the broker's fetch function."""

from __future__ import annotations

from dataclasses import dataclass

from broker.replication.fetch_session import FetchSession
from broker.replication.types import FetchEntry


@dataclass(slots=True)
class FetchQuery:
    """A fetch by a consumer (``replica_id`` -1) or by a follower with its broker epoch."""

    entries: list[FetchEntry]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    replica_id: int = -1
    replica_epoch: int = -1
    read_committed: bool = False
    # Of a consumer: whether a follower may serve it, up to the high watermark that it knows.
    any_replica: bool = False
    # The brokers that are nearer to the consumer than this one. The leader names one of them if
    # that has the offset. Empty for followers, for consumers that do not say where they are, and
    # where the configuration does not ask for it.
    nearby: frozenset[int] = frozenset()
    # Of a follower that has one: it knows what is to be read, and `entries` is empty.
    session: FetchSession | None = None
