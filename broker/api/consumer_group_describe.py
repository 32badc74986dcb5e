"""ConsumerGroupDescribe (69), versions 0-1: groups of the consumer protocol with their members.

Deviations: none known. Groups of the classic protocol are not found, as in Kafka.
"""

from __future__ import annotations

from broker.api.handler import NO_OPERATIONS, RequestContext, Served
from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.types import ConsumerDescribeAnswer, DescribedConsumer
from broker.service import groups
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from metadata.image import MetadataImage
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import consumer_group_describe as messages
from stele.wire.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from storage.turns import in_slices

_CLASSIC = 0
_CONSUMER = 1


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    check_named(len(request.group_ids), "groups")
    caller, image = request_context.caller, context.image()
    found = await groups.describe_consumers(context, caller, request.group_ids)

    def tell(asked: tuple[str, ConsumerDescribeAnswer | ApiError]) -> DescribedGroup:
        group_id, each = asked
        if isinstance(each, ApiError):
            return _refused(group_id, each)
        operations = NO_OPERATIONS
        if request.include_authorized_operations:
            operations = groups.group_operations(context, caller, group_id)
        return _described(image, each, operations)

    told = await in_slices(tell, zip(request.group_ids, found, strict=True))
    return ConsumerGroupDescribeResponse(groups=told)


def _described(
    image: MetadataImage, group: ConsumerDescribeAnswer, operations: int
) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(image, each) for each in group.members],
        authorized_operations=operations,
    )


def _member(image: MetadataImage, member: DescribedConsumer) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(image, member.assigned),
        target_assignment=_assignment(image, member.target),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
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
        authorized_operations=NO_OPERATIONS,
    )


async def refuse(
    request_context: RequestContext, request: ConsumerGroupDescribeRequest, error: ErrorCode
) -> ConsumerGroupDescribeResponse:
    why = ApiError(error)
    refused = await in_slices(lambda each: _refused(each, why), request.group_ids)
    return ConsumerGroupDescribeResponse(groups=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
