"""Writes the dead letters of one share partition, at the leader of its partition (KIP-1191).

A task runs while records are archiving. It writes one batch of letters at a time:
``broker.share.letters`` has the order of its steps. Without a dead letter topic that takes the
letters, it tries again, later each time. Records wait meanwhile, and hold the window back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from broker.share.letters import LetterDesk, LetterTarget
from broker.share.machine import SharePartition
from broker.share.values import LetterPlan, StateBatch, StateWrite
from broker.sharing.letter_records import (
    Found,
    Source,
    SourceLog,
    letter_batch,
    read_records,
    with_records,
    without_records,
)
from broker.sharing.letter_topics import LetterTopics
from broker.sharing.measures import ShareMeasures
from broker.sharing.settings import SharePartitionSettings
from metadata.image import MetadataImage
from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import PartitionId
from stele.world import Clock

logger = logging.getLogger(__name__)

LETTERS_MAX: Final = 100
"""The most letters of a batch."""
BATCH_BYTES: Final = 1 << 20
BACKOFF_S: Final = 0.1
BACKOFF_MAX_S: Final = 10.0

_FORGOTTEN: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The dead letter topic has lost letters that it had acknowledged."""


class Writer(Protocol):
    """``broker.sharing.letter_writer.LetterWriter``."""

    async def write(self, partition: PartitionId, batch: bytearray) -> None:
        """Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class LetterOffice:
    """What the dead letters of all share partitions of a broker need."""

    writer: Writer
    new_producer_id: Callable[[], Awaitable[int]]
    image: Callable[[], MetadataImage]
    topic_config: Callable[[str], TopicConfig]
    """The configuration of the topic with this name."""
    clock: Clock
    measures: ShareMeasures
    topics: LetterTopics | None = None
    """Makes dead letter topics that do not exist. None: an administrator makes them."""


class Owner(Protocol):
    """``broker.sharing.partition.LedSharePartition``."""

    @property
    def settings(self) -> SharePartitionSettings: ...

    @property
    def log(self) -> SourceLog: ...

    async def persist(self, write: StateWrite) -> None:
        """Raises ApiError: whether it is persisted is unknown."""
        ...

    def follow_log_start(self) -> None:
        """Records below the start of the log leave the window, after ``left_window``."""
        ...

    def letters_ended(self) -> None:
        """No record waits for its letter any more."""
        ...


class _NotTakenError(SteleError):
    """There is no dead letter topic that takes letters."""


class DeadLetters:
    """``begin`` it whenever records may have come to wait for their letters."""

    def __init__(
        self,
        owner: Owner,
        office: LetterOffice,
        machine: SharePartition,
        plan: LetterPlan | None,
        *,
        group_id: str,
        partition: PartitionId,
    ) -> None:
        self._owner = owner
        self._office = office
        self._machine = machine
        self._desk = LetterDesk(machine, plan)
        self._group_id = group_id
        self._partition = partition
        # The records of the letters under way, so that they are not read twice.
        self._found: Found | None = None
        self._task: asyncio.Task[None] | None = None
        self.trouble: str | None = None
        """Why letters cannot be written now."""

    def __repr__(self) -> str:
        topic = self._office.image().topic_by_id(self._partition.topic_id)
        name = self._partition.topic_id.hex() if topic is None else topic.name
        return f"dead letters of share group {self._group_id}, {name}-{self._partition.partition}"

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    @property
    def _is_due(self) -> bool:
        return self._machine.archiving_count > 0 or self._desk.under_way is not None

    def begin(self) -> None:
        if self._task is None and self._is_due:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=repr(self))

    def stop(self) -> None:
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None

    def left_window(self, start_offset: int) -> None:
        """The log begins here from now on: what archives below it and is in no plan has lost its
        record before its letter was written."""
        plan = self._desk.under_way
        planned = () if plan is None else plan.ranges
        lost = [
            offset
            for each in self._machine.ranges()
            if each.state.is_archiving
            for offset in range(each.first, min(each.last + 1, start_offset))
            if not any(first <= offset <= last for first, last in planned)
        ]
        if lost:
            self._office.measures.lost_letters += len(lost)
            logger.error(
                "%r: retention has deleted %d records, offsets %d to %d, before their letters were "
                "written (%s): they have no dead letters",
                *(self, len(lost), lost[0], lost[-1], self.trouble or "the next batch"),
            )

    # ------------------------------------------------------------------------- the task

    async def _run(self) -> None:
        failures = 0
        while self._is_due:
            try:
                await self._step()
                failures, self.trouble = 0, None
                continue
            except SteleError as error:
                why = str(error)
            except Exception as error:
                logger.exception("%r", self)
                why = f"{type(error).__name__}: {error}"
            if why != self.trouble:
                logger.warning(
                    "%r cannot be written, and %d records wait for them: %s",
                    *(self, self._machine.archiving_count, why),
                )
            self.trouble = why
            await asyncio.sleep(min(BACKOFF_S * 2 ** min(failures, 10), BACKOFF_MAX_S))
            failures += 1
        self._task = None
        self._owner.letters_ended()

    async def _step(self) -> None:
        """Plan the next letters, or write those that are planned. Raises SteleError."""
        plan = self._desk.under_way
        if plan is not None and self._owner.settings.limits.has_dead_letters:
            await self._write(plan)
            return
        if plan is not None:
            # Their topic may never come back, and an administrator has given the letters up.
            await self._persist(self._desk.abandon())
            return
        self._owner.follow_log_start()
        if not self._is_due:
            return
        due = self._desk.due(LETTERS_MAX)
        assert due, "only this task archives records, and it waits for the outcome"
        if not self._owner.settings.limits.has_dead_letters:
            await self._give_up(due)
        else:
            await self._plan(due)

    async def _give_up(self, due: list[StateBatch]) -> None:
        count = sum(each.last - each.first + 1 for each in due)
        logger.error(
            "%r: %d records from offset %d on have no dead letters: the group has no dead letter "
            "topic any more",
            *(self, count, due[0].first),
        )
        await self._persist(self._desk.give_up(due))
        self._office.measures.lost_letters += count

    async def _plan(self, due: list[StateBatch]) -> None:
        target, room_bytes = await self._target()
        ranges = [(each.first, each.last) for each in due]
        header_bytes = self._source().header_bytes
        found = await read_records(self._owner.log, ranges, room_bytes, header_bytes)
        # Compaction took some. What retention took meanwhile is for ``left_window`` to count.
        start = self._owner.log.start_offset
        missing = [each for each in without_records(due, found) if each.first >= start]
        if missing:
            await self._persist(self._desk.give_up(missing))
        kept = with_records(due, found)
        if not kept:
            return
        is_new = self._desk.needs_producer(target)
        producer_id = await self._office.new_producer_id() if is_new else -1
        await self._persist(self._desk.plan(target, kept, producer_id))
        self._found = found

    async def _write(self, plan: LetterPlan) -> None:
        partition = PartitionId(plan.topic_id, plan.partition)
        if self._office.image().partition(*partition) is None:
            logger.warning("%r: their topic was deleted, so they are written anew", self)
            await self._persist(self._desk.abandon())
            return
        source = self._source()
        found = self._found
        if found is None:
            found = await read_records(self._owner.log, plan.ranges, float("inf"))
        self._found = found
        gone = plan.letter_count - len(found.records)
        batch = letter_batch(
            source,
            plan.ranges,
            self._machine.letters_due(self._machine.archiving_count),
            found.records,
            producer_id=plan.producer_id,
            sequence=plan.sequence,
            time_ms=self._office.clock.time_ms(),
        )
        try:
            await self._office.writer.write(partition, batch)
        except ApiError as error:
            if error.code not in _FORGOTTEN:
                raise
            await self._persist(self._desk.abandon())
            raise _NotTakenError(f"their topic has lost letters: {error}") from error
        if gone:
            logger.error("%r: %d letters lack their records, which are deleted", self, gone)
        await self._persist(self._desk.archive())
        self._office.measures.letters += plan.letter_count

    async def _persist(self, write: StateWrite) -> None:
        await self._owner.persist(write)
        self._desk.persisted(write)
        self._found = None

    def _source(self) -> Source:
        topic = self._office.image().topic_by_id(self._partition.topic_id)
        if topic is None:
            raise _NotTakenError("the topic of the records was deleted")
        copies = self._owner.settings.copies_dead_records
        return Source(self._group_id, topic.name, self._partition.partition, copies)

    async def _target(self) -> tuple[LetterTarget, int]:
        """Where the next letters go, and how many bytes a batch may have. Raises SteleError."""
        name = self._owner.settings.dead_letter_topic
        topic = self._office.image().topic(name)
        if topic is None and self._office.topics is not None:
            await self._office.topics.made(name)
            topic = self._office.image().topic(name)
        if topic is None:
            raise _NotTakenError(
                f"the dead letter topic {name!r} does not exist: create it with "
                "errors.deadletterqueue.group.enable=true"
            )
        config = self._office.topic_config(name)
        if not config.errors_deadletterqueue_group_enable:
            raise _NotTakenError(
                f"topic {name!r} takes no dead letters: set its "
                "errors.deadletterqueue.group.enable to true"
            )
        number = self._partition.partition % len(topic.partitions)
        room_bytes = min(config.max_message_bytes, BATCH_BYTES)
        return LetterTarget(topic.topic_id, number), room_bytes
