"""Rules of access for tests, and how Hypothesis draws them."""

from __future__ import annotations

from hypothesis import strategies as st

from metadata.acl import Acl, Operation, PatternType, Permission, ResourceType

NAMES = ("a", "ab", "abc", "b", "*", "a*")
PRINCIPALS = ("User:ann", "User:bob", "User:*", "Group:ann")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
TYPES = tuple(each for each in ResourceType if each is not ResourceType.ANY)
OPERATIONS = tuple(each for each in Operation if each is not Operation.ANY)


def acl(
    resource_name: str = "a",
    operation: Operation = Operation.READ,
    *,
    principal: str = "User:ann",
    permission: Permission = Permission.ALLOW,
    resource_type: ResourceType = ResourceType.TOPIC,
    pattern_type: PatternType = PatternType.LITERAL,
    host: str = "*",
) -> Acl:
    return Acl(resource_type, resource_name, pattern_type, principal, host, operation, permission)


ACLS = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from([Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE]),
    st.sampled_from([Permission.DENY, Permission.ALLOW]),
)
"""Few names and operations, so that many rules touch one resource."""
