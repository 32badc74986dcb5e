"""stele.v1.Groups: their administration over gRPC, by the functions of the Kafka APIs.

Deviations from the Kafka APIs of the same names: nobody asks for a group's authorized operations.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from broker.coordinator.group import types
from broker.coordinator.group.consumer.types import ConsumerDescribeAnswer
from broker.coordinator.group.types import (
    CONSUMER_PROTOCOL,
    NO_GENERATION,
    GroupState,
    GroupType,
    OffsetToCommit,
    OffsetToDelete,
)
from broker.grpc.answers import check_count, refusable, tell_coordinators, why
from broker.grpc.messages import unary
from broker.grpc.share_groups import describe_share_groups, share_group_methods, topics_of
from broker.service import group_deletion, group_offsets, groups
from broker.service.context import BrokerContext
from broker.service.coordinators import GROUPS, Coordinators
from broker.service.group_offsets import AskedTopic
from broker.service.topics import NO_TOPIC_ID
from metadata.image import MetadataImage
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import groups_pb2 as pb
from storage.turns import SLICE_STEPS, Slices, in_slices
from world.network import Service

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class GroupsService:
    """The service for the clients of one named listener."""

    def __init__(self, context: BrokerContext, listener: str) -> None:
        self._context = context
        self._listener = listener

    def service(self) -> Service:
        methods: dict[str, tuple[type[Message], type[Message], Any]] = {
            "OffsetCommit": (pb.OffsetCommitRequest, pb.OffsetCommitResponse, self._commit),
            "OffsetFetch": (pb.OffsetFetchRequest, pb.OffsetFetchResponse, self._fetch),
            "ListGroups": (pb.ListGroupsRequest, pb.ListGroupsResponse, self._list),
            "OffsetDelete": (pb.OffsetDeleteRequest, pb.OffsetDeleteResponse, self._delete_offsets),
            **share_group_methods(self._context),
        }
        each_with_an_error: dict[str, tuple[type[Message], Any]] = {
            "FindCoordinator": (pb.FindCoordinatorRequest, self._find),
            "DescribeGroups": (pb.DescribeGroupsRequest, self._describe),
            "DeleteGroups": (pb.DeleteGroupsRequest, self._delete),
        }
        calls = {
            name: (request, refusable(response, handle))
            for name, (request, response, handle) in methods.items()
        }
        return Service(
            unary={
                f"/stele.v1.Groups/{name}": unary(self._listener, *call)
                for name, call in {**calls, **each_with_an_error}.items()
            }
        )

    async def _find(
        self, caller: Caller, request: pb.FindCoordinatorRequest
    ) -> pb.FindCoordinatorResponse:
        check_count(len(request.groups), "groups")
        response = pb.FindCoordinatorResponse()
        await tell_coordinators(
            Coordinators(self._context, caller, GROUPS),
            request.groups,
            lambda each: response.coordinators.add(group=each),
        )
        return response

    # --------------------------------------------------------------------------- offsets

    async def _commit(
        self, caller: Caller, request: pb.OffsetCommitRequest
    ) -> pb.OffsetCommitResponse:
        commit = types.OffsetCommitRequest(
            group_id=request.group,
            generation=request.generation if request.HasField("generation") else NO_GENERATION,
            member_id=request.member_id,
            group_instance_id=(
                request.group_instance_id if request.HasField("group_instance_id") else None
            ),
            offsets=(),
        )
        offsets = (
            OffsetToCommit(
                each.topic,
                each.partition,
                each.offset,
                each.leader_epoch if each.HasField("leader_epoch") else -1,
                each.metadata,
                each.topic_id or NO_TOPIC_ID,
            )
            for each in request.partitions
        )
        errors = await group_offsets.commit(self._context, caller, commit, offsets)
        response = pb.OffsetCommitResponse()
        slices = Slices(SLICE_STEPS)
        for each, error in zip(request.partitions, errors, strict=True):
            more = group_offsets.why_refused(self._context, each.metadata, error)
            response.partitions.add(
                topic=each.topic,
                partition=each.partition,
                error=error,
                topic_id=each.topic_id,
                message=more or explain(error),
            )
            await slices.step()
        return response

    async def _fetch(
        self, caller: Caller, request: pb.OffsetFetchRequest
    ) -> pb.OffsetFetchResponse:
        asked = await in_slices(
            lambda each: AskedTopic(each.topic, each.topic_id or NO_TOPIC_ID, each.partitions),
            request.topics,
        )
        told = await group_offsets.fetch(
            self._context,
            caller,
            request.group,
            asked or None,
            require_stable=request.require_stable,
        )
        answer = pb.OffsetFetchResponse()
        slices = Slices(SLICE_STEPS)
        for topic in told:
            await slices.step()
            for each, error in topic.partitions:
                answer.partitions.add(
                    topic=topic.name,
                    partition=each.partition,
                    error=error,
                    offset=each.offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    topic_id=each.topic_id,
                )
                await slices.step()
        return answer

    async def _delete_offsets(
        self, caller: Caller, request: pb.OffsetDeleteRequest
    ) -> pb.OffsetDeleteResponse:
        offsets = await in_slices(
            lambda named: OffsetToDelete(*named),
            ((topic.topic, each) for topic in request.topics for each in topic.partitions),
        )
        errors = await group_offsets.delete(self._context, caller, request.group, offsets)
        answer = pb.OffsetDeleteResponse()
        slices = Slices(SLICE_STEPS)
        for each, error in zip(offsets, errors, strict=True):
            answer.partitions.add(topic=each.topic, partition=each.partition, error=error)
            await slices.step()
        return answer

    # -------------------------------------------------------------------- administration

    async def _list(self, caller: Caller, request: pb.ListGroupsRequest) -> pb.ListGroupsResponse:
        wanted = types.ListRequest(tuple(request.states), tuple(request.types))
        return pb.ListGroupsResponse(
            groups=[
                pb.ListGroupsResponse.Group(
                    group=each.group_id,
                    protocol_type=each.protocol_type,
                    state=each.state.value,
                    type=each.group_type.value,
                )
                for each in await groups.list_groups(self._context, caller, wanted)
            ]
        )

    async def _describe(
        self, caller: Caller, request: pb.DescribeGroupsRequest
    ) -> pb.DescribeGroupsResponse:
        check_count(len(request.groups), "groups")
        response = pb.DescribeGroupsResponse()
        answers = await groups.describe(self._context, caller, request.groups)
        for group, found in zip(request.groups, answers, strict=True):
            told = response.groups.add(group=group)
            if isinstance(found, ApiError):
                told.error, told.message = found.code, why(found)
                continue
            told.state = found.state.value
            if found.state is GroupState.DEAD:
                continue
            told.type = GroupType.CLASSIC.value
            told.protocol_type, told.protocol = found.protocol_type, found.protocol
            for each in found.members:
                told.members.add(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    host=each.client_host,
                    metadata=each.metadata,
                    assignment=each.assignment,
                )
        await self._describe_consumers(caller, response)
        missing = [each for each in response.groups if each.state == GroupState.DEAD.value]
        await describe_share_groups(self._context, caller, missing)
        return response

    async def _describe_consumers(
        self, caller: Caller, response: pb.DescribeGroupsResponse
    ) -> None:
        """Look for groups of the consumer protocol where there is no classic one."""
        missing = [each for each in response.groups if each.state == GroupState.DEAD.value]
        names = [each.group for each in missing]
        answers = await groups.describe_consumers(self._context, caller, names)
        for told, found in zip(missing, answers, strict=True):
            if not isinstance(found, ApiError):
                _tell_consumers(told, found, self._context.image())
            elif found.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                told.error, told.message = found.code, why(found)

    async def _delete(
        self, caller: Caller, request: pb.DeleteGroupsRequest
    ) -> pb.DeleteGroupsResponse:
        check_count(len(request.groups), "groups")
        errors = await group_deletion.delete(self._context, caller, request.groups)
        return pb.DeleteGroupsResponse(
            groups=[
                pb.DeleteGroupsResponse.Group(group=each, error=error.code, message=why(error))
                for each, error in zip(request.groups, errors, strict=True)
            ]
        )


def _tell_consumers(
    told: pb.DescribeGroupsResponse.Group, found: ConsumerDescribeAnswer, image: MetadataImage
) -> None:
    """Fill in a description. Topics that ``image`` does not have are left out."""
    told.state, told.type = found.state.value, GroupType.CONSUMER.value
    told.protocol_type, told.protocol = CONSUMER_PROTOCOL, found.assignor
    told.group_epoch, told.assignment_epoch = found.epoch, found.assignment_epoch
    for each in found.members:
        told.members.add(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            host=each.client_host,
            member_epoch=each.member_epoch,
            assigned=topics_of(each.assigned, image),
            target=topics_of(each.target, image),
            is_classic=each.is_classic,
        )
