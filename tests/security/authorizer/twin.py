"""A deliberately dumb authorizer: it walks a list of rules, and knows no index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from metadata.acl import Acl

DENY = 2
IMPLIED = {8: {3, 4, 6, 7, 8}, 10: {10, 11}}  # DESCRIBE, DESCRIBE_CONFIGS
ALL, PREFIXED = 2, 4


def touches(acl: Acl, kind: int, name: str) -> bool:
    if acl.resource_type != kind:
        return False
    if acl.pattern_type == PREFIXED:
        return name[: len(acl.resource_name)] == acl.resource_name
    return acl.resource_name == "*" or acl.resource_name == name


def speaks_to(acl: Acl, principal: str, host: str) -> bool:
    for told, asked in ((acl.principal, principal), (acl.host, host)):
        if told not in (asked, "User:*" if asked is principal else "*"):
            return False
    return True


def is_allowed(
    rules: Iterable[Acl],
    super_users: Iterable[str],
    everyone: bool,
    principal: str,
    host: str,
    operation: int,
    kind: int,
    name: str,
) -> bool:
    if principal in super_users:
        return True
    touching = [each for each in rules if touches(each, kind, name)]
    if not touching:
        return everyone
    ours = [each for each in touching if speaks_to(each, principal, host)]
    for each in ours:
        if each.permission == DENY and each.operation in (operation, ALL):
            return False
    wanted = IMPLIED.get(operation, {operation}) | {ALL}
    return any(each.permission != DENY and each.operation in wanted for each in ours)


def may_somewhere(
    rules: Sequence[Acl],
    super_users: Iterable[str],
    everyone: bool,
    principal: str,
    host: str,
    operation: int,
    kind: int,
) -> bool:
    """Tries the names in the rules, longer ones, and one that nothing touches."""
    names = {each.resource_name for each in rules} - {"*"}
    names |= {f"{each}\x00{more}" for each in ("", *names) for more in "xy"}
    # The star as a prefix is that character.
    names |= {"*\x00x"}
    return any(
        is_allowed(rules, super_users, everyone, principal, host, operation, kind, name)
        for name in names
    )
