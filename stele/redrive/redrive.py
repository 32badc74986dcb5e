"""A redrive: reads the dead letters of a share group, and sends their records back.

Exactly once: records and progress are written in one transaction. All redrives of a group have the
same transactional id. So a redrive that begins ends the one before, first aborts or completes the
transaction that it has left open, and reads the progress after that.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Unpack

from stele.admin.admin import Admin
from stele.admin.descriptions import ConfigResource
from stele.config import ClientConfig, ClientOptions, ClientWorld, real_world
from stele.consumer.consumer import Consumer
from stele.errors import ApiError, ConfigError, ErrorCode
from stele.ids import TopicPartition
from stele.producer.producer import Producer
from stele.records import ConsumerRecord, OffsetAndMetadata, ProducerRecord
from stele.redrive.letters import Fate, LetterFilter, fate_of, letter_of, record_of
from stele.redrive.progress import METADATA_BYTES_MOST, PartitionProgress

_RECORDS_MOST: Final = 500
"""Of a transaction."""

_TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """What a redrive is to do. Raises ConfigError for a rate or limit below the least."""

    group: str
    """The share group whose letters are sent back."""
    letter_filter: LetterFilter = field(default_factory=LetterFilter)
    letter_topic: str | None = None
    """The topic of the letters. None: that of the group's configuration."""
    records_per_s: float | None = None
    limit: int | None = None
    """The most letters that are sent back."""

    def __post_init__(self) -> None:
        if self.records_per_s is not None and self.records_per_s <= 0:
            raise ConfigError(f"the rate of a redrive must be above 0, not {self.records_per_s:g}")
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"the limit of a redrive must be at least 1, not {self.limit}")

    @property
    def progress_group(self) -> str:
        """The consumer group whose offsets say what is done, and the transactional id."""
        return f"redrive-{self.group}"


class LetterKind(NamedTuple):
    topic: str
    reason: str
    fate: Fate


@dataclass(slots=True)
class RedriveState:
    """How far a redrive has come."""

    letter_topic: str
    counts: Counter[LetterKind] = field(default_factory=Counter)
    """Letters of the group that were looked at."""
    unconfirmed: int = 0
    """Letters of the transaction that is being written. After an error they were sent back only if
    the transaction was committed all the same."""
    looked_at: int = 0
    """Offsets of the letter topic, of all groups and also those without a record."""
    to_look_at: int = 0
    is_continued: bool = False
    """An earlier redrive of the group is known."""

    @property
    def due(self) -> int:
        return sum(count for kind, count in self.counts.items() if kind.fate is Fate.DUE)

    @property
    def sent(self) -> int:
        """Letters that were certainly sent back; not of a dry run."""
        return self.due - self.unconfirmed


OnProgress = Callable[[RedriveState], None]


class Redrive:
    """Sends dead letters of a share group back to the topics that they came from.

    >>> plan = RedrivePlan("mails", LetterFilter(reason="rejected"), records_per_s=100)
    >>> async with Redrive(plan, "127.0.0.1:9092") as redrive:
    ...     state = await redrive.run()

    ``run`` looks at the letters that exist when it begins: a letter that comes back meanwhile is
    left to the next redrive. ``state`` is how far it has come, also after an error.
    """

    def __init__(
        self,
        plan: RedrivePlan,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        on_progress: OnProgress = lambda state: None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """``on_progress`` is called after each transaction, and in a dry run after each poll."""
        self.plan = plan
        self.state = RedriveState(plan.letter_topic or "")
        self._servers = bootstrap_servers
        self._options = options
        self._config = ClientConfig.of(bootstrap_servers, options)
        self._world = world or real_world(self._config.client_security())
        self._on_progress = on_progress
        self._clients = AsyncExitStack()
        self._partitions: dict[str, int] = {}
        self._places: list[TopicPartition] = []

    async def __aenter__(self) -> Redrive:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._clients.aclose()

    async def run(self, *, is_dry: bool = False) -> RedriveState:
        """Send the letters that are due, until the end or the limit. A dry run only counts them.

        Raises ApiError: the group has no dead letter topic; the progress is not that of a redrive;
        the filter leaves letters in too many places; ProducerFencedError if another redrive of the
        group has begun; other errors of reading and writing. The transactions before were
        committed, and the next redrive goes on behind them.
        """
        await self._find_topics()
        producer = None if is_dry else await self._producer()
        consumer = await self._clients.enter_async_context(
            Consumer(
                self._servers,
                world=self._world,
                group_id=self.plan.progress_group,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                **self._options,
            )
        )
        scans = await self._begin(consumer)
        began_s = self._world.clock.monotonic()
        while not self._is_at_limit() and not all(each.is_at_end for each in scans.values()):
            if not is_dry:
                await self._await_turn(began_s)
            records = await consumer.poll(self._records_most())
            due = self._judged(records, scans)
            for place, each in scans.items():
                position = consumer.known_position(*place)
                if position is not None and not self._is_at_limit():
                    each.reach(position)
            if producer is not None:
                await self._write(producer, consumer, due, scans)
            self.state.looked_at = sum(each.looked_at for each in scans.values())
            self._on_progress(self.state)
        return self.state

    # ----------------------------------------------------------------------- the beginning

    async def _find_topics(self) -> None:
        async with Admin(self._servers, world=self._world, **self._options) as admin:
            name = self.plan.letter_topic or await self._configured_topic(admin)
            topics = await admin.list_topics()
        self._partitions = {each.name: len(each.partitions) for each in topics}
        if name not in self._partitions:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the dead letter topic {name!r} of share group {self.plan.group!r} does not exist",
            )
        self.state.letter_topic = name
        self._places = [TopicPartition(name, each) for each in range(self._partitions[name])]

    async def _configured_topic(self, admin: Admin) -> str:
        group = ConfigResource.group(self.plan.group)
        entries = (await admin.describe_configs([group]))[group]
        name = next((each.value for each in entries if each.name == _TOPIC_CONFIG), None)
        if not name:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"share group {self.plan.group!r} has no {_TOPIC_CONFIG}: name the topic of its "
                "dead letters",
            )
        return name

    async def _producer(self) -> Producer:
        """Fences a redrive before, and aborts what it has left open."""
        producer = await self._clients.enter_async_context(
            Producer(
                self._servers,
                world=self._world,
                transactional_id=self.plan.progress_group,
                max_block_ms=self._config.default_api_timeout_ms,
                **self._options,
            )
        )
        await producer.init_transactions()
        return producer

    async def _begin(self, consumer: Consumer) -> dict[TopicPartition, _Scan]:
        consumer.assign(self._places)
        committed = await consumer.committed(self._places)
        starts = await consumer.beginning_offsets(self._places)
        ends = await consumer.end_offsets(self._places)
        scans: dict[TopicPartition, _Scan] = {}
        for place in self._places:
            known = committed[place]
            self.state.is_continued |= known is not None
            progress = (
                PartitionProgress()
                if known is None
                else PartitionProgress.of(known.offset, known.metadata)
            )
            progress.add(0, starts[place] - 1)  # retention has deleted them
            scan = scans[place] = _Scan(progress, ends[place])
            consumer.seek(*place, scan.position)
            consumer.fetch_until(*place, scan.end)
            self.state.to_look_at += scan.end - scan.position
            if scan.is_at_end:
                consumer.pause(place)
        return scans

    # ---------------------------------------------------------------------------- one step

    def _judged(
        self, records: Sequence[ConsumerRecord], scans: dict[TopicPartition, _Scan]
    ) -> list[ProducerRecord]:
        """The records to send, up to the limit. What lies behind the limit is not looked at."""
        due: list[ProducerRecord] = []
        for record in records:
            if self._is_at_limit():
                break
            scan = scans[TopicPartition(record.topic, record.partition)]
            if record.offset >= scan.end:
                continue  # a batch comes whole, also beyond the end of the range
            scan.reach(record.offset)
            letter = letter_of(record)
            is_ours = letter is not None and letter.group == self.plan.group
            if letter is None or not is_ours or scan.progress.is_done(record.offset):
                scan.pass_by(record.offset, is_done=True)
                continue
            fate = fate_of(letter, record, self.plan.letter_filter, self._partitions)
            scan.pass_by(record.offset, is_done=fate is Fate.DUE)
            self.state.counts[LetterKind(letter.topic, letter.reason, fate)] += 1
            if fate is Fate.DUE:
                due.append(record_of(letter, self._partitions[letter.topic]))
        return due

    async def _write(
        self,
        producer: Producer,
        consumer: Consumer,
        due: Sequence[ProducerRecord],
        scans: dict[TopicPartition, _Scan],
    ) -> None:
        """Records and progress together. Without records nothing is written: the next redrive looks
        at the same letters again."""
        if not due:
            return
        self.state.unconfirmed = len(due)
        offsets = {
            place: OffsetAndMetadata(
                each.progress.first_undone,
                metadata=self._metadata(place, each),
                topic_id=consumer.topic_id(place.topic),
            )
            for place, each in scans.items()
            if each.has_changed
        }
        async with producer.transaction():
            await producer.send_all(due)
            await producer.send_offsets(consumer, offsets)
        self.state.unconfirmed = 0
        for each in scans.values():
            each.has_changed = False

    def _metadata(self, place: TopicPartition, scan: _Scan) -> str:
        """Raises ApiError."""
        text = scan.progress.metadata()
        if len(text) > METADATA_BYTES_MOST:
            raise ApiError(
                ErrorCode.OFFSET_METADATA_TOO_LARGE,
                f"the filter leaves letters of {place} in too many places to note them all: send "
                f"back those from offset {scan.progress.first_undone} on without a filter, or with "
                "one that leaves fewer",
            )
        return text

    # --------------------------------------------------------------------------- the pace

    def _is_at_limit(self) -> bool:
        return self.plan.limit is not None and self.state.due >= self.plan.limit

    def _records_most(self) -> int:
        """Of a transaction: not more than a second's."""
        rate = self.plan.records_per_s
        return _RECORDS_MOST if rate is None else max(1, min(_RECORDS_MOST, int(rate)))

    async def _await_turn(self, began_s: float) -> None:
        if self.plan.records_per_s is not None:
            due_s = began_s + self.state.due / self.plan.records_per_s
            await asyncio.sleep(max(due_s - self._world.clock.monotonic(), 0.0))


class _Scan:
    """Of one partition: what is done, and what was looked at."""

    def __init__(self, progress: PartitionProgress, end: int) -> None:
        self.progress = progress
        self.end = max(end, progress.first_undone)
        self.position = self._start = progress.first_undone
        self.has_changed = False
        """The progress has what is not committed yet."""

    @property
    def is_at_end(self) -> bool:
        return self.position >= self.end

    @property
    def looked_at(self) -> int:
        return self.position - self._start

    def reach(self, offset: int) -> None:
        """There is no record from the position up to this offset."""
        if (until := min(offset, self.end)) > self.position:
            self.progress.add(self.position, until - 1)
            self.position = until
            self.has_changed = True

    def pass_by(self, offset: int, *, is_done: bool) -> None:
        if is_done:
            self.progress.add(offset, offset)
            self.has_changed = True
        self.position = offset + 1
