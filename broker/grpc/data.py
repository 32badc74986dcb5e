"""stele.v1.Data: whole record batches for gRPC clients, by the functions of the Kafka plane.

Deviations from the Kafka APIs of the same names: no topic is made by asking for it, acks=0 is
answered too, and a topic may be given by its name in every request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from broker.grpc.conversation import Conversation
from broker.grpc.messages import unary
from broker.replication.deletion import Deletion, DeletionResult
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.types import (
    MAX_TIMESTAMP,
    Cancel,
    EpochQuery,
    FetchEntry,
    FetchResult,
    OffsetQuery,
    OffsetResult,
    ProduceResult,
    TransactionalWrite,
)
from broker.service import offsets, records
from broker.service.cluster import active_controller, endpoints
from broker.service.context import BrokerContext
from broker.service.fetch_topics import readable_topics
from broker.service.metadata import MissingTopic, all_topics, find_topics
from broker.service.nearby import nearby_brokers
from broker.service.produce import Produce
from broker.service.producers import new_producer_id, producer_of, writable_topics
from broker.service.topics import NO_TOPIC_ID, Topics, error_by_name
from metadata.partitions import NO_LEADER, PartitionState
from metadata.topics import Topic
from runtime.authorization.caller import Caller, grpc_caller
from runtime.grpc_requests import parse
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1 import data_pb2 as pb
from stele.world import RpcCode, RpcError, Stream
from world.network import Peer, Service

PRODUCE_IN_FLIGHT = 64
FETCH_IN_FLIGHT = 16
"""Unanswered requests of one stream; each fetch may hold a whole answer in memory."""

READ_COMMITTED = 1


class DataService:
    """The service as it is given to those who came in over one named listener."""

    def __init__(self, context: BrokerContext, listener: str) -> None:
        self._context = context
        self._listener = listener

    def service(self) -> Service:
        prefix = "/stele.v1.Data/"
        methods: dict[str, tuple[Any, Any]] = {
            "Metadata": (pb.MetadataRequest, self._metadata),
            "ListOffsets": (pb.ListOffsetsRequest, self._list_offsets),
            "DeleteRecords": (pb.DeleteRecordsRequest, self._delete_records),
            "OffsetForLeaderEpoch": (
                pb.OffsetForLeaderEpochRequest,
                self._offset_for_leader_epoch,
            ),
            "InitProducerId": (pb.InitProducerIdRequest, self._init_producer_id),
            "DescribeProducer": (pb.DescribeProducerRequest, self._describe_producer),
        }
        return Service(
            unary={
                prefix + name: unary(self._listener, *method) for name, method in methods.items()
            },
            streams={prefix + "Produce": self._produce, prefix + "Fetch": self._fetch},
        )

    # ------------------------------------------------------------------ Produce

    async def _produce(self, stream: Stream, peer: Peer) -> None:
        start = partial(self._start_produce, grpc_caller(self._listener, peer))
        await Conversation(stream, PRODUCE_IN_FLIGHT).run(start)

    def _start_produce(
        self, caller: Caller, payload: bytes, reply: Callable[[bytes], None]
    ) -> Cancel | None:
        request = parse(pb.ProduceRequest, payload)
        transaction = None
        if request.transactional_id:
            transaction = TransactionalWrite(request.transactional_id, adds_partition=True)
        produce = Produce(self._context, caller, transaction)
        for partition in request.partitions:
            batch = bytearray(partition.records)  # a copy, for it will be stamped
            produce.add(partition.topic, partition.topic_id, partition.partition, batch)
        timing = _Timing(self._context, "Data.Produce")

        def done(results: list[ProduceResult]) -> None:
            timing.answered()
            reply(_produce_response(request, results).SerializeToString())

        produce.run(request.acks, request.timeout_ms, done)
        timing.returned()
        return None

    # ------------------------------------------------------------------ Fetch

    async def _fetch(self, stream: Stream, peer: Peer) -> None:
        start = partial(self._start_fetch, grpc_caller(self._listener, peer))
        await Conversation(stream, FETCH_IN_FLIGHT).run(start)

    def _start_fetch(
        self, caller: Caller, payload: bytes, reply: Callable[[bytes], None]
    ) -> Cancel | None:
        request = parse(pb.FetchRequest, payload)
        topics = readable_topics(self._context, caller)
        items = [_fetch_item(topics, partition) for partition in request.partitions]
        nearby = nearby_brokers(self._context, caller, request.rack)
        timing = _Timing(self._context, "Data.Fetch")
        fetch = _DataFetch(request, reply, timing, nearby)
        fetch.ask(items)
        self._context.replicas.fetch.begin(fetch)
        timing.returned()
        return partial(self._context.replicas.fetch.withdraw, fetch)

    # ------------------------------------------------------------------ unary calls

    def _require_metadata(self) -> None:
        """Refuse until the metadata has been read. A broker that has just started would say that
        every topic is gone."""
        if not self._context.caught_up():
            raise RpcError(
                RpcCode.UNAVAILABLE,
                f"broker {self._context.broker_id} has not caught up with the metadata yet",
            )

    async def _metadata(self, caller: Caller, request: pb.MetadataRequest) -> pb.MetadataResponse:
        self._require_metadata()
        context = self._context
        if request.topics:
            found = await find_topics(context, caller, request.topics)
        else:
            found = await all_topics(context, caller)
        return pb.MetadataResponse(
            cluster_id=context.cluster_id,
            controller_id=active_controller(context),
            brokers=[
                pb.MetadataResponse.Broker(
                    broker_id=registration.broker_id,
                    grpc_host=endpoint.host,
                    grpc_port=endpoint.port,
                    rack=registration.rack or "",
                )
                for registration, endpoint in endpoints(context, caller, caller.plane)
            ],
            topics=[_metadata_topic(each) for each in found.topics],
            metadata_offset=found.image.offset,
        )

    async def _list_offsets(
        self, caller: Caller, request: pb.ListOffsetsRequest
    ) -> pb.ListOffsetsResponse:
        self._require_metadata()
        topics = offsets.topics(self._context, caller)
        items: list[OffsetQuery | OffsetResult] = []
        for partition in request.partitions:
            found = topics.partition(partition.topic, NO_TOPIC_ID, partition.partition)
            if isinstance(found, ErrorCode):
                items.append(OffsetResult(found))
            elif partition.timestamp_ms < MAX_TIMESTAMP:
                items.append(OffsetResult(ErrorCode.UNSUPPORTED_VERSION))
            else:
                items.append(
                    OffsetQuery(found, partition.timestamp_ms, partition.current_leader_epoch)
                )
        results = await offsets.list_offsets(
            self._context, items, read_committed=request.isolation_level == READ_COMMITTED
        )
        return pb.ListOffsetsResponse(
            partitions=[
                pb.ListOffsetsResponse.Partition(
                    topic=partition.topic,
                    partition=partition.partition,
                    error=result.error,
                    message=explain(result.error),
                    timestamp_ms=result.timestamp_ms,
                    offset=result.offset,
                    leader_epoch=result.leader_epoch,
                )
                for partition, result in zip(request.partitions, results, strict=True)
            ]
        )

    async def _delete_records(
        self, caller: Caller, request: pb.DeleteRecordsRequest
    ) -> pb.DeleteRecordsResponse:
        self._require_metadata()
        topics = records.topics(self._context, caller)
        items: list[Deletion | DeletionResult] = []
        for partition in request.partitions:
            found = topics.partition(partition.topic, NO_TOPIC_ID, partition.partition)
            if isinstance(found, ErrorCode):
                items.append(DeletionResult(found))
            else:
                items.append(Deletion(found, partition.offset))
        results = await records.delete_records(self._context, items, request.timeout_ms)
        return pb.DeleteRecordsResponse(
            partitions=[
                pb.DeleteRecordsResponse.Partition(
                    topic=partition.topic,
                    partition=partition.partition,
                    error=result.error,
                    low_watermark=result.low_watermark,
                    message=result.message or explain(result.error),
                )
                for partition, result in zip(request.partitions, results, strict=True)
            ]
        )

    async def _offset_for_leader_epoch(
        self, caller: Caller, request: pb.OffsetForLeaderEpochRequest
    ) -> pb.OffsetForLeaderEpochResponse:
        topics = offsets.topics(self._context, caller)
        items: list[EpochQuery | OffsetResult] = []
        for partition in request.partitions:
            found = topics.partition(partition.topic, NO_TOPIC_ID, partition.partition)
            if isinstance(found, ErrorCode):
                items.append(OffsetResult(found))
            else:
                items.append(
                    EpochQuery(found, partition.leader_epoch, partition.current_leader_epoch)
                )
        results = offsets.epoch_ends(self._context, items)
        return pb.OffsetForLeaderEpochResponse(
            partitions=[
                pb.OffsetForLeaderEpochResponse.Partition(
                    topic=partition.topic,
                    partition=partition.partition,
                    error=result.error,
                    message=explain(result.error),
                    leader_epoch=result.leader_epoch,
                    end_offset=result.offset,
                )
                for partition, result in zip(request.partitions, results, strict=True)
            ]
        )

    async def _init_producer_id(
        self, caller: Caller, request: pb.InitProducerIdRequest
    ) -> pb.InitProducerIdResponse:
        try:
            if request.transactional_id:
                what = "transactional producers get their ids from stele.v1.Transactions"
                raise ApiError(ErrorCode.INVALID_REQUEST, what)
            producer_id = await new_producer_id(self._context, caller)
        except ApiError as refusal:
            return _no_producer_id(refusal.code, refusal.message)
        return pb.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    async def _describe_producer(
        self, caller: Caller, request: pb.DescribeProducerRequest
    ) -> pb.DescribeProducerResponse:
        topics = writable_topics(self._context, caller)
        found = topics.partition("", request.topic_id, request.partition)
        try:
            if isinstance(found, ErrorCode):
                raise ApiError(found)
            entry, high_watermark = producer_of(
                self._context, found, request.producer_id, request.current_leader_epoch
            )
        except ApiError as refusal:
            message = explain(refusal.code, refusal.message)
            return pb.DescribeProducerResponse(error=refusal.code, message=message)
        answer = pb.DescribeProducerResponse(producer_epoch=-1, high_watermark=high_watermark)
        if entry is not None:
            answer.producer_epoch = entry.epoch
            for batch in entry.batches:
                answer.batches.add(
                    base_sequence=batch.base_sequence,
                    last_sequence=batch.last_sequence,
                    base_offset=batch.base_offset,
                )
        return answer


class _Timing:
    """Counts one request when it is answered: how long it was worked on, and how long it waited
    after that."""

    __slots__ = ("_began_s", "_clock", "_local_s", "_meter")

    def __init__(self, context: BrokerContext, name: str) -> None:
        """The request has just come."""
        self._clock = context.clock
        self._meter = context.metrics.of_requests(name)
        self._began_s = self._clock.monotonic()
        self._local_s: float | None = None

    def returned(self) -> None:
        """The work is done. If it is not answered, it waits."""
        self._local_s = self._clock.monotonic() - self._began_s

    def answered(self) -> None:
        self._meter.answered(self._clock.monotonic() - self._began_s, self._local_s)


# ---------------------------------------------------------------------- translation


def _no_producer_id(error: ErrorCode, message: str) -> pb.InitProducerIdResponse:
    return pb.InitProducerIdResponse(
        error=error, message=explain(error, message), producer_id=-1, producer_epoch=-1
    )


def _produce_response(
    request: pb.ProduceRequest, results: list[ProduceResult]
) -> pb.ProduceResponse:
    return pb.ProduceResponse(
        correlation_id=request.correlation_id,
        partitions=[
            pb.ProduceResponse.Partition(
                topic_id=result.id.topic_id,
                partition=result.id.partition,
                error=(error := _error(asked, result.error)),
                message=explain(error, result.message),
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
                leader=result.leader.leader_id,
                leader_epoch=result.leader.leader_epoch,
                topic=asked.topic,
            )
            for asked, result in zip(request.partitions, results, strict=True)
        ],
    )


def _error(
    asked: pb.ProduceRequest.Partition | pb.FetchRequest.Partition, error: ErrorCode
) -> ErrorCode:
    return error if asked.topic_id else error_by_name(error)


class _DataFetch(WaitingFetch):
    """One request of the stream Fetch, from its message to its response."""

    __slots__ = ("_reply", "_request", "_timing")

    def __init__(
        self,
        request: pb.FetchRequest,
        reply: Callable[[bytes], None],
        timing: _Timing,
        nearby: frozenset[int],
    ) -> None:
        super().__init__(
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            read_committed=request.isolation_level == READ_COMMITTED,
            any_replica=bool(request.rack),
            nearby=nearby,
        )
        self._request = request
        self._reply = reply
        self._timing = timing

    def answer(self, results: list[FetchResult]) -> None:
        self._timing.answered()
        self._reply(_fetch_response(self._request, results).SerializeToString())


def _fetch_item(topics: Topics, partition: pb.FetchRequest.Partition) -> FetchEntry | FetchResult:
    found = topics.partition(partition.topic, partition.topic_id, partition.partition)
    if isinstance(found, ErrorCode):
        return FetchResult(PartitionId(partition.topic_id, partition.partition), found)
    return FetchEntry(
        found,
        fetch_offset=partition.fetch_offset,
        max_bytes=partition.max_bytes,
        current_leader_epoch=partition.current_leader_epoch,
        last_fetched_epoch=partition.last_fetched_epoch,
    )


def _fetch_response(request: pb.FetchRequest, results: list[FetchResult]) -> pb.FetchResponse:
    return pb.FetchResponse(
        correlation_id=request.correlation_id,
        partitions=[
            pb.FetchResponse.Partition(
                topic_id=result.id.topic_id,
                partition=result.id.partition,
                error=(error := _error(asked, result.error)),
                message=explain(error),
                high_watermark=result.high_watermark,
                last_stable_offset=result.last_stable_offset,
                log_start_offset=result.log_start_offset,
                records=b"".join(result.records),
                diverging_epoch=-1 if result.diverging is None else result.diverging.epoch,
                diverging_end_offset=-1
                if result.diverging is None
                else result.diverging.end_offset,
                leader=result.leader.leader_id,
                leader_epoch=result.leader.leader_epoch,
                topic=asked.topic,
                preferred_read_replica=(
                    None if result.preferred_replica < 0 else result.preferred_replica
                ),
                aborted_transactions=[
                    pb.FetchResponse.AbortedTransaction(
                        producer_id=each.producer_id, first_offset=each.first_offset
                    )
                    for each in result.aborted
                ],
            )
            for asked, result in zip(request.partitions, results, strict=True)
        ],
    )


def _metadata_topic(topic: Topic | MissingTopic) -> pb.MetadataResponse.Topic:
    if isinstance(topic, MissingTopic):
        return pb.MetadataResponse.Topic(
            name=topic.name, error=topic.error, message=explain(topic.error)
        )
    return pb.MetadataResponse.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            _metadata_partition(number, state) for number, state in enumerate(topic.partitions)
        ],
    )


def _metadata_partition(number: int, state: PartitionState) -> pb.MetadataResponse.Partition:
    leaderless = state.leader == NO_LEADER
    error = ErrorCode.LEADER_NOT_AVAILABLE if leaderless else ErrorCode.NONE
    return pb.MetadataResponse.Partition(
        error=error,
        message=explain(error),
        partition=number,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        replicas=state.replicas,
        isr=state.isr,
    )
