"""The cluster over Kafka's protocol.

Stele's brokers tell our clients two things that Kafka's do not. Metadata has its offset in the
cluster's metadata. Without it the view believes that a topic was made anew when two answers say so
(``ClusterView``). And an acknowledgement names the leader and its epoch (``ProduceAnswer``).
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from stele.addresses import Address
from stele.cluster.kafka_connection import KafkaConnection
from stele.cluster.kafka_link import (
    KafkaLink,
    Question,
    TlsRefusedRpcError,
    question,
    refusal_of,
)
from stele.cluster.kafka_stream import (
    MAX_FETCH_CONNECTIONS,
    Encoded,
    KafkaStream,
    SpreadStream,
)
from stele.cluster.messages import (
    NO_LEADER,
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
    NewProducerId,
    OffsetQuestion,
    ProduceAnswer,
    ProduceRequest,
    TopicNews,
    error_code,
)
from stele.cluster.misfit import why_misfit
from stele.errors import ErrorCode, TlsError
from stele.ids import TopicPartition
from stele.wire import kafka
from stele.wire.kafka.messages import (
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from stele.world import Connector, RpcCode, RpcError

_CONSUMER: Final = -1  # the replica id of a client

_PRODUCE_BY_ID: Final = 13
_FETCH_BY_ID: Final = 13
_SEVERAL_KEYS: Final = 4
"""From these versions on, requests name topics by id, and FindCoordinator has several keys."""


class KafkaPlane:
    """Produce has one connection to a broker, on which requests are pipelined, Fetch a few."""

    def __init__(self, connector: Connector, client_id: str, open_s: float) -> None:
        self._connector = connector
        self._client_id = client_id
        self._open_s = open_s
        # Called with each connection that is open and knows the broker's versions.
        self.on_open: Callable[[KafkaConnection], None] = lambda connection: None

    def link(self, address: BrokerAddress) -> KafkaLink:
        return KafkaLink(
            address,
            self._connector,
            self._client_id,
            self._open_s,
            self.on_open,
        )

    async def find_brokers(self, host: str, port: int, timeout_s: float) -> ClusterNews:
        """Ask a bootstrap server for the brokers. Raises OSError, SteleError, in particular
        AuthenticationError."""
        link = self.link(BrokerAddress(host, port))
        try:
            return await self.metadata([]).ask(link, timeout_s)
        except RpcError as error:
            refusal = refusal_of(error) or await self._misfit(link.address, error)
            raise refusal or OSError(error.detail) from error
        finally:
            await link.close()

    async def _misfit(self, address: BrokerAddress, error: RpcError) -> TlsError | None:
        """The error of a client whose security protocol is not that of the port: the broker only
        closes its connections. None if the failure has another reason."""
        if error.code not in (RpcCode.UNAVAILABLE, RpcCode.INTERNAL):
            return None
        if isinstance(error.__cause__, ConnectionRefusedError | socket.gaierror):
            return None  # nobody is there
        facts = await self._connector.look_at_port(Address(*address[:2]))
        reason = None if facts is None else why_misfit(self._connector.security, facts)
        return None if reason is None else TlsRefusedRpcError(address, reason).refusal

    # ------------------------------------------------------------------------ questions

    def metadata(self, topics: Sequence[str] | None) -> Question[ClusterNews]:
        """The metadata of these topics and of all brokers. None: of all topics."""
        request = metadata.MetadataRequest(
            None
            if topics is None
            else [metadata.MetadataRequestTopic(name=each) for each in topics],
            allow_auto_topic_creation=False,
        )

        async def ask(link: KafkaLink, timeout_s: float) -> ClusterNews:
            told = await link.ask(metadata.API, lambda version: request, timeout_s=timeout_s)
            return _cluster_news(told)

        return Question("Metadata", ask)

    def list_offsets(
        self, wanted: Sequence[OffsetQuestion], *, is_committed: bool
    ) -> Question[list[FoundOffset]]:
        """Asked of the leader. ``is_committed``: only below the last stable offset."""
        topics: dict[str, list[list_offsets.ListOffsetsPartition]] = {}
        for name, leader_epoch, timestamp_ms in wanted:
            topics.setdefault(name.topic, []).append(
                list_offsets.ListOffsetsPartition(name.partition, leader_epoch, timestamp_ms)
            )

        async def ask(link: KafkaLink, timeout_s: float) -> list[FoundOffset]:
            request = list_offsets.ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=int(is_committed),
                topics=[list_offsets.ListOffsetsTopic(*each) for each in topics.items()],
                timeout_ms=int(timeout_s * 1000),
            )
            told = await link.ask(list_offsets.API, lambda version: request, timeout_s=timeout_s)
            return [
                FoundOffset(
                    TopicPartition(topic.name, each.partition_index),
                    error_code(each.error_code),
                    each.offset,
                    each.timestamp,
                    each.leader_epoch,
                )
                for topic in told.topics
                for each in topic.partitions
            ]

        return Question("ListOffsets", ask)

    def init_producer_id(self) -> Question[NewProducerId]:
        """For an idempotent producer without transactions."""
        asked = question(
            init_producer_id.API,
            lambda version: init_producer_id.InitProducerIdRequest(
                transaction_timeout_ms=2**31 - 1
            ),
        )

        async def ask(link: KafkaLink, timeout_s: float) -> NewProducerId:
            told = await asked.ask(link, timeout_s)
            return NewProducerId(error_code(told.error_code), told.producer_id, told.producer_epoch)

        return Question(asked.what, ask)

    def find_coordinator(self, kind: CoordinatorKind, key: str) -> Question[FoundCoordinator]:
        def make(version: int) -> find_coordinator.FindCoordinatorRequest:
            if version < _SEVERAL_KEYS:
                return find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)
            return find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

        asked = question(find_coordinator.API, make)

        async def ask(link: KafkaLink, timeout_s: float) -> FoundCoordinator:
            told = await asked.ask(link, timeout_s)
            found = told.coordinators[0] if told.coordinators else told
            code = error_code(found.error_code)
            return FoundCoordinator(code, found.error_message or "", found.node_id)

        return Question(asked.what, ask)

    # -------------------------------------------------------------------------- leaders

    def produce(self, link: KafkaLink) -> LeaderStream[ProduceRequest, ProduceAnswer]:
        return KafkaStream(link, ProduceCodec())

    def fetch(self, link: KafkaLink) -> LeaderStream[FetchRequest, FetchAnswer]:
        return SpreadStream(lambda: KafkaStream(link, FetchCodec()), MAX_FETCH_CONNECTIONS)


class ProduceCodec:
    def encode(self, request: ProduceRequest, connection: KafkaConnection) -> Encoded:
        has_ids = all(each.topic_id for each in request.partitions)
        version = connection.version_of(produce.API, None if has_ids else _PRODUCE_BY_ID - 1)
        topics: dict[str, produce.TopicProduceData] = {}
        for each in request.partitions:
            topic = topics.get(each.topic)
            if topic is None:
                topic = topics[each.topic] = produce.TopicProduceData(
                    each.topic, each.topic_id or kafka.ZERO_UUID
                )
            topic.partition_data.append(produce.PartitionProduceData(each.partition, each.records))
        message = produce.ProduceRequest(
            request.transactional_id, request.acks, request.timeout_ms, list(topics.values())
        )
        return Encoded(produce.API, version, message)

    def decode(self, request: ProduceRequest, response: Any) -> list[ProduceAnswer]:
        ids = {each.topic: each.topic_id for each in request.partitions}
        return [
            ProduceAnswer(
                topic.name,
                _id_of(topic.topic_id, topic.name, ids),
                each.index,
                error_code(each.error_code),
                each.error_message or "",
                each.base_offset,
                each.log_append_time_ms,
                _leader(each.current_leader),
            )
            for topic in response.responses
            for each in topic.partition_responses
        ]


class FetchCodec:
    """Without fetch sessions: each request names what it wants."""

    def encode(self, request: FetchRequest, connection: KafkaConnection) -> Encoded:
        has_ids = all(each.topic_id for each in request.partitions)
        version = connection.version_of(fetch.API, None if has_ids else _FETCH_BY_ID - 1)
        topics: dict[str, fetch.FetchTopic] = {}
        for each in request.partitions:
            topic = topics.get(each.topic)
            if topic is None:
                topic = topics[each.topic] = fetch.FetchTopic(
                    each.topic, each.topic_id or kafka.ZERO_UUID
                )
            topic.partitions.append(
                fetch.FetchPartition(
                    each.partition,
                    current_leader_epoch=each.current_leader_epoch,
                    fetch_offset=each.fetch_offset,
                    last_fetched_epoch=each.last_fetched_epoch,
                    partition_max_bytes=each.max_bytes,
                )
            )
        message = fetch.FetchRequest(
            replica_id=_CONSUMER,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation_level=int(request.is_committed),
            topics=list(topics.values()),
            rack_id=request.rack,
        )
        return Encoded(fetch.API, version, message)

    def decode(self, request: FetchRequest, response: Any) -> list[FetchAnswer]:
        code = error_code(response.error_code)
        if code is ErrorCode.NONE and response.throttle_time_ms and not response.responses:
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED  # as a broker says it
        if code is not ErrorCode.NONE:  # of the whole request
            return [
                FetchAnswer(
                    each.topic, each.topic_id, each.partition, code, -1, -1, -1, b"", NO_LEADER
                )
                for each in request.partitions
            ]
        ids = {each.topic: each.topic_id for each in request.partitions}
        return [
            _fetch_answer(topic.topic, _id_of(topic.topic_id, topic.topic, ids), each)
            for topic in response.responses
            for each in topic.partitions
        ]


def _fetch_answer(topic: str, topic_id: bytes, told: fetch.PartitionData) -> FetchAnswer:
    records = told.records
    diverging = told.diverging_epoch
    return FetchAnswer(
        topic,
        topic_id,
        told.partition_index,
        error_code(told.error_code),
        told.high_watermark,
        told.last_stable_offset,
        told.log_start_offset,
        b"" if records is None or isinstance(records, list) else records,
        _leader(told.current_leader),
        -1 if diverging is None else diverging.epoch,
        -1 if diverging is None else diverging.end_offset,
        told.preferred_read_replica,
        [
            AbortedTransaction(each.producer_id, each.first_offset)
            for each in told.aborted_transactions or ()
        ],
    )


def _id_of(topic_id: bytes, name: str, ids: dict[str, bytes]) -> bytes:
    """The topic's id, as the request has it. Older versions answer with the name alone."""
    return ids.get(name, b"") if topic_id == kafka.ZERO_UUID else topic_id


def _leader(told: Any) -> Leader:
    return NO_LEADER if told is None else Leader(told.leader_id, told.leader_epoch)


def _cluster_news(told: metadata.MetadataResponse) -> ClusterNews:
    code = error_code(told.error_code)
    if code is not ErrorCode.NONE:
        raise RpcError(RpcCode.FAILED_PRECONDITION, f"Metadata: {code.name}")
    return ClusterNews(
        told.cluster_id or "",
        told.controller_id,
        {each.node_id: BrokerAddress(each.host, each.port) for each in told.brokers},
        [_topic_news(each) for each in told.topics],
        told.metadata_offset,
    )


def _topic_news(told: metadata.MetadataResponseTopic) -> TopicNews:
    topic_id = b"" if told.topic_id == kafka.ZERO_UUID else told.topic_id
    return TopicNews(
        told.name or "", error_code(told.error_code), topic_id, list(_leaders(told.partitions))
    )


def _leaders(
    partitions: Iterable[metadata.MetadataResponsePartition],
) -> Iterable[tuple[int, Leader]]:
    for each in partitions:
        yield each.partition_index, Leader(each.leader_id, each.leader_epoch)
