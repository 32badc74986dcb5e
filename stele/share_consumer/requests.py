"""The requests of a share session in Kafka's messages, and the answers as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from stele.cluster.messages import NO_LEADER, Leader, error_code
from stele.config import ShareConsumerConfig
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.share_consumer.session import AcknowledgedRange, SessionRequest
from stele.wire.kafka.messages import share_acknowledge, share_fetch
from stele.world import Buffer

RENEWS_FROM: Final = 2
"""The version of ShareFetch and ShareAcknowledge with renewals and the acquire mode (KIP-1222,
KIP-1206)."""

Topic = TypeVar("Topic", share_fetch.FetchTopic, share_acknowledge.AcknowledgeTopic)


class Acquired(NamedTuple):
    first: int
    last: int
    delivery_count: int


@dataclass(slots=True)
class PartitionAnswer:
    """What the leader says of one partition. ``leader``: a hint after an error."""

    partition: PartitionId
    error: ApiError | None = None
    acknowledge_error: ApiError | None = None
    leader: Leader = NO_LEADER
    records: Buffer = b""
    acquired: Sequence[Acquired] = ()


@dataclass(slots=True)
class SessionAnswer:
    error: ApiError | None  # of the whole request, which has changed nothing
    throttle_s: float
    lock_s: float  # 0: not known
    partitions: list[PartitionAnswer] = field(default_factory=list)


def fetch_message(
    config: ShareConsumerConfig,
    member_id: str,
    request: SessionRequest,
    *,
    version: int,
    max_wait_ms: int,
    max_records: int,
) -> share_fetch.ShareFetchRequest:
    """Raises ApiError UNSUPPORTED_VERSION."""
    is_strict = config.share_acquire_mode == "record_limit"
    if is_strict and version < RENEWS_FROM:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "share_acquire_mode='record_limit' needs brokers as of Kafka 4.2: leave it out",
        )
    topics: dict[bytes, share_fetch.FetchTopic] = {}
    acknowledged = request.acknowledged
    for partition in dict.fromkeys([*request.added, *acknowledged]):
        topic = topics.setdefault(partition.topic_id, share_fetch.FetchTopic(partition.topic_id))
        batches = [
            share_fetch.AcknowledgementBatch(first, last, [kind])
            for first, last, kind in acknowledged.get(partition, ())
        ]
        topic.partitions.append(share_fetch.FetchPartition(partition.partition, batches))
    forgotten: dict[bytes, share_fetch.ForgottenTopic] = {}
    for partition in request.forgotten:
        forgotten.setdefault(
            partition.topic_id, share_fetch.ForgottenTopic(partition.topic_id)
        ).partitions.append(partition.partition)
    return share_fetch.ShareFetchRequest(
        group_id=config.group_id,
        member_id=member_id,
        share_session_epoch=request.epoch,
        max_wait_ms=max_wait_ms,
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        max_records=max_records,
        batch_size=max_records,
        share_acquire_mode=int(is_strict),
        topics=list(topics.values()),
        forgotten_topics_data=list(forgotten.values()),
    )


def acknowledge_message(
    config: ShareConsumerConfig, member_id: str, request: SessionRequest
) -> share_acknowledge.ShareAcknowledgeRequest:
    topics: dict[bytes, share_acknowledge.AcknowledgeTopic] = {}
    for partition, ranges in request.acknowledged.items():
        topic = topics.setdefault(
            partition.topic_id, share_acknowledge.AcknowledgeTopic(partition.topic_id)
        )
        topic.partitions.append(
            share_acknowledge.AcknowledgePartition(partition.partition, _batches(ranges))
        )
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id=config.group_id,
        member_id=member_id,
        share_session_epoch=request.epoch,
        is_renew_ack=bool(request.renewed),
        topics=list(topics.values()),
    )


def _batches(
    ranges: Sequence[AcknowledgedRange],
) -> list[share_acknowledge.AcknowledgementBatch]:
    return [
        share_acknowledge.AcknowledgementBatch(first, last, [kind]) for first, last, kind in ranges
    ]


def session_answer(told: Any) -> SessionAnswer:
    """The session's answer in either response."""
    code = error_code(told.error_code)
    refused = None if code is ErrorCode.NONE else _error(code, told.error_message)
    answer = SessionAnswer(
        refused, told.throttle_time_ms / 1000, told.acquisition_lock_timeout_ms / 1000
    )
    for topic in told.responses:
        for each in topic.partitions:
            partition = PartitionId(topic.topic_id, each.partition_index)
            answer.partitions.append(_partition(partition, each))
    return answer


def _partition(partition: PartitionId, told: Any) -> PartitionAnswer:
    answer = PartitionAnswer(partition)
    if told.current_leader is not None:
        answer.leader = Leader(told.current_leader.leader_id, told.current_leader.leader_epoch)
    code = error_code(told.error_code)
    if isinstance(told, share_acknowledge.PartitionData):
        if code is not ErrorCode.NONE:
            answer.acknowledge_error = _error(code, told.error_message)
        return answer
    if code is not ErrorCode.NONE:
        answer.error = _error(code, told.error_message)
    code = error_code(told.acknowledge_error_code)
    if code is not ErrorCode.NONE:
        answer.acknowledge_error = _error(code, told.acknowledge_error_message)
    records = told.records
    answer.records = b"" if records is None or isinstance(records, list) else records
    answer.acquired = [
        Acquired(each.first_offset, each.last_offset, each.delivery_count)
        for each in told.acquired_records
    ]
    return answer


def _error(code: ErrorCode, message: str | None) -> ApiError:
    return ApiError(code, message or explain(code))
