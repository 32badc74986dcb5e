"""DescribeShareGroupOffsets (90), versions 0-1: where share groups begin (KIP-932), and their lag
(KIP-1226).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import share_offsets
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from broker.service.share_offsets import TopicOffsets
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_share_group_offsets as messages
from stele.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from storage.turns import SLICE_STEPS, Slices, in_slices

_WITH_LAG = 1


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse:
    check_named(len(request.groups), "groups")
    described = await share_offsets.describe(
        context,
        request_context.caller,
        [(each.group_id, _asked(each)) for each in request.groups],
        with_lags=request_context.version >= _WITH_LAG,
    )
    slices = Slices(SLICE_STEPS)
    groups = []
    for asked, each in zip(request.groups, described, strict=True):
        if isinstance(each, ApiError):
            groups.append(_refused(asked.group_id, each))
        else:
            topics = [await _topic(topic, slices) for topic in each]
            groups.append(DescribeShareGroupOffsetsResponseGroup(asked.group_id, topics))
        await slices.step()
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _asked(
    group: DescribeShareGroupOffsetsRequestGroup,
) -> list[tuple[str, list[int]]] | None:
    if group.topics is None:
        return None
    return [(topic.topic_name, topic.partitions) for topic in group.topics]


async def _topic(topic: TopicOffsets, slices: Slices) -> DescribeShareGroupOffsetsResponseTopic:
    partitions = await slices.map(
        lambda each: DescribeShareGroupOffsetsResponsePartition(
            each.partition,
            each.start_offset,
            each.leader_epoch,
            each.lag,
            each.error,
            each.message,
        ),
        topic.partitions,
    )
    return DescribeShareGroupOffsetsResponseTopic(topic.name, topic.topic_id, partitions)


def _refused(group_id: str, error: ApiError) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id, error_code=error.code, error_message=error.message or None
    )


async def refuse(
    request_context: RequestContext, request: DescribeShareGroupOffsetsRequest, error: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    why = ApiError(error)
    refused = await in_slices(lambda each: _refused(each.group_id, why), request.groups)
    return DescribeShareGroupOffsetsResponse(groups=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
