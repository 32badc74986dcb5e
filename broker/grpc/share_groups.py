"""The methods of stele.v1.Groups about share groups (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from google.protobuf.message import Message

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.share.group import SHARE_PROTOCOL
from broker.coordinator.group.share.types import ShareDescribeAnswer
from broker.coordinator.group.types import GroupType
from broker.grpc.answers import check_count, why
from broker.service import share_groups, share_offsets, share_windows
from broker.service.context import BrokerContext
from broker.service.groups import existing_partitions
from broker.service.share_windows import WindowRequest
from broker.sharing.window_description import DescribedRange
from metadata.image import MetadataImage
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import groups_pb2 as pb
from storage.turns import SLICE_STEPS, Slices, in_slices

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
        "DescribeShareWindow": (
            pb.DescribeShareWindowRequest,
            pb.DescribeShareWindowResponse,
            partial(_describe_window, context),
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


async def _describe_window(
    context: BrokerContext, caller: Caller, request: pb.DescribeShareWindowRequest
) -> pb.DescribeShareWindowResponse:
    asked = WindowRequest(
        request.group, request.topic, request.partition, request.from_offset, request.max_ranges
    )
    window, readers = share_windows.describe_window(context, caller, asked)
    if window is None:
        return pb.DescribeShareWindowResponse(
            readers=readers, start_offset=-1, end_offset=-1, start_since_ms=-1, next_offset=-1
        )
    limits = window.limits
    return pb.DescribeShareWindowResponse(
        known=True,
        readers=readers,
        time_ms=window.time_ms,
        start_offset=window.start_offset,
        end_offset=window.end_offset,
        start_since_ms=window.start_since_ms,
        done_records=window.done_count,
        acquired_records=window.acquired_count,
        redelivered_records=window.redelivered_count,
        archiving_records=window.archiving_count,
        letter_trouble=window.letter_trouble or "",
        max_record_locks=limits.partition_max_record_locks,
        delivery_count_limit=limits.delivery_count_limit,
        record_lock_duration_ms=limits.record_lock_duration_ms,
        holders=[
            pb.DescribeShareWindowResponse.Holder(
                member_id=each.member_id,
                records=each.record_count,
                lock_until_ms=each.lock_until_ms,
            )
            for each in window.holders
        ],
        ranges=await in_slices(_range, window.ranges),
        next_offset=window.next_offset,
    )


def _range(each: DescribedRange) -> pb.DescribeShareWindowResponse.Range:
    vain = each.vain
    return pb.DescribeShareWindowResponse.Range(
        first_offset=each.first,
        last_offset=each.last,
        state=each.state.name.lower(),
        delivery_count=each.delivery_count,
        member_id=each.holder,
        acquired_ms=each.acquired_ms,
        lock_until_ms=each.lock_until_ms,
        being_persisted=each.is_being_persisted,
        due_ms=each.due_ms,
        last_vain_delivery=None
        if vain is None
        else pb.DescribeShareWindowResponse.VainDelivery(
            end=vain.end.value,
            member_id=vain.member,
            ended_ms=vain.ended_ms,
            last_offset=vain.last,
        ),
    )


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
    """Topics that ``image`` does not have are left out."""
    for topic, numbers in existing_partitions(image, partitions):
        yield pb.DescribeGroupsResponse.Topic(topic=topic.name, partitions=numbers)
