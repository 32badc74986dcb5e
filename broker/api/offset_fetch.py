"""OffsetFetch (9), versions 1-10: how far groups have read partitions.

The answer contains only commits whose records are below the high watermark. Deviations: none known.
"""

from __future__ import annotations

from functools import partial

from broker.api.handler import RequestContext, Served
from broker.coordinator.group.types import FetchedOffset
from broker.service import group_offsets
from broker.service.context import BrokerContext
from broker.service.group_offsets import AskedTopic, ToldTopic
from broker.service.topics import NO_TOPIC_ID
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import offset_fetch as messages
from stele.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from storage.turns import SLICE_STEPS, Slices, in_slices

_GROUP_ERROR_FROM = 2
_SEVERAL_FROM = 8
_TOPIC_IDS_FROM = 10


async def handle(
    context: BrokerContext, request_context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    caller, stable = request_context.caller, request.require_stable
    by_id = request_context.version >= _TOPIC_IDS_FROM
    if request_context.version < _SEVERAL_FROM:
        asked = None
        if request.topics is not None:
            asked = await in_slices(_asked, request.topics)
        told = await group_offsets.fetch(
            context, caller, request.group_id, asked, require_stable=stable
        )
        return await _single(told)
    answered = []
    slices = Slices(SLICE_STEPS)
    for group in request.groups:
        await slices.step()  # a group that is refused waits for nothing
        asked = None
        if group.topics is not None:
            asked = [
                AskedTopic(t.name, t.topic_id if by_id else NO_TOPIC_ID, t.partition_indexes)
                for t in group.topics
            ]
        try:
            told = await group_offsets.fetch(
                context,
                caller,
                group.group_id,
                asked,
                require_stable=stable,
                member_id=group.member_id,
                member_epoch=group.member_epoch,
            )
        except ApiError as error:
            told_why = error.message or None if request_context.is_ours else None
            answered.append(
                OffsetFetchResponseGroup(
                    group.group_id, error_code=error.code, error_message=told_why
                )
            )
        else:
            answered.append(OffsetFetchResponseGroup(group.group_id, await _topics(told)))
    return OffsetFetchResponse(groups=answered)


def _asked(topic: OffsetFetchRequestTopic) -> AskedTopic:
    return AskedTopic(topic.name, NO_TOPIC_ID, topic.partition_indexes)


async def _topics(told: list[ToldTopic]) -> list[OffsetFetchResponseTopics]:
    slices = Slices(SLICE_STEPS)

    def partition(told: tuple[FetchedOffset, ErrorCode]) -> OffsetFetchResponsePartitions:
        each, error = told
        return OffsetFetchResponsePartitions(
            each.partition, each.offset, each.leader_epoch, each.metadata, error
        )

    return [
        OffsetFetchResponseTopics(
            topic.name, topic.topic_id, await slices.map(partition, topic.partitions)
        )
        for topic in told
    ]


async def _single(told: list[ToldTopic]) -> OffsetFetchResponse:
    """Up to version 7 the answer is about one group."""
    slices = Slices(SLICE_STEPS)

    def partition(told: tuple[FetchedOffset, ErrorCode]) -> OffsetFetchResponsePartition:
        each, error = told
        return OffsetFetchResponsePartition(
            each.partition, each.offset, each.leader_epoch, each.metadata, error
        )

    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(topic.name, await slices.map(partition, topic.partitions))
            for topic in told
        ]
    )


async def refuse(
    request_context: RequestContext, request: OffsetFetchRequest, error: ErrorCode
) -> OffsetFetchResponse:
    if request_context.version >= _SEVERAL_FROM:
        groups = await in_slices(
            lambda each: OffsetFetchResponseGroup(each.group_id, error_code=error), request.groups
        )
        return OffsetFetchResponse(groups=groups)
    if request_context.version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=error)
    return await _single(await in_slices(partial(_refused, error), request.topics or ()))


def _refused(error: ErrorCode, topic: OffsetFetchRequestTopic) -> ToldTopic:
    parts = [(FetchedOffset(topic.name, each), error) for each in topic.partition_indexes]
    return ToldTopic(topic.name, NO_TOPIC_ID, parts)


SERVED = Served(messages.API, refuse, handle_async=handle)
