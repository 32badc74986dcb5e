"""ACLs: described from this broker's metadata, changed by the active controller."""

from __future__ import annotations

from broker.service.context import BrokerContext
from metadata.acl import Acl, AclFilter, Operation, Resource
from runtime.administration.permissions import without_acls
from runtime.authorization.authorizer import CLUSTER, refusal
from runtime.authorization.caller import Caller
from security.authorizer.decision import Verdict
from storage.turns import in_slices


def check_described(context: BrokerContext, caller: Caller) -> None:
    """Raises ApiError CLUSTER_AUTHORIZATION_FAILED, or SECURITY_DISABLED: there are no ACLs."""
    why = refusal(context.authorizer, caller, Operation.DESCRIBE, CLUSTER)
    why = why or without_acls(context.authorizer)
    if why is not None:
        raise why


async def describe(context: BrokerContext, caller: Caller, wanted: AclFilter) -> list[Acl]:
    """The rules that the filter matches, sorted. Raises ApiError as ``check_described``."""
    check_described(context, caller)
    found = await in_slices(
        lambda acl: acl if wanted.matches(acl) else None, context.image().acls.by_id.values()
    )
    return sorted(each for each in found if each is not None)


def verdict_on(
    context: BrokerContext,
    caller: Caller,
    principal: str,
    host: str,
    operation: Operation,
    resource: Resource,
) -> Verdict:
    """What this broker would decide about somebody. Raises ApiError as ``check_described``."""
    check_described(context, caller)
    return context.authorizer.verdict(principal, host, operation, resource)
