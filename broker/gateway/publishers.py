"""Drives the lanes of a stream's publisher: asks leaders and sends them batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from broker.gateway.leaders import PartitionLeaders, TopicDeletedError
from broker.gateway.peers import UnansweredError
from broker.gateway.publisher_lane import (
    Ask,
    PublisherLane,
    Refused,
    Resolved,
    Send,
)
from broker.gateway.refusals import Refusal
from stele.backoff import Backoff
from stele.config import ClientWorld
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.producer.sender import REFUSED_BEFORE_APPEND
from stele.records import RecordMetadata
from stele.wire.batch import BatchBuilder, Header, record_size_bound
from stele.wire.compression import Compression

logger = logging.getLogger(__name__)

LANES_MAX: Final = 1_000
"""Partitions that the publisher of one stream may write to."""
BATCH_BYTES: Final = 64 * 1024
TIMEOUT_S: Final = 30.0
"""How long a record may wait for its acknowledgement."""
_PAUSES_MS: Final = (20, 500)
"""The shortest and the longest pause before the leader is asked again."""
_DELETED: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")


class Receipt(Protocol):
    """Takes the outcome of a record."""

    def stored(self, written: RecordMetadata, *, is_duplicate: bool) -> None: ...

    def refuse(self, refusal: Refusal) -> None: ...


class Numbered(NamedTuple):
    """A record of a publisher."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]
    timestamp_ms: int
    receipt: Receipt


@dataclass(slots=True)
class _Lane:
    lane: PublisherLane[Numbered]
    task: asyncio.Task[None] | None = None  # runs while there are records without an outcome


class Publisher:
    """The publisher of one stream."""

    def __init__(
        self,
        publisher_id: int,
        compression: Compression,
        leaders: PartitionLeaders,
        world: ClientWorld,
    ) -> None:
        self._id = publisher_id
        self._compression = compression
        self._leaders = leaders
        self._world = world
        self._lanes: dict[PartitionId, _Lane] = {}

    def send(self, name: PartitionId, sequence: int, record: Numbered) -> None:
        """Write a record, which has this number among the publisher's in the partition."""
        found = self._lanes.get(name)
        if found is None:
            if len(self._lanes) >= LANES_MAX:
                message = f"a stream's publisher writes to at most {LANES_MAX} partitions"
                record.receipt.refuse(Refusal(ErrorCode.POLICY_VIOLATION, message))
                return
            found = self._lanes[name] = _Lane(PublisherLane(BATCH_BYTES))
        deadline_s = self._world.clock.monotonic() + TIMEOUT_S
        size = record_size_bound(record.key, record.value, record.headers)
        found.lane.add(sequence, record, size, deadline_s)
        if found.task is None:
            drive = self._drive(name, found)
            found.task = asyncio.get_running_loop().create_task(drive)

    async def close(self) -> None:
        """Nobody waits for outcomes any more."""
        tasks = [each.task for each in self._lanes.values() if each.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------------------ driving

    async def _drive(self, name: PartitionId, driven: _Lane) -> None:
        lane = driven.lane
        backoff = Backoff(*_PAUSES_MS, self._world.rng)
        try:
            while True:
                resolved, action = lane.decide(self._world.clock.monotonic())
                self._tell(name, resolved)
                if action is None:
                    return
                if isinstance(action, Ask):
                    goes_on = await self._ask(name, lane)
                else:
                    goes_on = await self._send(name, lane, action)
                if goes_on:
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next_s())
        except Exception:
            logger.exception("publisher %d cannot go on with %s", self._id, name)
            message = "an error in the broker; see its log"
            self._tell(name, lane.fail_all(ErrorCode.UNKNOWN_SERVER_ERROR, message))
        finally:
            driven.task = None

    async def _ask(self, name: PartitionId, lane: PublisherLane[Numbered]) -> bool:
        """Ask the leader. Returns whether the lane can go on at once."""
        try:
            known = await self._leaders.describe(name, self._id)
        except ApiError as error:
            if not error.code.retriable:
                self._tell(name, lane.fail_all(error.code, error.message))
            return False
        except TopicDeletedError:
            self._tell(name, lane.fail_all(*_DELETED))
            return True
        except UnansweredError:
            return False
        if known.epoch > 0:
            message = f"publisher {self._id} was fenced: its id was used by a producer of Kafka's"
            self._tell(name, lane.fail_all(ErrorCode.INVALID_PRODUCER_EPOCH, message))
            return True
        return lane.known(known.batches, known.high_watermark)

    async def _send(
        self, name: PartitionId, lane: PublisherLane[Numbered], action: Send[Numbered]
    ) -> bool:
        """Send a batch. Returns whether the lane can go on at once."""
        try:
            written = await self._leaders.produce(name, self._batch(action))
        except ApiError as error:
            return self._refused(name, lane, error)
        except TopicDeletedError:
            self._tell(name, lane.fail_all(*_DELETED))
            return True
        except UnansweredError as error:
            lane.not_acknowledged(maybe_written=error.maybe_taken)
            return False
        resolved = lane.acknowledged(written.base_offset)
        self._tell(name, resolved, written.log_append_time_ms)
        return True

    def _refused(self, name: PartitionId, lane: PublisherLane[Numbered], error: ApiError) -> bool:
        code = error.code
        if code in REFUSED_BEFORE_APPEND and not code.retriable:
            self._tell(name, lane.rejected(code, error.message))
            return True
        if code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # Another broker, or a late request of this one, has written for the publisher.
            lane.not_acknowledged(maybe_written=False)
            return False
        lane.not_acknowledged(maybe_written=code not in REFUSED_BEFORE_APPEND)
        return False

    def _batch(self, action: Send[Numbered]) -> bytearray:
        builder = BatchBuilder()
        for key, value, headers, timestamp_ms, _ in action.records:
            builder.append(key, value, timestamp_ms=timestamp_ms, headers=headers)
        return builder.build(
            self._compression,
            producer_id=self._id,
            producer_epoch=0,
            base_sequence=action.base_sequence,
        )

    @staticmethod
    def _tell(
        name: PartitionId,
        resolved: Sequence[Resolved[Numbered]],
        log_append_time_ms: int = -1,
    ) -> None:
        for record, outcome in resolved:
            if isinstance(outcome, Refused):
                record.receipt.refuse(Refusal(*outcome))
                continue
            timestamp_ms = record.timestamp_ms
            if outcome.is_duplicate:
                timestamp_ms = 0
            elif log_append_time_ms >= 0:
                timestamp_ms = log_append_time_ms
            offset = -1 if outcome.offset is None else outcome.offset
            record.receipt.stored(
                RecordMetadata("", name.partition, offset, timestamp_ms),
                is_duplicate=outcome.is_duplicate,
            )
