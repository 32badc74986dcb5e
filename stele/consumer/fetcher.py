"""Fetches for a consumer: ahead of what is polled, from each partition's leader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from stele.cluster.broker_stream import BrokerStream
from stele.cluster.view import ClusterView, Leader, error_code
from stele.cluster.waiting import Backoff
from stele.config import ConsumerConfig
from stele.consumer.offset_lookup import OffsetLookup, gone, is_gone
from stele.consumer.positions import EARLIEST, LATEST, PartitionPosition
from stele.errors import ApiError, ErrorCode, OffsetOutOfRangeError, SteleError
from stele.records import OffsetAndTimestamp, TopicPartition
from stele.wire.batch import BatchError
from stele.wire.v1 import data_pb2

log = logging.getLogger(__name__)

Stream = BrokerStream[data_pb2.FetchResponse]
Answer = data_pb2.FetchResponse.Partition


class Link:
    """The way to one broker."""

    __slots__ = ("backoff", "broker_id", "retry_at", "stream")

    def __init__(self, broker_id: int, backoff: Backoff) -> None:
        self.broker_id = broker_id
        self.backoff = backoff
        self.retry_at = 0.0
        self.stream: Stream | None = None


@dataclass(slots=True)
class Item:
    position: PartitionPosition
    generation: int
    leader: Leader
    topic_id: bytes

    @property
    def is_current(self) -> bool:
        """Whether nobody sought elsewhere meanwhile."""
        return self.position.in_flight and self.position.generation == self.generation


@dataclass(slots=True, eq=False)
class Sent:
    link: Link
    stream: Stream
    items: list[Item]
    deadline: float


class Fetcher:
    """``positions`` is the consumer's own mapping of what is assigned; it may change any time."""

    def __init__(
        self,
        config: ConsumerConfig,
        view: ClusterView,
        positions: Mapping[TopicPartition, PartitionPosition],
    ) -> None:
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._positions = positions
        self._links: dict[int, Link] = {}
        self._sent: dict[Sent, None] = {}
        self._wake = asyncio.Event()
        self._news = asyncio.Event()  # something to poll: records, an error, a position
        self._lookup = OffsetLookup(view)
        self._looking_up: asyncio.Task[None] | None = None
        self._background: dict[asyncio.Task[None], None] = {}
        self._task: asyncio.Task[None] | None = None
        self.failure: SteleError | None = None  # nothing is fetched any more
        view.on_change.append(self.wake)

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._wake.set()

    async def wait_for_news(self, timeout_s: float) -> bool:
        """Until there may be something new to poll; False if the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def announce(self) -> None:
        self._news.set()

    def forget_news(self) -> None:
        """Before looking at the positions: what comes afterwards is news again."""
        self._news.clear()

    async def close(self) -> None:
        self._news.set()
        tasks = [self._task, self._looking_up, *self._background]
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        for link in self._links.values():
            if link.stream is not None:
                await link.stream.close()
                link.stream = None

    # ----------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        try:
            await self._loop()
        except Exception as error:
            log.exception("the consumer stops because of a bug in it")
            self.failure = SteleError(f"a bug in the consumer, see the log: {error!r}")
            self._news.set()

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            next_at = min(self._give_up_silent(now), self._fetch_ready(now))
            if self._view.is_stale:
                self._view.refresh_soon()
            pause_s = min(max(next_at - now, 0.001), 1.0)
            handle = asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                handle.cancel()

    def _fetch_ready(self, now: float) -> float:
        """Ask for all that may be asked for now; returns when there may be more."""
        next_at = now + 1.0
        room = self._config.prefetch_bytes - sum(
            position.buffered_bytes for position in self._positions.values()
        )
        chosen: dict[int, list[tuple[PartitionPosition, Leader]]] = {}
        for position in self._positions.values():
            if position.error is not None or position.in_flight or position.paused:
                continue
            if position.offset is None and not is_gone(self._view, position.partition):
                position.is_there()
                self._look_up_soon()
                continue
            if room <= 0 or position.buffered_bytes >= self._config.max_partition_fetch_bytes:
                continue
            at, leader = self._ready_at(position, now)
            if leader is None:
                next_at = min(next_at, at)
            else:
                chosen.setdefault(leader.broker_id, []).append((position, leader))
        for broker_id, items in chosen.items():
            self._send(self._links[broker_id], items, room, now)
        return next_at

    def _ready_at(self, position: PartitionPosition, now: float) -> tuple[float, Leader | None]:
        leader = self._view.leader(position.partition)
        moved = leader is not None and position.failed_at is not None
        moved = moved and leader != position.failed_at
        if now < position.retry_at and not moved:
            return position.retry_at, None
        if leader is None:
            self._without_leader(position, now)
            return position.retry_at, None
        position.is_there()
        link = self._links.get(leader.broker_id)
        if link is None:
            link = Link(leader.broker_id, Backoff.of(self._config, self._view.world))
            self._links[leader.broker_id] = link
        if now < link.retry_at:
            return link.retry_at, None
        return now, leader

    def _without_leader(self, position: PartitionPosition, now: float) -> None:
        name = position.partition
        if is_gone(self._view, name):
            position.lost_since = position.lost_since or now
            waited_ms = (now - position.lost_since) * 1000
            if waited_ms >= self._config.default_api_timeout_ms:
                position.gone = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone(name))
                self._news.set()
            self._postpone(position, gone(name), now)
        else:
            position.is_there()
            self._postpone(position, f"{name} has no leader that is known", now)
        self._view.want(name.topic)
        self._view.refresh_soon()

    def _send(
        self, link: Link, chosen: list[tuple[PartitionPosition, Leader]], room: int, now: float
    ) -> None:
        if link.stream is None:
            link.stream = BrokerStream(
                self._view.channel(link.broker_id),
                "/stele.v1.Data/Fetch",
                data_pb2.FetchResponse.FromString,
                f"broker {link.broker_id}",
            )
        request = data_pb2.FetchRequest(
            correlation_id=link.stream.next_correlation_id(),
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=min(self._config.fetch_max_bytes, room),
        )
        items = []
        for position, leader in chosen:
            name = position.partition
            topic = self._view.topic(name.topic)
            topic_id = topic.topic_id if topic else b""
            position.in_flight = True
            items.append(Item(position, position.generation, leader, topic_id))
            request.partitions.add(
                topic_id=topic_id,
                topic="" if topic_id else name.topic,
                partition=name.partition,
                fetch_offset=position.fetch_offset,
                current_leader_epoch=leader.epoch,
                last_fetched_epoch=-1,
                max_bytes=self._config.max_partition_fetch_bytes,
            )
        patience_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        sent = Sent(link, link.stream, items, now + patience_ms / 1000)
        self._sent[sent] = None
        future = link.stream.request(request.correlation_id, request.SerializeToString())
        future.add_done_callback(partial(self._on_answer, sent))

    def _give_up_silent(self, now: float) -> float:
        next_at = now + 1.0
        for sent in self._sent:
            if sent.deadline <= now:
                sent.stream.break_off("no answer in time")
            else:
                next_at = min(next_at, sent.deadline)
                self._leave_deposed(sent)
        return next_at

    def _leave_deposed(self, sent: Sent) -> None:
        """A leader that was replaced may hang: its answer is not waited for."""
        for item in sent.items:
            leader = self._view.leader(item.position.partition)
            if item.is_current and leader is not None and leader.epoch > item.leader.epoch:
                item.position.in_flight = False
                item.position.generation += 1

    # ------------------------------------------------------------------------ answers

    def _on_answer(self, sent: Sent, future: asyncio.Future[data_pb2.FetchResponse]) -> None:
        self._sent.pop(sent, None)
        self.wake()
        if future.cancelled():
            return
        if (error := future.exception()) is not None:
            self._broken(sent, error)
            return
        sent.link.backoff.reset()
        answers: dict[tuple[bytes | str, int], Answer] = {}
        for part in future.result().partitions:
            answers[part.topic_id or part.topic, part.partition] = part
        for item in sent.items:
            if not item.is_current:
                continue
            item.position.in_flight = False
            name = item.position.partition
            answer = answers.get((item.topic_id or name.topic, name.partition))
            if answer is not None:
                self._take(item, answer)

    def _take(self, item: Item, answer: Answer) -> None:
        position = item.position
        code = error_code(answer.error)
        now = self._clock.monotonic()
        if code is ErrorCode.NONE:
            position.backoff.reset()
            position.failed_at = None
            position.high_watermark = answer.high_watermark
            if answer.records:
                self._take_records(position, answer.records)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(position, answer)
        elif code.retriable:
            reason = f"{position.partition}: broker {item.leader.broker_id} answers {code.name}"
            self._postpone(position, reason, now)
            position.failed_at = item.leader
            hinted = Leader(answer.leader, answer.leader_epoch)
            if not self._view.hint(position.partition, item.topic_id, hinted):
                self._view.refresh_soon()
        else:
            self._fail(position, ApiError(code, f"{position.partition}: the fetch was refused"))

    def _take_records(self, position: PartitionPosition, records: bytes) -> None:
        try:
            position.take_fetched(records)
        except BatchError as error:
            self._fail(position, error)
        if position.has_buffer:
            self._news.set()

    def _out_of_range(self, position: PartitionPosition, answer: Answer) -> None:
        """Decided only when what was fetched before is polled: it is still good."""
        if position.has_buffer:
            position.retry_at = self._clock.monotonic() + self._config.fetch_max_wait_ms / 1000
            return
        name, policy = position.partition, self._config.auto_offset_reset
        offset = position.fetch_offset
        where = (
            f"offset {offset} of {name} is out of range: the log is from {answer.log_start_offset} "
            f"to {answer.high_watermark}"
        )
        if policy == "none":
            advice = "seek, or set auto_offset_reset"
            error = OffsetOutOfRangeError(*name, offset, f"{where}; {advice}")
            self._fail(position, error)
            return
        log.warning("%s; resetting to %s", where, policy)
        position.look_up(EARLIEST if policy == "earliest" else LATEST)

    def _broken(self, sent: Sent, error: BaseException) -> None:
        link = sent.link
        now = self._clock.monotonic()
        if link.stream is sent.stream:
            link.stream = None
            link.retry_at = now + link.backoff.next_s()
            self._in_background(sent.stream.close())
            self._view.refresh_soon()
        for item in sent.items:
            if item.is_current:
                name = item.position.partition
                item.position.in_flight = False
                item.position.failed_at = item.leader
                self._postpone(
                    item.position, f"{name}: broker {link.broker_id} is unreachable ({error})", now
                )

    def _fail(self, position: PartitionPosition, error: SteleError) -> None:
        position.error = error
        self._news.set()

    def _postpone(self, position: PartitionPosition, reason: str, now: float) -> None:
        if now >= position.retry_at:
            position.retry_at = now + position.backoff.next_s()
        if position.backoff.failures > 2:
            self._view.waiting.say(f"waiting: {reason}", f"{position.partition} {reason[:60]}")

    # ----------------------------------------------------------------- start positions

    def _look_up_soon(self) -> None:
        if self._looking_up is None or self._looking_up.done():
            task = asyncio.get_running_loop().create_task(self._look_up_positions())
            self._looking_up = task

    async def _look_up_positions(self) -> None:
        """Find the start of every partition that has none, by its reset."""
        wanted: dict[TopicPartition, int] = {}
        found_by: dict[TopicPartition, tuple[PartitionPosition, int]] = {}
        for name, position in list(self._positions.items()):
            if position.offset is not None or position.error is not None:
                continue
            if is_gone(self._view, name):  # its return is waited for elsewhere
                continue
            if position.reset_to is None:
                policy = self._config.auto_offset_reset
                if policy == "none":
                    text = f"{name} has no position: seek, or set auto_offset_reset"
                    self._fail(position, OffsetOutOfRangeError(*name, -1, text))
                    continue
                position.reset_to = EARLIEST if policy == "earliest" else LATEST
            wanted[name] = position.reset_to
            found_by[name] = (position, position.generation)

        def take(name: TopicPartition, answer: OffsetAndTimestamp | ApiError) -> None:
            position, generation = found_by[name]
            if position.generation != generation or self._positions.get(name) is not position:
                return
            if not isinstance(answer, ApiError):
                position.seek(answer.offset)
                self._news.set()
            elif not answer.code.retriable:
                self._fail(position, answer)

        if wanted:
            await self._lookup.ask_until_answered(wanted, take)
        self.wake()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(lambda done: self._background.pop(done, None))
