"""DeleteRecords on local leaders (KIP-107): move the log start on every replica that may lead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.replication.replica import Replica
from broker.replication.replicas import Replicas
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.errors import StorageError

logger = logging.getLogger(__name__)


class Deletion(NamedTuple):
    """A request to delete the records of one partition below ``offset``."""

    id: PartitionId
    offset: int


class DeletionResult(NamedTuple):
    """``low_watermark``: no replica begins earlier; -1 with an error."""

    error: ErrorCode
    low_watermark: int = -1
    message: str = ""


class _Token:
    """One deletion that waits for the followers."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def acknowledge(self) -> None:
        self.refuse(ErrorCode.NONE)

    def refuse(self, error: ErrorCode) -> None:
        if not self.outcome.done():
            self.outcome.set_result(error)


class _Begun(NamedTuple):
    """The leader's own log begins at ``start_offset`` from now on."""

    replica: Replica
    start_offset: int


class DeleteRequests:
    """``lease_valid``: a leader without it acknowledges nothing."""

    def __init__(self, replicas: Replicas, lease_valid: Callable[[], bool]) -> None:
        self._replicas = replicas
        self._lease_valid = lease_valid

    async def delete(self, deletions: Sequence[Deletion], timeout_ms: int) -> list[DeletionResult]:
        """Delete records. The answers come in order, when every replica that may lead has the new
        start on disk.

        REQUEST_TIMED_OUT: that took longer. Readers see the new start nevertheless.
        """
        deadline = self._replicas.clock.monotonic() + max(timeout_ms, 0) / 1000
        begun: list[_Begun | DeletionResult] = []
        for deletion in deletions:
            try:
                begun.append(self._begin(deletion))
            except ApiError as error:
                begun.append(DeletionResult(error.code, message=error.message))
        await self._persist([each.replica for each in begun if isinstance(each, _Begun)])
        return [
            await self._finish(each, deadline) if isinstance(each, _Begun) else each
            for each in begun
        ]

    def _begin(self, deletion: Deletion) -> _Begun:
        replica = self._replicas.by_id.get(deletion.id)
        if replica is None:
            raise ApiError(self._replicas.refusal(deletion.id))
        if replica.refusal is not ErrorCode.NONE:
            raise ApiError(replica.refusal)
        if self._replicas.deposed():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if replica.log.durability.is_held:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{replica!r} is about to change its log directory, and a restart would bring the "
                "records back: nothing is deleted, try again",
            )
        start_offset = replica.machine.deletable(deletion.offset)
        if "delete" not in replica.config.cleanup_policy:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"{replica!r}: its cleanup.policy deletes nothing, so nobody may",
            )
        replica.begin_at(start_offset)
        return _Begun(replica, start_offset)

    async def _persist(self, replicas: Sequence[Replica]) -> None:
        for directory in {replica.directory: None for replica in replicas}:
            try:
                await directory.persist_start_offsets()
            except StorageError as error:
                logger.error("deleted records may come back: %s", error)

    async def _finish(self, begun: _Begun, deadline: float) -> DeletionResult:
        replica, machine = begun.replica, begun.replica.machine
        if replica.refusal is not ErrorCode.NONE:
            return DeletionResult(replica.refusal)  # the disk took its time
        if not machine.is_leader:
            return DeletionResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if replica.durable_start_offset < begun.start_offset:
            return DeletionResult(ErrorCode.KAFKA_STORAGE_ERROR)
        token = _Token()
        number, effects = machine.await_deleted(begun.start_offset, token)
        self._replicas.carry_out(replica, effects)
        left_s = max(0.0, deadline - self._replicas.clock.monotonic())
        try:
            async with asyncio.timeout(left_s):
                error = await token.outcome
        except TimeoutError:
            error = ErrorCode.REQUEST_TIMED_OUT
        finally:
            machine.withdraw_deleted(number)
        if error is ErrorCode.NONE and not self._lease_valid():
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is not ErrorCode.NONE:
            return DeletionResult(error)
        return DeletionResult(ErrorCode.NONE, machine.low_watermark)
