"""OffsetCommit (8), versions 2-10: remember how far a group has read partitions.

An acknowledged commit is on disk on every in-sync replica. Deviations: none known.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

from broker.api.handler import RequestContext, Served
from broker.coordinator.group import types
from broker.coordinator.group.types import OffsetToCommit
from broker.service import group_offsets
from broker.service.context import BrokerContext
from broker.service.topics import NO_TOPIC_ID
from stele.errors import ErrorCode
from stele.wire.kafka.messages import offset_commit as messages
from stele.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from storage.turns import SLICE_STEPS, Slices

_GROUP_ID_NOT_FOUND_FROM = 9
_TOPIC_IDS_FROM = 10


async def handle(
    context: BrokerContext, request_context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    by_id = request_context.version >= _TOPIC_IDS_FROM
    commit = types.OffsetCommitRequest(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        offsets=(),
        retention_ms=None if request.retention_time_ms < 0 else request.retention_time_ms,
        knows_group_id_not_found=request_context.version >= _GROUP_ID_NOT_FOUND_FROM,
    )
    offsets = (
        OffsetToCommit(
            topic.name,
            part.partition_index,
            part.committed_offset,
            part.committed_leader_epoch,
            part.committed_metadata or "",
            topic.topic_id if by_id else NO_TOPIC_ID,
        )
        for topic in request.topics
        for part in topic.partitions
    )
    errors = await group_offsets.commit(context, request_context.caller, commit, offsets)
    response = await _response(request, iter(errors))
    if request_context.is_ours and ErrorCode.OFFSET_METADATA_TOO_LARGE in errors:
        for topic, answer in zip(request.topics, response.topics, strict=True):
            for asked, told in zip(topic.partitions, answer.partitions, strict=True):
                told.error_message = group_offsets.why_refused(
                    context, asked.committed_metadata or "", ErrorCode(told.error_code)
                )
    return response


async def _response(
    request: OffsetCommitRequest, errors: Iterator[ErrorCode]
) -> OffsetCommitResponse:
    slices = Slices(SLICE_STEPS)

    def told(partition: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
        return OffsetCommitResponsePartition(partition.partition_index, next(errors))

    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic_id=topic.topic_id,
                name=topic.name,
                partitions=await slices.map(told, topic.partitions),
            )
            for topic in request.topics
        ]
    )


async def refuse(
    request_context: RequestContext, request: OffsetCommitRequest, error: ErrorCode
) -> OffsetCommitResponse:
    return await _response(request, repeat(error))


SERVED = Served(messages.API, refuse, handle_async=handle, explains=True)
