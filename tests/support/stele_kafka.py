"""The Kafka port of a broker of ``tests.support.stele``. It has the same log behind it as gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.kafka.frames import FrameReader
from stele.wire.kafka.messages import (
    api_versions,
    describe_cluster,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
    txn_offset_commit,
)
from stele.wire.v1 import data_pb2, groups_pb2, transactions_pb2
from stele.world import RpcError

if TYPE_CHECKING:
    from tests.support.stele import FakeCluster

SERVED: tuple[kafka.Api[Any, Any], ...] = (
    api_versions.API,
    describe_cluster.API,
    end_txn.API,
    fetch.API,
    find_coordinator.API,
    init_producer_id.API,
    list_offsets.API,
    metadata.API,
    produce.API,
    txn_offset_commit.API,
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
            answer = await ANSWERS[type(request)](self._cluster, self.broker, request)
            if answer is _BREAK:
                self.abort()
            elif answer is _SILENCE:
                return
            elif answer is not _WITHOUT_ANSWER:
                encoded = kafka.encode_response(
                    header.api_key, header.api_version, header.correlation_id, answer
                )
                self._answers.put_nowait(b"".join(encoded))

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
            for task in self._tasks:
                task.cancel()
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    close = abort


# -------------------------------------------------------------------------------- answers


async def _api_versions(cluster: FakeCluster, broker: int, request: Any) -> Any:
    return api_versions.ApiVersionsResponse(
        api_keys=[
            api_versions.ApiVersion(
                each.key, each.min_version, cluster.kafka_versions.get(each.key, each.max_version)
            )
            for each in SERVED
        ],
        finalized_features=[api_versions.FinalizedFeatureKey("transaction.version", 2, 2)],
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
    response = metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(each, "127.0.0.1", 9000 + each)
            for each, alive in cluster.alive.items()
            if alive
        ],
        cluster_id="fake",
        controller_id=1,
    )
    if request.topics == []:
        return response
    names = [each.name or "" for each in request.topics or ()]
    told = cluster.metadata(data_pb2.MetadataRequest(topics=names))
    response.topics = [
        metadata.MetadataResponseTopic(
            error_code=topic.error,
            name=topic.name,
            topic_id=topic.topic_id or kafka.ZERO_UUID,
            partitions=[
                metadata.MetadataResponsePartition(
                    0, each.partition, each.leader, each.leader_epoch
                )
                for each in topic.partitions
            ],
        )
        for topic in told.topics
    ]
    return response


async def _init_producer_id(
    cluster: FakeCluster, broker: int, request: init_producer_id.InitProducerIdRequest
) -> Any:
    if broker in cluster.frozen:
        return _SILENCE
    if request.transactional_id is not None:
        return _init_transactions(cluster, broker, request)
    cluster.next_producer_id += 1
    return init_producer_id.InitProducerIdResponse(producer_id=cluster.next_producer_id)


def _init_transactions(
    cluster: FakeCluster, broker: int, request: init_producer_id.InitProducerIdRequest
) -> Any:
    asked = transactions_pb2.InitTransactionsRequest(
        transactional_id=request.transactional_id or "",
        transaction_timeout_ms=request.transaction_timeout_ms,
        enable_two_phase_commit=request.enable2_pc,
        keep_prepared_transaction=request.keep_prepared_txn,
    )
    if request.producer_id >= 0:
        asked.producer_id, asked.producer_epoch = request.producer_id, request.producer_epoch
    told = _other(cluster, broker, "InitTransactions", asked)
    if told is None:
        return _BREAK
    return init_producer_id.InitProducerIdResponse(
        error_code=told.error,
        producer_id=told.producer_id,
        producer_epoch=told.producer_epoch,
        ongoing_txn_producer_id=told.ongoing_producer_id,
        ongoing_txn_producer_epoch=told.ongoing_producer_epoch,
    )


async def _end_txn(cluster: FakeCluster, broker: int, request: end_txn.EndTxnRequest) -> Any:
    asked = transactions_pb2.EndTransactionRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
    )
    told = _other(cluster, broker, "EndTransaction", asked)
    if told is None:
        return _BREAK
    return end_txn.EndTxnResponse(
        error_code=told.error, producer_id=told.producer_id, producer_epoch=told.producer_epoch
    )


async def _txn_offset_commit(
    cluster: FakeCluster, broker: int, request: txn_offset_commit.TxnOffsetCommitRequest
) -> Any:
    asked = transactions_pb2.CommitTransactionOffsetsRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
    )
    for topic in request.topics:
        for each in topic.partitions:
            asked.partitions.add(
                topic=topic.name, partition=each.partition_index, offset=each.committed_offset
            )
    told = _other(cluster, broker, "CommitTransactionOffsets", asked)
    if told is None:
        return _BREAK
    errors = {(each.topic, each.partition): each.error for each in told.partitions}
    return txn_offset_commit.TxnOffsetCommitResponse(
        topics=[
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    txn_offset_commit.TxnOffsetCommitResponsePartition(
                        each.partition_index,
                        told.error or errors[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _find_coordinator(
    cluster: FakeCluster, broker: int, request: find_coordinator.FindCoordinatorRequest
) -> Any:
    keys = request.coordinator_keys or [request.key]
    if request.key_type == 0:
        asked: Any = groups_pb2.FindCoordinatorRequest(groups=keys)
        told = _other(cluster, broker, "FindCoordinator", asked)
    else:
        asked = transactions_pb2.FindTransactionCoordinatorsRequest(transactional_ids=keys)
        told = _other(cluster, broker, "FindTransactionCoordinators", asked)
    if told is None:
        return _BREAK
    first = told.coordinators[0]
    return find_coordinator.FindCoordinatorResponse(
        error_code=first.error,
        node_id=first.broker_id,
        coordinators=[
            find_coordinator.Coordinator(key, each.broker_id, error_code=each.error)
            for key, each in zip(keys, told.coordinators, strict=True)
        ],
    )


def _other(cluster: FakeCluster, broker: int, method: str, request: Any) -> Any:
    """What a test answers over gRPC. None: nothing."""
    try:
        return cluster.others[method](broker, request.SerializeToString())
    except RpcError:
        return None


async def _list_offsets(
    cluster: FakeCluster, broker: int, request: list_offsets.ListOffsetsRequest
) -> Any:
    if broker in cluster.frozen:
        return _SILENCE
    asked = data_pb2.ListOffsetsRequest(isolation_level=request.isolation_level)
    for topic in request.topics:
        for each in topic.partitions:
            asked.partitions.add(
                topic=topic.name,
                partition=each.partition_index,
                current_leader_epoch=each.current_leader_epoch,
                timestamp_ms=each.timestamp,
            )
    return list_offsets.ListOffsetsResponse(
        topics=[
            list_offsets.ListOffsetsTopicResponse(
                each.topic,
                [
                    list_offsets.ListOffsetsPartitionResponse(
                        each.partition,
                        each.error,
                        each.timestamp_ms,
                        each.offset,
                        each.leader_epoch,
                    )
                ],
            )
            for each in cluster.list_offsets(broker, asked).partitions
        ]
    )


async def _produce(cluster: FakeCluster, broker: int, request: produce.ProduceRequest) -> Any:
    asked = data_pb2.ProduceRequest(
        acks=request.acks, transactional_id=request.transactional_id or ""
    )
    for topic in request.topic_data:
        for each in topic.partition_data:
            records = bytes(cast(Any, each.records))
            asked.partitions.add(
                topic_id=_id_of(cluster, topic.topic_id, topic.name),
                partition=each.index,
                records=records,
            )
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
                        error_code=each.error,
                        base_offset=each.base_offset,
                        log_append_time_ms=each.log_append_time_ms,
                        error_message=each.message or None,
                        current_leader=_hint(each, produce.LeaderIdAndEpoch),
                    )
                ],
            )
            for each in told.partitions
        ]
    )


async def _fetch(cluster: FakeCluster, broker: int, request: fetch.FetchRequest) -> Any:
    asked = data_pb2.FetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        rack=request.rack_id,
    )
    for topic in request.topics:
        for each in topic.partitions:
            asked.partitions.add(
                topic_id=_id_of(cluster, topic.topic_id, topic.topic),
                partition=each.partition,
                fetch_offset=each.fetch_offset,
                current_leader_epoch=each.current_leader_epoch,
                last_fetched_epoch=each.last_fetched_epoch,
                max_bytes=each.partition_max_bytes,
            )
    told = await cluster.fetch(broker, asked)
    return fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse(
                _name_of(cluster, each.topic_id), each.topic_id, [_fetched(each)]
            )
            for each in told.partitions
        ]
    )


def _id_of(cluster: FakeCluster, topic_id: bytes, name: str) -> bytes:
    """Older versions name topics by their names."""
    return cluster.topics[name].topic_id if name else topic_id


def _name_of(cluster: FakeCluster, topic_id: bytes) -> str:
    return next((name for name, each in cluster.topics.items() if each.topic_id == topic_id), "")


def _fetched(told: data_pb2.FetchResponse.Partition) -> fetch.PartitionData:
    diverging = None
    if told.diverging_epoch >= 0:
        diverging = fetch.EpochEndOffset(told.diverging_epoch, told.diverging_end_offset)
    return fetch.PartitionData(
        partition_index=told.partition,
        error_code=told.error,
        high_watermark=told.high_watermark,
        last_stable_offset=told.last_stable_offset,
        log_start_offset=told.log_start_offset,
        diverging_epoch=diverging,
        current_leader=_hint(told, fetch.LeaderIdAndEpoch),
        aborted_transactions=[
            fetch.AbortedTransaction(each.producer_id, each.first_offset)
            for each in told.aborted_transactions
        ],
        preferred_read_replica=(
            told.preferred_read_replica if told.HasField("preferred_read_replica") else -1
        ),
        records=told.records,
    )


def _hint(told: Any, make: Callable[[int, int], Any]) -> Any:
    """Only a refusal names the leader."""
    if told.leader < 0 or told.error == ErrorCode.NONE:
        return None
    return make(told.leader, told.leader_epoch)


ANSWERS: dict[type[kafka.Struct], Callable[[FakeCluster, int, Any], Any]] = {
    api_versions.ApiVersionsRequest: _api_versions,
    describe_cluster.DescribeClusterRequest: _describe_cluster,
    metadata.MetadataRequest: _metadata,
    init_producer_id.InitProducerIdRequest: _init_producer_id,
    end_txn.EndTxnRequest: _end_txn,
    find_coordinator.FindCoordinatorRequest: _find_coordinator,
    list_offsets.ListOffsetsRequest: _list_offsets,
    txn_offset_commit.TxnOffsetCommitRequest: _txn_offset_commit,
    produce.ProduceRequest: _produce,
    fetch.FetchRequest: _fetch,
}
