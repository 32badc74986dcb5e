"""What request handlers ask of this broker's replicas, part by part.

``broker.replication.manager.ReplicaManager`` hands out the real parts. Callbacks ``done`` are
called exactly once, possibly before the call returns. Results stand in the order of what was asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from broker.replication.deletion import Deletion, DeletionResult
from broker.replication.descriptions import DirectoryDescription, LedProducer
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.types import (
    EpochQuery,
    Marker,
    OffsetQuery,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
)
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from storage.producer_state import ProducerEntry


class Produces(Protocol):
    """``broker.replication.produce.ProduceRequests``."""

    def begin(
        self,
        entries: Sequence[ProduceEntry],
        acks: int,
        timeout_ms: int,
        done: Callable[[list[ProduceResult]], None],
    ) -> None: ...


class Fetches(Protocol):
    """``broker.replication.fetch.FetchRequests``."""

    def begin(self, waiting: WaitingFetch) -> None: ...

    def withdraw(self, waiting: WaitingFetch) -> None: ...


class Offsets(Protocol):
    """``broker.replication.offsets.OffsetRequests``."""

    async def list_offsets(
        self, queries: Sequence[OffsetQuery], *, read_committed: bool = False
    ) -> list[OffsetResult]: ...

    def end_offset_for_epoch(self, queries: Sequence[EpochQuery]) -> list[OffsetResult]: ...


class Deletions(Protocol):
    """``broker.replication.deletion.DeleteRequests``."""

    async def delete(
        self, deletions: Sequence[Deletion], timeout_ms: int
    ) -> list[DeletionResult]: ...


class Markers(Protocol):
    """``broker.replication.markers.MarkerRequests``."""

    def write(self, markers: Sequence[Marker], done: Callable[[list[ErrorCode]], None]) -> None: ...


class Moves(Protocol):
    """``broker.replication.moves.DirectoryMoves``."""

    def alter(self, name: TopicPartition, path: str) -> ErrorCode: ...


class Descriptions(Protocol):
    """``broker.replication.descriptions.ReplicaDescriptions``."""

    async def directories(
        self, wanted: Collection[tuple[str, int]] | None
    ) -> list[DirectoryDescription]: ...

    def producers(self, partition: PartitionId) -> list[ProducerEntry]: ...

    def producer(
        self, partition: PartitionId, producer_id: int, current_leader_epoch: int
    ) -> LedProducer: ...


class ReplicaParts(Protocol):
    """All of them."""

    @property
    def produce(self) -> Produces: ...

    @property
    def fetch(self) -> Fetches: ...

    @property
    def offsets(self) -> Offsets: ...

    @property
    def deletion(self) -> Deletions: ...

    @property
    def markers(self) -> Markers: ...

    @property
    def moves(self) -> Moves: ...

    @property
    def descriptions(self) -> Descriptions: ...
