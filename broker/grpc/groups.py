"""stele.v1.Groups: consumer groups for gRPC clients, by the functions of the Kafka plane.

Deviations from the Kafka APIs of the same names: a member says its client id in JoinGroup, and
nobody asks for a group's authorized operations.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from broker.coordinator.group import types
from broker.coordinator.group.consumer.types import ConsumerHeartbeatRequest
from broker.coordinator.group.types import (
    GroupState,
    GroupType,
    LeavingMember,
    MemberProtocol,
    OffsetToDelete,
)
from broker.grpc import consumer_groups
from broker.grpc.answers import (
    check_count,
    commit_of,
    instance_of,
    offsets_of,
    refusable,
    tell_committed,
    tell_coordinators,
    why,
)
from broker.grpc.messages import unary
from broker.service import group_offsets, groups
from broker.service.context import BrokerContext
from broker.service.coordinators import GROUPS, Coordinators
from broker.service.group_offsets import AskedTopic
from broker.service.topics import NO_TOPIC_ID
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import groups_pb2 as pb
from world.network import Service

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class GroupsService:
    """The service as it is given to those who came in over one named listener."""

    def __init__(self, context: BrokerContext, listener: str) -> None:
        self._context = context
        self._listener = listener

    def service(self) -> Service:
        methods: dict[str, tuple[type[Message], type[Message], Any]] = {
            "JoinGroup": (pb.JoinGroupRequest, pb.JoinGroupResponse, self._join),
            "SyncGroup": (pb.SyncGroupRequest, pb.SyncGroupResponse, self._sync),
            "Heartbeat": (pb.GroupHeartbeatRequest, pb.GroupHeartbeatResponse, self._heartbeat),
            "LeaveGroup": (pb.LeaveGroupRequest, pb.LeaveGroupResponse, self._leave),
            "ConsumerGroupHeartbeat": (
                pb.ConsumerGroupHeartbeatRequest,
                pb.ConsumerGroupHeartbeatResponse,
                self._consumer_heartbeat,
            ),
            "OffsetCommit": (pb.OffsetCommitRequest, pb.OffsetCommitResponse, self._commit),
            "OffsetFetch": (pb.OffsetFetchRequest, pb.OffsetFetchResponse, self._fetch),
            "ListGroups": (pb.ListGroupsRequest, pb.ListGroupsResponse, self._list),
            "OffsetDelete": (pb.OffsetDeleteRequest, pb.OffsetDeleteResponse, self._delete_offsets),
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

    # ------------------------------------------------------------------------ membership

    async def _find(
        self, caller: Caller, request: pb.FindCoordinatorRequest
    ) -> pb.FindCoordinatorResponse:
        response = pb.FindCoordinatorResponse()
        await tell_coordinators(
            Coordinators(self._context, caller, GROUPS),
            request.groups,
            lambda each: response.coordinators.add(group=each),
        )
        return response

    async def _join(self, caller: Caller, request: pb.JoinGroupRequest) -> pb.JoinGroupResponse:
        join = types.JoinRequest(
            group_id=request.group,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            member_id=request.member_id,
            group_instance_id=instance_of(request),
            protocol_type=request.protocol_type,
            protocols=tuple(MemberProtocol(each.name, each.metadata) for each in request.protocols),
            client_id=request.client_id,
            client_host=f"/{caller.address}",
            reason=request.reason,
        )
        answer = await groups.as_member(self._context, caller, join)
        return pb.JoinGroupResponse(
            error=answer.error,
            message=explain(answer.error),
            member_id=answer.member_id,
            generation=answer.generation,
            protocol=answer.protocol or "",
            leader=answer.leader,
            members=[
                pb.JoinGroupResponse.Member(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    metadata=each.metadata,
                )
                for each in answer.members
            ],
            skip_assignment=answer.skip_assignment,
        )

    async def _sync(self, caller: Caller, request: pb.SyncGroupRequest) -> pb.SyncGroupResponse:
        sync = types.SyncRequest(
            group_id=request.group,
            generation=request.generation,
            member_id=request.member_id,
            group_instance_id=instance_of(request),
            protocol_type=request.protocol_type or None,
            protocol=request.protocol or None,
            assignments={each.member_id: each.assignment for each in request.assignments},
        )
        answer = await groups.as_member(self._context, caller, sync)
        return pb.SyncGroupResponse(
            error=answer.error, message=explain(answer.error), assignment=answer.assignment
        )

    async def _heartbeat(
        self, caller: Caller, request: pb.GroupHeartbeatRequest
    ) -> pb.GroupHeartbeatResponse:
        heartbeat = types.HeartbeatRequest(
            request.group, request.generation, request.member_id, instance_of(request)
        )
        error = await groups.as_member(self._context, caller, heartbeat)
        return pb.GroupHeartbeatResponse(error=error, message=explain(error))

    async def _leave(self, caller: Caller, request: pb.LeaveGroupRequest) -> pb.LeaveGroupResponse:
        leaving = (
            LeavingMember(each.member_id, instance_of(each), each.reason)
            for each in request.members
        )
        leave = types.LeaveRequest(request.group, tuple(leaving))
        answer = await groups.as_member(self._context, caller, leave)
        return pb.LeaveGroupResponse(
            error=answer.error, message=explain(answer.error), members=answer.members
        )

    async def _consumer_heartbeat(
        self, caller: Caller, request: pb.ConsumerGroupHeartbeatRequest
    ) -> pb.ConsumerGroupHeartbeatResponse:
        def told(name: str) -> Any:
            return getattr(request, name) if request.HasField(name) else None

        topics = told("subscribed_topics")
        owned = told("owned")
        timeout_ms = told("rebalance_timeout_ms")
        heartbeat = ConsumerHeartbeatRequest(
            request.group,
            request.member_id,
            request.member_epoch,
            told("group_instance_id"),
            told("rack"),
            -1 if timeout_ms is None else timeout_ms,
            None if topics is None else tuple(topics.names),
            server_assignor=told("server_assignor"),
            owned=None if owned is None else _owned(owned),
            client_id=request.client_id,
            client_host=f"/{caller.address}",
        )
        answer = await groups.consumer_heartbeat(self._context, caller, heartbeat)
        response = pb.ConsumerGroupHeartbeatResponse(
            error=answer.error,
            message=answer.message or explain(answer.error),
            member_id=answer.member_id or "",
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
        )
        if answer.assigned is not None:
            response.assignment.SetInParent()
            for topic_id, numbers in sorted(answer.assigned.items()):
                response.assignment.topics.add(topic_id=topic_id, partitions=sorted(numbers))
        return response

    # --------------------------------------------------------------------------- offsets

    async def _commit(
        self, caller: Caller, request: pb.OffsetCommitRequest
    ) -> pb.OffsetCommitResponse:
        errors = await group_offsets.commit(
            self._context, caller, commit_of(request), offsets_of(request)
        )
        response = pb.OffsetCommitResponse()
        tell_committed(request, errors, response, self._context.config.offset_metadata_max_bytes)
        return response

    async def _fetch(
        self, caller: Caller, request: pb.OffsetFetchRequest
    ) -> pb.OffsetFetchResponse:
        asked = [
            AskedTopic(each.topic, each.topic_id or NO_TOPIC_ID, each.partitions)
            for each in request.topics
        ]
        told = await group_offsets.fetch(
            self._context,
            caller,
            request.group,
            asked or None,
            require_stable=request.require_stable,
        )
        return pb.OffsetFetchResponse(
            partitions=[
                pb.OffsetFetchResponse.Partition(
                    topic=topic.name,
                    partition=each.partition,
                    error=error,
                    offset=each.offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                    topic_id=each.topic_id,
                )
                for topic in told
                for each, error in topic.partitions
            ]
        )

    async def _delete_offsets(
        self, caller: Caller, request: pb.OffsetDeleteRequest
    ) -> pb.OffsetDeleteResponse:
        offsets = [
            OffsetToDelete(topic.topic, partition)
            for topic in request.topics
            for partition in topic.partitions
        ]
        errors = await group_offsets.delete(self._context, caller, request.group, offsets)
        return pb.OffsetDeleteResponse(
            partitions=[
                pb.OffsetDeleteResponse.Partition(
                    topic=each.topic, partition=each.partition, error=error
                )
                for each, error in zip(offsets, errors, strict=True)
            ]
        )

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
                consumer_groups.tell(told, found, self._context.image())
            elif found.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                told.error, told.message = found.code, why(found)

    async def _delete(
        self, caller: Caller, request: pb.DeleteGroupsRequest
    ) -> pb.DeleteGroupsResponse:
        check_count(len(request.groups), "groups")
        errors = await groups.delete(self._context, caller, request.groups)
        return pb.DeleteGroupsResponse(
            groups=[
                pb.DeleteGroupsResponse.Group(group=each, error=error.code, message=why(error))
                for each, error in zip(request.groups, errors, strict=True)
            ]
        )


def _owned(told: pb.ConsumerGroupHeartbeatRequest.Partitions) -> dict[bytes, frozenset[int]]:
    owned: dict[bytes, frozenset[int]] = {}
    for each in told.topics:
        if each.partitions:
            before = owned.get(each.topic_id, frozenset())
            owned[each.topic_id] = before.union(each.partitions)
    return owned
