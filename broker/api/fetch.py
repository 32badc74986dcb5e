"""Fetch (1), versions 4-18: read record batches, for consumers and followers alike.

Deviations: only brokers get a fetch session, by their broker epoch and for one connection; others
get the session id 0 (KIP-227 allows that);
a follower outside of the ISR serves no consumer (KIP-392); nothing is tiered.
Followers get tagged fields of ours, ``dropped_end``, ``producers`` and ``traced``, and send
``producers_after``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Generator, Sequence

from broker.api.handler import Reply, RequestContext, Served
from broker.replication.types import Cancel, FetchEntry, FetchResult, LeaderHint
from broker.service.cluster import leader_endpoints
from broker.service.context import BrokerContext
from broker.service.nearby import nearby_brokers
from broker.service.quotas import EXEMPT, log_throttle
from broker.service.session_fetch import SessionFetch
from broker.service.topics import NO_TOPIC_ID
from metadata.client_quotas import CONSUMER_BYTE_RATE
from runtime.quota.manager import QuotaManager
from runtime.quota.precedence import Client
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.isolation import READ_COMMITTED
from stele.wire.kafka.messages import fetch as messages
from stele.wire.kafka.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ProducersPart,
    TracedBatch,
)
from storage.turns import SLICE_STEPS, finished

_ANY_REPLICA_FROM = 11
"""From this version on a consumer may read from a follower, as in Kafka."""

_TOPIC_IDS_FROM = 13
_TOPIC_ID_BYTES = len(NO_TOPIC_ID)
_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(
    context: BrokerContext, request_context: RequestContext, request: FetchRequest, reply: Reply
) -> Cancel | None:
    fetch = KafkaFetch(context, request_context, request, reply)
    if fetch.is_follower:
        request_context.connection.is_of_follower = True
    fetch.start()
    return fetch.cancel


class KafkaFetch(SessionFetch):
    """One request, from its message to its response."""

    __slots__ = ("_payer", "_reply", "_request", "_request_context", "_wait_ms")

    def __init__(
        self,
        context: BrokerContext,
        request_context: RequestContext,
        request: FetchRequest,
        reply: Reply,
    ) -> None:
        state = request.replica_state
        super().__init__(
            context,
            request_context.caller,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            replica_id=request.replica_id if state is None else state.replica_id,
            replica_epoch=-1 if state is None else state.replica_epoch,
            read_committed=request.isolation_level == READ_COMMITTED,
            any_replica=request_context.version >= _ANY_REPLICA_FROM,
            nearby=nearby_brokers(context, request_context.caller, request.rack_id),
            owner=request_context.connection,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            by_id=request_context.version >= _TOPIC_IDS_FROM,
        )
        self._request_context = request_context
        self._request = request
        self._reply = reply
        self._payer: Client | None = None  # whose bytes it reads, if there are quotas
        self._wait_ms = 0  # that the client is to wait after the answer
        if not self.is_follower and context.quotas.manager is not None:
            self._heed_quota(context.quotas.manager)

    def _heed_quota(self, manager: QuotaManager) -> None:
        """Count the time of later turns for the client. Read no more than the client may get in a
        second, so that its waits are short."""
        if (clock := self._context.quotas.turn_clock) is not None:
            self.spend = functools.partial(self._request_context.connection.loop_share.run, clock)
        payer = self._context.quotas.payer(self._request_context.caller)
        fetch_max = manager.fetch_max(payer)
        if payer is not EXEMPT and fetch_max is not None:
            self._payer = payer
            self.max_bytes = min(self.max_bytes, max(1, int(fetch_max)))

    def admits(self, read_bytes: int) -> bool:
        """A client that owes time gets an empty answer, and asks again when it has waited."""
        quotas, payer = self._context.quotas, self._payer
        if payer is None or quotas.manager is None:
            return True
        admission = quotas.manager.admit(CONSUMER_BYTE_RATE, payer, read_bytes, quotas.now_s())
        if admission.throttle is not None:
            log_throttle(payer, admission.throttle)
            self._wait_ms = math.ceil(admission.throttle.seconds * 1000)
            if not admission.is_admitted:
                self._reply(FetchResponse(throttle_time_ms=self._wait_ms))
        return admission.is_admitted

    def decode(
        self, entries: dict[PartitionId, FetchEntry], forgotten: list[PartitionId]
    ) -> Generator[None, None, None]:
        topics, count = self.topics, 0
        for topic in self._request.topics:
            key = topics.key(topic.topic, topic.topic_id)
            count += 1
            if not count % SLICE_STEPS:
                yield
            for partition in topic.partitions:
                # Of a partition that is named more than once the last counts, as in Kafka.
                entry = _entry(key, partition)
                entries[entry.id] = entry
                count += 1
                if not count % SLICE_STEPS:
                    yield
        for gone in self._request.forgotten_topics_data:
            key = topics.key(gone.topic, gone.topic_id)
            count += 1
            if not count % SLICE_STEPS:
                yield
            for number in gone.partitions:
                forgotten.append(PartitionId(key, number))
                count += 1
                if not count % SLICE_STEPS:
                    yield

    def encode(self, session_id: int, results: list[FetchResult]) -> Generator[None, None, None]:
        topics = self.topics
        hints: list[LeaderHint] = []
        responses: list[FetchableTopicResponse] = []
        last: bytes | None = None
        for count, result in enumerate(results, 1):
            if result.error in _HINTED:
                hints.append(result.leader)
            if result.id.topic_id != last:  # neighbours of one topic stand together
                last = result.id.topic_id
                responses.append(
                    FetchableTopicResponse(
                        topic=topics.name(last),
                        topic_id=last if len(last) == _TOPIC_ID_BYTES else NO_TOPIC_ID,
                    )
                )
            error = result.error
            if error is not ErrorCode.NONE:
                error = topics.error(error)
            responses[-1].partitions.append(_partition(result, error, self.read_committed))
            if not count % SLICE_STEPS:
                yield
        self._reply(
            FetchResponse(
                throttle_time_ms=self._wait_ms,
                session_id=session_id,
                responses=responses,
                node_endpoints=self._endpoints(hints) if hints else [],
            )
        )

    def refuse(self, error: ErrorCode) -> Generator[None, None, None]:
        refused = yield from _refused(self._request_context, self._request, error)
        self._reply(refused)

    def _endpoints(self, hints: Sequence[LeaderHint]) -> list[NodeEndpoint]:
        return [
            NodeEndpoint(registration.broker_id, endpoint.host, endpoint.port, registration.rack)
            for registration, endpoint in leader_endpoints(
                self._context, self._request_context.caller, hints
            )
        ]


def is_of_follower(request: FetchRequest) -> bool:
    """Whether the request says that a broker sent it. It gets more only if it proves that."""
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0


def _entry(topic_id: bytes, partition: FetchPartition) -> FetchEntry:
    return FetchEntry(
        PartitionId(topic_id, partition.partition),
        fetch_offset=partition.fetch_offset,
        max_bytes=partition.partition_max_bytes,
        current_leader_epoch=partition.current_leader_epoch,
        last_fetched_epoch=partition.last_fetched_epoch,
        log_start_offset=partition.log_start_offset,
        producers_after=partition.producers_after,
    )


def _partition(result: FetchResult, error: ErrorCode, read_committed: bool) -> PartitionData:
    diverging = hint = None
    if result.diverging is not None:
        diverging = EpochEndOffset(result.diverging.epoch, result.diverging.end_offset)
    if result.error in _HINTED and result.leader.leader_id >= 0:
        hint = LeaderIdAndEpoch(result.leader.leader_id, result.leader.leader_epoch)
    producers = None
    if result.producers is not None:
        producers = ProducersPart(result.producers.data, result.producers.after)
    traced = None
    if result.traced is not None:
        traced = TracedBatch(result.traced.base_offset, result.traced.context)
    return PartitionData(
        partition_index=result.id.partition,
        error_code=error,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        diverging_epoch=diverging,
        current_leader=hint,
        preferred_read_replica=result.preferred_replica,
        aborted_transactions=[
            AbortedTransaction(each.producer_id, each.first_offset) for each in result.aborted
        ]
        if read_committed
        else None,
        records=result.records,
        dropped_end=result.dropped_end,
        producers=producers,
        traced=traced,
    )


def _refused(
    request_context: RequestContext, request: FetchRequest, error: ErrorCode
) -> Generator[None, None, FetchResponse]:
    """Versions below 7 have no field for the error but each partition's."""
    if request_context.version >= 7:
        return FetchResponse(error_code=error)
    responses: list[FetchableTopicResponse] = []
    count = 0
    for topic in request.topics:
        responses.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id))
        count += 1
        if not count % SLICE_STEPS:
            yield
        for partition in topic.partitions:
            responses[-1].partitions.append(
                PartitionData(partition.partition, error, high_watermark=-1, records=[])
            )
            count += 1
            if not count % SLICE_STEPS:
                yield
    return FetchResponse(error_code=error, responses=responses)


async def refuse(
    request_context: RequestContext, request: FetchRequest, error: ErrorCode
) -> FetchResponse:
    return await finished(_refused(request_context, request, error))


SERVED = Served(messages.API, refuse, handle=handle)
