"""The replicas of one broker: the one append and the one fetch function of both planes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.types import (
    Cancel,
    EpochQuery,
    FetchQuery,
    FetchResult,
    LeaderHint,
    OffsetQuery,
    OffsetResult,
    PartitionId,
    ProduceEntry,
    ProduceResult,
)
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from broker.replica_config import ReplicaConfig
    from metadata.delta import MetadataDelta
    from metadata.image import MetadataImage
    from stele.world import World
    from storage.directory import LogDirectory


@dataclass(slots=True)
class ReplicaCounters:
    """Totals since start (`bytes_*`, `*_total`) and present values, for /metrics."""

    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    failed_produce_total: int = 0
    isr_shrinks_total: int = 0
    isr_expands_total: int = 0
    leader_count: int = 0
    partition_count: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    offline_replicas: int = 0


class ReplicaManager:
    """All replicas of this broker. Everything runs on the event loop; nothing blocks.

    Callbacks ``done`` are called exactly once, possibly before the call returns, never after
    the returned ``Cancel`` was called. Results stand in the order of the entries.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        world: World,
        directories: Sequence[LogDirectory],
        config: ReplicaConfig,
        alter_partition: Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]],
        lease_valid: Callable[[], bool],
        directory_failed: Callable[[str], None],
    ) -> None:
        """``directories`` are opened already (recovery done).

        ``alter_partition`` reaches the active controller; it raises RpcError or ApiError.
        ``lease_valid`` says, reading the Clock anew, whether the last acknowledged heartbeat
        was sent less than the session timeout ago; a leader without acknowledges nothing.
        ``directory_failed`` is told the path of a directory that was taken offline.
        """
        raise NotImplementedError

    # ------------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin housekeeping: retention, checkpoints, ISR checks, deadlines."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Stop fetchers, answer all waiters, write every checkpoint, close the logs cleanly."""
        raise NotImplementedError

    def set_broker_epoch(self, epoch: int) -> None:
        """The epoch of the present registration; goes into Fetch and AlterPartition."""
        raise NotImplementedError

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Bring the replicas in line with the metadata: lead, follow, create, delete, configure."""
        raise NotImplementedError

    def corrupt_replicas(self) -> list[PartitionId]:
        """Replicas found corrupt and not yet rebuilt: to be reported at registration."""
        raise NotImplementedError

    def unsynced_replicas(self) -> list[PartitionId]:
        """Replicas that may have lost acknowledged records: flush relaxed, unclean shutdown."""
        raise NotImplementedError

    # ------------------------------------------------------------------------- requests

    def produce(
        self,
        entries: list[ProduceEntry],
        acks: int,
        timeout_ms: int,
        done: Callable[[list[ProduceResult]], None],
    ) -> None:
        """Validate, stamp and append batches; answer by ``acks`` (0, 1 or -1).

        0: answered at once after the append; 1: when durable here (by ``flush.messages``);
        -1: when below the high watermark, NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR falls
        below min.insync.replicas before, REQUEST_TIMED_OUT after ``timeout_ms``.
        """
        raise NotImplementedError

    def fetch(self, query: FetchQuery, done: Callable[[list[FetchResult]], None]) -> Cancel:
        """Read from local leaders, for consumers and followers alike; waits by the query."""
        raise NotImplementedError

    async def list_offsets(
        self, queries: Sequence[OffsetQuery], *, read_committed: bool = False
    ) -> list[OffsetResult]:
        """Earliest, latest, of a time, of the greatest time: see ListOffsets."""
        raise NotImplementedError

    def end_offset_for_epoch(self, queries: Sequence[EpochQuery]) -> list[OffsetResult]:
        """The end of the greatest epoch not above the one asked for: OffsetForLeaderEpoch."""
        raise NotImplementedError

    # ------------------------------------------------------------------------- questions

    def leader_of(self, id: PartitionId) -> LeaderHint:
        """Who leads by the metadata applied last; -1 for nobody or unknown."""
        raise NotImplementedError

    @property
    def counters(self) -> ReplicaCounters:
        """A fresh reading of the totals and the present values."""
        raise NotImplementedError
