"""stele.v1.Data: whole record batches for gRPC clients, by the functions of the Kafka plane.

Deviations from the Kafka APIs of the same names: no topic is made by asking for it, acks=0 is
answered too, and a topic may be given by its name in every request.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.grpc.conversation import Conversation
from broker.grpc.messages import parse, unary
from broker.partition.ids import PartitionId
from broker.replication.deletion import Deletion, DeletionResult
from broker.replication.types import (
    MAX_TIMESTAMP,
    Cancel,
    EpochQuery,
    FetchEntry,
    FetchQuery,
    FetchResult,
    OffsetQuery,
    OffsetResult,
    ProduceEntry,
    ProduceResult,
)
from broker.service import requests
from broker.service.caller import Caller
from broker.service.context import BrokerContext
from metadata.image import NO_LEADER, MetadataImage, PartitionState, Topic
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
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
        }
        return Service(
            unary={
                prefix + name: unary(self._listener, *method) for name, method in methods.items()
            },
            streams={prefix + "Produce": self._produce, prefix + "Fetch": self._fetch},
        )

    # ------------------------------------------------------------------ Produce

    async def _produce(self, stream: Stream, peer: Peer) -> None:
        await Conversation(stream, PRODUCE_IN_FLIGHT).run(self._start_produce)

    def _start_produce(self, payload: bytes, reply: Callable[[bytes], None]) -> Cancel | None:
        request = parse(pb.ProduceRequest, payload)
        image = self._context.image()
        items = [_produce_item(image, partition) for partition in request.partitions]
        names = [partition.topic for partition in request.partitions]
        answered = self._context.metrics.measure("Data.Produce", self._context.clock)

        def done(results: list[ProduceResult]) -> None:
            answered()
            reply(_produce_response(request.correlation_id, names, results).SerializeToString())

        requests.produce(self._context, items, request.acks, request.timeout_ms, done)
        return None

    # ------------------------------------------------------------------ Fetch

    async def _fetch(self, stream: Stream, peer: Peer) -> None:
        await Conversation(stream, FETCH_IN_FLIGHT).run(self._start_fetch)

    def _start_fetch(self, payload: bytes, reply: Callable[[bytes], None]) -> Cancel | None:
        request = parse(pb.FetchRequest, payload)
        image = self._context.image()
        items = [_fetch_item(image, partition) for partition in request.partitions]
        names = [partition.topic for partition in request.partitions]
        query = FetchQuery(
            entries=[],
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=min(request.max_bytes, self._context.config.fetch_max_bytes),
            read_committed=request.isolation_level == READ_COMMITTED,
        )

        answered = self._context.metrics.measure("Data.Fetch", self._context.clock)

        def done(results: list[FetchResult]) -> None:
            answered()
            reply(_fetch_response(request.correlation_id, names, results).SerializeToString())

        return requests.fetch(self._context, items, query, done)

    # ------------------------------------------------------------------ unary calls

    def _require_metadata(self) -> None:
        """A broker that has just started must not tell that a topic is gone: others know better."""
        if not self._context.caught_up():
            raise RpcError(
                RpcCode.UNAVAILABLE,
                f"broker {self._context.broker_id} has not caught up with the metadata yet",
            )

    async def _metadata(self, caller: Caller, request: pb.MetadataRequest) -> pb.MetadataResponse:
        self._require_metadata()
        context = self._context
        image = context.image()
        if request.topics:
            topics = [_metadata_topic(name, image.topic(name)) for name in request.topics]
        else:
            topics = [_metadata_topic(topic.name, topic) for topic in image.sorted_topics()]
        return pb.MetadataResponse(
            cluster_id=context.cluster_id,
            controller_id=_or_none(context.controller.active_controller),
            brokers=[
                pb.MetadataResponse.Broker(
                    broker_id=registration.broker_id,
                    grpc_host=endpoint.host,
                    grpc_port=endpoint.port,
                    rack=registration.rack or "",
                )
                for registration, endpoint in context.live_endpoints(caller)
            ],
            topics=topics,
            metadata_offset=image.offset,
        )

    async def _list_offsets(
        self, caller: Caller, request: pb.ListOffsetsRequest
    ) -> pb.ListOffsetsResponse:
        self._require_metadata()
        image = self._context.image()
        items: list[OffsetQuery | OffsetResult] = []
        for partition in request.partitions:
            found = _partition(image, partition.topic, b"", partition.partition)
            if isinstance(found, ErrorCode):
                items.append(OffsetResult(found))
            elif partition.timestamp_ms < MAX_TIMESTAMP:
                items.append(OffsetResult(ErrorCode.UNSUPPORTED_VERSION))
            else:
                items.append(
                    OffsetQuery(found, partition.timestamp_ms, partition.current_leader_epoch)
                )
        results = await requests.list_offsets(
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
        image = self._context.image()
        items: list[Deletion | DeletionResult] = []
        for partition in request.partitions:
            found = _partition(image, partition.topic, b"", partition.partition)
            if isinstance(found, ErrorCode):
                items.append(DeletionResult(found))
            else:
                items.append(Deletion(found, partition.offset))
        results = await requests.delete_records(self._context, items, request.timeout_ms)
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
        image = self._context.image()
        items: list[EpochQuery | OffsetResult] = []
        for partition in request.partitions:
            found = _partition(image, partition.topic, b"", partition.partition)
            if isinstance(found, ErrorCode):
                items.append(OffsetResult(found))
            else:
                items.append(
                    EpochQuery(found, partition.leader_epoch, partition.current_leader_epoch)
                )
        results = requests.epoch_ends(self._context, items)
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
        if request.transactional_id:
            # Any other error would be tried again.
            error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _no_producer_id(error, "there are no transactions")
        try:
            producer_id = await self._context.producer_ids.take()
        except ApiError as refusal:
            return _no_producer_id(refusal.code, refusal.message)
        return pb.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


# ---------------------------------------------------------------------- translation


def _no_producer_id(error: ErrorCode, message: str) -> pb.InitProducerIdResponse:
    return pb.InitProducerIdResponse(
        error=error, message=explain(error, message), producer_id=-1, producer_epoch=-1
    )


def _partition(
    image: MetadataImage, name: str, topic_id: bytes, partition: int
) -> PartitionId | ErrorCode:
    return requests.partition_of(requests.find_topic(image, name, topic_id), partition)


def _produce_item(
    image: MetadataImage, partition: pb.ProduceRequest.Partition
) -> ProduceEntry | ProduceResult:
    found = _partition(image, partition.topic, partition.topic_id, partition.partition)
    if isinstance(found, ErrorCode):
        return ProduceResult(PartitionId(partition.topic_id, partition.partition), found)
    return ProduceEntry(found, bytearray(partition.records))  # a copy, for it will be stamped


def _produce_response(
    correlation_id: int, names: list[str], results: list[ProduceResult]
) -> pb.ProduceResponse:
    return pb.ProduceResponse(
        correlation_id=correlation_id,
        partitions=[
            pb.ProduceResponse.Partition(
                topic_id=result.id.topic_id,
                partition=result.id.partition,
                error=result.error,
                message=explain(result.error, result.message),
                base_offset=result.base_offset,
                log_append_time_ms=result.log_append_time_ms,
                log_start_offset=result.log_start_offset,
                leader=result.leader.leader_id,
                leader_epoch=result.leader.leader_epoch,
                topic=name,
            )
            for name, result in zip(names, results, strict=True)
        ],
    )


def _fetch_item(
    image: MetadataImage, partition: pb.FetchRequest.Partition
) -> FetchEntry | FetchResult:
    found = _partition(image, partition.topic, partition.topic_id, partition.partition)
    if isinstance(found, ErrorCode):
        return FetchResult(PartitionId(partition.topic_id, partition.partition), found)
    return FetchEntry(
        found,
        fetch_offset=partition.fetch_offset,
        max_bytes=partition.max_bytes,
        current_leader_epoch=partition.current_leader_epoch,
        last_fetched_epoch=partition.last_fetched_epoch,
    )


def _fetch_response(
    correlation_id: int, names: list[str], results: list[FetchResult]
) -> pb.FetchResponse:
    return pb.FetchResponse(
        correlation_id=correlation_id,
        partitions=[
            pb.FetchResponse.Partition(
                topic_id=result.id.topic_id,
                partition=result.id.partition,
                error=result.error,
                message=explain(result.error),
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
                topic=name,
            )
            for name, result in zip(names, results, strict=True)
        ],
    )


def _metadata_topic(name: str, topic: Topic | None) -> pb.MetadataResponse.Topic:
    if topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return pb.MetadataResponse.Topic(name=name, error=error, message=explain(error))
    return pb.MetadataResponse.Topic(
        name=name,
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


def _or_none(controller_id: int | None) -> int:
    return -1 if controller_id is None else controller_id
