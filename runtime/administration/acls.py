"""Rules of access and filters of them in requests: what is valid, and what it says."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import ip_address
from typing import TypeVar

from metadata.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from security.authorizer.decision import canonical_host
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

E = TypeVar("E", bound=IntEnum)


def acl_of(message: pb.Acl) -> Acl:
    """Raises ApiError INVALID_REQUEST for a rule that cannot be made, or that nothing could ever
    match."""
    acl = Acl(
        _of_rule(ResourceType, message.resource_type, "resource type"),
        message.resource_name,
        _of_rule(PatternType, message.pattern_type, "pattern type"),
        message.principal,
        _host(message.host),
        _of_rule(Operation, message.operation, "operation"),
        _of_rule(Permission, message.permission, "permission"),
    )
    check_principal(acl.principal)
    check_resource(Resource(acl.resource_type, acl.resource_name))
    check_operation(acl.operation, acl.resource_type)
    return acl


def check_principal(principal: str) -> None:
    """Raises ApiError INVALID_REQUEST unless it is ``Type:name``."""
    kind, _, name = principal.partition(":")
    if not kind or not name:
        raise _invalid(f"the principal {principal!r} is not Type:name, for example User:alice")


def check_resource(resource: Resource) -> None:
    """Raises ApiError INVALID_REQUEST for a name that nothing of the type can have."""
    if not resource.name:
        raise _invalid("the name of the resource is empty")
    if resource.type is ResourceType.CLUSTER and resource.name != CLUSTER_NAME:
        raise _invalid(f"the one resource of type CLUSTER is called {CLUSTER_NAME}")


def check_operation(operation: Operation, resource_type: ResourceType) -> None:
    """Raises ApiError INVALID_REQUEST for an operation that nobody ever asks for on such a
    resource. Of Kafka's tools ``kafka-acls`` refuses it."""
    has = OPERATIONS[resource_type]
    if operation is not Operation.ALL and operation not in has:
        raise _invalid(
            f"{resource_type.name} has no operation {operation.name}: it has "
            + ", ".join(each.name for each in (*has, Operation.ALL))
        )


def operation_of(number: int) -> Operation:
    """One that can be asked for. Raises ApiError INVALID_REQUEST."""
    operation = _of_rule(Operation, number, "operation")
    if operation is Operation.ALL:
        raise _invalid("ask about one operation")
    return operation


def resource_of(type_number: int, name: str) -> Resource:
    """Raises ApiError INVALID_REQUEST."""
    resource = Resource(_of_rule(ResourceType, type_number, "resource type"), name)
    check_resource(resource)
    return resource


def filter_of(message: pb.AclFilter) -> AclFilter:
    """Raises ApiError INVALID_REQUEST for a number that is not known."""
    host = message.host if message.HasField("host") else None
    return AclFilter(
        _known(ResourceType, message.resource_type, "resource type"),
        message.resource_name if message.HasField("resource_name") else None,
        _known(PatternType, message.pattern_type, "pattern type"),
        message.principal if message.HasField("principal") else None,
        None if host is None else canonical_host(host),
        _known(Operation, message.operation, "operation"),
        _known(Permission, message.permission, "permission"),
    )


def message_of(acl: Acl) -> pb.Acl:
    return pb.Acl(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )


def filter_message(
    resource_type: int,
    resource_name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> pb.AclFilter:
    """The filter with these properties, as numbers of the wire."""
    return pb.AclFilter(
        resource_type=resource_type,
        resource_name=resource_name,
        pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission=permission,
    )


def _host(text: str) -> str:
    if text == WILDCARD:
        return text
    try:
        ip_address(text)
    except ValueError:
        raise _invalid(
            f"the host {text!r} is neither an address nor *: names and ranges match nothing"
        ) from None
    return canonical_host(text)


def _known(kind: type[E], number: int, what: str) -> E:
    try:
        return kind(number)
    except ValueError:
        raise _invalid(f"the {what} is {number}, which is not known") from None


def _of_rule(kind: type[E], number: int, what: str) -> E:
    """One that a rule can have."""
    found = _known(kind, number, what)
    if found is kind(1) or found is PatternType.MATCH:
        raise _invalid(f"the {what} is {found.name}, which only filters have")
    return found


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
