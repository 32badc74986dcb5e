"""Share groups: their members, and the states of the partitions that they read (KIP-932)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from broker.coordinator.assignors.spec import Partitions
from broker.coordinator.group.share.types import (
    Initialization,
    InitializedRequest,
    ShareDeletionRequest,
    ShareDescribeAnswer,
    ShareDescribeRequest,
    ShareHeartbeatAnswer,
    ShareHeartbeatRequest,
)
from broker.coordinator.share.types import (
    ForgetRequest,
    InitializeRequest,
    StateAnswer,
    StateKey,
    StateRequest,
)
from broker.service.context import BrokerContext
from broker.service.groups import ask, ask_unchecked
from broker.service.internal_topics import made, share_topic
from broker.service.topics import topic_refusal
from metadata.features import SHARE_VERSION, finalized_level
from metadata.internal_topics import SHARE_TOPIC
from runtime.authorization.authorizer import Operation, group_resource, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from storage.turns import gather_in_slices

logger = logging.getLogger(__name__)

_LEVEL: Final = 1
_STATE_TIMEOUT_S: Final = 5.0
"""How long share coordinators are asked to make or to delete states."""


def check_version(context: BrokerContext) -> None:
    """Raises ApiError UNSUPPORTED_VERSION: the cluster has no share groups."""
    if finalized_level(context.image(), SHARE_VERSION) < _LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the feature {SHARE_VERSION} is below level {_LEVEL}, which has share groups: stele "
            f"features upgrade --feature {SHARE_VERSION}={_LEVEL}",
        )


def check_member(context: BrokerContext, caller: Caller, group_id: str) -> None:
    """Raises ApiError GROUP_AUTHORIZATION_FAILED."""
    why = refusal(context.authorizer, caller, Operation.READ, group_resource(group_id))
    if why is not None:
        raise why


async def heartbeat(
    context: BrokerContext, caller: Caller, request: ShareHeartbeatRequest
) -> ShareHeartbeatAnswer:
    """Raises ApiError UNSUPPORTED_VERSION, GROUP_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED,
    and as ``groups.ask``. Other errors are in the answer."""
    check_version(context)
    check_member(context, caller, request.group_id)
    if request.topic_names:
        why = await topic_refusal(context, caller, Operation.DESCRIBE, request.topic_names)
        if why is not None:
            raise why
    answer = await ask(context, caller, Operation.READ, request)
    if answer.to_initialize is not None:
        # The member does not wait for it: its next heartbeat gets the partitions.
        work = _initialize(context, request.group_id, answer.to_initialize)
        context.sharing.begin(work, f"initialize-{request.group_id}")
        answer = replace(answer, to_initialize=None)
    return answer


async def _initialize(context: BrokerContext, group_id: str, wanted: Initialization) -> None:
    """Have the share coordinators make states, and tell the group. What fails is asked for again by
    a later heartbeat."""
    try:
        await made(context, share_topic(context.config, context.image()))
        keys = state_keys(group_id, wanted.partitions)
        answers = await ask_states(
            context, [InitializeRequest(key, wanted.state_epoch) for key in keys]
        )
        done: dict[bytes, set[int]] = {}
        for key, answer in zip(keys, answers, strict=True):
            if answer.error is ErrorCode.NONE:
                done.setdefault(key.topic_id, set()).add(key.partition)
            else:
                logger.warning(
                    "the state of %s could not be made: %s", key.coordinator_key, answer.message
                )
        if done:
            partitions = {each: frozenset(numbers) for each, numbers in done.items()}
            await ask_unchecked(context, InitializedRequest(group_id, partitions))
    except ApiError as error:
        logger.warning(
            "share group %s: the states of its partitions could not be made: %s", group_id, error
        )
    except Exception:
        logger.exception("share group %s: the states of its partitions are not made", group_id)


def state_keys(group_id: str, partitions: Partitions) -> list[StateKey]:
    return [
        StateKey(group_id, topic_id, number)
        for topic_id, numbers in sorted(partitions.items())
        for number in sorted(numbers)
    ]


async def ask_states(context: BrokerContext, requests: Sequence[StateRequest]) -> list[StateAnswer]:
    """What the share coordinators answer, in order."""
    states = context.sharing.states
    return await gather_in_slices(lambda each: states.ask(each, _STATE_TIMEOUT_S), requests)


async def describe(
    context: BrokerContext, caller: Caller, group_ids: Sequence[str]
) -> list[ShareDescribeAnswer | ApiError]:
    """Each share group, or why it is not described. That is also so if its members have partitions
    of a topic that the caller may not DESCRIBE."""

    async def one(group_id: str) -> ShareDescribeAnswer | ApiError:
        try:
            check_version(context)
            answer = await ask(context, caller, Operation.DESCRIBE, ShareDescribeRequest(group_id))
        except ApiError as refused:
            return refused
        if answer.error is not ErrorCode.NONE:
            return ApiError(answer.error, f"there is no share group {group_id}")
        names = (name for each in answer.members for name in each.topic_names)
        why = await topic_refusal(context, caller, Operation.DESCRIBE, names)
        if why is not None:  # its message names the topic
            message = "its members use topics that the caller may not DESCRIBE"
            return ApiError(why.code, message)
        return answer

    return await gather_in_slices(one, group_ids)


async def delete_states(context: BrokerContext, group_id: str) -> None:
    """Before a group is deleted that the caller may delete: have the states of its share partitions
    deleted, if it is a share group. A group of the same name would otherwise go on from them.
    Raises ApiError NON_EMPTY_GROUP, COORDINATOR_NOT_AVAILABLE and as ``groups.ask``."""
    answer = await ask_unchecked(context, ShareDeletionRequest(group_id))
    if answer.error is not ErrorCode.NONE:
        raise ApiError(answer.error)
    if context.image().topic(SHARE_TOPIC) is None:
        return  # no state was ever made
    keys = state_keys(group_id, answer.states or {})
    for told in await ask_states(context, [ForgetRequest(key) for key in keys]):
        if told.error is not ErrorCode.NONE:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, told.message or "")
