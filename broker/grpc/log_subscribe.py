"""Subscribe of stele.v1.Log: messages to what the client asks, records to messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.gateway.credit import Grant
from broker.gateway.membership import OFFSETS_MAX, Joining, Offsets
from broker.gateway.refusals import Refusal, stream_error
from broker.gateway.share_subscribing import (
    ACKNOWLEDGED_MAX,
    Acknowledgements,
    AcknowledgeResult,
    RecordsToAcknowledge,
    ShareStart,
)
from broker.gateway.start_offsets import Edge
from broker.gateway.subscribing import From, Reading, Start
from broker.grpc.log_publish import describe
from runtime.grpc.requests import parse
from stele.config import GroupProtocol, IsolationLevel, OffsetReset
from stele.consumer.positions import Progress
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, OffsetAndMetadata, ShareRecord, TimestampType
from stele.wire.record import Record
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcError, Stream

_RESETS: Final[dict[int, OffsetReset]] = {
    pb.SubscribeStart.OFFSET_RESET_UNSPECIFIED: "none",
    pb.SubscribeStart.OFFSET_RESET_FAIL: "none",
    pb.SubscribeStart.OFFSET_RESET_EARLIEST: "earliest",
    pb.SubscribeStart.OFFSET_RESET_LATEST: "latest",
}
_ISOLATIONS: Final[dict[int, IsolationLevel]] = {
    pb.SubscribeStart.ISOLATION_UNSPECIFIED: "read_uncommitted",
    pb.SubscribeStart.ISOLATION_READ_UNCOMMITTED: "read_uncommitted",
    pb.SubscribeStart.ISOLATION_READ_COMMITTED: "read_committed",
}
_GROUP_PROTOCOLS: Final[dict[int, GroupProtocol]] = {
    pb.SubscribeStart.GROUP_PROTOCOL_UNSPECIFIED: "classic",
    pb.SubscribeStart.GROUP_PROTOCOL_CLASSIC: "classic",
    pb.SubscribeStart.GROUP_PROTOCOL_CONSUMER: "consumer",
}
_ACKNOWLEDGE_TYPES: Final = {
    pb.Acknowledge.TYPE_UNSPECIFIED: AcknowledgeType.ACCEPT,
    pb.Acknowledge.TYPE_ACCEPT: AcknowledgeType.ACCEPT,
    pb.Acknowledge.TYPE_RELEASE: AcknowledgeType.RELEASE,
    pb.Acknowledge.TYPE_REJECT: AcknowledgeType.REJECT,
    pb.Acknowledge.TYPE_RENEW: AcknowledgeType.RENEW,
}
_EDGES: Final[dict[int, Edge]] = {
    pb.PartitionStart.EDGE_UNSPECIFIED: Edge.LATEST,
    pb.PartitionStart.EDGE_EARLIEST: Edge.EARLIEST,
    pb.PartitionStart.EDGE_LATEST: Edge.LATEST,
}


class GrpcSubscribeOutlet:
    """A stream of Subscribe, in the gateway's words."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def receive(self) -> Start | ShareStart | Grant | Offsets | Acknowledgements | None:
        payload = await self._stream.receive()
        if payload is None:
            return None
        request = parse(pb.SubscribeRequest, payload)
        kind = request.WhichOneof("request")
        if kind == "start":
            start = request.start
            return _share_start(start) if start.share_group else _start(start)
        if kind == "credit":
            return _grant(request.credit)
        if kind == "commit":
            return _offsets(request.commit)
        if kind == "acknowledge":
            return _acknowledgements(request.acknowledge)
        raise _invalid("a message of Subscribe asks for something that this broker does not know")

    async def assigned(self, readings: Sequence[Reading]) -> None:
        response = pb.SubscribeResponse(assigned=pb.Assigned())
        for (topic, partition), position, end_offset in readings:
            response.assigned.partitions.add(
                topic=topic, partition=partition, position=position, end_offset=end_offset
            )
        await self._stream.send(response.SerializeToString())

    async def took(self, partitions: Sequence[TopicPartition]) -> None:
        await self.assigned([Reading(name, -1, -1) for name in partitions])

    async def gave_up(self, partitions: Sequence[TopicPartition], *, is_lost: bool) -> None:
        response = pb.SubscribeResponse(revoked=pb.Revoked(is_lost=is_lost))
        for topic, partition in partitions:
            response.revoked.partitions.add(topic=topic, partition=partition)
        await self._stream.send(response.SerializeToString())

    async def committed(self, refusal: Refusal | None) -> None:
        response = pb.SubscribeResponse(committed=pb.Committed())
        if refusal is not None:
            describe(response.committed.error, refusal)
        await self._stream.send(response.SerializeToString())

    async def positions(self, moved: Mapping[TopicPartition, Progress]) -> None:
        response = pb.SubscribeResponse(positions=pb.Positions())
        for (topic, partition), progress in sorted(moved.items()):
            response.positions.partitions.add(
                topic=topic,
                partition=partition,
                position=progress.position,
                end_offset=progress.end_offset,
                topic_id=progress.topic_id,
            )
        await self._stream.send(response.SerializeToString())

    async def records(
        self,
        partition: TopicPartition,
        topic_id: bytes,
        records: Sequence[Record],
        end_offset: int | None,
        *,
        is_append_time: bool,
    ) -> None:
        response = pb.SubscribeResponse()
        response.records.topic, response.records.partition = partition
        response.records.topic_id = topic_id
        if end_offset is not None:
            response.records.end_offset = end_offset
        add = response.records.records.add
        for offset, timestamp_ms, key, value, headers in records:
            told = add(offset=offset, timestamp_ms=timestamp_ms, key=key, value=value)
            if is_append_time:
                told.is_append_time = True
            for name, content in headers:
                told.headers.add(name=name, value=content)
        await self._stream.send(response.SerializeToString())

    async def share_records(
        self, partition: TopicPartition, records: Sequence[ShareRecord]
    ) -> None:
        response = pb.SubscribeResponse()
        response.records.topic, response.records.partition = partition
        for each in records:
            told = response.records.records.add(
                offset=each.offset,
                timestamp_ms=each.timestamp_ms,
                is_append_time=each.timestamp_type is TimestampType.LOG_APPEND_TIME,
                key=each.key,
                value=each.value,
                delivery_count=each.delivery_count,
            )
            for name, content in each.headers:
                told.headers.add(name=name, value=content)
        await self._stream.send(response.SerializeToString())

    async def acknowledged(self, results: Sequence[AcknowledgeResult]) -> None:
        response = pb.SubscribeResponse(acknowledged=pb.Acknowledged())
        for (topic, partition), offsets, why, is_renewal in results:
            batch = response.acknowledged.batches.add(
                topic=topic, partition=partition, offsets=offsets, is_renewal=is_renewal
            )
            if why is not None:
                describe(batch.error, why)
        await self._stream.send(response.SerializeToString())

    async def close(self) -> None:
        await self._stream.close()


def _start(start: pb.SubscribeStart) -> Start:
    reset = _RESETS.get(start.offset_reset)
    if reset is None:
        raise _invalid(f"offset_reset {start.offset_reset} is not known to this broker")
    isolation = _ISOLATIONS.get(start.isolation)
    if isolation is None:
        raise _invalid(f"isolation {start.isolation} is not known to this broker")
    grant = _grant(start.credit) if start.HasField("credit") else None
    joining = None
    if start.group:
        instance_id = start.group_instance_id or None
        protocol = _GROUP_PROTOCOLS.get(start.group_protocol)
        if protocol is None:
            raise _invalid(f"group_protocol {start.group_protocol} is not known to this broker")
        joining = Joining(
            start.group,
            tuple(start.topics),
            start.client_id,
            instance_id,
            protocol,
            start.topic_pattern,
        )
    elif start.topics or start.topic_pattern or start.group_instance_id or start.group_protocol:
        raise _invalid(
            "topics, topic_pattern, group_instance_id and group_protocol belong to a group"
        )
    if start.lock_renewal_ms:
        raise _invalid("lock_renewal_ms belongs to a share group")
    return Start([_from(each) for each in start.partitions], reset, grant, joining, isolation)


_NOT_OF_SHARES: Final = (
    "partitions",
    "group",
    "offset_reset",
    "isolation",
    "group_instance_id",
    "group_protocol",
    "topic_pattern",
)


def _share_start(start: pb.SubscribeStart) -> ShareStart:
    given = [name for name in _NOT_OF_SHARES if getattr(start, name)]
    if given:
        raise _invalid(f"{', '.join(given)}: not for a share group, which has topics")
    return ShareStart(
        start.share_group,
        tuple(start.topics),
        start.client_id,
        start.lock_renewal_ms,
        _grant(start.credit) if start.HasField("credit") else None,
    )


def _acknowledgements(request: pb.Acknowledge) -> Acknowledgements:
    count = sum(len(each.offsets) for each in request.batches)
    if not 0 < count <= ACKNOWLEDGED_MAX:
        raise _invalid(f"an acknowledge has 1 to {ACKNOWLEDGED_MAX} offsets, not {count}")
    records: list[RecordsToAcknowledge] = []
    for each in request.batches:
        kind = _ACKNOWLEDGE_TYPES.get(each.type)
        if kind is None:
            raise _invalid(f"acknowledge type {each.type} is not known to this broker")
        partition = TopicPartition(each.topic, each.partition)
        records.append(RecordsToAcknowledge(partition, tuple(each.offsets), kind))
    return Acknowledgements(tuple(records))


def _from(start: pb.PartitionStart) -> From:
    partition = start.partition if start.HasField("partition") else None
    kind = start.WhichOneof("from")
    if kind == "offset" and start.offset >= 0:
        return From(start.topic, partition, start.offset)
    if kind == "timestamp_ms" and start.timestamp_ms >= 0:
        return From(start.topic, partition, Edge.LATEST, start.timestamp_ms)
    edge = _EDGES.get(start.edge)
    if kind in ("offset", "timestamp_ms") or edge is None:
        raise _invalid(f"there is no such place in a log: {start}")
    return From(start.topic, partition, edge)


def _offsets(commit: pb.Commit) -> Offsets:
    if not 0 < len(commit.offsets) <= OFFSETS_MAX:
        raise _invalid(f"a commit has 1 to {OFFSETS_MAX} offsets")
    if any(each.offset < 0 for each in commit.offsets):
        raise _invalid("a committed offset is not negative")
    return Offsets(
        {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(
                each.offset, metadata=each.metadata, topic_id=each.topic_id
            )
            for each in commit.offsets
        }
    )


def _grant(credit: pb.Credit) -> Grant:
    return Grant(credit.records, credit.bytes if credit.HasField("bytes") else None)


def _invalid(message: str) -> RpcError:
    return stream_error(ErrorCode.INVALID_REQUEST, message)
