"""The deletion of groups, with all that was kept for them."""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.group.types import DeleteRequest
from broker.service.context import BrokerContext
from broker.service.groups import ask
from broker.service.share_groups import delete_states
from metadata.features import SHARE_VERSION, finalized_level
from runtime.authorization.authorizer import Operation, group_resource, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from storage.turns import gather_in_slices


def check_may_delete(context: BrokerContext, caller: Caller, group_id: str) -> None:
    """Raises ApiError GROUP_AUTHORIZATION_FAILED."""
    why = refusal(context.authorizer, caller, Operation.DELETE, group_resource(group_id))
    if why is not None:
        raise why


async def delete(
    context: BrokerContext, caller: Caller, group_ids: Sequence[str]
) -> list[ApiError]:
    """What became of each group; NONE: it is deleted. Many are asked for at once, so that
    they share the coordinators' batches."""

    async def one(group_id: str) -> ApiError:
        try:
            return ApiError(await _delete(context, caller, group_id))
        except ApiError as refused:
            return refused

    return await gather_in_slices(one, group_ids)


async def _delete(context: BrokerContext, caller: Caller, group_id: str) -> ErrorCode:
    """Delete the states of a share group, or the offsets of another group, some at a time, and the
    group with the last of them. If this ends early, a repeated request deletes the rest."""
    check_may_delete(context, caller, group_id)
    if finalized_level(context.image(), SHARE_VERSION):
        await delete_states(context, group_id)
    is_begun = False
    while True:
        answer = await ask(context, caller, Operation.DELETE, DeleteRequest(group_id))
        if is_begun and answer.error is ErrorCode.GROUP_ID_NOT_FOUND:
            return ErrorCode.NONE  # another caller has deleted the rest
        if answer.is_over:
            return answer.error
        is_begun = True
