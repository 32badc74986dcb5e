"""Fetches records for a consumer from partition leaders, ahead of its polls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stele.cluster.leader_questions import gone, is_gone
from stele.cluster.leader_requests import LONGEST_PAUSE_S, LeaderRequests
from stele.cluster.messages import FetchAnswer, FetchedPart, FetchRequest, Leader
from stele.cluster.missing_right import missing_right
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.offset_lookup import OffsetLookup
from stele.consumer.positions import EARLIEST, LATEST, PartitionPosition
from stele.consumer.reasons import Surroundings, why_idle
from stele.errors import (
    ApiError,
    ErrorCode,
    LogTruncationError,
    OffsetOutOfRangeError,
    SteleError,
)
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.user_functions import call_user
from stele.wire.batch import BatchError

log = logging.getLogger(__name__)

OVERDUE_S = 1.0
"""A Fetch is overdue so long after the end of its wait. Then the client asks for metadata."""


class _Target(NamedTuple):
    """The broker that a request goes to, and the rack that it names."""

    broker_id: int
    rack: str


_NOBODY = _Target(-1, "")


@dataclass(slots=True)
class Item:
    position: PartitionPosition
    generation: int
    leader: Leader
    """The broker that was asked: the leader, or a replica nearby. The epoch is the leader's."""
    topic_id: bytes
    last_epoch: int
    is_nearby: bool  # it was asked of a replica that the leader had named

    @property
    def partition(self) -> TopicPartition:
        return self.position.partition

    @property
    def is_current(self) -> bool:
        """Whether there was no seek since the fetch was sent."""
        return self.position.in_flight and self.position.generation == self.generation


class Fetcher:
    """Fetches for ``positions``, the consumer's own mapping of assigned partitions. It may change
    at any time."""

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
        self._requests: LeaderRequests[FetchRequest, Item, FetchAnswer] = LeaderRequests(
            view, view.plane.fetch, self
        )
        self._answer_due_s = config.fetch_max_wait_ms / 1000 + OVERDUE_S
        self._asked_about_overdue_at = 0.0
        # Set when there is something to poll: records, an error, a position.
        self._news = asyncio.Event()
        self._lookup = OffsetLookup(view, is_committed=config.reads_committed)
        self._looking_up: dict[asyncio.Task[None], None] = {}
        self.failure: SteleError | None = None  # if set, nothing is fetched any more

    def start(self) -> None:
        self._requests.start()

    def wake(self) -> None:
        self._requests.wake()

    async def wait_for_news(self, timeout_s: float) -> bool:
        """Wait until there may be something new to poll. False if there was nothing in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def announce(self) -> None:
        self._news.set()

    def forget_news(self) -> None:
        """Call this before you look at the positions: whatever comes afterwards is news again."""
        self._news.clear()

    async def close(self) -> None:
        self._news.set()
        look_ups = list(self._looking_up)
        for task in look_ups:
            task.cancel()
        await asyncio.gather(*look_ups, return_exceptions=True)
        await self._requests.close()

    def on_error(self, error: Exception) -> None:
        log.error("the consumer stops because of a bug in it", exc_info=error)
        self.failure = SteleError(f"a bug in the consumer, see the log: {error!r}")
        self._news.set()

    # ----------------------------------------------------------------------- fetching

    def turn(self, now: float) -> float:
        """Fetch everything that may be fetched now. Returns the time when there may be more."""
        self._requests.leave_deposed(now)
        # A leader that hangs breaks no connection: only the metadata show that another one leads.
        is_overdue = self._requests.leave_deposed(now, self._answer_due_s)
        if is_overdue and now - self._asked_about_overdue_at > OVERDUE_S:
            self._asked_about_overdue_at = now
            self._view.refresh_soon()
        return self._fetch_ready(now)

    def _fetch_ready(self, now: float) -> float:
        next_at = now + LONGEST_PAUSE_S
        self._look_up_starts()
        room = self._config.prefetch_bytes - sum(
            position.buffered_bytes for position in self._positions.values()
        )
        chosen: dict[_Target, list[tuple[PartitionPosition, Leader]]] = {}
        for position in self._positions.values():
            if position.error is not None or position.in_flight or position.paused:
                continue
            if position.awaits_committed:
                continue
            if position.offset is None and not is_gone(self._view, position.partition):
                continue
            if position.is_fetched:
                continue
            if room <= 0 or position.buffered_bytes >= self._most_buffered(position):
                continue
            at, asked, leader = self._ready_at(position, now)
            if leader is None:
                next_at = min(next_at, at)
            elif self._is_of_another_topic(position):
                next_at = min(next_at, self._begin_anew(position, now))
            else:
                chosen.setdefault(asked, []).append((position, leader))
        self._send_all(chosen, room, now)
        return next_at

    def _most_buffered(self, position: PartitionPosition) -> int:
        """The bytes that wait of a partition before it is fetched again. A range that is read alone
        has all the room: its reader handles megabytes at a time, and several fetches are answered
        meanwhile."""
        if position.fetch_until is not None and len(self._positions) == 1:
            return self._config.prefetch_bytes
        return self._config.max_partition_fetch_bytes

    def _send_all(
        self,
        chosen: Mapping[_Target, list[tuple[PartitionPosition, Leader]]],
        room: int,
        now: float,
    ) -> None:
        most_bytes = min(self._config.fetch_max_bytes, self._share())
        for asked, items in chosen.items():
            left = room - self._requests.awaited_bytes(without=asked.broker_id)
            # A broker answers with one batch at least, so that a partition is read in any case.
            self._send(asked, items, max(1, min(most_bytes, left)), now)

    def _share(self) -> int:
        """The most bytes that one broker may be asked for. A broker without news holds its request
        back for a while, so it must leave room for the others."""
        leaders = {
            leader.broker_id
            for name in self._positions
            if (leader := self._view.leader(name)) is not None
        }
        return self._config.prefetch_bytes // max(1, len(leaders))

    def _ready_at(
        self, position: PartitionPosition, now: float
    ) -> tuple[float, _Target, Leader | None]:
        """When the partition may be fetched (after ``now`` if it must wait), the broker to ask, and
        the leader.
        """
        leader = self._view.leader(position.partition)
        if position.retry.must_wait(leader, now):
            return position.retry.at, _NOBODY, None
        if leader is None:
            self._without_leader(position, now)
            return position.retry.at, _NOBODY, None
        position.is_there()
        asked = self._asked(position, leader, now)
        at = self._requests.ready_at(asked.broker_id, now)
        return (at, asked, None) if at > now else (now, asked, leader)

    def _topic_id(self, topic: str) -> bytes:
        """The id of the topic that has the name now; empty if it is not known."""
        known = self._view.topic(topic)
        return known.topic_id if known else b""

    def _is_of_another_topic(self, position: PartitionPosition) -> bool:
        """Whether the topic was deleted, and another one has its name. A broker that gives no topic
        ids cannot show it."""
        topic_id = self._topic_id(position.partition.topic)
        return bool(topic_id and position.topic_id) and position.topic_id != topic_id

    def _begin_anew(self, position: PartitionPosition, now: float) -> float:
        """Give up a position in a topic that was deleted, once all records fetched from it were
        polled. Every record of the topic that has its name now is new to the reader. So the reader
        begins at the first one, unless ``auto_offset_reset`` forbids it. Returns when to look
        again."""
        if position.has_buffer:
            position.retry.pause_until(now + self._config.fetch_max_wait_ms / 1000)
            return position.retry.at
        log.warning(
            "%s: the topic was deleted at offset %s and created again: the position is given up",
            position.partition,
            position.offset,
        )
        begins_at = None if self._config.auto_offset_reset == "none" else EARLIEST
        position.begin_anew(begins_at, in_group=self._config.group_id is not None)
        self._news.set()
        return now

    def _asked(self, position: PartitionPosition, leader: Leader, now: float) -> _Target:
        rack = self._config.client_rack
        if not rack:
            return _Target(leader.broker_id, "")
        source = position.source
        broker_id = source.broker(leader, now)
        if broker_id != leader.broker_id and not self._view.knows(broker_id):
            source.leave(now)
            self._view.refresh_soon()
            broker_id = leader.broker_id
        return _Target(broker_id, rack if source.tells_rack(now) else "")

    def _without_leader(self, position: PartitionPosition, now: float) -> None:
        name = position.partition
        if is_gone(self._view, name):
            position.lost_since = position.lost_since or now
            waited_ms = (now - position.lost_since) * 1000
            if waited_ms >= self._config.default_api_timeout_ms:
                position.gone = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone(name))
                self._news.set()
            position.retry.postpone(gone(name), now, awaits_leader=True)
        else:
            position.is_there()
            reason = f"{name} has no leader that is known"
            # Before the first metadata of the topic the connection is what takes long, and the
            # refresh tells what is wrong with it.
            has_metadata = (
                self._view.topic(name.topic) is not None or self._view.topic_error(name.topic) != 0
            )
            position.retry.postpone(reason, now, awaits_leader=True, is_told=has_metadata)
        self._view.want(name.topic)
        self._view.refresh_soon()

    def _send(
        self,
        asked: _Target,
        chosen: list[tuple[PartitionPosition, Leader]],
        most_bytes: int,
        now: float,
    ) -> None:
        request = FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=min(self._config.fetch_min_bytes, most_bytes),
            max_bytes=most_bytes,
            rack=asked.rack,
            is_committed=self._config.reads_committed,
            partitions=[],
        )
        broker_id = asked.broker_id
        items = []
        for position, leader in chosen:
            name = position.partition
            topic_id = self._topic_id(name.topic)
            position.in_flight = True
            position.sent_to, position.sent_at = broker_id, now
            last_epoch = position.last_fetched_epoch
            asked_as = Leader(broker_id, leader.epoch)
            is_nearby = broker_id != leader.broker_id
            items.append(
                Item(position, position.generation, asked_as, topic_id, last_epoch, is_nearby)
            )
            request.partitions.append(
                FetchedPart(
                    name.topic,
                    topic_id,
                    name.partition,
                    fetch_offset=position.fetch_offset,
                    current_leader_epoch=leader.epoch,
                    last_fetched_epoch=last_epoch,
                    max_bytes=self._config.max_partition_fetch_bytes,
                )
            )
        patience_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        deadline = now + patience_ms / 1000
        self._requests.ask(broker_id, request, items, deadline, most_bytes=most_bytes)

    @property
    def throttled_s(self) -> float:
        return self._requests.throttled_s

    def why(self, position: PartitionPosition, committed_waits_for: str) -> str:
        """Why the partition gives no records now, in one line."""
        now = self._clock.monotonic()
        name = position.partition
        leader = self._view.leader(name)
        buffered = sum(each.buffered_bytes for each in self._positions.values())
        around = Surroundings(
            leader,
            self._view.topic_error(name.topic),
            now if leader is None else self._requests.ready_at(leader.broker_id, now),
            now if leader is None else self._requests.throttled_until(leader.broker_id),
            committed_waits_for,
            self._config.reads_committed,
            buffered >= self._config.prefetch_bytes,
        )
        return why_idle(position, around, now)

    # ------------------------------------------------------------------------ answers

    def on_answer(self, item: Item, answer: FetchAnswer) -> None:
        position = item.position
        position.in_flight = False
        code = answer.code
        if code is ErrorCode.NONE:
            self._take(item, answer)
        elif code is ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            pass  # the broker is asked again when the time that it has told is over
        elif item.is_nearby and code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._leave_replica(item, answer, code)
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(position, answer)
        elif code.retriable:
            reason = f"{position.partition}: broker {item.leader.broker_id} answers {code.name}"
            position.retry.postpone(reason, self._clock.monotonic())
            position.retry.failed_leader = item.leader
            if not self._requests.take_hint(item, answer):
                self._view.refresh_soon()
        else:
            error = ApiError(code, self._why_refused(position.partition, code))
            if code.is_denial:
                position.retry.postpone(error.message, self._clock.monotonic(), is_told=False)
            self._fail(position, error)

    def _take(self, item: Item, answer: FetchAnswer) -> None:
        position = item.position
        if answer.diverging_epoch >= 0 and item.last_epoch >= 0:
            if item.is_nearby:  # it may follow late: the leader has to say it
                position.source.leave(self._clock.monotonic())
            else:
                self._diverged(position, answer)
            return
        position.retry.succeed()
        position.topic_id = item.topic_id or position.topic_id
        ends = answer.high_watermark, answer.last_stable_offset
        if ends != (position.high_watermark, position.last_stable_offset):
            position.high_watermark, position.last_stable_offset = ends
            self._news.set()  # the position may be at the end
        if position.truncated_from is not None and not self._tell_truncation(position):
            return
        if answer.preferred_read_replica >= 0 and self._config.client_rack:
            now = self._clock.monotonic()
            position.source.prefer(answer.preferred_read_replica, item.leader, now)
        if answer.records:
            self._take_records(position, answer)

    def _leave_replica(self, item: Item, answer: FetchAnswer, code: ErrorCode) -> None:
        """Go back to the leader. Whatever a follower refuses, the leader may have."""
        log.info(
            "%s: broker %d answers %s: reading from the leader again",
            item.partition, item.leader.broker_id, code.name,
        )  # fmt: skip
        item.position.source.leave(self._clock.monotonic())
        if not self._requests.take_hint(item, answer):
            self._view.refresh_soon()

    def _diverged(self, position: PartitionPosition, answer: FetchAnswer) -> None:
        """Handle a leader with another history than the fetched batches (KIP-320). If only records
        diverge that were not polled yet, they are fetched again."""
        offset = position.offset
        assert offset is not None  # it was fetched from there
        position.drop_buffer()
        agreed = position.epochs.diverged(answer.diverging_epoch, answer.diverging_end_offset)
        if agreed >= offset:
            return
        # The records before that may be of an earlier epoch that diverges as well: the next fetch
        # finds out.
        position.go_back(agreed)

    def _tell_truncation(self, position: PartitionPosition) -> bool:
        """The position went back to where the log is still the one that was read. Returns whether
        it may go on there."""
        offset, agreed = position.truncated_from, position.offset
        assert offset is not None
        assert agreed is not None
        position.truncated_from = None
        if self._config.auto_offset_reset == "none":
            self._fail(position, LogTruncationError(*position.partition, offset, agreed))
            return False
        log.warning(
            "%s: the records from %d to %d that were read have vanished from the log: going on "
            "at %d",
            position.partition,
            agreed,
            offset,
            agreed,
        )
        function, name = self._config.on_truncation, position.partition
        call_user(function, name, offset, agreed, what="on_truncation")
        return True

    def _take_records(self, position: PartitionPosition, answer: FetchAnswer) -> None:
        aborted = answer.aborted_transactions if self._config.reads_committed else ()
        try:
            position.take_fetched(answer.records, aborted)
        except BatchError as error:
            self._fail(position, error)
        if position.has_buffer:
            self._news.set()

    def _out_of_range(self, position: PartitionPosition, answer: FetchAnswer) -> None:
        """Handle OFFSET_OUT_OF_RANGE by ``auto_offset_reset``, but not before all records that were
        fetched earlier, which are still good, were polled. Until then fetch again later."""
        if position.has_buffer:
            wait_s = self._config.fetch_max_wait_ms / 1000
            position.retry.pause_until(self._clock.monotonic() + wait_s)
            return
        if position.truncated_from is not None and not self._tell_truncation(position):
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

    def on_lost(self, item: Item, reason: str, *, maybe_taken: bool) -> None:
        position = item.position
        position.in_flight = False
        position.generation += 1  # its answer may still arrive
        if item.is_nearby:
            position.source.leave(self._clock.monotonic())
        position.retry.failed_leader = item.leader
        position.retry.postpone(reason, self._clock.monotonic())

    def _fail(self, position: PartitionPosition, error: SteleError) -> None:
        position.error = error
        self._news.set()

    # ----------------------------------------------------------------- start positions

    def _look_up_starts(self) -> None:
        """Look up an offset for every partition that has none, according to its reset. A partition
        whose leader is silent does not hold up partitions that need an offset later."""
        wanted: dict[TopicPartition, int] = {}
        found_by: dict[TopicPartition, tuple[PartitionPosition, int, bytes]] = {}
        for name, position in self._positions.items():
            if not position.needs_look_up or is_gone(self._view, name):
                continue  # another method waits for the return of one that is gone
            position.is_there()
            if position.reset_to is None:
                policy = self._config.auto_offset_reset
                if policy == "none":
                    text = f"{name} has no position: seek, or set auto_offset_reset"
                    self._fail(position, OffsetOutOfRangeError(*name, -1, text))
                    continue
                position.reset_to = EARLIEST if policy == "earliest" else LATEST
            wanted[name] = position.reset_to
            position.looked_up_for = position.generation
            # If the topic is created again before the answer, the id says which topic was asked
            # about.
            found_by[name] = (position, position.generation, self._topic_id(name.topic))
        if wanted:
            task = asyncio.get_running_loop().create_task(self._look_up(wanted, found_by))
            self._looking_up[task] = None
            task.add_done_callback(lambda done: self._looking_up.pop(done, None))

    async def _look_up(
        self,
        wanted: dict[TopicPartition, int],
        found_by: dict[TopicPartition, tuple[PartitionPosition, int, bytes]],
    ) -> None:
        def take(name: TopicPartition, answer: OffsetAndTimestamp | ApiError) -> None:
            position, generation, topic_id = found_by[name]
            if position.generation != generation:  # also one that was given up
                return
            if not isinstance(answer, ApiError):
                asked_id = topic_id or self._topic_id(name.topic)  # known since the question
                position.seek(answer.offset, answer.leader_epoch, asked_id)
                self._news.set()
                self.wake()
            elif not answer.code.retriable:
                self._fail(position, answer)

        await self._lookup.ask_until_answered(wanted, take)
        for position, generation, _ in found_by.values():
            if position.looked_up_for == generation:
                position.looked_up_for = -1  # if it still has none, it is looked up again
        self.wake()

    def _why_refused(self, partition: TopicPartition, code: ErrorCode) -> str:
        """An answer of Fetch has no text."""
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            security = self._view.world.connector.security
            return f"{partition}: {missing_right(security, 'READ', 'topic', partition.topic)}"
        return f"{partition}: the fetch was refused"
