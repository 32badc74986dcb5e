"""One rule of access (an ACL), what it can speak of, and filters of such rules. Values only.

Names and numbers are Kafka's: ``AclOperation``, ``ResourceType``, ``PatternType``,
``AclPermissionType``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple


class Operation(IntEnum):
    """``AclOperation``. ANY is for filters alone; ALL in a rule stands for every operation."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """ANY is for filters alone."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name in a rule is compared with the name of a resource. ANY and MATCH are for filters
    alone."""

    ANY = 1
    MATCH = 2
    """Every rule that touches the resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """``AclPermissionType``. ANY is for filters alone."""

    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""

WILDCARD: Final = "*"
"""As a literal name: every resource of the type. As a host: every host. With PREFIXED it is the
character."""

WILDCARD_PRINCIPAL: Final = "User:*"

OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What can be done to a resource of each type, as Kafka's ``AclEntry`` has it."""


class Resource(NamedTuple):
    """What something is done to."""

    type: ResourceType
    name: str


class Acl(NamedTuple):
    """A rule: who may, or may not, do what to which resources, from where.

    Rules are equal if all their fields are. They are listed in the order of these fields.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    """LITERAL or PREFIXED."""
    principal: str
    """``Type:name``."""
    host: str
    """The text of an address, or ``*``."""
    operation: Operation
    permission: Permission

    def text(self) -> str:
        """For people."""
        pattern = "prefix " if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} from host {self.host} "
            f"on {self.resource_type.name} {pattern}{self.resource_name}"
        )


class AclFilter(NamedTuple):
    """Rules with these properties. None and ANY: whatever the rule has."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        name = self.resource_name
        if name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return name == acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)
