"""The parts of a replica manager that request handlers work with, faked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from broker.replication.deletion import Deletion, DeletionResult
from broker.replication.descriptions import DirectoryDescription, LedProducer
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.parts import ReplicaParts
from broker.replication.types import (
    EpochQuery,
    FetchResult,
    Marker,
    OffsetQuery,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
)
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition
from storage.producer_state import ProducerEntry
from tests.support.coordinators import QuickLog
from tests.support.shared_logs import FakeSharedLog


class Answering:
    """How requests are answered: at once, when a test releases them, or with an exception."""

    def __init__(self) -> None:
        self.hold = False  # whether answers wait for `release`
        self.raises: Exception | None = None
        self._held: list[Callable[[], None]] = []

    def check(self) -> None:
        if self.raises is not None:
            raise self.raises

    def answer(self, answer: Callable[[], None]) -> None:
        if self.hold:
            self._held.append(answer)
        else:
            answer()

    def release(self, index: int) -> None:
        self._held.pop(index)()


class FakeProduce:
    def __init__(self, answering: Answering) -> None:
        self.produced: list[tuple[list[ProduceEntry], int, int]] = []
        self.results: dict[PartitionId, ProduceResult] = {}
        self.are_producers_new = False
        self._answering = answering

    def begin(
        self,
        entries: Sequence[ProduceEntry],
        acks: int,
        timeout_ms: int,
        done: Callable[[list[ProduceResult]], None],
    ) -> None:
        self._answering.check()
        self.produced.append((list(entries), acks, timeout_ms))
        for entry in entries:
            if self.are_producers_new and entry.on_new_producer is not None:
                entry.on_new_producer()
        results = [
            self.results.get(e.id)
            or ProduceResult(e.id, ErrorCode.NONE, base_offset=7, log_start_offset=0)
            for e in entries
        ]
        self._answering.answer(lambda: done(results))


class FakeFetch:
    def __init__(self, answering: Answering) -> None:
        self.fetched: list[WaitingFetch] = []
        self.results: dict[PartitionId, FetchResult] = {}
        self.withdrawn = 0
        self._answering = answering

    @property
    def waiting(self) -> int:
        return sum(fetch.is_open for fetch in self.fetched)

    def begin(self, waiting: WaitingFetch) -> None:
        self._answering.check()
        if waiting.is_refused:
            waiting.take([])
            return
        if waiting.session is not None:
            waiting.entries = waiting.session.to_look_at(lambda: 0.0)
        waiting.is_open = True
        self.fetched.append(waiting)
        results = [
            self.results.get(e.id) or FetchResult(e.id, ErrorCode.NONE, 10, 10, 0)
            for e in waiting.entries
        ]

        def answer() -> None:
            waiting.is_open = False
            read_bytes = sum(len(data) for result in results for data in result.records)
            if waiting.is_follower or waiting.admits(read_bytes):
                waiting.take(results)

        self._answering.answer(answer)

    def withdraw(self, waiting: WaitingFetch) -> None:
        self.withdrawn += waiting.is_open
        waiting.is_open = False


class FakeOffsets:
    def __init__(self, answering: Answering) -> None:
        self.queries: list[OffsetQuery] = []
        self.epoch_queries: list[EpochQuery] = []
        self.result = OffsetResult(ErrorCode.NONE, 42, 1000, 3)
        self._answering = answering

    async def list_offsets(
        self, queries: Sequence[OffsetQuery], *, read_committed: bool = False
    ) -> list[OffsetResult]:
        self._answering.check()
        self.queries += queries
        return [self.result for _ in queries]

    def end_offset_for_epoch(self, queries: Sequence[EpochQuery]) -> list[OffsetResult]:
        self.epoch_queries += queries
        return [self.result for _ in queries]


class FakeDeletion:
    def __init__(self) -> None:
        self.deleted: list[tuple[list[Deletion], int]] = []
        self.result = DeletionResult(ErrorCode.NONE, 7)

    async def delete(self, deletions: Sequence[Deletion], timeout_ms: int) -> list[DeletionResult]:
        self.deleted.append((list(deletions), timeout_ms))
        return [self.result for _ in deletions]


class FakeMarkers:
    def __init__(self, answering: Answering) -> None:
        self.written: list[Marker] = []
        self.errors: dict[PartitionId, ErrorCode] = {}
        self._answering = answering

    def write(self, markers: Sequence[Marker], done: Callable[[list[ErrorCode]], None]) -> None:
        self.written += markers
        errors = [self.errors.get(each.partition, ErrorCode.NONE) for each in markers]
        self._answering.answer(lambda: done(errors))


class FakeMoves:
    def __init__(self) -> None:
        self.wanted: dict[TopicPartition, str] = {}

    def alter(self, name: TopicPartition, path: str) -> ErrorCode:
        self.wanted[name] = path
        return ErrorCode.NONE if path.startswith("/data") else ErrorCode.LOG_DIR_NOT_FOUND


class FakeDescriptions:
    def __init__(self) -> None:
        self.answer: list[DirectoryDescription] = []
        self.described: list[Collection[tuple[str, int]] | None] = []
        self.known: dict[PartitionId, list[ProducerEntry]] = {}

    async def directories(
        self, wanted: Collection[tuple[str, int]] | None
    ) -> list[DirectoryDescription]:
        self.described.append(wanted)
        return self.answer

    def producers(self, partition: PartitionId) -> list[ProducerEntry]:
        if partition not in self.known:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.known[partition]

    def producer(
        self, partition: PartitionId, producer_id: int, current_leader_epoch: int
    ) -> LedProducer:
        found = [each for each in self.producers(partition) if each.producer_id == producer_id]
        return LedProducer(found[0] if found else None, 0)


class FakeReplicas(ReplicaParts):
    """Remembers requests, and answers with what a test has put into the parts. Results are by
    partition, and NONE by default."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._answering = Answering()
        self._produce = FakeProduce(self._answering)
        self._fetch = FakeFetch(self._answering)
        self._offsets = FakeOffsets(self._answering)
        self._deletion = FakeDeletion()
        self._markers = FakeMarkers(self._answering)
        self._moves = FakeMoves()
        self._descriptions = FakeDescriptions()
        self.applied: list[MetadataImage] = []
        self.hosted_logs: dict[PartitionId, QuickLog] = {}
        self.shared_logs: dict[PartitionId, FakeSharedLog] = {}

    @property
    def produce(self) -> FakeProduce:
        return self._produce

    @property
    def fetch(self) -> FakeFetch:
        return self._fetch

    @property
    def offsets(self) -> FakeOffsets:
        return self._offsets

    @property
    def deletion(self) -> FakeDeletion:
        return self._deletion

    @property
    def markers(self) -> FakeMarkers:
        return self._markers

    @property
    def moves(self) -> FakeMoves:
        return self._moves

    @property
    def descriptions(self) -> FakeDescriptions:
        return self._descriptions

    # ------------------------------------------------------------------ how it answers

    def hold(self, held: bool = True) -> None:
        """Whether answers wait for ``release``."""
        self._answering.hold = held

    def release(self, index: int = 0) -> None:
        self._answering.release(index)

    def fail(self, error: Exception | None) -> None:
        """Have requests raise this; None: answer again."""
        self._answering.raises = error

    # ------------------------------------------------------------------ metadata, coordinators

    def high_watermarks(self) -> Iterator[tuple[TopicPartition, int]]:
        yield TopicPartition("orders", 1), 50

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None]:
        self.applied.append(image)
        return iter(())

    def host(self, partition: PartitionId) -> QuickLog | None:
        """Every partition that this broker leads has a log for its coordinator."""
        state = self.applied[-1].partition(*partition)
        if state is None or state.leader != self._broker_id:
            return None
        return self.hosted_logs.setdefault(partition, QuickLog())

    def share(self, partition: PartitionId) -> FakeSharedLog | None:
        """The same for share groups, in the leader epoch of the metadata."""
        state = self.applied[-1].partition(*partition)
        if state is None or state.leader != self._broker_id:
            return None
        log = self.shared_logs.get(partition)
        if log is None or not log.is_led:
            log = self.shared_logs[partition] = FakeSharedLog(partition, state.leader_epoch)
        return log

    def when_leading(self, listener: Callable[[PartitionId], None]) -> None:
        """It leads as soon as the metadata say so."""
