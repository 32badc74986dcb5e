"""OffsetFetch (9), versions 1-10: how far groups have read partitions.

The answer contains only commits whose records are below the high watermark. Deviations: none known.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from storage.turns import SLICE_STEPS, Slices

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
            asked = [AskedTopic(t.name, NO_TOPIC_ID, t.partition_indexes) for t in request.topics]
        told = await group_offsets.fetch(
            context, caller, request.group_id, asked, require_stable=stable
        )
        return _single(told)
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
            answered.append(OffsetFetchResponseGroup(group.group_id, _topics(told)))
    return OffsetFetchResponse(groups=answered)


def _topics(told: list[ToldTopic]) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            topic.name,
            topic.topic_id,
            [
                OffsetFetchResponsePartitions(
                    each.partition, each.offset, each.leader_epoch, each.metadata, error
                )
                for each, error in topic.partitions
            ],
        )
        for topic in told
    ]


def _single(told: list[ToldTopic]) -> OffsetFetchResponse:
    """Up to version 7 the answer is about one group."""
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(
                        each.partition, each.offset, each.leader_epoch, each.metadata, error
                    )
                    for each, error in topic.partitions
                ],
            )
            for topic in told
        ]
    )


def refuse(
    request_context: RequestContext, request: OffsetFetchRequest, error: ErrorCode
) -> OffsetFetchResponse:
    if request_context.version >= _SEVERAL_FROM:
        return OffsetFetchResponse(
            groups=[
                OffsetFetchResponseGroup(each.group_id, error_code=error) for each in request.groups
            ]
        )
    if request_context.version >= _GROUP_ERROR_FROM:
        return OffsetFetchResponse(error_code=error)
    return _single(list(_refused(request, error)))


def _refused(request: OffsetFetchRequest, error: ErrorCode) -> Iterator[ToldTopic]:
    for topic in request.topics or ():
        parts = [(FetchedOffset(topic.name, each), error) for each in topic.partition_indexes]
        yield ToldTopic(topic.name, NO_TOPIC_ID, parts)


SERVED = Served(messages.API, refuse, handle_async=handle)
