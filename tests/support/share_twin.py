"""Share groups of the brokers of ``tests.support.stele``: a deliberately dumb twin of KIP-932.

There is one entry per offset, whoever leads. An acquired record belongs to a member, a session and
a leader epoch, and is available again when one of them or its lock is over. Every member is
assigned all partitions of its topics.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stele.errors import ErrorCode
from stele.ids import decode_uuid
from stele.wire.batch import decode, encode, read_header, stamp
from stele.wire.kafka.messages import (
    find_coordinator,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)
from stele.wire.record import Record
from stele.world import RpcCode, RpcError
from tests.support.stele import FakeCluster, FakePartition
from tests.support.stele_kafka import FakeTransport

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
PartitionKey = tuple[bytes, int]


class Holder(NamedTuple):
    member: str
    session: Session
    leader_epoch: int


@dataclass
class Entry:
    """One record. Done if ``outcome`` is set."""

    outcome: int = 0
    holder: Holder | None = None
    given_s: float = 0.0  # the last time
    until_s: float = 0.0
    count: int = 0


@dataclass(eq=False)
class Session:
    connection: FakeTransport | None
    epoch: int = 1
    is_over: bool = False
    partitions: dict[PartitionKey, None] = field(default_factory=dict)


@dataclass
class Fault:
    """The fate of the next request with acknowledgements."""

    error: ErrorCode = ErrorCode.NONE  # of each partition
    refusal: ErrorCode = ErrorCode.NONE  # of the whole request
    is_applied: bool = False
    breaks: bool = False  # the connection breaks instead of an answer


class ShareTwin:
    def __init__(self, cluster: FakeCluster, *, lock_s: float = 30.0) -> None:
        self.cluster = cluster
        self.lock_s = lock_s
        self.limit = 5
        self.coordinator = 1
        self.entries: dict[PartitionKey, dict[int, Entry]] = {}
        self.members: dict[str, int] = {}
        self.topics_of: dict[str, list[str]] = {}
        self.sessions: dict[tuple[int, str], Session] = {}
        self.faults: deque[Fault] = deque()
        self.fetch_errors: deque[ErrorCode] = deque()  # of whole fetches
        self.heartbeat_errors: deque[ErrorCode] = deque()
        self.requests: list[tuple[str, int, Any]] = []  # kind, broker, request
        self.answered: list[tuple[PartitionKey, int, int]] = []
        """Partition, offset and type of each acknowledgement that was answered with success."""
        cluster.answer(find_coordinator.API, self._find_coordinator)
        cluster.answer(share_group_heartbeat.API, self._heartbeat)
        cluster.answer(share_fetch.API, self._fetch)
        cluster.answer(share_acknowledge.API, self._acknowledge)
        cluster.on_disconnect = self._disconnected

    # ------------------------------------------------------------------------- looking

    def entry(self, offset: int, topic: str = "t", partition: int = 0) -> Entry:
        key = (self.cluster.topics[topic].topic_id, partition)
        return self.entries.setdefault(key, {}).setdefault(offset, Entry())

    def outcomes(self, topic: str = "t", partition: int = 0) -> dict[int, int]:
        key = (self.cluster.topics[topic].topic_id, partition)
        return {o: e.outcome for o, e in self.entries.get(key, {}).items() if e.outcome}

    def acknowledgements(self, kind: int) -> int:
        """The number of requests with an acknowledgement of this type."""
        return sum(
            any(
                kind in batch.acknowledge_types
                for topic in request.topics
                for each in topic.partitions
                for batch in each.acknowledgement_batches
            )
            for name, _, request in self.requests
            if name != "heartbeat"
        )

    # ------------------------------------------------------------------------- members

    def _find_coordinator(self, broker: int, request: Any) -> Any:
        return find_coordinator.FindCoordinatorResponse(
            coordinators=[
                find_coordinator.Coordinator(
                    each, self.coordinator, "127.0.0.1", 9000 + self.coordinator
                )
                for each in request.coordinator_keys
            ]
        )

    def _heartbeat(self, broker: int, request: Any) -> Any:
        self.requests.append(("heartbeat", broker, request))
        answer = share_group_heartbeat.ShareGroupHeartbeatResponse(
            member_id=request.member_id, heartbeat_interval_ms=1000
        )
        member = request.member_id
        if broker != self.coordinator:
            answer.error_code = ErrorCode.NOT_COORDINATOR
        elif self.heartbeat_errors:
            answer.error_code = self.heartbeat_errors.popleft()
        elif request.member_epoch == -1:
            self.members.pop(member, None)
            answer.member_epoch = -1
        elif request.member_epoch > 0 and member not in self.members:
            answer.error_code = ErrorCode.UNKNOWN_MEMBER_ID
        else:
            if request.subscribed_topic_names is not None:
                self.topics_of[member] = request.subscribed_topic_names
            answer.member_epoch = self.members[member] = self.members.get(member, 0) + 1
            answer.assignment = self._assignment(member)
        return answer

    def _assignment(self, member: str) -> Any:
        return share_group_heartbeat.Assignment(
            [
                share_group_heartbeat.TopicPartitions(topic.topic_id, sorted(topic.partitions))
                for name in self.topics_of[member]
                if (topic := self.cluster.topics.get(name)) is not None
            ]
        )

    # ------------------------------------------------------------------------- sessions

    def _disconnected(self, connection: FakeTransport) -> None:
        for session in self.sessions.values():
            if session.connection is connection:
                self._end(session)

    def _end(self, session: Session) -> None:
        session.is_over = True
        for entries in self.entries.values():
            for each in entries.values():
                if each.holder is not None and each.holder.session is session:
                    each.holder, each.count = None, each.count - 1

    def _session(self, broker: int, request: Any, *, opens: bool) -> Session | ErrorCode:
        key = (broker, request.member_id)
        session = self.sessions.get(key)
        epoch = request.share_session_epoch
        if epoch == 0:
            if not opens:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            self.sessions[key] = Session(self.cluster.asking)
            return self.sessions[key]
        if session is None or session.is_over:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch not in (-1, session.epoch):
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch += 1
        return session

    # ------------------------------------------------------------------------- records

    def _found(self, topic_id: bytes, number: int) -> FakePartition | None:
        for topic in self.cluster.topics.values():
            if topic.topic_id == topic_id:
                return topic.partitions.get(number)
        return None

    def _entry(self, key: PartitionKey, partition: FakePartition, offset: int) -> Entry:
        entry = self.entries.setdefault(key, {}).setdefault(offset, Entry())
        holder = entry.holder
        if holder is not None and (
            holder.session.is_over or holder.leader_epoch != partition.leader_epoch
        ):
            entry.holder = None
        elif holder is not None and entry.until_s <= self.cluster.clock.monotonic():
            entry.holder = None
            self._released(entry)
        return entry

    def _released(self, entry: Entry) -> None:
        if entry.count >= self.limit:
            entry.outcome = REJECT

    async def _fetch(self, broker: int, request: Any) -> Any:
        self.requests.append(("fetch", broker, request))
        decode_uuid(request.member_id)  # as Kafka's brokers do
        if self.fetch_errors:
            return share_fetch.ShareFetchResponse(error_code=self.fetch_errors.popleft())
        session = self._session(broker, request, opens=True)
        if isinstance(session, ErrorCode):
            return share_fetch.ShareFetchResponse(error_code=session)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.partitions.pop((topic.topic_id, number), None)
        answers: dict[PartitionKey, Any] = {}
        for topic in request.topics:
            for each in topic.partitions:
                session.partitions[topic.topic_id, each.partition_index] = None
        for key, code in self._acknowledge_all(broker, session, request).items():
            answers[key] = _fetched(key[1], code)
        waited_ms = 0
        while not self._give(broker, session, request, answers) and waited_ms < request.max_wait_ms:
            await asyncio.sleep(0.01)
            waited_ms += 10
        return share_fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=int(self.lock_s * 1000),
            responses=[
                share_fetch.ShareFetchableTopicResponse(topic_id, [each])
                for (topic_id, _), each in answers.items()
            ],
        )

    def _give(self, broker: int, session: Session, request: Any, answers: Any) -> bool:
        """Whether there is something to answer now."""
        is_news = session.is_over
        left = request.max_records
        for key in session.partitions:
            data = answers.get(key) or _fetched(key[1])
            partition = self._found(*key)
            if partition is None:
                data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            elif partition.leader != broker:
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                data.current_leader = share_fetch.LeaderIdAndEpoch(
                    partition.leader, partition.leader_epoch
                )
            else:
                left -= self._give_of(key, partition, session, request, left, data)
            if data.error_code or data.acquired_records:
                answers[key] = data
                is_news = True
        return is_news

    def _give_of(
        self,
        key: PartitionKey,
        partition: FakePartition,
        session: Session,
        request: Any,
        left: int,
        data: Any,
    ) -> int:
        records = []
        count = 0
        for batch in partition.batches:
            taken = False
            header = read_header(batch)
            for offset in range(header.base_offset, header.next_offset):
                entry = self._entry(key, partition, offset)
                if count >= left or entry.outcome or entry.holder is not None:
                    continue
                entry.holder = Holder(request.member_id, session, partition.leader_epoch)
                entry.until_s = self.cluster.clock.monotonic() + self.lock_s
                entry.given_s = self.cluster.clock.monotonic()
                entry.count += 1
                data.acquired_records.append(
                    share_fetch.AcquiredRecords(offset, offset, entry.count)
                )
                taken = True
                count += 1
            if taken:
                records.append(bytes(batch))
        data.records = b"".join(records)
        return count

    # ------------------------------------------------------------------------- decisions

    async def _acknowledge(self, broker: int, request: Any) -> Any:
        self.requests.append(("acknowledge", broker, request))
        if self.faults and self.faults[0].refusal:
            return share_acknowledge.ShareAcknowledgeResponse(
                error_code=self.faults.popleft().refusal
            )
        session = self._session(broker, request, opens=False)
        if isinstance(session, ErrorCode):
            return share_acknowledge.ShareAcknowledgeResponse(error_code=session)
        results = self._acknowledge_all(broker, session, request)
        if request.share_session_epoch == -1:
            self._end(session)
        return share_acknowledge.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=int(self.lock_s * 1000),
            responses=[
                share_acknowledge.ShareAcknowledgeTopicResponse(
                    topic_id, [_acknowledged(number, code)]
                )
                for (topic_id, number), code in results.items()
            ],
        )

    def _acknowledge_all(
        self, broker: int, session: Session, request: Any
    ) -> dict[PartitionKey, ErrorCode]:
        wanted = {
            (topic.topic_id, each.partition_index): each.acknowledgement_batches
            for topic in request.topics
            for each in topic.partitions
            if each.acknowledgement_batches
        }
        if not wanted:
            return {}
        fault = self.faults.popleft() if self.faults else Fault(is_applied=True)
        results = dict.fromkeys(wanted, fault.error)
        if fault.is_applied:
            for key, batches in wanted.items():
                code = self._acknowledge_one(broker, session, key, batches)
                results[key] = code or fault.error
        if fault.breaks:
            raise RpcError(RpcCode.UNAVAILABLE, "it breaks")
        for key, batches in wanted.items():
            if not results[key]:
                self.answered += [
                    (key, offset, batch.acknowledge_types[0])
                    for batch in batches
                    for offset in range(batch.first_offset, batch.last_offset + 1)
                ]
        return results

    def _acknowledge_one(
        self, broker: int, session: Session, key: PartitionKey, batches: Any
    ) -> ErrorCode:
        partition = self._found(*key)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if partition.leader != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        entries = []
        for batch in batches:
            (kind,) = batch.acknowledge_types
            for offset in range(batch.first_offset, batch.last_offset + 1):
                entry = self._entry(key, partition, offset)
                if entry.holder is None or entry.holder.session is not session:
                    return ErrorCode.INVALID_RECORD_STATE
                entries.append((entry, kind))
        for entry, kind in entries:
            if kind == RENEW:
                entry.until_s = self.cluster.clock.monotonic() + self.lock_s
                continue
            entry.holder = None
            if kind == RELEASE:
                self._released(entry)
            else:
                entry.outcome = kind or REJECT
        return ErrorCode.NONE


def _fetched(number: int, code: ErrorCode = ErrorCode.NONE) -> Any:
    return share_fetch.PartitionData(
        number,
        acknowledge_error_code=code,
        current_leader=share_fetch.LeaderIdAndEpoch(-1, -1),
    )


def _acknowledged(number: int, code: ErrorCode) -> Any:
    return share_acknowledge.PartitionData(
        number, code, current_leader=share_acknowledge.LeaderIdAndEpoch(-1, -1)
    )


def append(partition: FakePartition, *values: bytes) -> None:
    """A batch of these values."""
    first = partition.end_offset
    batch = encode([Record(first + each, 0, None, value) for each, value in enumerate(values)])
    stamp(batch, 0, base_offset=first, leader_epoch=partition.leader_epoch)
    partition.batches.append(batch)
    partition.end_offset += len(values)


def append_with_gap(partition: FakePartition, *values: bytes | None) -> None:
    """A batch that compaction has thinned out: where there is None, there is no record."""
    first = partition.end_offset
    records = [
        Record(first + each, 0, None, value)
        for each, value in enumerate(values)
        if value is not None
    ]
    batch = encode(records, base_offset=first)
    partition.batches.append(batch)
    assert [each.offset for each in decode(batch)] == [each.offset for each in records]
    partition.end_offset = read_header(batch).next_offset
