"""What a replica of the metadata quorum needs to know before it starts."""

from __future__ import annotations

from dataclasses import dataclass

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = 0


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """One entry of ``controller.quorum.voters``: ``id@host:port``."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """Identity and timing of one replica. A node whose id is no voter's is an observer.

    Defaults are Kafka's: ``controller.quorum.*``.
    """

    cluster_id: str
    node_id: int
    directory_id: bytes
    voters: tuple[QuorumVoter, ...]
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 2_000
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    snapshot_after_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000  # 0: only by bytes

    @property
    def is_voter(self) -> bool:
        return any(voter.id == self.node_id for voter in self.voters)
