"""The cluster over gRPC: ``stele.v1``.

A Kafka DescribeCluster with endpoint type 3, sent to any broker's Kafka port, answers the gRPC
address of every broker. Everything after that goes over gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from google.protobuf.message import DecodeError

from stele.cluster.broker_stream import BrokerStream, Correlated
from stele.cluster.kafka_connection import KafkaConnection
from stele.cluster.plane import (
    AbortedTransaction,
    BrokerAddress,
    ClusterNews,
    CoordinatorKind,
    FetchAnswer,
    FetchRequest,
    FoundCoordinator,
    FoundOffset,
    Leader,
    LeaderStream,
    Link,
    NewProducerId,
    OffsetQuestion,
    ProduceAnswer,
    ProduceRequest,
    Question,
    TopicNews,
    error_code,
)
from stele.errors import ApiError, ConfigError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.kafka.messages import describe_cluster
from stele.wire.v1 import data_pb2, groups_pb2, transactions_pb2
from stele.world import Channel, Connector, RpcCode, RpcError

GRPC_ENDPOINTS: Final = 3
"""The endpoint type of a DescribeCluster to which Stele's brokers answer with gRPC addresses."""

Answer = TypeVar("Answer")
RequestT = TypeVar("RequestT")
PartT = TypeVar("PartT")
ResponseT = TypeVar("ResponseT", bound=Correlated)


class Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802 - protobuf's name


class GrpcLink:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    async def close(self) -> None:
        await self.channel.close()


def channel_of(link: Link) -> Channel:
    """Raises ConfigError for a link of another plane."""
    if not isinstance(link, GrpcLink):
        raise ConfigError("this can only be asked over gRPC: use a client with plane='grpc'")
    return link.channel


def call(method: str, request: Message, parse: Callable[[bytes], Answer]) -> Question[Answer]:
    """A unary call. ``method`` is ``/stele.v1.Service/Method``."""

    async def ask(link: Link, timeout_s: float) -> Answer:
        told = await channel_of(link).call(method, request.SerializeToString(), timeout_s=timeout_s)
        try:
            return parse(told)
        except DecodeError as error:
            raise RpcError(RpcCode.INTERNAL, f"an answer that cannot be read: {error}") from error

    return Question(method, ask)


class GrpcPlane:
    """Leaders are asked over bidirectional streams, on which answers may overtake each other."""

    def __init__(self, connector: Connector, client_id: str) -> None:
        self._connector = connector
        self._client_id = client_id

    def link(self, address: BrokerAddress) -> Link:
        return GrpcLink(self._connector.channel(address.host, address.port))

    async def find_brokers(self, host: str, port: int, timeout_s: float) -> ClusterNews:
        connection = await KafkaConnection.open(self._connector, host, port, self._client_id)
        try:
            told = await connection.request(
                describe_cluster.API,
                1,
                describe_cluster.DescribeClusterRequest(endpoint_type=GRPC_ENDPOINTS),
                timeout_s=timeout_s,
            )
        finally:
            connection.close()
        code = error_code(told.error_code)
        if code is not ErrorCode.NONE:
            raise ApiError(code, told.error_message or _BOOTSTRAP_WORDS.get(code, ""))
        brokers = {each.broker_id: BrokerAddress(each.host, each.port) for each in told.brokers}
        return ClusterNews(told.cluster_id, told.controller_id, brokers)

    # ------------------------------------------------------------------------ questions

    def metadata(self, topics: Sequence[str] | None) -> Question[ClusterNews]:
        """A request cannot name no topic at all: then all of them are told."""
        return _mapped(
            call(
                "/stele.v1.Data/Metadata",
                data_pb2.MetadataRequest(topics=topics or ()),
                data_pb2.MetadataResponse.FromString,
            ),
            _cluster_news,
        )

    def list_offsets(
        self, wanted: Sequence[OffsetQuestion], *, is_committed: bool
    ) -> Question[list[FoundOffset]]:
        request = data_pb2.ListOffsetsRequest(isolation_level=int(is_committed))
        for name, leader_epoch, timestamp_ms in wanted:
            request.partitions.add(
                topic=name.topic,
                partition=name.partition,
                current_leader_epoch=leader_epoch,
                timestamp_ms=timestamp_ms,
            )
        return _mapped(
            call("/stele.v1.Data/ListOffsets", request, data_pb2.ListOffsetsResponse.FromString),
            _found_offsets,
        )

    def init_producer_id(self) -> Question[NewProducerId]:
        return _mapped(
            call(
                "/stele.v1.Data/InitProducerId",
                data_pb2.InitProducerIdRequest(),
                data_pb2.InitProducerIdResponse.FromString,
            ),
            lambda told: NewProducerId(
                error_code(told.error), told.producer_id, told.producer_epoch
            ),
        )

    def find_coordinator(self, kind: CoordinatorKind, key: str) -> Question[FoundCoordinator]:
        if kind is CoordinatorKind.GROUP:
            return _mapped(
                call(
                    "/stele.v1.Groups/FindCoordinator",
                    groups_pb2.FindCoordinatorRequest(groups=[key]),
                    groups_pb2.FindCoordinatorResponse.FromString,
                ),
                _found_coordinator,
            )
        return _mapped(
            call(
                "/stele.v1.Transactions/FindTransactionCoordinators",
                transactions_pb2.FindTransactionCoordinatorsRequest(transactional_ids=[key]),
                transactions_pb2.FindTransactionCoordinatorsResponse.FromString,
            ),
            _found_coordinator,
        )

    # -------------------------------------------------------------------------- leaders

    def produce(self, link: Link, name: str) -> LeaderStream[ProduceRequest, ProduceAnswer]:
        stream: BrokerStream[data_pb2.ProduceResponse, Sequence[ProduceAnswer]] = BrokerStream(
            channel_of(link),
            "/stele.v1.Data/Produce",
            data_pb2.ProduceResponse.FromString,
            _produce_answers,
            name,
        )
        return GrpcStream(stream, _produce_request)

    def fetch(self, link: Link, name: str) -> LeaderStream[FetchRequest, FetchAnswer]:
        stream: BrokerStream[data_pb2.FetchResponse, Sequence[FetchAnswer]] = BrokerStream(
            channel_of(link),
            "/stele.v1.Data/Fetch",
            data_pb2.FetchResponse.FromString,
            _fetch_answers,
            name,
        )
        return GrpcStream(stream, _fetch_request)


class GrpcStream(Generic[RequestT, ResponseT, PartT]):
    """Requests and answers as values, over a stream of messages."""

    def __init__(
        self,
        stream: BrokerStream[ResponseT, Sequence[PartT]],
        encode: Callable[[RequestT, int], Message],
    ) -> None:
        """``encode`` takes the request and its correlation id."""
        self._stream = stream
        self._encode = encode

    def request(self, request: RequestT) -> asyncio.Future[Sequence[PartT]]:
        correlation_id = self._stream.next_correlation_id()
        message = self._encode(request, correlation_id).SerializeToString()
        return self._stream.request(correlation_id, message)

    def post(self, request: RequestT) -> asyncio.Future[None]:
        message = self._encode(request, self._stream.next_correlation_id())
        return self._stream.post(message.SerializeToString())

    def break_off(self, reason: str) -> None:
        self._stream.break_off(reason)

    async def close(self) -> None:
        await self._stream.close()


_BOOTSTRAP_WORDS = {
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "its brokers do not speak gRPC: use plane='kafka'",
    ErrorCode.UNSUPPORTED_VERSION: "its brokers do not speak gRPC: use plane='kafka'",
}


def _mapped(question: Question[Any], make: Callable[[Any], Answer]) -> Question[Answer]:
    async def ask(link: Link, timeout_s: float) -> Answer:
        return make(await question.ask(link, timeout_s))

    return Question(question.what, ask)


def _cluster_news(told: data_pb2.MetadataResponse) -> ClusterNews:
    return ClusterNews(
        told.cluster_id,
        told.controller_id,
        {each.broker_id: BrokerAddress(each.grpc_host, each.grpc_port) for each in told.brokers},
        [
            TopicNews(
                topic.name,
                error_code(topic.error),
                topic.topic_id,
                [
                    (each.partition, Leader(each.leader, each.leader_epoch))
                    for each in topic.partitions
                ],
            )
            for topic in told.topics
        ],
        told.metadata_offset,
    )


def _found_offsets(told: data_pb2.ListOffsetsResponse) -> list[FoundOffset]:
    return [
        FoundOffset(
            TopicPartition(each.topic, each.partition),
            error_code(each.error),
            each.offset,
            each.timestamp_ms,
            each.leader_epoch,
        )
        for each in told.partitions
    ]


def _found_coordinator(told: Any) -> FoundCoordinator:
    (found,) = told.coordinators
    return FoundCoordinator(error_code(found.error), found.message, found.broker_id)


def _produce_request(request: ProduceRequest, correlation_id: int) -> data_pb2.ProduceRequest:
    message = data_pb2.ProduceRequest(
        correlation_id=correlation_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        transactional_id=request.transactional_id or "",
    )
    for each in request.partitions:
        message.partitions.add(
            topic_id=each.topic_id,
            topic="" if each.topic_id else each.topic,
            partition=each.partition,
            records=bytes(each.records),
        )
    return message


def _produce_answers(response: data_pb2.ProduceResponse) -> list[ProduceAnswer]:
    return [
        ProduceAnswer(
            each.topic,
            each.topic_id,
            each.partition,
            error_code(each.error),
            each.message,
            each.base_offset,
            each.log_append_time_ms,
            Leader(each.leader, each.leader_epoch),
        )
        for each in response.partitions
    ]


def _fetch_request(request: FetchRequest, correlation_id: int) -> data_pb2.FetchRequest:
    message = data_pb2.FetchRequest(
        correlation_id=correlation_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        rack=request.rack,
        isolation_level=int(request.is_committed),
    )
    for each in request.partitions:
        message.partitions.add(
            topic_id=each.topic_id,
            topic="" if each.topic_id else each.topic,
            partition=each.partition,
            fetch_offset=each.fetch_offset,
            current_leader_epoch=each.current_leader_epoch,
            last_fetched_epoch=each.last_fetched_epoch,
            max_bytes=each.max_bytes,
        )
    return message


def _fetch_answers(response: data_pb2.FetchResponse) -> list[FetchAnswer]:
    return [
        FetchAnswer(
            each.topic,
            each.topic_id,
            each.partition,
            error_code(each.error),
            each.high_watermark,
            each.last_stable_offset,
            each.log_start_offset,
            each.records,
            Leader(each.leader, each.leader_epoch),
            each.diverging_epoch,
            each.diverging_end_offset,
            each.preferred_read_replica if each.HasField("preferred_read_replica") else -1,
            [
                AbortedTransaction(aborted.producer_id, aborted.first_offset)
                for aborted in each.aborted_transactions
            ],
        )
        for each in response.partitions
    ]
