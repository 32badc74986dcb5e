"""Single requests to the leader of a partition: write this batch, how far has this producer come.

The broker's own image of the metadata says who leads. If this broker does, its services are called
directly. Otherwise the request goes to the leader over Kafka's protocol (``peers``). The next
request may take the other way, since leaders change. So both ways fail alike:

- ``ApiError``: the leader has decided so. Its code says whether the batch may be in the log.
- ``UnansweredError``: nobody has decided. ``maybe_taken`` says whether the leader may have carried
  the request out, or may still do so.
- ``TopicDeletedError``: no leader will ever answer.

A leader is asked once. The caller decides what a failure means, and when to try again.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from broker.gateway.peers import Peers, UnansweredError
from broker.gateway.publisher_lane import KnownBatch
from broker.replication.types import ProduceResult
from broker.service.context import BrokerContext
from broker.service.produce import Produce
from broker.service.producers import producer_of
from runtime.authorization.caller import NODE_ITSELF, Caller, Plane
from stele.cluster.messages import Leader, error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import PartitionId
from stele.wire.kafka.messages import describe_producers, produce
from stele.world import Connector

ATTEMPT_S: Final = 5.0
"""After this time without an answer a leader may be gone. The caller then looks for its
successor."""
CLIENT_ID: Final = "stele-gateway"

Response = TypeVar("Response")


class TopicDeletedError(SteleError):
    """The topic of this id does not exist any more."""


class AcknowledgedBatch(NamedTuple):
    """A batch is in the log. ``base_offset`` is -1 if the leader no longer knows where."""

    base_offset: int
    log_append_time_ms: int  # -1: the records have their own timestamps


class KnownProducer(NamedTuple):
    """What a leader knows of a producer. Without batches the leader does not know it."""

    epoch: int
    batches: Sequence[KnownBatch]  # the oldest first
    high_watermark: int


class PartitionLeaders:
    """The leaders of all partitions, as this broker sees them."""

    def __init__(self, context: BrokerContext, connector: Connector) -> None:
        self._context = context
        self._peers = Peers(context, connector, CLIENT_ID)
        # Leaders of a later epoch than the image has, by what leaders have answered. No leader of
        # an earlier epoch is asked: it may lack what its successor has acknowledged.
        self._later: dict[PartitionId, Leader] = {}
        # Requests to other brokers that have no answer: the partition, and the leader's epoch.
        self._unanswered: dict[asyncio.Future[Any], tuple[PartitionId, int]] = {}
        self._watching: asyncio.Task[None] | None = None

    async def produce(
        self, partition: PartitionId, batch: bytearray, acks: int = -1
    ) -> AcknowledgedBatch:
        """Write a batch, whose buffer is given away."""
        leader = self._leader(partition)
        if leader.broker_id == self._context.broker_id:
            return await self._append(partition, batch, acks)
        message = produce.ProduceRequest(
            None,
            acks,
            int(ATTEMPT_S * 1000),
            [
                produce.TopicProduceData(
                    topic_id=partition.topic_id,
                    partition_data=[produce.PartitionProduceData(partition.partition, batch)],
                )
            ],
        )
        answer = await self._peers.submit(
            leader.broker_id,
            produce.API,
            message,
            timeout_s=2 * ATTEMPT_S,
            lane=partition.partition,
        )
        told = await self._answered(answer, partition, leader)
        part = told.responses[0].partition_responses[0]
        if part.current_leader is not None:
            self._note(
                partition, Leader(part.current_leader.leader_id, part.current_leader.leader_epoch)
            )
        _raise_error(error_code(part.error_code), part.error_message)
        return AcknowledgedBatch(part.base_offset, part.log_append_time_ms)

    async def describe(self, partition: PartitionId, producer_id: int) -> KnownProducer:
        """What the leader knows of a producer."""
        leader = self._leader(partition)
        if leader.broker_id == self._context.broker_id:
            found = producer_of(self._context, partition, producer_id, leader.epoch)
            if found.entry is None:
                return KnownProducer(-1, [], found.high_watermark)
            batches = [_known(each) for each in found.entry.batches]
            return KnownProducer(found.entry.epoch, batches, found.high_watermark)
        topic = describe_producers.TopicRequest(
            "", [partition.partition], topic_id=partition.topic_id
        )
        message = describe_producers.DescribeProducersRequest([topic], producer_id, leader.epoch)
        answer = await self._peers.submit(
            leader.broker_id,
            describe_producers.API,
            message,
            timeout_s=ATTEMPT_S,
            lane=partition.partition,
        )
        told = await self._answered(answer, partition, leader)
        part = told.topics[0].partitions[0]
        _raise_error(error_code(part.error_code), part.error_message)
        if not part.active_producers:
            return KnownProducer(-1, [], part.high_watermark)
        producer = part.active_producers[0]  # the one that was asked about
        batches = [_known(each) for each in producer.batches]
        return KnownProducer(producer.producer_epoch, batches, part.high_watermark)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._peers.close()

    # -------------------------------------------------------------------------- answers

    async def _answered(
        self, answer: asyncio.Future[Response], partition: PartitionId, leader: Leader
    ) -> Response:
        """Wait for the answer, as long as this is the leader: one that hangs breaks no connection.
        Raises UnansweredError."""
        self._unanswered[answer] = (partition, leader.epoch)
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            return await answer
        except ApiError as error:
            raise UnansweredError(error.message, maybe_taken=True) from error
        finally:
            del self._unanswered[answer]

    async def _watch(self) -> None:
        """Give up requests to leaders that were replaced, until there are no requests."""
        try:
            while self._unanswered:
                is_news = partial(operator.is_not, self._context.image())
                await self._context.wait_until(is_news, ATTEMPT_S)
                for answer, (partition, epoch) in list(self._unanswered.items()):
                    if not answer.done() and self._known_epoch(partition) > epoch:
                        message = "the leader was replaced before it had answered"
                        answer.set_exception(UnansweredError(message, maybe_taken=True))
        finally:
            self._watching = None

    def _known_epoch(self, partition: PartitionId) -> int:
        """The image's leader epoch of a partition that was there; -1 if its topic was deleted."""
        topic = self._context.image().topic_by_id(partition.topic_id)
        if topic is None:
            return -1
        return topic.partitions[partition.partition].leader_epoch

    # ------------------------------------------------------------------------ who leads

    def _leader(self, partition: PartitionId) -> Leader:
        """Raises TopicDeletedError, UnansweredError."""
        topic = self._context.image().topic_by_id(partition.topic_id)
        if topic is None or partition.partition >= len(topic.partitions):
            self._later.pop(partition, None)
            raise TopicDeletedError("the topic was deleted")
        state = topic.partitions[partition.partition]
        leader = Leader(state.leader, state.leader_epoch)
        later = self._later.get(partition)
        if later is not None:
            if later.epoch > leader.epoch:
                leader = later
            else:
                del self._later[partition]
        if leader.broker_id < 0:
            raise UnansweredError("the partition has no leader", maybe_taken=False)
        return leader

    def _note(self, partition: PartitionId, leader: Leader) -> None:
        """An answer names this leader."""
        epoch = self._known_epoch(partition)
        if epoch < 0 or leader.broker_id < 0:
            return
        known = self._later.get(partition)
        if leader.epoch > (epoch if known is None else max(epoch, known.epoch)):
            self._later[partition] = leader

    # ---------------------------------------------------------------------- this broker

    async def _append(
        self, partition: PartitionId, batch: bytearray, acks: int
    ) -> AcknowledgedBatch:
        answer: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()

        def done(results: list[ProduceResult]) -> None:
            if not answer.done():
                answer.set_result(results[0])

        request = Produce(self._context, self._caller())
        request.add("", partition.topic_id, partition.partition, batch)
        request.run(acks, int(ATTEMPT_S * 1000), done)
        result = await answer
        self._note(partition, Leader(*result.leader))
        _raise_error(result.error, result.message)
        return AcknowledgedBatch(result.base_offset, result.log_append_time_ms)

    def _caller(self) -> Caller:
        """This broker. Its thin clients were asked for their permissions before."""
        listener = self._context.config.inter_broker_listener_name
        return Caller(NODE_ITSELF, CLIENT_ID, listener, Plane.KAFKA, "")


class _Batch(Protocol):
    @property
    def base_sequence(self) -> int: ...
    @property
    def last_sequence(self) -> int: ...
    @property
    def base_offset(self) -> int: ...


def _known(batch: _Batch) -> KnownBatch:
    return KnownBatch(batch.base_sequence, batch.last_sequence, batch.base_offset)


def _raise_error(code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, explain(code, message))
