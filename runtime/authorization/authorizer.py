"""Who may do what: the one hook where an authorizer is asked, by brokers' services and on the ports
of controllers, and by nobody else.
"""

from __future__ import annotations

import functools
from typing import Final, Protocol

from metadata.acl import CLUSTER_NAME, OPERATIONS, WILDCARD, Operation, Resource, ResourceType
from metadata.acls import Acls
from runtime.authorization.caller import Caller
from security.authorizer.decision import Reason, Verdict
from security.last_denials import LastDenial
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.metadata_pb2 import ConfigResourceType

__all__ = [
    "ANY_TOPIC",
    "CLUSTER",
    "AllowAll",
    "Authorizer",
    "Operation",
    "Resource",
    "ResourceType",
    "allowed_operations",
    "config_resource",
    "denial",
    "group_resource",
    "refusal",
    "token_resource",
    "topic_resource",
    "transactional_id_resource",
    "user_resource",
]


CLUSTER: Final = Resource(ResourceType.CLUSTER, CLUSTER_NAME)
ANY_TOPIC: Final = Resource(ResourceType.TOPIC, WILDCARD)
"""Kafka's wildcard, which is no topic's name. It stands for an operation on every topic."""

_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Authorizer(Protocol):
    """Decides at once: it is asked on the way of every request."""

    @property
    def has_acls(self) -> bool:
        """Whether it decides over ACLs, which can be administered then."""
        ...

    @property
    def is_loaded(self) -> bool:
        """Whether it knows its rules. Before, it allows nothing to others than super users."""
        ...

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool: ...

    def allows_any(self, caller: Caller, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is, or may be, a resource of the type to which the caller may do this."""
        ...

    def note_denial(
        self, caller: Caller, operation: Operation, resource: Resource, rule: str = ""
    ) -> None:
        """Take notice that the caller is refused what it asked for. Not to be called where an
        answer merely leaves something out. ``rule``: why, if no ACL is the reason."""
        ...

    def last_denial(self, principal: str, client_id: str) -> tuple[LastDenial, float] | None:
        """What ``note_denial`` was told last of clients with this principal and client id, and how
        many seconds ago. None: nothing, or it is forgotten."""
        ...

    def verdict(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> Verdict:
        """The decision about whoever it is, with its reason."""
        ...

    def over(self, acls: Acls) -> Authorizer:
        """This authorizer over the ACLs of another image than the newest committed one.

        The active controller decides about a change on an image with batches that are not
        committed yet. If one of them removes the caller's right, the change comes after it in the
        log and must be refused.
        """
        ...


class AllowAll:
    """Everybody may do everything."""

    has_acls = False
    is_loaded = True

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        return True

    def allows_any(self, caller: Caller, operation: Operation, resource_type: ResourceType) -> bool:
        return True

    def note_denial(
        self, caller: Caller, operation: Operation, resource: Resource, rule: str = ""
    ) -> None:
        pass

    def last_denial(self, principal: str, client_id: str) -> None:
        return None

    def verdict(
        self, principal: str, host: str, operation: Operation, resource: Resource
    ) -> Verdict:
        return Verdict(True, Reason.NO_RULE_FOR_RESOURCE)

    def over(self, acls: Acls) -> AllowAll:
        return self


@functools.lru_cache(4096)  # each Produce and Fetch asks for its topics'
def topic_resource(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def group_resource(group_id: str) -> Resource:
    return Resource(ResourceType.GROUP, group_id)


def transactional_id_resource(transactional_id: str) -> Resource:
    return Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)


def token_resource(token_id: str) -> Resource:
    return Resource(ResourceType.DELEGATION_TOKEN, token_id)


def user_resource(principal: str) -> Resource:
    """As in Kafka, the name of a user's resource is the principal with its type."""
    return Resource(ResourceType.USER, principal)


def config_resource(resource_type: int, name: str) -> Resource:
    """The resource whose permission a configuration needs. Brokers' need the cluster's."""
    if resource_type == ConfigResourceType.TOPIC:
        return topic_resource(name)
    return group_resource(name) if resource_type == ConfigResourceType.GROUP else CLUSTER


def refusal(
    authorizer: Authorizer, caller: Caller, operation: Operation, resource: Resource
) -> ApiError | None:
    """Why the caller may not do this to the resource; None if it may."""
    if authorizer.allows(caller, operation, resource):
        return None
    return denial(authorizer, caller, operation, resource)


def denial(
    authorizer: Authorizer, caller: Caller, operation: Operation, resource: Resource
) -> ApiError:
    """The error for a caller that may not do this to the resource."""
    if not authorizer.is_loaded:
        return ApiError(ErrorCode.NOT_CONTROLLER, "this node does not know the ACLs yet: try again")
    authorizer.note_denial(caller, operation, resource)
    return ApiError(
        _REFUSALS[resource.type],
        f"{caller.principal} may not {operation.name} the {resource.type.name.lower()} "
        f"{resource.name}",
    )


def allowed_operations(authorizer: Authorizer, caller: Caller, resource: Resource) -> int:
    """All that the caller may do to the resource, as bits (KIP-430)."""
    return sum(
        1 << operation
        for operation in OPERATIONS[resource.type]
        if authorizer.allows(caller, operation, resource)
    )
