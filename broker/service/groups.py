"""Consumer groups: the coordinator of a group, and the requests to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from broker.coordinator.asking import ask_coordinator
from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.consumer.types import (
    ConsumerDescribeAnswer,
    ConsumerDescribeRequest,
    ConsumerHeartbeatAnswer,
    ConsumerHeartbeatRequest,
    ResolveRequest,
)
from broker.coordinator.group.types import (
    DescribeAnswer,
    DescribeRequest,
    GroupRequest,
    ListedGroup,
    ListRequest,
)
from broker.coordinator.step import Transaction, Waiter
from broker.service import group_regexes
from broker.service.context import BrokerContext
from broker.service.coordinators import (
    GROUPS,
    check_coordination_known,
    coordinated_by,
)
from broker.service.topics import topic_refusal
from metadata.features import GROUP_VERSION, finalized_level
from metadata.image import MetadataImage
from metadata.topics import Topic
from runtime.authorization.authorizer import (
    CLUSTER,
    Operation,
    allowed_operations,
    group_resource,
    refusal,
)
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from storage.turns import gather_in_slices

A = TypeVar("A")

_CONSUMER_PROTOCOL_LEVEL: Final = 1


async def ask(
    context: BrokerContext,
    caller: Caller,
    operation: Operation,
    request: GroupRequest[A],
    transaction: Transaction | None = None,
) -> A:
    """What the group's coordinator, if it is here, answers to a request, whose records may be part
    of a transaction.

    Raises ApiError GROUP_AUTHORIZATION_FAILED, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE; with a transaction also what ``TransactionVerifier`` says.
    """
    number = _coordinator_for(context, caller, operation, request)
    return await ask_coordinator(context.groups, number, request, transaction)


def _coordinator_for(
    context: BrokerContext, caller: Caller, operation: Operation, request: GroupRequest[Any]
) -> int:
    """The number of the coordinator's partition. Raises ApiError GROUP_AUTHORIZATION_FAILED,
    NOT_COORDINATOR."""
    why = refusal(context.authorizer, caller, operation, group_resource(request.group_id))
    if why is not None:
        raise why
    return coordinated_by(context, GROUPS, request.group_id)


async def ask_unchecked(
    context: BrokerContext, request: GroupRequest[A], transaction: Transaction | None = None
) -> A:
    """As ``ask``, for a request that this broker makes by itself, or whose caller was checked."""
    number = coordinated_by(context, GROUPS, request.group_id)
    return await ask_coordinator(context.groups, number, request, transaction)


# ------------------------------------------------------------------------------- membership
# All of these raise ApiError as ``ask`` does. Other errors are in the answer.


async def as_member(context: BrokerContext, caller: Caller, request: GroupRequest[A]) -> A:
    """JoinGroup, SyncGroup and LeaveGroup."""
    return await ask(context, caller, Operation.READ, request)


def submit_as_member(
    context: BrokerContext, caller: Caller, request: GroupRequest[A], waiter: Waiter
) -> None:
    """As ``as_member``, and the answer goes to a waiter. What the coordinator refuses does, too;
    GROUP_AUTHORIZATION_FAILED and NOT_COORDINATOR may be raised before it is asked."""
    number = _coordinator_for(context, caller, Operation.READ, request)
    context.groups.submit(number, request, waiter)


async def consumer_heartbeat(
    context: BrokerContext, caller: Caller, request: ConsumerHeartbeatRequest
) -> ConsumerHeartbeatAnswer:
    """Also raises ApiError TOPIC_AUTHORIZATION_FAILED, INVALID_REGULAR_EXPRESSION, and
    UNSUPPORTED_VERSION: the cluster has no consumer protocol."""
    _check_version(context)
    group = group_resource(request.group_id)
    why = refusal(context.authorizer, caller, Operation.READ, group)
    if why is not None:
        raise why
    if request.topic_names:
        why = await topic_refusal(context, caller, Operation.DESCRIBE, request.topic_names)
        if why is not None:
            raise why
    if request.regex:
        resolved = await group_regexes.resolve(context, caller, request.regex)
        request = replace(request, resolved_regex=resolved)
    answer = await ask_unchecked(context, request)
    stale = answer.stale_regex
    if stale is not None:
        # Topics or ACLs have changed since. The next heartbeat gets the consequences.
        newest = await group_regexes.resolve(context, caller, stale)
        resolved_anew = ResolveRequest(request.group_id, stale, newest)
        await ask_unchecked(context, resolved_anew)
    return answer


def _check_version(context: BrokerContext) -> None:
    """Raises ApiError UNSUPPORTED_VERSION."""
    if finalized_level(context.image(), GROUP_VERSION) < _CONSUMER_PROTOCOL_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the feature {GROUP_VERSION} is below level {_CONSUMER_PROTOCOL_LEVEL}, which has the "
            "consumer protocol",
        )


# ------------------------------------------------------------------------------- administration


def existing_partitions(
    image: MetadataImage, partitions: Partitions
) -> Iterator[tuple[Topic, list[int]]]:
    """Partitions as descriptions list them, without the partitions of topics that were deleted."""
    for topic_id, numbers in sorted(partitions.items()):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            yield topic, sorted(numbers)


async def describe(
    context: BrokerContext, caller: Caller, group_ids: Sequence[str]
) -> list[DescribeAnswer | ApiError]:
    """Each group, or why it is not described."""

    async def one(group_id: str) -> DescribeAnswer | ApiError:
        try:
            return await ask(context, caller, Operation.DESCRIBE, DescribeRequest(group_id))
        except ApiError as refused:
            return refused

    return await gather_in_slices(one, group_ids)


async def describe_consumers(
    context: BrokerContext, caller: Caller, group_ids: Sequence[str]
) -> list[ConsumerDescribeAnswer | ApiError]:
    """Each group of the consumer protocol, or why it is not described. That is also so if its
    members have partitions of a topic that the caller may not DESCRIBE."""
    image = context.image()

    async def one(group_id: str) -> ConsumerDescribeAnswer | ApiError:
        try:
            _check_version(context)
            request = ConsumerDescribeRequest(group_id)
            answer = await ask(context, caller, Operation.DESCRIBE, request)
        except ApiError as refused:
            return refused
        if answer.error is not ErrorCode.NONE:
            return ApiError(answer.error, f"there is no consumer group {group_id}")
        used = (t for each in answer.members for t in (*each.assigned, *each.target))
        names = (topic.name for t in used if (topic := image.topic_by_id(t)) is not None)
        why = await topic_refusal(context, caller, Operation.DESCRIBE, names)
        if why is not None:  # its message names the topic
            message = "its members use topics that the caller may not DESCRIBE"
            return ApiError(why.code, message)
        return answer

    return await gather_in_slices(one, group_ids)


async def list_groups(
    context: BrokerContext, caller: Caller, request: ListRequest
) -> list[ListedGroup]:
    """The groups that this broker coordinates and the caller may see, by id.

    Raises ApiError COORDINATOR_LOAD_IN_PROGRESS: there may be more.
    """
    check_coordination_known(context)
    sees_all = context.authorizer.allows(caller, Operation.DESCRIBE, CLUSTER)
    found: list[ListedGroup] = []
    for number in context.groups.partitions:
        groups = await ask_coordinator(context.groups, number, request)
        found += groups
    return sorted(
        group
        for group in found
        if sees_all
        or context.authorizer.allows(caller, Operation.DESCRIBE, group_resource(group.group_id))
    )


def group_operations(context: BrokerContext, caller: Caller, group_id: str) -> int:
    """What the caller may do to a group, as bits (KIP-430)."""
    return allowed_operations(context.authorizer, caller, group_resource(group_id))
