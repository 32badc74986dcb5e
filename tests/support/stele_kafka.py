"""The Kafka port of a broker of ``tests.support.stele``: its values in Kafka's messages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from stele.cluster.kafka_connection import STELES_FEATURE
from stele.cluster.messages import (
    FetchAnswer,
    FetchedPart,
    FetchRequest,
    Leader,
    OffsetQuestion,
    ProducedPart,
    ProduceRequest,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire import kafka
from stele.wire.kafka.frames import FrameReader
from stele.wire.kafka.messages import (
    api_versions,
    describe_cluster,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from stele.world import RpcError

if TYPE_CHECKING:
    from tests.support.stele import FakeCluster

SERVED: tuple[kafka.Api[Any, Any], ...] = (
    api_versions.API,
    describe_cluster.API,
    fetch.API,
    find_coordinator.API,
    init_producer_id.API,
    list_offsets.API,
    metadata.API,
    produce.API,
)
_WITHOUT_ANSWER = object()
_SILENCE = object()
_BREAK = object()


class FakeTransport(asyncio.Transport):
    """A connection. Its requests are answered in their order, as by a broker: a Fetch that waits,
    or a request that is never answered, holds back the later ones."""

    def __init__(
        self, cluster: FakeCluster, broker: int, protocol: asyncio.BufferedProtocol
    ) -> None:
        super().__init__()
        self.broker = broker
        self._cluster = cluster
        self._protocol = protocol
        self._reader = FrameReader(1 << 26)
        self._closed = False
        loop = asyncio.get_running_loop()
        self._requests: asyncio.Queue[tuple[float, bytearray]] = asyncio.Queue()
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks = [loop.create_task(self._handle()), loop.create_task(self._answer())]
        cluster.connections.append(self)
        protocol.connection_made(self)

    def writelines(self, buffers: Any) -> None:
        data = memoryview(b"".join(buffers))
        while data:
            room = self._reader.get_buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            data = data[size:]
            self._reader.received(size)
            while (frame := self._reader.next_frame()) is not None:
                self._requests.put_nowait((asyncio.get_running_loop().time(), frame))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass  # a write is taken at once

    async def _handle(self) -> None:
        while True:
            sent_at, frame = await self._requests.get()
            await asyncio.sleep(sent_at + 0.001 - asyncio.get_running_loop().time())
            header, request = kafka.decode_request(frame)
            answer = await self._answer_to(request)
            if answer is _BREAK:
                self.abort()
            elif answer is _SILENCE:
                return
            elif answer is not _WITHOUT_ANSWER:
                encoded = kafka.encode_response(
                    header.api_key, header.api_version, header.correlation_id, answer
                )
                self._answers.put_nowait(b"".join(encoded))

    async def _answer_to(self, request: kafka.Struct) -> Any:
        """The answer, or what happens instead of one."""
        cluster, other = self._cluster, self._cluster.kafka_others.get(type(request))
        if other is None:
            return await ANSWERS[type(request)](cluster, self.broker, request)
        if self.broker in cluster.frozen:
            return _SILENCE
        cluster.asking = self
        try:
            answer = other[1](self.broker, request)
            return await answer if inspect.isawaitable(answer) else answer
        except RpcError:
            return _BREAK

    async def _answer(self) -> None:
        while True:
            data = memoryview(await self._answers.get())
            await asyncio.sleep(self._cluster.stream_answers_take_s)
            while data and not self._closed:
                room = cast(Any, self._protocol.get_buffer(-1))
                size = min(len(room), len(data))
                room[:size] = data[:size]
                data = data[size:]
                self._protocol.buffer_updated(size)

    def is_closing(self) -> bool:
        return self._closed

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._cluster.on_disconnect(self)
            for task in self._tasks:
                task.cancel()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    close = abort


# -------------------------------------------------------------------------------- answers


async def _api_versions(cluster: FakeCluster, broker: int, request: Any) -> Any:
    served = {*SERVED, *(api for api, _ in cluster.kafka_others.values())}
    features = {"transaction.version": cluster.transaction_version}
    if not cluster.is_kafkas:
        features[STELES_FEATURE] = 1
    return api_versions.ApiVersionsResponse(
        api_keys=[
            api_versions.ApiVersion(
                each.key, each.min_version, cluster.kafka_versions.get(each.key, each.max_version)
            )
            for each in sorted(served, key=lambda api: api.key)
        ],
        finalized_features=[
            api_versions.FinalizedFeatureKey(name, level, level)
            for name, level in features.items()
            if level
        ],
    )


async def _describe_cluster(cluster: FakeCluster, broker: int, request: Any) -> Any:
    return describe_cluster.DescribeClusterResponse(
        endpoint_type=3,
        cluster_id="fake",
        controller_id=1,
        brokers=[
            describe_cluster.DescribeClusterBroker(each, "127.0.0.1", 9100 + each)
            for each, alive in cluster.alive.items()
            if alive
        ],
    )


async def _metadata(cluster: FakeCluster, broker: int, request: metadata.MetadataRequest) -> Any:
    if broker in cluster.frozen:
        return _SILENCE
    if request.topics == []:
        requests = cluster.metadata_requests
        news = cluster.metadata([])
        cluster.metadata_requests = requests  # only requests for topics are counted
    else:
        names = None if request.topics is None else [each.name or "" for each in request.topics]
        news = cluster.metadata(names)
    return metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(each, *address[:2])
            for each, address in news.brokers.items()
        ],
        cluster_id=news.cluster_id,
        controller_id=news.controller_id,
        topics=[
            metadata.MetadataResponseTopic(
                topic.code,
                topic.name,
                topic.topic_id or kafka.ZERO_UUID,
                partitions=[
                    metadata.MetadataResponsePartition(0, number, *leader)
                    for number, leader in topic.partitions
                ],
            )
            for topic in news.topics
        ],
        metadata_offset=news.metadata_offset,
    )


async def _init_producer_id(
    cluster: FakeCluster, broker: int, request: init_producer_id.InitProducerIdRequest
) -> Any:
    if broker in cluster.frozen:
        return _SILENCE
    cluster.next_producer_id += 1
    return init_producer_id.InitProducerIdResponse(producer_id=cluster.next_producer_id)


async def _find_coordinator(
    cluster: FakeCluster, broker: int, request: find_coordinator.FindCoordinatorRequest
) -> Any:
    """There is none, unless a test says so."""
    if broker in cluster.frozen:
        return _SILENCE
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return find_coordinator.FindCoordinatorResponse(
        coordinators=[
            find_coordinator.Coordinator(each, -1, error_code=code)
            for each in request.coordinator_keys
        ]
    )


async def _list_offsets(
    cluster: FakeCluster, broker: int, request: list_offsets.ListOffsetsRequest
) -> Any:
    if broker in cluster.frozen:
        return _SILENCE
    asked = [
        OffsetQuestion(
            TopicPartition(topic.name, each.partition_index),
            each.current_leader_epoch,
            each.timestamp,
        )
        for topic in request.topics
        for each in topic.partitions
    ]
    found = cluster.list_offsets(broker, asked, is_committed=bool(request.isolation_level))
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                name.topic,
                [
                    list_offsets.ListOffsetsPartitionResponse(
                        name.partition, code, timestamp_ms, offset, leader_epoch
                    )
                ],
            )
            for name, code, offset, timestamp_ms, leader_epoch in found
        ]
    )


async def _produce(cluster: FakeCluster, broker: int, request: produce.ProduceRequest) -> Any:
    asked = ProduceRequest(request.acks, request.timeout_ms, request.transactional_id, [])
    for topic in request.topic_data:
        topic_id = _id_of(cluster, topic.topic_id, topic.name)
        for each in topic.partition_data:
            records = bytes(cast(Any, each.records))
            asked.partitions.append(ProducedPart(topic.name, topic_id, each.index, records))
    told, breaks = cluster.produce(broker, asked)
    if breaks:
        return _BREAK
    if told is None:
        return _WITHOUT_ANSWER if request.acks == 0 else _SILENCE
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                _name_of(cluster, each.topic_id),
                each.topic_id,
                partition_responses=[
                    produce.PartitionProduceResponse(
                        index=each.partition,
                        error_code=each.code,
                        base_offset=each.base_offset,
                        log_append_time_ms=each.log_append_time_ms,
                        error_message=each.message or None,
                        current_leader=_leader(each.leader, produce.LeaderIdAndEpoch),
                    )
                ],
            )
            for each in told
        ]
    )


async def _fetch(cluster: FakeCluster, broker: int, request: fetch.FetchRequest) -> Any:
    asked = FetchRequest(
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.rack_id,
        bool(request.isolation_level),
        [
            FetchedPart(
                topic.topic,
                _id_of(cluster, topic.topic_id, topic.topic),
                each.partition,
                each.fetch_offset,
                each.current_leader_epoch,
                each.last_fetched_epoch,
                each.partition_max_bytes,
            )
            for topic in request.topics
            for each in topic.partitions
        ],
    )
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                _name_of(cluster, each.topic_id), each.topic_id, [_fetched(each)]
            )
            for each in await cluster.fetch(broker, asked)
        ]
    )


def _id_of(cluster: FakeCluster, topic_id: bytes, name: str) -> bytes:
    """Older versions name topics by their names."""
    return cluster.topics[name].topic_id if name else topic_id


def _name_of(cluster: FakeCluster, topic_id: bytes) -> str:
    return next((name for name, each in cluster.topics.items() if each.topic_id == topic_id), "")


def _fetched(told: FetchAnswer) -> fetch.PartitionData:
    diverging = None
    if told.diverging_epoch >= 0:
        diverging = fetch.EpochEndOffset(told.diverging_epoch, told.diverging_end_offset)
    return fetch.PartitionData(
        partition_index=told.partition,
        error_code=told.code,
        high_watermark=told.high_watermark,
        last_stable_offset=told.last_stable_offset,
        log_start_offset=told.log_start_offset,
        diverging_epoch=diverging,
        current_leader=_leader(told.leader, fetch.LeaderIdAndEpoch),
        aborted_transactions=[
            fetch.AbortedTransaction(*each) for each in told.aborted_transactions
        ],
        preferred_read_replica=told.preferred_read_replica,
        records=cast(Any, told.records),
    )


def _leader(told: Leader, make: Callable[[int, int], Any]) -> Any:
    return None if told.broker_id < 0 else make(*told)


ANSWERS: dict[type[kafka.Struct], Callable[[FakeCluster, int, Any], Any]] = {
    api_versions.ApiVersionsRequest: _api_versions,
    describe_cluster.DescribeClusterRequest: _describe_cluster,
    metadata.MetadataRequest: _metadata,
    init_producer_id.InitProducerIdRequest: _init_producer_id,
    find_coordinator.FindCoordinatorRequest: _find_coordinator,
    list_offsets.ListOffsetsRequest: _list_offsets,
    produce.ProduceRequest: _produce,
    fetch.FetchRequest: _fetch,
}
