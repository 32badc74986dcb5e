"""Drives a lane: asks the leader of its partition what the lane decides to ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from broker.gateway.lanes import Lane, Prepare, Refused, Resolved, Send
from broker.gateway.leaders import PartitionLeaders, TopicDeletedError
from broker.gateway.peers import UnansweredError
from broker.gateway.refusals import Refusal
from broker.gateway.runs import Room, Run, Written
from stele.backoff import Backoff
from stele.config import ClientWorld
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.producer.sender import REFUSED_BEFORE_APPEND
from stele.wire.batch import BatchBuilder
from stele.wire.compression import Compression

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 30.0
"""How long a record may wait for its acknowledgement."""
_PAUSES_MS: Final = (20, 500)
"""The shortest and the longest pause before the leader is asked again."""
_LEAST_S: Final = 0.001
"""The shortest wait for a deadline. The clock and the event loop round differently."""
_OUT_OF_STEP: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)

Preparation = Callable[[], Awaitable[list[Resolved[Run]] | None]]
"""Does what the lane wants prepared. Returns what is resolved by it, or None if it failed for now.
Raises as requests to leaders do."""


class LaneDriver:
    """A task runs while there are records without an outcome."""

    # Looks for records whose time is over, exactly while the task runs.
    _expiry: asyncio.TimerHandle

    def __init__(
        self,
        partition: PartitionId,
        lane: Lane[Run],
        prepare: Preparation,
        leaders: PartitionLeaders,
        room: Room,
        world: ClientWorld,
        *,
        acks: int,
        compression: Compression,
    ) -> None:
        self._partition = partition
        self._lane = lane
        self._prepare = prepare
        self._leaders = leaders
        self._room = room
        self._world = world
        self._acks = acks
        self._compression = compression
        self._task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self._task is None

    def taken(self, run: Run) -> None:
        """The lane has got this run."""
        run.unresolved = len(run.records)
        self._room.take(run.size)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._drive())

    async def close(self) -> None:
        """Nobody waits for outcomes any more. A batch that is under way may still be written."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tell(self._lane.fail_all(ErrorCode.BROKER_NOT_AVAILABLE, "the stream has ended"))

    async def _drive(self) -> None:
        lane = self._lane
        backoff = Backoff(*_PAUSES_MS, self._world.rng)
        self._watch_expiry()
        try:
            while True:
                resolved, action = lane.decide(self._world.clock.monotonic())
                self._tell(resolved)
                if action is None:
                    return
                if await self._carry_out(action):
                    backoff.reset()
                else:
                    await asyncio.sleep(backoff.next_s())
        except Exception:
            logger.exception("producer %d cannot go on with %s", lane.producer_id, self._partition)
            message = "an error in the broker; see its log"
            self._tell(lane.fail_all(ErrorCode.UNKNOWN_SERVER_ERROR, message))
        finally:
            self._task = None
            self._expiry.cancel()

    def _watch_expiry(self) -> None:
        """A leader that hangs must not make a record wait for longer than its time."""
        deadline_s = self._lane.next_deadline_s
        if deadline_s is None:
            deadline_s = self._world.clock.monotonic() + TIMEOUT_S  # of what comes meanwhile
        delay_s = max(_LEAST_S, deadline_s - self._world.clock.monotonic())
        self._expiry = asyncio.get_running_loop().call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._tell(self._lane.expire(self._world.clock.monotonic()))
        self._watch_expiry()

    async def _carry_out(self, action: Prepare | Send[Run]) -> bool:
        """Returns whether the lane can go on at once."""
        lane = self._lane
        try:
            if isinstance(action, Prepare):
                prepared = await self._prepare()
                self._tell(prepared or ())
                return prepared is not None
            batch = self._batch(action)
            written = await self._leaders.produce(self._partition, batch, self._acks)
        except ApiError as error:
            return self._refused(action, error)
        except TopicDeletedError as error:
            self._tell(lane.fail_all(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)))
            return True
        except UnansweredError as error:
            if isinstance(action, Send):
                lane.not_acknowledged(maybe_written=error.maybe_taken)
            return False
        self._tell(lane.acknowledged(written.base_offset), written.log_append_time_ms)
        return True

    def _refused(self, action: Prepare | Send[Run], error: ApiError) -> bool:
        lane, code = self._lane, error.code
        if isinstance(action, Prepare):
            if not code.retriable:
                self._tell(lane.fail_all(code, error.message))
            return False
        if code in REFUSED_BEFORE_APPEND and not code.retriable:
            self._tell(lane.rejected(code, error.message))
            return True
        if code in _OUT_OF_STEP:
            self._tell(lane.out_of_step(code))
            return False
        lane.not_acknowledged(maybe_written=code not in REFUSED_BEFORE_APPEND)
        return False

    def _batch(self, action: Send[Run]) -> bytearray:
        builder = BatchBuilder()
        append = builder.append
        for run, first, count in action.parts:
            for key, value, headers, timestamp_ms in run.records[first : first + count]:
                append(key, value, timestamp_ms=timestamp_ms, headers=headers)
        is_numbered = action.base_sequence >= 0
        return builder.build(
            self._compression,
            producer_id=self._lane.producer_id,
            producer_epoch=0 if is_numbered else -1,
            base_sequence=action.base_sequence,
        )

    def _tell(self, resolved: Sequence[Resolved[Run]], log_append_time_ms: int = -1) -> None:
        number = self._partition.partition
        for (run, first, count), outcome in resolved:
            run.unresolved -= count
            if not run.unresolved:
                self._room.give(run.size)
            if isinstance(outcome, Refused):
                run.receipt.refused(run, first, count, Refusal(*outcome))
            else:
                written = Written(
                    number, outcome.base_offset, log_append_time_ms, outcome.is_duplicate
                )
                run.receipt.stored(run, first, count, written)
