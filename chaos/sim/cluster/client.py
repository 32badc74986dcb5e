"""A small client for scenarios. It does not retry behind the caller's back, and it remembers
acknowledged records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message

from metadata.configs import ConfigResource
from runtime.administration.changes import change_of
from stele.addresses import Address
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchBuilder, batches, decode
from stele.wire.kafka.messages import fetch, metadata, produce
from stele.wire.v1 import admin_pb2
from stele.world import Channel, RpcError
from world.world import World

_CONNECT_TIMEOUT_S = 5.0
_ADMIN_TIMEOUT_S = 30.0
_LEADER_ALONE, _ANY_REPLICA = (
    10,
    12,
)  # versions of Fetch: followers refuse the first, and serve the second
FETCH_MAX_WAIT_MS = 500  # the longest time that a read waits for records


class Promise(NamedTuple):
    """A record whose writing was acknowledged with acks=all."""

    topic: str
    partition: int
    offset: int
    value: bytes


class SimClient:
    """Produces and fetches over the Kafka protocol, administrates over gRPC."""

    def __init__(self, world: World, brokers: Mapping[int, tuple[str, int, int]]) -> None:
        """``brokers``: (host, Kafka port, gRPC port) by id."""
        self.acknowledged: list[Promise] = []
        self.sent = 0
        # Called with the broker that acknowledged an acks=all write, and the seconds it took.
        self.on_acknowledged: Callable[[int, float], None] = lambda broker, waited_s: None
        self._world = world
        self._brokers = brokers
        self._connections: dict[int, KafkaConnection] = {}
        self._deletions = 0
        self._channels: dict[int, Channel] = {}

    # -------------------------------------------------------------------------------- produce

    async def produce(
        self,
        topic: str,
        value: bytes,
        *,
        broker: int,
        partition: int = 0,
        acks: int = -1,
        timeout_s: float = 10.0,
        topic_id: bytes | None = None,
        times: int = 1,
    ) -> int:
        """Make one attempt to write a batch at one broker, and return its offset. The batch holds
        the record ``times`` times. With ``topic_id``, write only to the topic of that id, and do
        not note the record in ``acknowledged``.

        Raises ApiError (the broker refused, or no answer came: the outcome is unknown), OSError.
        """
        builder = BatchBuilder()
        for _ in range(times):
            builder.append(None, value, timestamp_ms=self._world.clock.time_ms())
        request = produce.ProduceRequest(
            acks=acks,
            timeout_ms=int(timeout_s * 1000),
            topic_data=[
                produce.TopicProduceData(
                    name=topic if topic_id is None else "",
                    topic_id=topic_id or bytes(16),
                    partition_data=[produce.PartitionProduceData(partition, builder.build())],
                )
            ],
        )
        connection = await self.connection(broker)
        self.sent += 1
        sent_at = self._world.clock.monotonic()
        # Version 12 is the last one that names topics.
        version = connection.version_of(produce.API, at_most=12 if topic_id is None else None)
        response = await connection.request(
            produce.API, version, request, timeout_s=timeout_s + 1.0
        )
        answer = response.responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(answer.error_code), answer.error_message or "")
        if acks == -1:
            self.on_acknowledged(broker, self._world.clock.monotonic() - sent_at)
        if acks == -1 and topic_id is None:
            self.acknowledged.append(Promise(topic, partition, answer.base_offset, value))
        return answer.base_offset

    async def produce_until_acknowledged(
        self, topic: str, value: bytes, *, partition: int = 0, give_up_s: float = 60.0
    ) -> int:
        """Try at the present leader until one attempt is acknowledged.

        Every attempt adds its own number to the value. So a record written by an attempt without an
        answer does not look like a duplicate.
        """
        deadline = self._world.clock.monotonic() + give_up_s
        attempt = 0
        while True:
            attempt += 1
            try:
                leader = await self.find_leader(topic, partition)
                return await self.produce(
                    topic,
                    value + b"/%d" % attempt,
                    broker=leader,
                    partition=partition,
                    timeout_s=3.0,
                )
            except (ApiError, OSError) as error:
                if self._world.clock.monotonic() > deadline:
                    raise AssertionError(f"never acknowledged: {value!r}") from error
                await asyncio.sleep(0.05)

    # ---------------------------------------------------------------------------------- fetch

    async def fetch_all(
        self, topic: str, partition: int = 0, *, broker: int | None = None
    ) -> list[tuple[int, bytes]]:
        """Every record up to the high watermark, as (offset, value), from the leader."""
        leader = await self.find_leader(topic, partition) if broker is None else broker
        records: list[tuple[int, bytes]] = []
        offset = 0
        while True:
            answer = await self._fetch(topic, partition, offset, leader)
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention has deleted some
                records, offset = [], answer.log_start_offset
                continue
            found, offset = records_of(answer, offset)
            records += found
            if offset >= answer.high_watermark:
                return records

    async def fetch_from_any(
        self, topic: str, partition: int, offset: int, *, broker: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """The records that a leader or follower gives a consumer from ``offset`` on, as (offset,
        value), and the offset to go on at. Raises ApiError, OSError."""
        answer = await self._fetch(topic, partition, offset, broker, version=_ANY_REPLICA)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return [], answer.log_start_offset
        return records_of(answer, offset)

    async def _fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        broker: int,
        version: int = _LEADER_ALONE,
    ) -> fetch.PartitionData:
        connection = await self.connection(broker)
        version = connection.version_of(fetch.API, at_most=version)
        request = consumer_fetch(
            topic, partition, offset, max_wait_ms=FETCH_MAX_WAIT_MS, max_bytes=1 << 20
        )
        response = await connection.request(fetch.API, version, request, timeout_s=10.0)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code))
        answer = response.responses[0].partitions[0]
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and offset < answer.log_start_offset:
            return answer
        if error is not ErrorCode.NONE:
            raise ApiError(error)
        return answer

    async def read_back(self, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
        """``fetch_all``, repeated while there is no leader to ask."""
        for _ in range(600):
            try:
                return await self.fetch_all(topic, partition)
            except (ApiError, OSError):
                await asyncio.sleep(0.1)
        raise AssertionError(f"{topic}-{partition} cannot be read")

    async def check_promises(self, topic: str, partition: int = 0) -> list[tuple[int, bytes]]:
        """Read everything back. Asserts that each acknowledged record is at its offset, once."""
        records = await self.read_back(topic, partition)
        found = dict(records)
        assert [offset for offset, _ in records] == list(range(len(records)))
        for promise in self.acknowledged:
            if (promise.topic, promise.partition) == (topic, partition):
                assert found.get(promise.offset) == promise.value, (
                    f"{promise} was acknowledged; there is {found.get(promise.offset)!r}"
                )
        values = [value for _, value in records]
        assert len(set(values)) == len(values), "a record is there twice"
        return records

    # --------------------------------------------------------------------------------- cluster

    async def find_leader(self, topic: str, partition: int = 0) -> int:
        """Ask any broker that answers. Raises ApiError LEADER_NOT_AVAILABLE without a leader."""
        leader, _ = await self.find_place(topic, partition)
        return leader

    async def find_place(self, topic: str, partition: int = 0) -> tuple[int, bytes]:
        """The leader, and the topic's id. Raises as ``find_leader``."""
        problem: Exception = ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
        for broker in self._brokers:
            try:
                connection = await self.connection(broker)
                request = metadata.MetadataRequest(
                    topics=[metadata.MetadataRequestTopic(name=topic)],
                    allow_auto_topic_creation=False,
                )
                version = connection.version_of(metadata.API)
                answer = await connection.request(metadata.API, version, request, timeout_s=2.0)
            except (ApiError, OSError) as error:
                problem = error
                continue
            code = ErrorCode(answer.topics[0].error_code)
            if code is not ErrorCode.NONE:
                problem = ApiError(code, f"{topic} at broker {broker}")
                continue
            for state in answer.topics[0].partitions:
                if state.partition_index == partition and state.leader_id >= 0:
                    return state.leader_id, answer.topics[0].topic_id
            problem = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        raise problem

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 3,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        request = admin_pb2.CreateTopicsRequest(
            topics=[
                admin_pb2.NewTopic(
                    name=name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    configs=configs or {},
                )
            ]
        )
        _check(await self.change(request), "topics")

    async def delete_topic(self, name: str) -> None:
        """Delete a topic. All brokers are asked with one request id: a broker that did not answer
        may pass the request on after the topic was made anew. By the id the controller knows that
        it was decided before."""
        self._deletions += 1
        request_id = b"scenario" + self._deletions.to_bytes(8)
        request = admin_pb2.DeleteTopicsRequest(names=[name], request_id=request_id)
        _check(await self.change(request), "topics")

    async def reassign(self, topic: str, partition: int, target: Sequence[int] | None) -> None:
        """Move a partition to these brokers, or (None) cancel its move.

        Returns when the controller has decided, before the move is done. Raises ApiError if the
        controller refuses or the outcome is unknown, RpcError if no broker answers.
        """
        wish = admin_pb2.AlterPartitionReassignmentsRequest.Partition(
            topic=topic, partition=partition
        )
        if target is not None:
            wish.target.SetInParent()
            wish.target.ids.extend(target)
        request = admin_pb2.AlterPartitionReassignmentsRequest(partitions=[wish])
        _check(await self.change(request), "partitions")

    async def alter_configs(
        self, resource: ConfigResource, values: Mapping[str, str | None]
    ) -> None:
        """Set keys of a topic or of brokers; None resets a key. Raises as ``reassign``."""
        request = admin_pb2.AlterConfigsRequest()
        changed = request.resources.add()
        changed.resource.type, changed.resource.name = resource.type, resource.name
        for name, value in values.items():
            changed.changes.add(name=name, value=value)
        _check(await self.change(request), "resources")

    async def change(self, request: Message) -> Any:
        """The answer to a change. Raises RpcError if no broker answers."""
        change = change_of(request)
        data = await self.administrate(change.name, request.SerializeToString())
        return change.response.FromString(data)

    async def administrate(self, method: str, request: bytes) -> bytes:
        """Call a method of the gRPC service at one broker after another until one answers. Raises
        RpcError if none does."""
        problem: Exception = ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
        for broker in self._brokers:
            try:
                return await self._channel(broker).call(
                    f"/stele.v1.Admin/{method}", request, timeout_s=_ADMIN_TIMEOUT_S
                )
            except RpcError as error:
                problem = error
        raise problem

    # ------------------------------------------------------------------------------ connections

    async def connection(self, broker: int) -> KafkaConnection:
        """The connection to a broker. Opens a new one if the last one is closed."""
        connection = self._connections.get(broker)
        if connection is not None and not connection.is_closed:
            return connection
        host, port, _ = self._brokers[broker]
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            connection = await KafkaConnection.open(self._world.network, host, port, "scenario")
        await connection.negotiate(timeout_s=_CONNECT_TIMEOUT_S)
        self._connections[broker] = connection
        return connection

    def _channel(self, broker: int) -> Channel:
        channel = self._channels.get(broker)
        if channel is None:
            host, _, port = self._brokers[broker]
            channel = self._channels[broker] = self._world.network.channel(Address(host, port))
        return channel

    async def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        for channel in self._channels.values():
            await channel.close()


def consumer_fetch(
    topic: str, partition: int, offset: int, *, max_wait_ms: int, max_bytes: int, rack: str = ""
) -> fetch.FetchRequest:
    """A consumer's request for one partition by its topic's name."""
    wanted = fetch.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        rack_id=rack,
        topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])],
    )


def records_of(answer: fetch.PartitionData, offset: int) -> tuple[list[tuple[int, bytes]], int]:
    """The records from ``offset`` on, and the offset to go on at."""
    records: list[tuple[int, bytes]] = []
    data = b"".join(bytes(part) for part in _parts(answer.records))
    for position, header in batches(data):
        records += [
            (record.offset, record.value or b"")
            for record in decode(data, position)
            if record.offset >= offset
        ]
        offset = header.base_offset + header.last_offset_delta + 1
    return records, offset


def _parts(records: object) -> list[bytes]:
    if records is None:
        return []
    if isinstance(records, list):
        return [bytes(part) for part in records]
    assert isinstance(records, bytes | bytearray | memoryview)
    return [bytes(records)]


def _check(answer: Any, results: str) -> None:
    """Raises ApiError if the change, or an item of it, was refused."""
    for each in (answer, *getattr(answer, results)):
        if each.error != ErrorCode.NONE:
            raise ApiError(ErrorCode(each.error), each.message)
