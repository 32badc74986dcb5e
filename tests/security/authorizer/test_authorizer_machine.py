"""The authorizer against a dumb twin, and each of its rules by itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.acl import Acl, Operation, PatternType, Permission, Resource, ResourceType
from metadata.acls import Acls, AclsDelta, acls_of, record_of
from security.authorizer.decision import Policy, Reason, canonical_host
from security.authorizer.machine import NAME_MAX, REMEMBERED_MAX, AccessMachine
from stele.wire.v1 import metadata_pb2 as pb
from tests.security.authorizer import twin
from tests.support.acls import ACLS, HOSTS, NAMES, acl

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
DENY = Permission.DENY
A = Resource(ResourceType.TOPIC, "a")
ROOT = "User:root"
CALLERS = ("User:ann", "User:bob", "Group:ann", ROOT)
ASKED = st.tuples(
    st.sampled_from(CALLERS),
    st.sampled_from(HOSTS[1:]),
    st.sampled_from([each for each in Operation if each > Operation.ALL]),
    st.builds(
        Resource,
        st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
        st.sampled_from([*NAMES, "abcd", "c"]),
    ),
)


def acls(*rules: Acl) -> Acls:
    return acls_of([(each, number.to_bytes(16)) for number, each in enumerate(rules)])


def machine(*rules: Acl, everyone: bool = False) -> AccessMachine:
    made = AccessMachine(Policy(frozenset([ROOT]), everyone))
    made.take(acls(*rules))
    return made


def may(
    made: AccessMachine,
    operation: Operation = READ,
    name: str = "a",
    *,
    principal: str = "User:ann",
    host: str = "10.0.0.1",
) -> bool:
    resource = Resource(ResourceType.TOPIC, name)
    return made.decide(principal, host, operation, resource).is_allowed


# ---------------------------------------------------------------------- against the twin


@settings(max_examples=300)
@given(st.lists(ACLS, unique=True, max_size=8), st.booleans(), st.lists(ASKED, max_size=12))
def test_decisions_agree_with_the_twin(
    rules: list[Acl], everyone: bool, asked: Sequence[tuple[str, str, Operation, Resource]]
) -> None:
    """Also while rules come and go, so that no decision outlives its rules."""
    made = AccessMachine(Policy(frozenset([ROOT]), everyone))
    now = Acls()
    for count in (*range(len(rules) + 1), *reversed(range(len(rules)))):
        delta = AclsDelta(now)
        if count > len(now):
            delta.replay(record_of(rules[count - 1], count.to_bytes(16)).acl)
        elif count < len(now):
            delta.remove(pb.RemoveAclRecord(id=(count + 1).to_bytes(16)))
        now = delta.apply()
        made.take(now)
        present = rules[:count]
        for principal, host, operation, resource in asked:
            verdict = made.decide(principal, host, operation, resource)
            arguments = (present, [ROOT], everyone, principal, host, operation)
            assert verdict.is_allowed is twin.is_allowed(*arguments, *resource)
            assert verdict == made.decide(principal, host, operation, resource)
            if verdict.acl is not None:
                assert verdict.acl in present
                assert (verdict.acl.permission is DENY) is not verdict.is_allowed
            by_type = made.decide_by_type(principal, host, operation, resource.type)
            if operation not in (DESCRIBE, Operation.DESCRIBE_CONFIGS):  # nothing is implied there
                told = twin.may_somewhere(*arguments, resource.type)
                assert by_type.is_allowed is told


# ---------------------------------------------------------------------- rule by rule


def test_a_rule_that_denies_wins_whatever_allows() -> None:
    for denying in (acl("a"), acl("*"), acl("a", pattern_type=PatternType.PREFIXED)):
        made = machine(acl("*", Operation.ALL), acl("a"), denying._replace(permission=DENY))
        verdict = made.decide("User:ann", "10.0.0.1", READ, A)
        assert (verdict.is_allowed, verdict.reason) == (False, Reason.RULE)
        assert verdict.acl == denying._replace(permission=DENY)
        assert verdict.rule().startswith("DENY User:ann READ")
        assert may(made, WRITE)


def test_a_super_user_is_not_denied_and_needs_no_rules() -> None:
    made = AccessMachine(Policy(frozenset([ROOT])))
    assert made.decide(ROOT, "", READ, A).reason is Reason.SUPER_USER
    assert made.decide("User:ann", "", READ, A).reason is Reason.NOT_LOADED
    assert made.decide_by_type(ROOT, "", WRITE, ResourceType.TOPIC).reason is Reason.SUPER_USER
    assert made.decide_by_type("User:ann", "", WRITE, ResourceType.TOPIC).is_allowed is False
    made.take(acls(acl("*", Operation.ALL, principal="User:*", permission=DENY)))
    assert may(made, principal=ROOT)
    assert not may(made)


def test_without_any_rule_for_a_resource_the_configuration_decides() -> None:
    made = machine(acl("b", principal="User:bob"), everyone=True)
    assert made.decide("User:ann", "", READ, A).reason is Reason.NO_RULE_FOR_RESOURCE
    assert made.decide("User:ann", "", READ, Resource(A.type, "b")).reason is Reason.DEFAULT
    assert may(made, principal="User:bob", name="b")
    assert not may(machine())
    everywhere = machine(acl("*", principal="User:bob"), everyone=True)
    assert not may(everywhere)


@pytest.mark.parametrize("operation", [READ, WRITE, Operation.DELETE, Operation.ALTER])
def test_allowed_operations_that_include_describe(operation: Operation) -> None:
    assert may(machine(acl("a", operation)), DESCRIBE)
    assert may(machine(acl("a", DESCRIBE), acl("a", operation, permission=DENY)), DESCRIBE)
    assert not may(machine(acl("a", operation)), Operation.DESCRIBE_CONFIGS)
    assert not may(machine(acl("a", DESCRIBE)), operation)


def test_altering_configurations_includes_describing_them() -> None:
    made = machine(acl("a", Operation.ALTER_CONFIGS))
    assert may(made, Operation.DESCRIBE_CONFIGS)
    assert not may(made, DESCRIBE)


def test_names_prefixes_and_the_star() -> None:
    prefixed = machine(acl("ab", pattern_type=PatternType.PREFIXED))
    assert [may(prefixed, name=name) for name in ("a", "ab", "abc", "b")] == [
        False, True, True, False,
    ]  # fmt: skip
    star = machine(acl("*", pattern_type=PatternType.PREFIXED))
    assert [may(star, name=name) for name in ("a", "*", "*x")] == [False, True, True]


def test_hosts_are_addresses_in_any_notation() -> None:
    made = machine(acl("a", host="10.0.0.1"), acl("a", host="::1"))
    for host in ("10.0.0.1", "::ffff:10.0.0.1", "::1", "0:0:0:0:0:0:0:1"):
        assert may(made, host=host)
    for host in ("10.0.0.2", "", "::2"):
        assert not may(made, host=host)
    assert canonical_host("broker.example") == "broker.example"


def test_any_topic() -> None:
    def may_any(*rules: Acl, everyone: bool = False) -> bool:
        made = machine(*rules, everyone=everyone)
        verdict = made.decide_by_type("User:ann", "10.0.0.1", WRITE, ResourceType.TOPIC)
        assert made.decide_by_type("User:ann", "10.0.0.1", WRITE, ResourceType.TOPIC) is verdict
        return verdict.is_allowed

    one = acl("ab", WRITE)
    prefix = one._replace(pattern_type=PatternType.PREFIXED)
    assert may_any(one)
    assert may_any(acl("ab", Operation.ALL))
    assert may_any(prefix)
    assert not may_any(acl("ab"))
    assert not may_any(acl("ab", WRITE, resource_type=ResourceType.GROUP))
    assert not may_any(one, one._replace(permission=DENY))
    assert not may_any(one, prefix._replace(resource_name="a", permission=DENY))
    assert not may_any(prefix, prefix._replace(permission=DENY))
    assert may_any(prefix, one._replace(permission=DENY))
    assert not may_any(acl("*", WRITE), acl("*", Operation.ALL, permission=DENY))
    assert may_any(acl("*", WRITE), prefix._replace(permission=DENY))
    assert not may_any(one, acl("*", WRITE, permission=DENY))
    star = prefix._replace(resource_name="*", permission=DENY)  # of names that begin with a star
    assert may_any(one, star)
    assert may_any(acl("*", WRITE), star)
    assert may_any(everyone=True)
    assert not may_any(acl("*", principal="User:bob"), everyone=True)


# ---------------------------------------------------------------------- what is remembered


def test_decisions_are_made_once_until_the_rules_change() -> None:
    made = machine(acl("a"))
    first = made.decide("User:ann", "10.0.0.1", READ, A)
    assert made.decide("User:ann", "10.0.0.1", READ, A) is first
    made.take(made.acls)
    assert made.decide("User:ann", "10.0.0.1", READ, A) is first
    made.take(acls())
    assert not may(made)
    made.take(None)
    assert made.decide("User:ann", "10.0.0.1", READ, A).reason is Reason.NOT_LOADED


def test_the_first_of_several_rules_is_named() -> None:
    for permission in (Permission.ALLOW, DENY):
        rules = [acl(name, permission=permission) for name in ("a", "*")]
        verdict = machine(*rules).decide("User:ann", "10.0.0.1", READ, A)
        assert verdict.acl == min(rules)


def test_names_as_long_as_a_topics_are_remembered() -> None:
    made = machine(acl("a", pattern_type=PatternType.PREFIXED))
    longest = Resource(ResourceType.TOPIC, "a" * NAME_MAX)
    assert made.decide("User:ann", "", READ, longest) is made.decide("User:ann", "", READ, longest)


def test_what_is_remembered_by_type_is_bounded() -> None:
    made = machine(acl("a"))

    def decided(number: int) -> object:
        return made.decide_by_type("User:ann", f"host-{number}", READ, ResourceType.TOPIC)

    first = decided(0)
    for number in range(1, REMEMBERED_MAX):
        decided(number)
    assert decided(0) is first
    decided(REMEMBERED_MAX)
    assert decided(0) is not first


def test_what_is_remembered_is_bounded() -> None:
    made = machine(acl("a", pattern_type=PatternType.PREFIXED))
    long = Resource(ResourceType.TOPIC, "a" * (NAME_MAX + 1))
    first = made.decide("User:ann", "10.0.0.1", READ, long)
    assert made.decide("User:ann", "10.0.0.1", READ, long) is not first
    for number in range(REMEMBERED_MAX):
        made.decide("User:ann", "10.0.0.1", READ, Resource(ResourceType.TOPIC, f"a{number}"))
    kept = made.decide("User:ann", "10.0.0.1", READ, Resource(ResourceType.TOPIC, "a1"))
    assert made.decide("User:ann", "10.0.0.1", READ, Resource(ResourceType.TOPIC, "a1")) is kept
    made.decide("User:ann", "10.0.0.1", READ, A)
    again = made.decide("User:ann", "10.0.0.1", READ, Resource(ResourceType.TOPIC, "a1"))
    assert again is not kept
    assert again == kept
