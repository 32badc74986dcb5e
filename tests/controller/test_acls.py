"""Rules of access: made once, removed by filters, refused where nothing could match them."""

from __future__ import annotations

from typing import Any

import pytest

from controller.acls import create_acls, delete_acls
from controller.features import update_features
from controller.machine import RECORDS_MAX
from metadata.acl import OPERATIONS, Acl, Operation, PatternType, ResourceType
from runtime.administration.acls import filter_message, message_of
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from tests.support.acls import acl
from tests.support.controller import Machine

INVALID = ErrorCode.INVALID_REQUEST


def create(machine: Machine, *rules: Acl | admin.Acl) -> list[tuple[int, str]]:
    messages = [message_of(each) if isinstance(each, Acl) else each for each in rules]
    request = admin.CreateAclsRequest(acls=messages)
    answer = machine.do(lambda context: create_acls(context, request))
    return [(each.error, each.message) for each in answer.results]


def delete(machine: Machine, *filters: admin.AclFilter) -> list[list[admin.Acl]]:
    request = admin.DeleteAclsRequest(filters=filters)
    answer = machine.do(lambda context: delete_acls(context, request))
    assert not any(each.error for each in answer.results)
    return [list(each.acls) for each in answer.results]


def test_a_rule_is_made_once() -> None:
    machine = Machine()
    rules = acl("a"), acl("b", host="10.0.0.1")
    assert create(machine, *rules, rules[0]) == [(0, "")] * 3
    assert machine.image.acls.sorted() == sorted(rules)
    assert create(machine, rules[0]) == [(0, "")]
    assert machine.last_records == ()
    assert len({machine.image.acls.id_of(each) for each in rules}) == 2


def test_hosts_are_kept_in_one_notation() -> None:
    machine = Machine()
    assert create(machine, acl(host="0:0:0:0:0:0:0:1"), acl(host="::1")) == [(0, "")] * 2
    assert machine.image.acls.sorted() == [acl(host="::1")]
    (deleted,) = delete(machine, filter_message(1, None, 1, None, "0:0::1", 1, 1))
    assert [each.host for each in deleted] == ["::1"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"resource_type": 1}, "resource type is ANY"),
        ({"resource_type": 99}, "resource type is 99, which is not known"),
        ({"resource_type": 0}, "resource type is 0"),
        ({"pattern_type": 1}, "pattern type is ANY"),
        ({"pattern_type": 2}, "pattern type is MATCH"),
        ({"operation": 1}, "operation is ANY"),
        ({"operation": 16}, "operation is 16"),
        ({"permission": 1}, "permission is ANY"),
        ({"permission": 0}, "permission is 0"),
        ({"resource_type": 3, "operation": 4}, "GROUP has no operation WRITE: it has READ, DELETE"),
        ({"operation": 9}, "TOPIC has no operation CLUSTER_ACTION"),
        ({"resource_name": ""}, "the name of the resource is empty"),
        ({"resource_type": 4, "resource_name": "c"}, "is called kafka-cluster"),
        ({"principal": "ann"}, "'ann' is not Type:name"),
        ({"principal": ":ann"}, "is not Type:name"),
        ({"principal": "User:"}, "is not Type:name"),
        ({"host": "10.0.0.0/8"}, "is neither an address nor *"),
        ({"host": ""}, "is neither an address nor *"),
    ],
)
def test_what_nothing_could_match_is_refused_by_itself(changes: dict[str, Any], said: str) -> None:
    machine = Machine()
    wrong = message_of(acl())
    for name, value in changes.items():
        setattr(wrong, name, value)
    good, (error, message) = create(machine, acl("b"), wrong)
    assert good == (0, "")
    assert error == INVALID
    assert said in message
    assert machine.image.acls.sorted() == [acl("b")]


def test_every_kind_of_rule_can_be_made() -> None:
    machine = Machine()
    rules = [
        acl("kafka-cluster" if kind is ResourceType.CLUSTER else "a", operation, resource_type=kind)
        for kind in ResourceType
        if kind is not ResourceType.ANY
        for operation in (*OPERATIONS[kind], Operation.ALL)
    ]
    assert create(machine, *rules) == [(0, "")] * len(rules)
    assert machine.image.acls.sorted() == sorted(rules)


def test_rules_are_removed_by_filters_in_one_decision() -> None:
    machine = Machine()
    prefixed = acl("a", pattern_type=PatternType.PREFIXED)
    create(machine, acl("ab"), prefixed, acl("b"), acl("*"))
    match = filter_message(2, "ab", 2, None, None, 1, 1)
    literal = filter_message(2, "ab", 3, None, None, 1, 1)
    other = filter_message(2, "x", 3, None, None, 1, 1)
    first, second, third = delete(machine, match, literal, other)
    assert {each.resource_name for each in first} == {"ab", "a", "*"}
    assert second == [message_of(acl("ab"))]
    assert third == []
    assert len(machine.last_records) == 3
    assert machine.image.acls.sorted() == [acl("b")]


def test_a_filter_that_is_not_valid_is_refused_by_itself() -> None:
    machine = Machine()
    create(machine, acl("a"), acl("b"))
    wrong = filter_message(0, None, 1, None, None, 1, 1)
    request = admin.DeleteAclsRequest(filters=[wrong, filter_message(2, "a", 3, None, None, 1, 1)])
    answer = machine.do(lambda context: delete_acls(context, request))
    assert [each.error for each in answer.results] == [INVALID, 0]
    assert machine.image.acls.sorted() == [acl("b")]


def test_requests_are_bounded() -> None:
    machine = Machine()
    many = [acl(f"t{number}") for number in range(RECORDS_MAX + 1)]
    with pytest.raises(ApiError, match="are too many for one request") as caught:
        create(machine, *many)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    create(machine, *many[:-1])
    create(machine, many[-1])
    assert len(machine.image.acls) == RECORDS_MAX + 1
    with pytest.raises(ApiError, match="matched ACLs are too many"):
        delete(machine, filter_message(1, None, 1, None, None, 1, 1))
    assert len(machine.image.acls) == RECORDS_MAX + 1


def test_filters_that_compare_too_much_are_refused() -> None:
    machine = Machine()
    create(machine, *(acl(f"t{number}") for number in range(2_000)))
    wide = filter_message(1, None, 1, "User:bob", None, 1, 1)
    with pytest.raises(ApiError, match="name the resources, or send fewer filters") as caught:
        delete(machine, *[wide] * 26)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION
    assert delete(machine, *[wide] * 25) == [[]] * 25
    named = filter_message(2, "t1", 3, "User:bob", None, 1, 1)
    assert delete(machine, *[named] * 1_000) == [[]] * 1_000
    matching = filter_message(2, None, 1, None, None, 1, 1)
    with pytest.raises(ApiError, match="12000 matched ACLs are too many"):
        delete(machine, *[matching] * 6)


def test_below_their_level_there_are_none() -> None:
    machine = Machine()
    request = admin.UpdateFeaturesRequest()
    down = admin.UpgradeType.SAFE_DOWNGRADE
    request.updates.add(name="metadata.version", level=5, type=down)
    machine.do(lambda context: update_features(context, request))
    with pytest.raises(ApiError, match=r"an ACL needs metadata\.version 6") as caught:
        create(machine, acl())
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
