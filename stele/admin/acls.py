"""Administration of ACLs: who may do what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.errors import ApiError, BulkError, ConfigError
from stele.wire.v1 import admin_pb2 as pb

RESOURCE_TYPES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "TOPIC": 2,
        "GROUP": 3,
        "CLUSTER": 4,
        "TRANSACTIONAL_ID": 5,
        "DELEGATION_TOKEN": 6,
        "USER": 7,
    }
)
OPERATIONS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "ALL": 2,
        "READ": 3,
        "WRITE": 4,
        "CREATE": 5,
        "DELETE": 6,
        "ALTER": 7,
        "DESCRIBE": 8,
        "CLUSTER_ACTION": 9,
        "DESCRIBE_CONFIGS": 10,
        "ALTER_CONFIGS": 11,
        "IDEMPOTENT_WRITE": 12,
        "CREATE_TOKENS": 13,
        "DESCRIBE_TOKENS": 14,
        "TWO_PHASE_COMMIT": 15,
    }
)
OPERATIONS_OF: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "TOPIC": (
            "READ",
            "WRITE",
            "CREATE",
            "DELETE",
            "ALTER",
            "DESCRIBE",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
        ),
        "GROUP": ("READ", "DELETE", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
        "CLUSTER": (
            "CREATE",
            "ALTER",
            "DESCRIBE",
            "CLUSTER_ACTION",
            "DESCRIBE_CONFIGS",
            "ALTER_CONFIGS",
            "IDEMPOTENT_WRITE",
        ),
        "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE", "TWO_PHASE_COMMIT"),
        "DELEGATION_TOKEN": ("DESCRIBE",),
        "USER": ("CREATE_TOKENS", "DESCRIBE_TOKENS"),
    }
)
"""What can be done to a resource of each type. A rule may also have ALL."""

PATTERN_TYPES: Final[Mapping[str, int]] = MappingProxyType({"LITERAL": 3, "PREFIXED": 4})
PERMISSIONS: Final[Mapping[str, int]] = MappingProxyType({"DENY": 2, "ALLOW": 3})

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

_ANY: Final = 1
_MATCH: Final = 2


@dataclass(frozen=True, slots=True)
class Acl:
    """A rule: this principal may, or with ``permission="DENY"`` may not, do this.

    Names are Kafka's. ``principal``: ``Type:name``; ``User:*`` is everybody. ``host``: the address
    of a client, or ``*``. ``resource_name``: ``*`` is every resource of the type. With
    ``pattern_type="PREFIXED"`` it is every resource whose name begins so.

    >>> Acl("User:orders-app", "WRITE", "TOPIC", "orders")
    >>> Acl("User:reports", "READ", "TOPIC", "orders.", pattern_type="PREFIXED")
    """

    principal: str
    operation: str
    resource_type: str
    resource_name: str
    pattern_type: str = "LITERAL"
    host: str = "*"
    permission: str = "ALLOW"

    def __str__(self) -> str:
        prefix = "prefix " if self.pattern_type == "PREFIXED" else ""
        host = "" if self.host == "*" else f" from {self.host}"
        return (
            f"{self.permission} {self.principal} {self.operation} "
            f"{self.resource_type} {prefix}{self.resource_name}{host}"
        )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Rules with these properties; None stands for any.

    ``pattern_type="MATCH"``: every rule that touches the resource of this name, by its name, a
    prefix or ``*``.

    >>> AclFilter(principal="User:orders-app")
    >>> AclFilter(resource_type="TOPIC", resource_name="orders", pattern_type="MATCH")
    """

    principal: str | None = None
    operation: str | None = None
    resource_type: str | None = None
    resource_name: str | None = None
    pattern_type: str | None = None
    host: str | None = None
    permission: str | None = None


@dataclass(frozen=True, slots=True)
class AccessVerdict:
    """Whether somebody may do something, and why."""

    allowed: bool
    reason: str  # SuperUser, Rule, DefaultAllow, DefaultDeny
    rule: Acl | None = None  # the very rule, where the reason is one


class AclAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for ACLs."""

    async def create_acls(self, acls: Sequence[Acl], *, request_id: bytes | None = None) -> None:
        """Add rules. A rule that is there already is no error.

        Returns when every live broker has applied them. Raises BulkError, for example with
        INVALID_REQUEST for a host that is neither an address nor ``*``. Raises ApiError
        SECURITY_DISABLED if the cluster has no authorizer, and ConfigError for an operation that
        the type of the resource does not have.

        >>> await admin.create_acls([Acl("User:orders-app", "WRITE", "TOPIC", "orders")])
        """
        request = pb.CreateAclsRequest(acls=[_message(each) for each in acls])
        answer = await self._requests.change(
            "CreateAcls", request, pb.CreateAclsResponse.FromString, request_id
        )
        _check({str(each): told for each, told in zip(acls, answer.results, strict=True)})

    async def delete_acls(
        self, filters: Sequence[AclFilter], *, request_id: bytes | None = None
    ) -> list[Acl]:
        """Delete all rules that any of the filters matches, together. Returns them.

        Returns when every live broker has dropped them. Raises ApiError.

        >>> await admin.delete_acls([AclFilter(principal="User:orders-app")])
        """
        request = pb.DeleteAclsRequest(filters=[_filter_message(each) for each in filters])
        answer = await self._requests.change(
            "DeleteAcls", request, pb.DeleteAclsResponse.FromString, request_id
        )
        _check({str(each): told for each, told in zip(filters, answer.results, strict=True)})
        return list(dict.fromkeys(_acl(each) for told in answer.results for each in told.acls))

    async def describe_acls(
        self, wanted: AclFilter | None = None, *, linearizable: bool = True
    ) -> list[Acl]:
        """The rules that the filter matches, by default all. Raises ApiError.

        >>> await admin.describe_acls(AclFilter(resource_type="TOPIC"))
        """
        answer = await self._requests.ask(
            "DescribeAcls",
            pb.DescribeAclsRequest(
                filter=None if wanted is None else _filter_message(wanted),
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            pb.DescribeAclsResponse.FromString,
        )
        return [_acl(each) for each in answer.acls]

    async def test_access(
        self,
        principal: str,
        operation: str,
        resource_type: str,
        resource_name: str,
        *,
        host: str = "",
    ) -> AccessVerdict:
        """Whether a principal may do something, and by which rule. Nothing is done.

        ``host``: the address that it would come from. Without it only rules for every host count.
        Raises ApiError.

        >>> await admin.test_access("User:orders-app", "WRITE", "TOPIC", "orders")
        """
        asked = _number(OPERATIONS, operation, "operation")
        _check_operation(operation, resource_type)
        answer = await self._requests.ask(
            "TestAccess",
            pb.TestAccessRequest(
                principal=principal,
                host=host,
                operation=asked,
                resource_type=_number(RESOURCE_TYPES, resource_type, "resource type"),
                resource_name=resource_name,
                min_metadata_offset=self._requests.changed_at,
                linearizable=True,
            ),
            pb.TestAccessResponse.FromString,
        )
        rule = _acl(answer.rule) if answer.HasField("rule") else None
        return AccessVerdict(answer.allowed, answer.reason, rule)


def _check(
    results: Mapping[str, pb.CreateAclsResponse.Result | pb.DeleteAclsResponse.Result],
) -> None:
    """Raises BulkError for the items that were refused, by their texts."""
    failed: dict[str, ApiError] = {
        text: ApiError(error_code(told.error), told.message)
        for text, told in results.items()
        if told.error
    }
    if failed:
        raise BulkError(failed, [text for text in results if text not in failed])


def _number(names: Mapping[str, int], name: str, what: str) -> int:
    """Raises ConfigError."""
    number = names.get(name.upper())
    if number is None:
        raise ConfigError(f"there is no {what} {name!r}: there are {', '.join(names)}")
    return number


def _check_operation(operation: str, resource_type: str) -> None:
    """Raises ConfigError for an operation that nobody ever asks for on such a resource."""
    has = OPERATIONS_OF.get(resource_type.upper())
    if has is not None and operation.upper() not in (*has, "ALL"):
        raise ConfigError(
            f"{resource_type.upper()} has no operation {operation.upper()}: it has "
            + ", ".join((*has, "ALL"))
        )


def _message(acl: Acl) -> pb.Acl:
    operation = _number(OPERATIONS, acl.operation, "operation")
    _check_operation(acl.operation, acl.resource_type)
    return pb.Acl(
        resource_type=_number(RESOURCE_TYPES, acl.resource_type, "resource type"),
        resource_name=acl.resource_name,
        pattern_type=_number(PATTERN_TYPES, acl.pattern_type, "pattern type"),
        principal=acl.principal,
        host=acl.host,
        operation=operation,
        permission=_number(PERMISSIONS, acl.permission, "permission"),
    )


def _filter_message(wanted: AclFilter) -> pb.AclFilter:
    def number(names: Mapping[str, int], name: str | None, what: str) -> int:
        return _ANY if name is None else _number(names, name, what)

    patterns = {**PATTERN_TYPES, "MATCH": _MATCH}
    return pb.AclFilter(
        resource_type=number(RESOURCE_TYPES, wanted.resource_type, "resource type"),
        resource_name=wanted.resource_name,
        pattern_type=number(patterns, wanted.pattern_type, "pattern type"),
        principal=wanted.principal,
        host=wanted.host,
        operation=number(OPERATIONS, wanted.operation, "operation"),
        permission=number(PERMISSIONS, wanted.permission, "permission"),
    )


def _acl(message: pb.Acl) -> Acl:
    return Acl(
        principal=message.principal,
        operation=_name(OPERATIONS, message.operation),
        resource_type=_name(RESOURCE_TYPES, message.resource_type),
        resource_name=message.resource_name,
        pattern_type=_name(PATTERN_TYPES, message.pattern_type),
        host=message.host,
        permission=_name(PERMISSIONS, message.permission),
    )


def _name(names: Mapping[str, int], number: int) -> str:
    """A newer cluster may know more numbers than this client."""
    return next((name for name, known in names.items() if known == number), str(number))
