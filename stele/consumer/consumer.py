"""The asyncio consumer. The user assigns partitions by hand and stores offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self, Unpack

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.view import ClusterView
from stele.config import ClientWorld, ConsumerConfig, ConsumerOptions, real_world
from stele.consumer.fetcher import Fetcher
from stele.consumer.offset_lookup import OffsetLookup
from stele.consumer.polled import ConsumerRecords
from stele.consumer.positions import EARLIEST, LATEST, PartitionPosition
from stele.errors import ClosedError, ConfigError, UnreadableBatchError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord, OffsetAndTimestamp

PartitionArgument = tuple[str, int]


class Consumer:
    """Reads records. Use it from one event loop.

    >>> async with Consumer("127.0.0.1:9092", auto_offset_reset="earliest") as consumer:
    ...     consumer.assign([("orders", 0)])
    ...     records = await consumer.poll(timeout_ms=1000)

    Options and their defaults: :class:`stele.config.ConsumerConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._config = ConsumerConfig(bootstrap_servers=bootstrap_servers, **options)
        self._world = world or real_world()
        self._view = ClusterView(self._config, self._world)
        self._positions: dict[TopicPartition, PartitionPosition] = {}
        self._lookup = OffsetLookup(self._view)
        self._fetcher = Fetcher(self._config, self._view, self._positions)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop fetching and release all resources. Idempotent."""
        if not self._closed:
            self._closed = True
            await self._fetcher.close()
            await self._view.close()

    # --------------------------------------------------------------------- assignment

    def assign(self, partitions: Iterable[PartitionArgument]) -> None:
        """Read exactly these partitions from now on. Partitions that stay keep their position."""
        self._check_open()
        names = [TopicPartition(*each) for each in partitions]
        kept = {name: self._positions[name] for name in names if name in self._positions}
        for name, position in self._positions.items():
            if name not in kept:
                position.generation += 1
        self._positions.clear()
        for name in names:
            self._view.want(name.topic)
            self._positions[name] = kept.get(name) or PartitionPosition(
                name, PartitionRetry(name, self._view), self._config.metadata_max_age_ms / 1000
            )
        self._fetcher.wake()

    def assignment(self) -> list[TopicPartition]:
        return list(self._positions)

    def seek(self, topic: str, partition: int, offset: int, leader_epoch: int = -1) -> None:
        """The next record returned is the one at ``offset``, or the first one after it.

        ``leader_epoch``: that of the last record that was read before, if the caller stored it with
        the offset. If that record has vanished since, the consumer finds out (KIP-320).
        """
        if offset < 0:
            raise ConfigError(f"offset {offset} must not be negative: use seek_to_end")
        self._position_of(topic, partition).seek(offset, leader_epoch)
        self._fetcher.wake()

    def seek_to_beginning(self, *partitions: PartitionArgument) -> None:
        """Go to the log start offset as it is when the next record is needed. Without arguments: in
        all assigned partitions."""
        for name in partitions or self.assignment():
            self._position_of(*name).look_up(EARLIEST)
        self._fetcher.wake()

    def seek_to_end(self, *partitions: PartitionArgument) -> None:
        """Go to the high watermark as it is when the next record is needed. Without arguments: in
        all assigned partitions."""
        for name in partitions or self.assignment():
            self._position_of(*name).look_up(LATEST)
        self._fetcher.wake()

    def pause(self, *partitions: PartitionArgument) -> None:
        """Return no records of these partitions until ``resume``. What is fetched stays. Without
        arguments: of all."""
        for name in partitions or self.assignment():
            self._position_of(*name).paused = True

    def resume(self, *partitions: PartitionArgument) -> None:
        for name in partitions or self.assignment():
            self._position_of(*name).paused = False
        self._fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        return [name for name, position in self._positions.items() if position.paused]

    # ------------------------------------------------------------------------ reading

    async def poll(
        self, max_records: int | None = None, timeout_ms: float = 1000
    ) -> ConsumerRecords:
        """Records of the assigned partitions, at most ``max_records`` (``max_poll_records``).

        Returns as soon as there are any, and an empty list after ``timeout_ms`` without any.
        Records of a partition are in order. Raises the error that stops a partition, again at each
        poll until a seek: OffsetOutOfRangeError, LogTruncationError, UnreadableBatchError,
        ApiError. UNKNOWN_TOPIC_OR_PARTITION, for a partition that was missing for
        ``default_api_timeout_ms``, ends when a partition of that name exists again.
        """
        self._check_open()
        limit = max_records or self._config.max_poll_records
        self._fetcher.start()
        deadline = self._world.clock.monotonic() + timeout_ms / 1000
        while True:
            self._fetcher.forget_news()
            self._raise_error()
            records = self._hand_out(limit)
            if records:
                return ConsumerRecords(records)
            left_s = deadline - self._world.clock.monotonic()
            if left_s <= 0 or not await self._fetcher.wait_for_news(left_s):
                return ConsumerRecords()
            self._check_open()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """The next record. Waits for it without a limit."""
        while True:
            if records := await self.poll(1, timeout_ms=60_000):
                return records[0]

    def _hand_out(self, limit: int) -> list[ConsumerRecord]:
        taken: list[ConsumerRecord] = []
        served: list[TopicPartition] = []
        for name, position in self._positions.items():
            if position.has_buffer and not position.paused:
                try:
                    records = position.hand_out(
                        limit - len(taken), check_crcs=self._config.check_crcs
                    )
                except UnreadableBatchError as error:
                    # Raised by the next poll: records of other partitions are not lost.
                    position.error = error
                    self._fetcher.announce()
                    continue
                taken = taken + records if taken else records
                served.append(name)
                if len(taken) >= limit:
                    break
        if served:
            for name in served:  # moved behind the others, with which the next poll begins
                self._positions[name] = self._positions.pop(name)
            self._fetcher.wake()
        return taken

    def _raise_error(self) -> None:
        if self._fetcher.failure is not None:
            raise self._fetcher.failure
        for position in self._positions.values():
            if (error := position.stopped_by) is not None and not position.paused:
                raise error

    # ------------------------------------------------------------------------ offsets

    async def position(self, topic: str, partition: int) -> int:
        """The offset of the next record to be returned. It is looked up if it is not known yet."""
        position = self._position_of(topic, partition)
        self._fetcher.start()
        while position.offset is None:
            self._check_open()
            self._fetcher.forget_news()
            if (error := position.stopped_by) is not None:
                raise error
            self._fetcher.wake()
            await self._fetcher.wait_for_news(1.0)
        return position.offset

    def known_position(self, topic: str, partition: int) -> int | None:
        """The offset of the next record to be returned. None while it is not known."""
        return self._position_of(topic, partition).offset

    async def beginning_offsets(
        self, partitions: Iterable[PartitionArgument]
    ) -> dict[TopicPartition, int]:
        return await self._offsets_at(partitions, EARLIEST)

    async def end_offsets(
        self, partitions: Iterable[PartitionArgument]
    ) -> dict[TopicPartition, int]:
        """The high watermarks. A consumer at this offset has read everything there is."""
        return await self._offsets_at(partitions, LATEST)

    async def _offsets_at(
        self, partitions: Iterable[PartitionArgument], timestamp: int
    ) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = {TopicPartition(*name): timestamp for name in partitions}
        found = await self._lookup.offsets(wanted)
        return {name: answer.offset for name, answer in found.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionArgument, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time in milliseconds; None if there is
        none."""
        self._check_open()
        for name, timestamp_ms in timestamps_ms.items():
            if timestamp_ms < 0:
                raise ConfigError(f"the time {timestamp_ms} for {name} must not be negative")
        wanted = {TopicPartition(*name): time for name, time in timestamps_ms.items()}
        found = await self._lookup.offsets(wanted)
        return {name: each if each.offset >= 0 else None for name, each in found.items()}

    async def partitions_for(self, topic: str) -> list[int]:
        """The topic's partition numbers. Waits for the topic for at most default_api_timeout_ms."""
        self._check_open()
        timeout_s = self._config.default_api_timeout_ms / 1000
        view = await self._view.wait_for_topic(topic, timeout_s)
        return sorted(view.partitions)

    def topic_id(self, topic: str) -> bytes:
        """The id of the topic that last had this name, as far as this client knows; empty if it
        knows none. A topic that is made anew has another one."""
        known = self._view.topic(topic)
        return known.topic_id if known else b""

    def _position_of(self, topic: str, partition: int) -> PartitionPosition:
        self._check_open()
        position = self._positions.get(TopicPartition(topic, partition))
        if position is None:
            raise ConfigError(f"{topic}-{partition} is not assigned to this consumer")
        return position

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")


__all__ = ["Consumer", "ConsumerRecord", "ConsumerRecords", "OffsetAndTimestamp", "TopicPartition"]
