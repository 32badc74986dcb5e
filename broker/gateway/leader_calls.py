"""Single requests to the leaders of partitions, for publishers: write this, how far have I come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from stele.cluster.broker_stream import BrokerStream
from stele.cluster.grpc_plane import call, channel_of
from stele.cluster.plane import Leader, UnsentError, error_code
from stele.cluster.view import ClusterView
from stele.config import ClientConfig, ClientWorld
from stele.errors import ApiError, ErrorCode, SteleError, UnreachableError
from stele.ids import TopicPartition
from stele.wire.v1 import data_pb2
from stele.world import RpcCode, RpcError

ATTEMPT_S: Final = 5.0
"""After this time without an answer a leader may be gone: its successor is looked for."""

_STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


ProduceStream = BrokerStream[data_pb2.ProduceResponse, data_pb2.ProduceResponse]


class LeaderCalls:
    """Asks once. Whoever calls decides what a failure means, and when to try again."""

    def __init__(self, world: ClientWorld, bootstrap_servers: Callable[[], str]) -> None:
        """``bootstrap_servers``: where brokers are now."""
        self._world = world
        self._bootstrap_servers = bootstrap_servers
        self._made: ClusterView | None = None
        self._streams: dict[int, ProduceStream] = {}
        self._closing: dict[asyncio.Task[None], None] = {}
        self._wanted: dict[str, int] = {}  # topics, and how many lanes write to each

    def want(self, topic: str) -> None:
        """A lane writes to the topic from now on, until ``unwant``."""
        self._wanted[topic] = self._wanted.get(topic, 0) + 1
        self._view.want(topic)

    def unwant(self, topic: str) -> None:
        self._wanted[topic] -= 1
        if not self._wanted[topic]:
            del self._wanted[topic]
            self._view.unwant(topic)

    async def describe(
        self, name: TopicPartition, producer_id: int
    ) -> data_pb2.DescribeProducerResponse:
        """What the leader knows of a producer. Raises ApiError, RpcError, UnreachableError."""
        leader, topic_id = await self._leader(name)
        request = data_pb2.DescribeProducerRequest(
            topic_id=topic_id,
            partition=name.partition,
            producer_id=producer_id,
            current_leader_epoch=leader.epoch,
        )
        try:
            answer = await self._view.ask(
                leader.broker_id,
                call(
                    "/stele.v1.Data/DescribeProducer",
                    request,
                    data_pb2.DescribeProducerResponse.FromString,
                ),
                timeout_s=ATTEMPT_S,
            )
        except RpcError:
            self._view.refresh_soon()
            raise
        self._raise_error(answer.error, answer.message)
        return answer

    async def produce(
        self, name: TopicPartition, batch: bytes
    ) -> data_pb2.ProduceResponse.Partition:
        """Write a batch with acks=all. Raises ApiError, UnreachableError, UnsentError if it was not
        sent, or RpcError if there was no answer."""
        leader, topic_id = await self._leader(name)
        stream = self._stream(leader.broker_id)
        request = data_pb2.ProduceRequest(
            correlation_id=stream.next_correlation_id(),
            acks=-1,
            timeout_ms=int(ATTEMPT_S * 1000),
        )
        request.partitions.add(topic_id=topic_id, partition=name.partition, records=batch)
        answer = stream.request(request.correlation_id, request.SerializeToString())
        try:
            async with asyncio.timeout(2 * ATTEMPT_S):
                (part,) = (await answer).partitions
        except TimeoutError:
            self._leave(leader.broker_id, stream)
            self._view.refresh_soon()
            raise RpcError(RpcCode.DEADLINE_EXCEEDED, "the leader is silent") from None
        except RpcError:
            self._leave(leader.broker_id, stream)
            self._view.refresh_soon()
            raise
        except asyncio.CancelledError:
            stream.forget(request.correlation_id)
            raise
        self._raise_error(part.error, part.message)
        # No leader of an earlier epoch is asked from now on: it may lack this batch.
        self._view.hint(name, topic_id, Leader(part.leader, part.leader_epoch))
        return part

    async def close(self) -> None:
        for broker_id, stream in list(self._streams.items()):
            self._leave(broker_id, stream)
        await asyncio.gather(*self._closing)
        if self._made is not None:
            await self._made.close()

    @property
    def _view(self) -> ClusterView:
        if self._made is None:
            config = ClientConfig(
                bootstrap_servers=self._bootstrap_servers(),
                client_id="stele-gateway",
                on_wait=lambda reason: None,
            )
            self._made = ClusterView(config, self._world)
        return self._made

    async def _leader(self, name: TopicPartition) -> tuple[Leader, bytes]:
        if self._view.leader(name) is None or self._view.is_stale:
            try:
                async with asyncio.timeout(ATTEMPT_S):
                    await self._view.refresh()
            except TimeoutError:
                raise UnreachableError("no broker has described the topic in time") from None
        leader, topic = self._view.leader(name), self._view.topic(name.topic)
        if leader is None or topic is None:
            code = self._view.topic_error(name.topic) or ErrorCode.LEADER_NOT_AVAILABLE
            raise ApiError(code, f"{name} has no leader that is known")
        return leader, topic.topic_id

    def _stream(self, broker_id: int) -> ProduceStream:
        stream = self._streams.get(broker_id)
        if stream is None or stream.is_broken:
            if stream is not None:
                self._leave(broker_id, stream)
            try:
                channel = channel_of(self._view.link(broker_id))
            except RpcError as error:
                raise UnsentError(error.code, error.detail) from None
            stream = self._streams[broker_id] = BrokerStream(
                channel,
                "/stele.v1.Data/Produce",
                data_pb2.ProduceResponse.FromString,
                lambda response: response,
                f"broker {broker_id}",
            )
        return stream

    def _leave(self, broker_id: int, stream: ProduceStream) -> None:
        if self._streams.get(broker_id) is stream:
            del self._streams[broker_id]
        task = asyncio.get_running_loop().create_task(stream.close())
        self._closing[task] = None
        task.add_done_callback(lambda done: self._closing.pop(done, None))

    def _raise_error(self, number: int, message: str) -> None:
        code = error_code(number)
        if code is ErrorCode.NONE:
            return
        if code in _STALE:
            self._view.refresh_soon()
        raise ApiError(code, message)


FAILURES: Final = (SteleError, RpcError)
"""What calls raise."""
