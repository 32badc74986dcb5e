"""Carries the ISR proposals of all partitions to the controller: one request at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from broker.partition.effects import UNKNOWN_BROKER_EPOCH, IsrAnswer, Proposed
from runtime.backoff import node_backoff
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse
from stele.wire.v1.metadata_pb2 import RECOVERED
from stele.world import RpcError

logger = logging.getLogger(__name__)

AlterPartition = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
Answered = Callable[[PartitionId, Proposed, IsrAnswer], None]

# Errors that say nothing about the proposal itself: it is sent again.
_RETRIED = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)


class IsrProposer:
    """Collects what partitions propose while a request is under way and sends it with the next.

    A proposal is repeated until the controller answers it or the partition gave it up. It may so
    arrive twice: it is a compare-and-set on the partition epoch, and the second is refused.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        alter_partition: AlterPartition,
        broker_epoch: Callable[[], int],
        registered_epoch: Callable[[int], int],
        still_wanted: Callable[[PartitionId, Proposed], bool],
        answered: Answered,
    ) -> None:
        """``registered_epoch``: of another broker, by the metadata, for a member that has not
        fetched yet. It is in the committed ISR; had it been registered anew since, the partition
        epoch would have changed and the proposal be refused.
        """
        self._broker_id = broker_id
        self._alter_partition = alter_partition
        self._broker_epoch = broker_epoch
        self._registered_epoch = registered_epoch
        self._still_wanted = still_wanted
        self._answered = answered
        # At most one per partition: a newer one replaces one that its partition gave up.
        self._waiting: dict[PartitionId, Proposed] = {}
        # One request is under way exactly while this is set.
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def propose(self, partition: PartitionId, proposal: Proposed) -> None:
        """Send a proposal with the next request; its answer comes through ``answered``."""
        if self._stopped:
            return
        self._waiting[partition] = proposal
        if self._task is None:
            self._task = asyncio.create_task(self._send_all(), name="isr-proposer")

    async def stop(self) -> None:
        """Give up the proposals without an answer."""
        self._stopped = True
        self._waiting.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send_all(self) -> None:
        backoff = node_backoff()
        try:
            while batch := self._take():
                unanswered = await self._send(batch)
                for partition, proposal in unanswered.items():
                    self._waiting.setdefault(partition, proposal)
                if unanswered:
                    await asyncio.sleep(backoff.next_s())
                else:
                    backoff.reset()
        finally:
            self._task = None

    def _take(self) -> dict[PartitionId, Proposed]:
        """All waiting proposals that their partitions still want."""
        waiting, self._waiting = self._waiting, {}
        return {
            partition: proposal
            for partition, proposal in waiting.items()
            if self._still_wanted(partition, proposal)
        }

    async def _send(self, batch: dict[PartitionId, Proposed]) -> dict[PartitionId, Proposed]:
        """Ask once; hand out the answers and return the proposals that got none."""
        try:
            response = await self._alter_partition(self._request(batch))
        except (RpcError, ApiError) as error:
            logger.warning("AlterPartition of %d partitions failed: %s", len(batch), error)
            return batch
        if response.error != ErrorCode.NONE:
            name = ErrorCode(response.error).name
            logger.warning("AlterPartition of %d partitions refused: %s", len(batch), name)
            return batch
        unanswered = dict(batch)
        for answer in response.partitions:
            partition = PartitionId(answer.topic_id, answer.partition)
            proposal = unanswered.get(partition)
            error_code = ErrorCode(answer.error)
            if proposal is None or error_code in _RETRIED:
                continue
            del unanswered[partition]
            self._answered(partition, proposal, _read(answer, error_code))
        return unanswered

    def _request(self, batch: dict[PartitionId, Proposed]) -> AlterPartitionRequest:
        epoch = self._broker_epoch()
        request = AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=epoch)
        for partition, proposal in batch.items():
            entry = request.partitions.add(
                topic_id=partition.topic_id,
                partition=partition.partition,
                leader_epoch=proposal.leader_epoch,
                partition_epoch=proposal.partition_epoch,
                leader_recovery_state=RECOVERED,
            )
            for broker_id, broker_epoch in proposal.isr:
                if broker_id == self._broker_id:
                    broker_epoch = epoch
                elif broker_epoch == UNKNOWN_BROKER_EPOCH:
                    broker_epoch = self._registered_epoch(broker_id)
                entry.isr.add(broker_id=broker_id, broker_epoch=broker_epoch)
        return request


def _read(answer: AlterPartitionResponse.Partition, error: ErrorCode) -> IsrAnswer:
    if error is not ErrorCode.NONE:
        logger.info("ISR proposal for partition %d refused: %s", answer.partition, error.name)
        return IsrAnswer(error)
    return IsrAnswer(error, answer.partition_epoch)
