"""All coordinators of one kind on this broker: one for each partition of their internal topic that
it leads.

A shard is loaded when this broker begins to lead its partition in a leader epoch, and unloaded when
that epoch is over. It is never carried over into another epoch, not even into one that this broker
leads too: in between, another leader may have written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from broker.coordinator.errors import coordinator_error
from broker.coordinator.shard import Log, Shard, ShardState
from broker.coordinator.step import Machine, Request, Transaction, Waiter
from broker.replication.deadlines import DeadlineWheel
from broker.replication.hosted import Loaded
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.world import Clock

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)

_RELOAD_S = 1.0
"""The pause after a log could not be read, or a machine broke, before it is loaded again."""


class HostedLog(Log, Protocol):
    """What the runtime needs of a partition: ``broker.replication.hosted.HostedPartition``."""

    @property
    def is_led(self) -> bool: ...

    @property
    def leader_epoch(self) -> int: ...

    def records(self) -> AsyncIterator[Loaded]: ...

    def begin_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        adds: bool,
        done: Callable[[ErrorCode], None],
    ) -> None: ...


class Host(Protocol):
    """``broker.replication.hosted.Hosting``."""

    def host(self, partition: PartitionId) -> HostedLog | None:
        """The partition, if this broker leads it and can work with its log."""
        ...

    def when_leading(self, listener: Callable[[PartitionId], None]) -> None:
        """Have the listener called whenever this broker begins to lead a partition, which may be
        later than the metadata say so."""
        ...


@dataclass(slots=True)
class LoadCounters:
    """Totals since the start of the process."""

    loads: int = 0
    failed_loads: int = 0
    records: int = 0
    record_bytes: int = 0  # of keys and values
    total_s: float = 0.0
    longest_s: float = 0.0


class _Hosted(Generic[M]):
    """A shard, its log, and the task that loads it."""

    __slots__ = ("loading", "log", "shard")

    def __init__(self, log: HostedLog, shard: Shard[M]) -> None:
        self.log = log
        self.shard = shard
        self.loading: asyncio.Task[None] | None = None

    def unload(self) -> None:
        if self.loading is not None:
            self.loading.cancel()
        self.shard.unload()


class CoordinatorRuntime(Generic[M]):
    """Subscribes to the metadata behind the replica manager, whose replicas it hosts shards on."""

    def __init__(
        self,
        topic: str,
        *,
        host: Host,
        make_machine: Callable[[], M],
        clock: Clock,
        commit_timeout_ms: float,
    ) -> None:
        self._topic = topic
        self._host = host
        self._make_machine = make_machine
        self._clock = clock
        self._deadlines = DeadlineWheel(clock)
        self._commit_timeout_ms = commit_timeout_ms
        # The id of the topic of the shards; empty if the topic does not exist.
        self._topic_id = b""
        self._shards: dict[int, _Hosted[M]] = {}
        self._stopped = False
        self.counters = LoadCounters()
        host.when_leading(self._leading)

    # ------------------------------------------------------------------ metadata

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Load the partitions that this broker begins to lead, and unload those that it leads no
        more."""
        if self._stopped:
            return
        topic = image.topic(self._topic)
        topic_id = topic.topic_id if topic is not None else b""
        if topic_id != self._topic_id:
            for number in list(self._shards):
                self._unload(number)
            self._topic_id = topic_id
        for change in delta.changed_partitions:
            if change.topic_id == topic_id:
                self._look(change.partition)

    def _leading(self, partition: PartitionId) -> None:
        """This broker leads a partition now. With many new partitions, its log was made in a later
        turn of the event loop than the one in which ``apply`` looked at it."""
        if not self._stopped and partition.topic_id == self._topic_id:
            self._look(partition.partition)

    def _look(self, number: int) -> None:
        hosted = self._shards.get(number)
        if hosted is not None:
            if hosted.log.is_led:
                return
            self._unload(number)
        log = self._host.host(PartitionId(self._topic_id, number))
        if log is not None:
            self._load(number, log)

    def _unload(self, number: int) -> None:
        hosted = self._shards.pop(number)
        logger.info("%r: its coordinator is unloaded", hosted.log)
        hosted.unload()

    # ------------------------------------------------------------------ loading

    def _load(self, number: int, log: HostedLog) -> None:
        shard = Shard(
            self._make_machine(),
            log,
            clock=self._clock,
            deadlines=self._deadlines,
            commit_timeout_ms=self._commit_timeout_ms,
            on_broken=lambda: self._broken(number, hosted),
        )
        hosted = self._shards[number] = _Hosted(log, shard)
        hosted.loading = asyncio.get_running_loop().create_task(
            self._replay(number, hosted), name=f"load-{self._topic}-{number}"
        )

    async def _replay(self, number: int, hosted: _Hosted[M]) -> None:
        began = self._clock.monotonic()
        count, size = 0, 0
        try:
            hosted.shard.begin()
            async for loaded in hosted.log.records():
                size += hosted.shard.replay(loaded)
                count += len(loaded.records)
            self._count(hosted, count, size, self._clock.monotonic() - began)
            hosted.shard.activate()
        except Exception as error:
            self.counters.failed_loads += 1
            level = logging.WARNING if isinstance(error, ApiError) else logging.ERROR
            logger.log(level, "%r: its coordinator cannot be loaded", hosted.log, exc_info=error)
            self._reload_later(number, hosted)

    def _count(self, hosted: _Hosted[M], records: int, size: int, took_s: float) -> None:
        counters = self.counters
        counters.loads += 1
        counters.records += records
        counters.record_bytes += size
        counters.total_s += took_s
        counters.longest_s = max(counters.longest_s, took_s)
        logger.info(
            "%r: its coordinator was loaded from %d records of %d bytes in %.3f s",
            hosted.log, records, size, took_s,
        )  # fmt: skip

    def _broken(self, number: int, hosted: _Hosted[M]) -> None:
        if self._shards.get(number) is hosted:
            self._reload_later(number, hosted)

    def _reload_later(self, number: int, hosted: _Hosted[M]) -> None:
        """Try again, if this broker then leads the partition still."""

        def reload() -> None:
            if self._shards.get(number) is hosted:
                self._unload(number)
                self._look(number)

        self._deadlines.add(_RELOAD_S * 1000, reload)

    # ------------------------------------------------------------------ requests

    def submit(self, number: int, request: Request[Any], waiter: Waiter) -> None:
        """Have the coordinator of a partition decide a request. It is refused with NOT_COORDINATOR
        if this broker does not lead the partition, COORDINATOR_LOAD_IN_PROGRESS while it loads."""
        hosted = self._shards.get(number)
        if hosted is None:
            waiter.refuse(ErrorCode.NOT_COORDINATOR)
        else:
            hosted.shard.submit(request, waiter)

    def submit_in_transaction(
        self, number: int, transaction: Transaction, request: Request[Any], waiter: Waiter
    ) -> None:
        """As ``submit``, for a request whose records are part of a transaction. Unless the log has
        records of it, the transaction coordinator is asked first, and its refusal is the answer."""
        hosted = self._shards.get(number)
        if hosted is None:
            waiter.refuse(ErrorCode.NOT_COORDINATOR)
            return
        refusal = hosted.shard.request_refusal
        if refusal is not ErrorCode.NONE:
            waiter.refuse(refusal)
            return

        def done(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                waiter.refuse(coordinator_error(error))
            else:
                hosted.shard.submit(request, waiter)

        transactional_id, producer, adds = transaction
        hosted.log.begin_transaction(transactional_id, *producer, adds=adds, done=done)

    def inform(self, news: object) -> None:
        """Have every coordinator that is loaded take note of news (``Machine.note``)."""
        for _, hosted in sorted(self._shards.items()):
            hosted.shard.inform(news)

    def inform_one(self, number: int, leader_epoch: int, news: object) -> None:
        """Have the coordinator of a partition take note of news. Without effect if it is not
        the one of this leader epoch."""
        hosted = self._shards.get(number)
        if hosted is not None and hosted.log.leader_epoch == leader_epoch:
            hosted.shard.inform(news)

    def is_active(self, number: int, leader_epoch: int) -> bool:
        """Whether the coordinator of a partition in this leader epoch is here, and loaded."""
        hosted = self._shards.get(number)
        return (
            hosted is not None
            and hosted.log.leader_epoch == leader_epoch
            and hosted.shard.state is ShardState.ACTIVE
        )

    def may_write(self, number: int) -> bool:
        """Whether the log of the coordinator of a partition takes records now."""
        hosted = self._shards.get(number)
        return hosted is not None and hosted.log.write_refusal is ErrorCode.NONE

    def each_active(self) -> Iterator[tuple[int, int, M]]:
        """The partition, leader epoch and machine of each coordinator that is loaded."""
        for number, each in sorted(self._shards.items()):
            if each.shard.state is ShardState.ACTIVE:
                yield number, each.log.leader_epoch, each.shard.machine

    @property
    def topic_id(self) -> bytes:
        """The id of the topic whose partitions are hosted; empty: there is no such topic."""
        return self._topic_id

    @property
    def partitions(self) -> list[int]:
        """The partitions with a coordinator here, loaded or not."""
        return sorted(self._shards)

    @property
    def active(self) -> list[M]:
        """The machines that are loaded; to be looked at only."""
        return [machine for _, _, machine in self.each_active()]

    async def stop(self) -> None:
        """Refuse all waiting requests, and decide nothing more."""
        self._stopped = True
        loading = [each.loading for each in self._shards.values() if each.loading is not None]
        for number in list(self._shards):
            self._unload(number)
        self._deadlines.close()
        await asyncio.gather(*loading, return_exceptions=True)
