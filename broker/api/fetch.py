"""Fetch (1), versions 4-18: read record batches, for consumers and followers alike.

Deviations: only brokers get a fetch session, by their broker epoch and for one connection; others
get the session id 0 (KIP-227 allows that);
no follower is ever named as a nearer replica (KIP-392); nothing is tiered.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Generator, Sequence

from broker.api.call import Call, Reply, Served
from broker.replication.fetch_query import FetchQuery
from broker.replication.fetch_session import FetchContext
from broker.replication.types import Cancel, FetchEntry, FetchResult, LeaderHint
from broker.service import fetch as service
from broker.service.cluster import leader_endpoints
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID, Topics
from metadata.topics import Topic
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import fetch as messages
from stele.wire.kafka.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from storage.turns import SLICE_STEPS

logger = logging.getLogger(__name__)

READ_COMMITTED = 1
_TOPIC_IDS_FROM = 13
_NO_ID = bytes(17)
"""Begins the key of a topic that does not exist: this and its name, instead of an id."""

_HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Names:
    """Topic names ↔ ids within one request: before version 13 topics are named."""

    __slots__ = ("_by_id", "_found", "_names", "_topics")

    def __init__(self, topics: Topics, version: int) -> None:
        self._topics = topics
        self._by_id = version >= _TOPIC_IDS_FROM
        self._names: dict[bytes, str] = {}
        self._found: dict[bytes, Topic | ErrorCode] = {}

    def key(self, topic: str, topic_id: bytes) -> bytes:
        """The topic's id. A name that does not exist gets a key that no topic has."""
        if self._by_id:
            return topic_id
        known = self._topics.image.topic(topic)
        key = known.topic_id if known else _NO_ID + topic.encode()
        self._names[key] = topic
        return key

    def name(self, key: bytes) -> str:
        """The name to answer with (left out of the answer where ids are used)."""
        if key in self._names or self._by_id:
            return self._names.get(key, "")
        topic = self._topics.image.topic_by_id(key)  # of an earlier request of the session
        return topic.name if topic else ""

    def refusal(self, partition: PartitionId) -> ErrorCode | None:
        """The error of a partition that is not in the metadata, or not for the caller to read."""
        found = self._found.get(partition.topic_id)
        if found is None:
            found = self._found[partition.topic_id] = self._find(partition.topic_id)
        if not isinstance(found, Topic):
            return found
        if not 0 <= partition.partition < len(found.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return None

    def _find(self, key: bytes) -> Topic | ErrorCode:
        if len(key) > len(NO_TOPIC_ID):
            if self._topics.may(key.removeprefix(_NO_ID).decode()):
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        found = self._topics.identified(key)
        if found is ErrorCode.UNKNOWN_TOPIC_ID and not self._by_id:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return found


def handle(
    context: BrokerContext, call: Call, request: FetchRequest, reply: Reply
) -> Cancel | None:
    exchange = _Exchange(context, call, request, reply)
    exchange.work_off(exchange.begin())
    return exchange.cancel


class _Exchange:
    """One request. If it names many partitions, it is worked on in slices, before and after the
    reading.

    A request of a broker, which proves to be one by its epoch, is worked on at once.
    """

    __slots__ = (
        "_call",
        "_context",
        "_fetch",
        "_is_over",
        "_is_proven",
        "_names",
        "_replica_epoch",
        "_replica_id",
        "_reply",
        "_request",
    )

    def __init__(
        self, context: BrokerContext, call: Call, request: FetchRequest, reply: Reply
    ) -> None:
        self._context = context
        self._call = call
        self._request = request
        self._reply = reply
        self._replica_id, self._replica_epoch = _replica(request)
        topics = service.topics(context, call.caller, replica_id=self._replica_id)
        self._names = _Names(topics, call.version)
        registration = topics.image.broker(self._replica_id) if self._replica_epoch >= 0 else None
        self._is_proven = (
            registration is not None and registration.broker_epoch == self._replica_epoch
        )
        # While it waits for its results. It leads back here, and what is in such a circle stays in
        # memory until the collector runs; by the way of the reply that would be the whole answer.
        self._fetch: service.Fetch | None = None
        self._is_over = False

    def cancel(self) -> None:
        self._is_over = True
        if self._fetch is not None:
            self._fetch.cancel()

    def work_off(self, work: Generator[None, None, None]) -> None:
        """A slice now, the others each in a turn of its own."""
        for _ in work:
            if not self._is_proven:
                asyncio.get_running_loop().call_soon(self._work_on, work)
                return

    def _work_on(self, work: Generator[None, None, None]) -> None:
        if self._is_over:
            return
        try:
            self.work_off(work)
        except Exception:
            logger.exception("a fetch of the client %r failed", self._call.caller.client_id)
            self._reply(refuse(self._call, self._request, ErrorCode.UNKNOWN_SERVER_ERROR))

    def begin(self) -> Generator[None, None, None]:
        """Find out what is asked for, and have it read."""
        request, names = self._request, self._names
        entries: dict[PartitionId, FetchEntry] = {}
        count = 0
        for topic in request.topics:
            key = names.key(topic.topic, topic.topic_id)
            for partition in topic.partitions:
                # Of a partition that is named more than once the last counts, as in Kafka.
                entry = _entry(key, partition)
                entries[entry.id] = entry
                count += 1
                if not count % SLICE_STEPS:
                    yield
        forgotten: list[PartitionId] = []
        for gone in request.forgotten_topics_data:
            key = names.key(gone.topic, gone.topic_id)
            for number in gone.partitions:
                forgotten.append(PartitionId(key, number))
                if not len(forgotten) % SLICE_STEPS:
                    yield
        try:
            session = self._context.sessions.open(
                owner=self._call.connection,
                session_id=request.session_id,
                session_epoch=request.session_epoch,
                replica_id=self._replica_id,
                is_proven=self._is_proven,
                entries=list(entries.values()),
                forgotten=forgotten,
            )
        except ApiError as error:
            self._reply(refuse(self._call, request, error.code))
            return
        items: list[FetchEntry | FetchResult] = []
        for entry in session.entries:
            refusal = names.refusal(entry.id)
            items.append(entry if refusal is None else FetchResult(entry.id, refusal))
            if not len(items) % SLICE_STEPS:
                yield
        self._fetch = service.Fetch(
            self._context, items, self._query(session), functools.partial(self._found, session)
        )
        self._fetch.run()

    def _query(self, session: FetchContext) -> FetchQuery:
        request, max_bytes = self._request, self._request.max_bytes
        if self._replica_id < 0:
            max_bytes = min(max_bytes, self._context.config.fetch_max_bytes)
        return FetchQuery(
            entries=[],
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=max_bytes,
            replica_id=self._replica_id,
            replica_epoch=self._replica_epoch,
            read_committed=request.isolation_level == READ_COMMITTED,
            session=session.session,
        )

    def _found(self, session: FetchContext, results: list[FetchResult]) -> None:
        self._fetch = None
        self.work_off(self._answer(session, results))

    def _answer(
        self, session: FetchContext, results: list[FetchResult]
    ) -> Generator[None, None, None]:
        answered = session.answer(results)
        read_committed = self._request.isolation_level == READ_COMMITTED
        hints: list[LeaderHint] = []
        topics: list[FetchableTopicResponse] = []
        last: bytes | None = None
        for count, result in enumerate(answered, 1):
            if result.error in _HINTED:
                hints.append(result.leader)
            if result.id.topic_id != last:  # neighbours of one topic stand together
                last = result.id.topic_id
                topics.append(
                    FetchableTopicResponse(
                        topic=self._names.name(last),
                        topic_id=last if len(last) == 16 else bytes(16),
                    )
                )
            topics[-1].partitions.append(_partition(result, read_committed))
            if not count % SLICE_STEPS:
                yield
        self._reply(
            FetchResponse(
                session_id=session.session_id,
                responses=topics,
                node_endpoints=self._endpoints(hints) if hints else [],
            )
        )

    def _endpoints(self, hints: Sequence[LeaderHint]) -> list[NodeEndpoint]:
        return [
            NodeEndpoint(registration.broker_id, endpoint.host, endpoint.port, registration.rack)
            for registration, endpoint in leader_endpoints(self._context, self._call.caller, hints)
        ]


def is_of_follower(request: FetchRequest) -> bool:
    """Whether the request says that a broker sent it. It gets more only if it proves that."""
    state = request.replica_state
    return (request.replica_id if state is None else state.replica_id) >= 0


def _replica(request: FetchRequest) -> tuple[int, int]:
    """The broker that fetches and its epoch; -1 for none."""
    if request.replica_state is None:
        return request.replica_id, -1
    return request.replica_state.replica_id, request.replica_state.replica_epoch


def _entry(topic_id: bytes, partition: FetchPartition) -> FetchEntry:
    return FetchEntry(
        PartitionId(topic_id, partition.partition),
        fetch_offset=partition.fetch_offset,
        max_bytes=partition.partition_max_bytes,
        current_leader_epoch=partition.current_leader_epoch,
        last_fetched_epoch=partition.last_fetched_epoch,
        log_start_offset=partition.log_start_offset,
    )


def _partition(result: FetchResult, read_committed: bool) -> PartitionData:
    diverging = hint = None
    if result.diverging is not None:
        diverging = EpochEndOffset(result.diverging.epoch, result.diverging.end_offset)
    if result.error in _HINTED and result.leader.leader_id >= 0:
        hint = LeaderIdAndEpoch(result.leader.leader_id, result.leader.leader_epoch)
    return PartitionData(
        partition_index=result.id.partition,
        error_code=result.error,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        diverging_epoch=diverging,
        current_leader=hint,
        aborted_transactions=[] if read_committed else None,
        records=result.records,
    )


def refuse(call: Call, request: FetchRequest, error: ErrorCode) -> FetchResponse:
    """Versions below 7 have no field for the error but each partition's."""
    return FetchResponse(
        error_code=error,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition.partition, error, high_watermark=-1, records=[])
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        if call.version < 7
        else [],
    )


SERVED = Served(messages.API, refuse, handle=handle)
