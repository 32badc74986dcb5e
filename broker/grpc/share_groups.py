"""The methods of stele.v1.Groups about share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.message import Message

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.share.group import SHARE_PROTOCOL
from broker.coordinator.group.share.types import ShareDescribeAnswer
from broker.coordinator.group.types import GroupType
from broker.grpc.answers import check_count, why
from broker.service import share_groups, share_offsets
from broker.service.context import BrokerContext
from broker.service.groups import existing_partitions
from metadata.image import MetadataImage
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import groups_pb2 as pb
from storage.turns import SLICE_STEPS, Slices

_ABSENT = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


def share_group_methods(
    context: BrokerContext,
) -> dict[str, tuple[type[Message], type[Message], Any]]:
    """By name: the messages, and what handles a request."""
    offsets = _Offsets(context)
    return {
        "DescribeShareGroupOffsets": (
            pb.DescribeShareGroupOffsetsRequest,
            pb.DescribeShareGroupOffsetsResponse,
            offsets.describe,
        ),
        "AlterShareGroupOffsets": (
            pb.AlterShareGroupOffsetsRequest,
            pb.AlterShareGroupOffsetsResponse,
            offsets.alter,
        ),
        "DeleteShareGroupOffsets": (
            pb.DeleteShareGroupOffsetsRequest,
            pb.DeleteShareGroupOffsetsResponse,
            offsets.delete,
        ),
    }


class _Offsets:
    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def describe(
        self, caller: Caller, request: pb.DescribeShareGroupOffsetsRequest
    ) -> pb.DescribeShareGroupOffsetsResponse:
        asked = [(each.topic, each.partitions) for each in request.topics]
        group = request.group, asked or None
        (found,) = await share_offsets.describe(self._context, caller, [group], with_lags=True)
        if isinstance(found, ApiError):
            raise found
        response = pb.DescribeShareGroupOffsetsResponse()
        slices = Slices(SLICE_STEPS)
        for topic in found:
            for each in topic.partitions:
                response.partitions.add(
                    topic=topic.name,
                    partition=each.partition,
                    error=each.error,
                    message=_why(each.error, each.message),
                    start_offset=each.start_offset,
                    leader_epoch=each.leader_epoch,
                    lag=each.lag,
                )
                await slices.step()
        return response

    async def alter(
        self, caller: Caller, request: pb.AlterShareGroupOffsetsRequest
    ) -> pb.AlterShareGroupOffsetsResponse:
        offsets = [(each.topic, each.partition, each.start_offset) for each in request.partitions]
        outcomes = await share_offsets.alter(self._context, caller, request.group, offsets)
        response = pb.AlterShareGroupOffsetsResponse()
        slices = Slices(SLICE_STEPS)
        for (topic, number, _), each in zip(offsets, outcomes, strict=True):
            response.partitions.add(
                topic=topic,
                partition=number,
                error=each.error,
                message=_why(each.error, each.message),
            )
            await slices.step()
        return response

    async def delete(
        self, caller: Caller, request: pb.DeleteShareGroupOffsetsRequest
    ) -> pb.DeleteShareGroupOffsetsResponse:
        check_count(len(request.topics), "topics")
        outcomes = await share_offsets.delete(
            self._context, caller, request.group, list(request.topics)
        )
        response = pb.DeleteShareGroupOffsetsResponse()
        for topic, each in zip(request.topics, outcomes, strict=True):
            response.topics.add(
                topic=topic, error=each.error, message=_why(each.error, each.message)
            )
        return response


def _why(error: ErrorCode, message: str | None) -> str:
    return message or explain(error)


async def describe_share_groups(
    context: BrokerContext, caller: Caller, missing: Sequence[pb.DescribeGroupsResponse.Group]
) -> None:
    """Fill in the descriptions of those that are share groups."""
    names = [each.group for each in missing]
    answers = await share_groups.describe(context, caller, names)
    for told, found in zip(missing, answers, strict=True):
        if not isinstance(found, ApiError):
            _tell(told, found, context.image())
        elif found.code not in _ABSENT:
            told.error, told.message = found.code, why(found)


def _tell(
    told: pb.DescribeGroupsResponse.Group, found: ShareDescribeAnswer, image: MetadataImage
) -> None:
    told.state, told.type = found.state.value, GroupType.SHARE.value
    told.protocol_type, told.protocol = SHARE_PROTOCOL, found.assignor
    told.group_epoch, told.assignment_epoch = found.epoch, found.assignment_epoch
    for each in found.members:
        told.members.add(
            member_id=each.member_id,
            client_id=each.client_id,
            host=each.client_host,
            member_epoch=each.member_epoch,
            assigned=topics_of(each.assigned, image),
        )


def topics_of(
    partitions: Partitions, image: MetadataImage
) -> Iterator[pb.DescribeGroupsResponse.Topic]:
    """Those that ``image`` does not have are left out."""
    for topic, numbers in existing_partitions(image, partitions):
        yield pb.DescribeGroupsResponse.Topic(topic=topic.name, partitions=numbers)
