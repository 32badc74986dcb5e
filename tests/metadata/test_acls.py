"""The rules of access in an image, their index, and filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from metadata.acls import Acls, acl_of, acls_of, record_of
from metadata.delta import MetadataDelta
from metadata.image import EMPTY, MetadataImage
from metadata.records import MetadataError
from metadata.snapshot import image_of, records_of
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.acls import ACLS, HOSTS, NAMES, PRINCIPALS, acl


def id_of(number: int) -> bytes:
    return number.to_bytes(16)


def replayed(image: MetadataImage, *records: pb.MetadataRecord) -> MetadataImage:
    delta = MetadataDelta(image)
    for offset, each in enumerate(records, image.offset + 1):
        delta.replay(offset, each)
    return delta.apply()


NO_OP = pb.MetadataRecord(no_op=pb.NoOpRecord())


def numbered(rules: list[Acl]) -> list[tuple[Acl, bytes]]:
    return [(each, id_of(number)) for number, each in enumerate(rules)]


def removal(number: int) -> pb.MetadataRecord:
    return pb.MetadataRecord(remove_acl=pb.RemoveAclRecord(id=id_of(number)))


@given(st.lists(ACLS, unique=True), st.data())
def test_index_and_ids_agree_with_the_rules_that_are_left(
    rules: list[Acl], data: st.DataObject
) -> None:
    removed = data.draw(st.sets(st.integers(0, max(0, len(rules) - 1)), max_size=len(rules)))
    image = replayed(EMPTY, *(record_of(*each) for each in numbered(rules)))
    image = replayed(image, *map(removal, sorted(removed)))
    left = {each: id_of(n) for n, each in enumerate(rules) if n not in removed}
    assert image.acls.sorted() == sorted(left)
    assert {each: image.acls.id_of(each) for each in rules} == {
        each: left.get(each) for each in rules
    }
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.USER):
        for name in (*NAMES, "abcd", ""):
            groups = list(image.acls.touching(kind, name))
            touched = [each for rules in groups for each in rules]
            assert all(groups)
            assert len(touched) == len(set(touched))
            match = AclFilter(kind, name, PatternType.MATCH)
            assert set(touched) == {each for each in left if match.matches(each)}
        for principal in (*PRINCIPALS, "User:nobody"):
            told = sorted(image.acls.about(kind, principal))
            wanted = {principal, "User:*"}
            assert told == sorted(
                each for each in left if each.resource_type is kind and each.principal in wanted
            )


@given(st.lists(ACLS, unique=True))
def test_a_snapshot_holds_the_rules(rules: list[Acl]) -> None:
    image = replayed(replayed(EMPTY, NO_OP), *(record_of(*each) for each in numbered(rules)))
    again = image_of(image.offset + 1, list(records_of(image)))
    assert again.acls == image.acls
    assert list(records_of(again)) == list(records_of(image))
    skipped = MetadataDelta.between(EMPTY, image).apply()
    assert skipped.acls is image.acls


@given(
    ACLS,
    st.builds(
        AclFilter,
        st.sampled_from([ResourceType.ANY, ResourceType.TOPIC]),
        st.sampled_from([None, *NAMES]),
        st.sampled_from(list(PatternType)),
        st.sampled_from([None, *PRINCIPALS]),
        st.sampled_from([None, *HOSTS]),
        st.sampled_from([Operation.ANY, Operation.ALL, Operation.READ]),
        st.sampled_from(list(Permission)),
    ),
)
def test_what_a_filter_matches(rule: Acl, wanted: AclFilter) -> None:
    names = {
        (PatternType.ANY, PatternType.LITERAL): rule.resource_name == wanted.resource_name,
        (PatternType.ANY, PatternType.PREFIXED): rule.resource_name == wanted.resource_name,
        (PatternType.LITERAL, PatternType.LITERAL): rule.resource_name == wanted.resource_name,
        (PatternType.PREFIXED, PatternType.PREFIXED): rule.resource_name == wanted.resource_name,
        (PatternType.MATCH, PatternType.LITERAL): rule.resource_name in ("*", wanted.resource_name),
        (PatternType.MATCH, PatternType.PREFIXED): (wanted.resource_name or "").startswith(
            rule.resource_name
        ),
    }
    kinds = (wanted.pattern_type, rule.pattern_type)
    is_right = kinds in names and (wanted.resource_name is None or names[kinds])
    for theirs, own in (
        (wanted.resource_type, rule.resource_type),
        (wanted.operation, rule.operation),
        (wanted.permission, rule.permission),
    ):
        is_right = is_right and (theirs == 1 or theirs == own)
    for asked, told in ((wanted.principal, rule.principal), (wanted.host, rule.host)):
        is_right = is_right and (asked is None or asked == told)
    assert wanted.matches(rule) is is_right
    acls = acls_of([(rule, id_of(1))])
    assert acls.matching(wanted) == ([(rule, id_of(1))] if is_right else [])


ALL = AclFilter()


@pytest.mark.parametrize(
    ("wanted", "is_matched"),
    [
        (ALL, True),
        (ALL._replace(principal="User:ann"), True),
        (ALL._replace(principal="User:bob"), False),
        (ALL._replace(host="*"), True),
        (ALL._replace(host="10.0.0.1"), False),
        (ALL._replace(operation=Operation.WRITE), False),
        (ALL._replace(permission=Permission.ALLOW), True),
        (ALL._replace(permission=Permission.DENY), False),
        (ALL._replace(resource_type=ResourceType.TOPIC), True),
        (ALL._replace(resource_type=ResourceType.GROUP), False),
        (ALL._replace(resource_name="ab"), True),
        (ALL._replace(resource_name="abc"), False),
        (ALL._replace(resource_type=ResourceType.TOPIC, resource_name="ab"), True),
        (ALL._replace(resource_name="abc", pattern_type=PatternType.MATCH), True),
        (ALL._replace(resource_name="a", pattern_type=PatternType.MATCH), False),
        (ALL._replace(resource_name="ab", pattern_type=PatternType.PREFIXED), True),
        (ALL._replace(resource_name="ab", pattern_type=PatternType.LITERAL), False),
        (ALL._replace(pattern_type=PatternType.LITERAL), False),
    ],
)
def test_each_property_of_a_filter(wanted: AclFilter, *, is_matched: bool) -> None:
    rule = acl("ab", pattern_type=PatternType.PREFIXED)
    assert wanted.matches(rule) is is_matched
    others = [(acl("other", principal="User:x", host="1.1.1.1"), id_of(2))]
    found = acls_of([(rule, id_of(1)), *others]).matching(wanted)
    assert ((rule, id_of(1)) in found) is is_matched


def test_equal_rules_are_equal_parts() -> None:
    one = acls_of([(acl(), id_of(1))])
    assert one == acls_of([(acl(), id_of(1))])
    assert one != acls_of([(acl(), id_of(2))])
    assert one != one.by_id
    assert len(one) == 1


def test_rules_are_added_once_and_removed_once() -> None:
    image = replayed(EMPTY, record_of(acl(), id_of(1)))
    for wrong in (record_of(acl(), id_of(2)), record_of(acl("b"), id_of(1)), removal(2)):
        with pytest.raises(MetadataError):
            replayed(image, wrong)
    assert replayed(image, removal(1)).acls == Acls()


@pytest.mark.parametrize("field", ["resource_type", "pattern_type", "operation", "permission"])
def test_numbers_that_are_not_known_stop_the_node(field: str) -> None:
    record = record_of(acl(), id_of(1)).acl
    setattr(record, field, 99)
    with pytest.raises(MetadataError, match=id_of(1).hex()):
        acl_of(record)


def test_a_delta_without_rules_keeps_the_part() -> None:
    image = replayed(EMPTY, record_of(acl(), id_of(1)))
    assert replayed(image, NO_OP).acls is image.acls


def test_a_rule_as_text() -> None:
    rule = acl("ab", Operation.WRITE, pattern_type=PatternType.PREFIXED, host="10.0.0.1")
    assert rule.text() == "ALLOW User:ann WRITE from host 10.0.0.1 on TOPIC prefix ab"
    assert acl().text() == "ALLOW User:ann READ from host * on TOPIC a"
