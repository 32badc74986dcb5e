"""Requests to and results of the broker's one append and one fetch function.

The Kafka APIs and the gateway translate to these and back; nothing below knows either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch_errors import RecordError
from stele.world import Buffer
from storage.producer_handover import ProducersPart
from storage.txn_index import AbortedTransaction
from world.tracing import Span


class LeaderHint(NamedTuple):
    """The leader that acknowledges, or for a refusal the one to ask instead; -1: none."""

    leader_id: int = -1
    leader_epoch: int = -1


NO_HINT: Final = LeaderHint()


class TransactionalWrite(NamedTuple):
    """What a request says of the transaction that its batches belong to."""

    transactional_id: str
    adds_partition: bool
    """Whether the broker has the partitions added to the transaction (KIP-890). Otherwise the
    producer has done that."""


@dataclass(slots=True)
class ProduceEntry:
    """One batch for one partition. The batch is stamped in place: it must be writable."""

    id: PartitionId
    batch: bytearray | memoryview
    transaction: TransactionalWrite | None = None  # of the request
    on_new_producer: Callable[[], None] | None = None
    """Called when the batch is appended and its producer is new to the partition."""
    span: Span | None = None  # of the request, if it is traced


class Marker(NamedTuple):
    """The end of a transaction in one partition, by order of its coordinator."""

    partition: PartitionId
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


@dataclass(slots=True)
class ProduceResult:
    id: PartitionId
    error: ErrorCode
    message: str = ""
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    leader: LeaderHint = NO_HINT
    record_errors: Sequence[RecordError] = ()
    """Which records made the leader refuse the batch, if it was some of them."""


@dataclass(slots=True)
class FetchEntry:
    id: PartitionId
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1  # the follower's; -1 for consumers
    # The follower begins anew and has the leader's producers up to this id.
    producers_after: int = -1


Cancel = Callable[[], None]
"""Withdraws a waiting request, e.g. when its connection closed; harmless once it is answered."""


class TracedBatch(NamedTuple):
    """A batch whose request is traced."""

    base_offset: int
    leader_epoch: int  # in which it was appended
    context: str  # of the request's span


class EpochEnd(NamedTuple):
    epoch: int
    end_offset: int


@dataclass(slots=True)
class FetchResult:
    id: PartitionId
    error: ErrorCode
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    records: list[Buffer] = field(default_factory=list)
    # With read_committed: the aborted transactions with offsets among the records, in the order of
    # their markers. The reader drops their records.
    aborted: Sequence[AbortedTransaction] = ()
    leader: LeaderHint = NO_HINT
    # The replica that a consumer should read from instead (KIP-392); -1: this one.
    preferred_replica: int = -1
    # In a session: the follower has everything, and only a change here makes news of it.
    at_rest: bool = False
    # Told to a follower that ends below: the leader's ``PartitionLog.dropped_end``. The follower's
    # log lacks the same tombstones.
    dropped_end: int = -1
    # Told to a follower that begins anew: what its log will not tell.
    producers: ProducersPart | None = None
    # Told to a follower that may get this batch.
    traced: TracedBatch | None = None
    # The follower is not in sync, and the leader's quota for such replicas is used up.
    awaits_quota: bool = False


LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3


@dataclass(slots=True)
class OffsetQuery:
    """One partition of ListOffsets; ``timestamp_ms`` is a time or one of the three above."""

    id: PartitionId
    timestamp_ms: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class EpochQuery:
    """One partition of OffsetForLeaderEpoch: where does ``leader_epoch`` end here?"""

    id: PartitionId
    leader_epoch: int
    current_leader_epoch: int = -1


@dataclass(slots=True)
class OffsetResult:
    """Answer of ListOffsets and OffsetForLeaderEpoch."""

    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1
    leader_epoch: int = -1
