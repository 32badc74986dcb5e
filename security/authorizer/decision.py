"""May a principal do something? The decision over the rules of one image, and its reason.

The order is Kafka's. A super user may do everything. Else a rule that denies wins over all that
allow. If no rule speaks of the resource at all, whoever it is about, then
``allow.everyone.if.no.acl.found`` decides. In every other case the answer is no.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from enum import Enum
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

from metadata.acl import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    Operation,
    PatternType,
    Permission,
    Resource,
    ResourceType,
)
from metadata.acls import Acls


class Reason(Enum):
    """What a decision rests on; as text the name that audit logs have."""

    SUPER_USER = "SuperUser"
    RULE = "Rule"
    NO_RULE_FOR_RESOURCE = "DefaultAllow"
    DEFAULT = "DefaultDeny"
    NOT_LOADED = "NotLoaded"
    """The rules are not known yet."""


class Verdict(NamedTuple):
    is_allowed: bool
    reason: Reason
    acl: Acl | None = None
    """The very rule, where the reason is one. If several decide alike, the first in order."""

    def rule(self) -> str:
        """For people."""
        return self.reason.value if self.acl is None else self.acl.text()


class Policy(NamedTuple):
    """What the configuration of a node says."""

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl_found: bool = False


NOT_LOADED: Final = Verdict(False, Reason.NOT_LOADED)
_SUPER_USER: Final = Verdict(True, Reason.SUPER_USER)
_NO_RULE: Final = Verdict(True, Reason.NO_RULE_FOR_RESOURCE)
_DEFAULT: Final = Verdict(False, Reason.DEFAULT)

IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.ALTER_CONFIGS,)),
}
"""Operations that include another one, where a rule allows them. A rule that denies them does not
deny the other one."""

_NOTHING: Final[frozenset[Operation]] = frozenset()


@functools.lru_cache(4096)  # each decision that is not remembered asks for its caller's
def canonical_host(host: str) -> str:
    """The one text of an address. Java writes IPv6 without ``::``, and dual-stack sockets show IPv4
    as IPv6. Other text stays as it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def of_super_user(policy: Policy, principal: str) -> Verdict | None:
    """The decision about a super user, which needs no rules; None: it is none."""
    return _SUPER_USER if principal in policy.super_users else None


def decide(
    acls: Acls,
    policy: Policy,
    principal: str,
    host: str,
    operation: Operation,
    resource: Resource,
) -> Verdict:
    """``host``: canonical. ``operation``: neither ANY nor ALL."""
    if (verdict := of_super_user(policy, principal)) is not None:
        return verdict
    denied: list[Acl] = []
    allowed: list[Acl] = []
    is_touched = False
    for rules in acls.touching(resource.type, resource.name):
        is_touched = True
        for acl in rules:
            if _is_about(acl, principal, host) and _covers(acl, operation):
                (denied if acl.permission is Permission.DENY else allowed).append(acl)
    if denied:
        return Verdict(False, Reason.RULE, min(denied))
    if allowed:
        return Verdict(True, Reason.RULE, min(allowed))
    if not is_touched and policy.allow_everyone_if_no_acl_found:
        return _NO_RULE
    return _DEFAULT


def decide_by_type(
    acls: Acls,
    policy: Policy,
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
) -> Verdict:
    """Whether there is a name, of a resource or of one that could be made, to which the principal
    may do this. No operation is implied by another here."""
    if (verdict := of_super_user(policy, principal)) is not None:
        return verdict
    if policy.allow_everyone_if_no_acl_found and not acls.has_wildcard(resource_type):
        return _NO_RULE  # of a name that no rule touches
    ours = [
        acl
        for acl in acls.about(resource_type, principal)
        if _is_about(acl, principal, host) and acl.operation in (operation, Operation.ALL)
    ]
    denied = sorted(each for each in ours if each.permission is Permission.DENY)
    for each in denied:
        if _is_wildcard(each.pattern_type, each.resource_name):
            return Verdict(False, Reason.RULE, each)
    names = {(each.pattern_type, each.resource_name) for each in denied}
    allowed = sorted(each for each in ours if each.permission is Permission.ALLOW)
    for each in allowed:
        if not any(reach in names for reach in _dominating(each)):
            return Verdict(True, Reason.RULE, each)
    return _DEFAULT


def _dominating(acl: Acl) -> Iterator[tuple[PatternType, str]]:
    """The patterns with which a rule denies all that this one allows, without the wildcard."""
    name = acl.resource_name
    if _is_wildcard(acl.pattern_type, name):
        return
    if acl.pattern_type is PatternType.LITERAL:
        yield PatternType.LITERAL, name
    for length in range(1, len(name) + 1):
        yield PatternType.PREFIXED, name[:length]


def _is_wildcard(pattern_type: PatternType, name: str) -> bool:
    return pattern_type is PatternType.LITERAL and name == WILDCARD


def _is_about(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, WILDCARD_PRINCIPAL) and acl.host in (host, WILDCARD)


def _covers(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in IMPLIED_BY.get(
        operation, _NOTHING
    )
