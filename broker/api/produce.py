"""Produce (0), versions 3-13: append one record batch to each of some partitions.

Advertised from version 0, for a higher minimum makes older librdkafka stop compressing
(KAFKA-18659), but 0-2 cannot be decoded: they carry formats before record batches.

From version 12 on, partitions become part of the transaction by the batches (KIP-890). A producer
of an older version adds them itself, before it sends the batches.

Deviations: attributes of a record, and names of headers that are not UTF-8, are refused, for not
every client can read them. An answer names at most 100 rejected records of a batch, and 1000 of all
batches. Our own clients are told who acknowledges: the leader and its epoch, as ``current_leader``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Generator, Iterator

from broker.api.handler import Reply, RequestContext, Served
from broker.replication.types import Cancel, ProduceResult, TransactionalWrite
from broker.service.cluster import leader_endpoints
from broker.service.context import BrokerContext
from broker.service.produce import NewProducers, Produce
from broker.service.quotas import EXEMPT, BrokerQuotas, log_throttle
from broker.service.topics import error_by_name
from metadata.client_quotas import PRODUCER_IDS_RATE
from stele.errors import ErrorCode
from stele.wire.kafka.messages import produce as messages
from stele.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from storage.turns import SLICE_STEPS, Slices

logger = logging.getLogger(__name__)

_ABORTABLE_FROM = 11
_ADDS_PARTITIONS_FROM = 12
_TOPIC_IDS_FROM = 13

_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Prepared(ProduceRequest):
    """A request whose topics are found and permitted, or not."""

    __slots__ = ("produce",)
    produce: Produce


def _prepare(
    context: BrokerContext, request_context: RequestContext, request: ProduceRequest
) -> Generator[None, None, _Prepared]:
    prepared = _Prepared(
        request.transactional_id, request.acks, request.timeout_ms, request.topic_data
    )
    prepared.produce = _begun(context, request_context, request)
    for count, (data, partition) in enumerate(_partitions(request), 1):
        prepared.produce.add(data.name, data.topic_id, partition.index, _batch(partition))
        if not count % SLICE_STEPS:
            yield
    return prepared


def _partitions(
    request: ProduceRequest,
) -> Iterator[tuple[TopicProduceData, PartitionProduceData]]:
    for data in request.topic_data:
        for partition in data.partition_data:
            yield data, partition


def _begun(
    context: BrokerContext, request_context: RequestContext, request: ProduceRequest
) -> Produce:
    transaction = None
    if request.transactional_id is not None:
        transaction = TransactionalWrite(
            request.transactional_id,
            adds_partition=request_context.version >= _ADDS_PARTITIONS_FROM,
        )
    new_producers = None
    if context.quotas.manager is not None:
        new_producers = _NewProducers(context.quotas, request_context)
    return Produce(context, request_context.caller, transaction, new_producers)


class _NewProducers:
    """Has a client wait that brings producers too fast (KIP-936). ``count`` is called for each.

    The connection is not read from the append on, and not only from the answer on. It has many
    requests in flight, and all of them may bring new producers.
    """

    __slots__ = ("_quotas", "_request_context", "_until_s")

    def __init__(self, quotas: BrokerQuotas, request_context: RequestContext) -> None:
        self._quotas = quotas
        self._request_context = request_context
        self._until_s = 0.0

    def count(self) -> None:
        manager, payer = self._quotas.manager, self._quotas.payer(self._request_context.caller)
        if manager is None or payer is EXEMPT:
            return
        now_s = self._quotas.now_s()
        throttle = manager.record(PRODUCER_IDS_RATE, payer, 1, now_s)
        if throttle is not None:
            log_throttle(payer, throttle)
            self._until_s = now_s + throttle.seconds
            self._request_context.connection.mute(throttle.seconds)

    @property
    def wait_ms(self) -> int:
        """How long the client still has to wait."""
        return max(0, math.ceil((self._until_s - self._quotas.now_s()) * 1000))


def handle(
    context: BrokerContext, request_context: RequestContext, request: ProduceRequest, reply: Reply
) -> Cancel | None:
    if isinstance(request, _Prepared):
        produce = request.produce
    else:
        produce = _begun(context, request_context, request)
        for data in request.topic_data:
            for partition in data.partition_data:
                produce.add(data.name, data.topic_id, partition.index, _batch(partition))

    # done must not know produce, which keeps it: a cycle would hold the batches for long.
    new_producers = produce.new_producers

    def done(results: list[ProduceResult]) -> None:
        if request.acks != 0:
            given = context, request_context, request, results, new_producers
            if len(results) > SLICE_STEPS:
                _work_off(request_context, _answer_in_slices(*given), reply)
                return
            try:
                answer = _answer(*given)
            except Exception as error:
                _fail(request_context, error)
            else:
                reply(answer)
        elif all(result.error is ErrorCode.NONE for result in results):
            reply(None)
        else:
            # Without an answer only a lost connection makes the client look for the leader.
            request_context.close(_first_error(results))

    produce.run(request.acks, request.timeout_ms, done)
    return None


def _batch(data: PartitionProduceData) -> bytearray | memoryview | None:
    records = data.records
    return records if isinstance(records, memoryview | bytearray) and records else None


def _work_off(
    request_context: RequestContext, answer: Generator[None, None, ProduceResponse], reply: Reply
) -> None:
    """Make a large answer in slices, each in a turn of its own."""
    try:
        next(answer)
    except StopIteration as end:
        reply(end.value)
    except Exception as error:
        _fail(request_context, error)
    else:
        asyncio.get_running_loop().call_soon(_work_off, request_context, answer, reply)


def _fail(request_context: RequestContext, error: Exception) -> None:
    logger.error("the answer to a Produce request cannot be made", exc_info=error)
    request_context.close("its Produce request has no answer")


def _answer_in_slices(
    context: BrokerContext,
    request_context: RequestContext,
    request: ProduceRequest,
    results: list[ProduceResult],
    new_producers: NewProducers | None,
) -> Generator[None, None, ProduceResponse]:
    """As ``_answer``, with pauses."""
    topics: list[TopicProduceResponse] = []
    last: TopicProduceData | None = None
    for count, (asked, result) in enumerate(zip(_partitions(request), results, strict=True), 1):
        data, partition = asked
        if data is not last:
            last = data
            topics.append(TopicProduceResponse(name=data.name, topic_id=data.topic_id))
        topics[-1].partition_responses.append(
            _partition_response(request_context, partition.index, result)
        )
        if not count % SLICE_STEPS:
            yield
    return _response(context, request_context, topics, results, new_producers)


def _answer(
    context: BrokerContext,
    request_context: RequestContext,
    request: ProduceRequest,
    results: list[ProduceResult],
    new_producers: NewProducers | None,
) -> ProduceResponse:
    topics: list[TopicProduceResponse] = []
    left = iter(results)
    for data in request.topic_data:
        topic = TopicProduceResponse(name=data.name, topic_id=data.topic_id)
        topics.append(topic)
        for partition in data.partition_data:
            topic.partition_responses.append(
                _partition_response(request_context, partition.index, next(left))
            )
    return _response(context, request_context, topics, results, new_producers)


def _response(
    context: BrokerContext,
    request_context: RequestContext,
    topics: list[TopicProduceResponse],
    results: list[ProduceResult],
    new_producers: NewProducers | None,
) -> ProduceResponse:
    hints = [result.leader for result in results if result.error in _HINTED]
    return ProduceResponse(
        responses=topics,
        node_endpoints=[
            NodeEndpoint(registration.broker_id, endpoint.host, endpoint.port, registration.rack)
            for registration, endpoint in leader_endpoints(context, request_context.caller, hints)
        ]
        if hints
        else [],
        throttle_time_ms=0 if new_producers is None else new_producers.wait_ms,
    )


def _partition_response(
    request_context: RequestContext, index: int, result: ProduceResult
) -> PartitionProduceResponse:
    leader, error = None, result.error
    is_told = request_context.is_ours if error is ErrorCode.NONE else error in _HINTED
    if is_told and result.leader.leader_id >= 0:
        leader = LeaderIdAndEpoch(result.leader.leader_id, result.leader.leader_epoch)
    return PartitionProduceResponse(
        index=index,
        error_code=error if error is ErrorCode.NONE else _error(request_context, error),
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(each.number, each.reason) for each in result.record_errors
        ]
        if result.record_errors
        else None,
        error_message=result.message or None,
        current_leader=leader,
    )


def _error(request_context: RequestContext, error: ErrorCode) -> ErrorCode:
    """Clients older than TRANSACTION_ABORTABLE get INVALID_TXN_STATE, as in Kafka."""
    if request_context.version < _TOPIC_IDS_FROM:
        error = error_by_name(error)
    if error is ErrorCode.TRANSACTION_ABORTABLE and request_context.version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _first_error(results: list[ProduceResult]) -> str:
    for result in results:
        if result.error is not ErrorCode.NONE:
            return f"acks=0 to partition {result.id.partition}: {result.error.name}"
    return ""


async def refuse(
    request_context: RequestContext, request: ProduceRequest, error: ErrorCode
) -> ProduceResponse:
    slices = Slices(SLICE_STEPS)
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=await slices.map(
                    lambda partition: PartitionProduceResponse(
                        partition.index, error, base_offset=-1
                    ),
                    data.partition_data,
                ),
            )
            for data in request.topic_data
        ]
    )


SERVED = Served(messages.API, refuse, handle=handle, prepare=_prepare, advertised_from=0)
