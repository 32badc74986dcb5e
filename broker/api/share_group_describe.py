"""ShareGroupDescribe (77), version 1: share groups with their members and partitions (KIP-932).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import NO_OPERATIONS, RequestContext, Served
from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.share.types import DescribedShareMember, ShareDescribeAnswer
from broker.service import groups, share_groups
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from metadata.image import MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import share_group_describe as messages
from stele.wire.kafka.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from storage.turns import in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    check_named(len(request.group_ids), "groups")
    caller, image = request_context.caller, context.image()
    found = await share_groups.describe(context, caller, request.group_ids)

    def tell(asked: tuple[str, ShareDescribeAnswer | ApiError]) -> DescribedGroup:
        group_id, each = asked
        if isinstance(each, ApiError):
            return _refused(group_id, each)
        operations = NO_OPERATIONS
        if request.include_authorized_operations:
            operations = groups.group_operations(context, caller, group_id)
        return DescribedGroup(
            group_id=group_id,
            group_state=each.state.value,
            group_epoch=each.epoch,
            assignment_epoch=each.assignment_epoch,
            assignor_name=each.assignor,
            members=[_member(image, member) for member in each.members],
            authorized_operations=operations,
        )

    told = await in_slices(tell, zip(request.group_ids, found, strict=True))
    return ShareGroupDescribeResponse(groups=told)


def _member(image: MetadataImage, member: DescribedShareMember) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        assignment=_assignment(image, member.assigned),
    )


def _assignment(image: MetadataImage, partitions: Partitions) -> Assignment:
    return Assignment(
        [
            TopicPartitions(topic.topic_id, topic.name, numbers)
            for topic, numbers in groups.existing_partitions(image, partitions)
        ]
    )


def _refused(group_id: str, error: ApiError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message or None,
        group_id=group_id,
        assignment_epoch=0,
        authorized_operations=NO_OPERATIONS,
    )


async def refuse(
    request_context: RequestContext, request: ShareGroupDescribeRequest, error: ErrorCode
) -> ShareGroupDescribeResponse:
    why = ApiError(error)
    refused = await in_slices(lambda each: _refused(each, why), request.group_ids)
    return ShareGroupDescribeResponse(groups=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
