"""The assignor of share groups."""

from __future__ import annotations

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from broker.coordinator.assignors.simple import assign_simple
from broker.coordinator.assignors.spec import Partitions, Subscriber

TOPICS = tuple(bytes([number]) * 16 for number in range(1, 4))
Group = tuple[dict[str, Subscriber], dict[bytes, frozenset[int]]]


@st.composite
def groups(draw: st.DrawFn, *, equal: bool) -> Group:
    """Members with the assignment of some former time, in which topics had other partitions that
    could be assigned."""
    some = st.frozensets(st.integers(0, 7), max_size=6)
    assignable = {each: draw(some) for each in TOPICS}
    subscriptions = st.sets(st.sampled_from(TOPICS)).map(frozenset)
    same = draw(subscriptions)
    names = [f"m{number}" for number in range(draw(st.integers(0, 8)))]
    numbers = st.sets(st.integers(0, 7), min_size=1).map(frozenset)
    former = st.dictionaries(st.sampled_from(TOPICS), numbers)
    members = {
        each: Subscriber(same if equal else draw(subscriptions), draw(former)) for each in names
    }
    return members, assignable


def pairs(assigned: Partitions) -> set[tuple[bytes, int]]:
    assert all(assigned.values())
    return {(topic_id, number) for topic_id, numbers in assigned.items() for number in numbers}


def again(group: Group, assigned: dict[str, Partitions]) -> dict[str, Partitions]:
    """The assignment of the same members, made from the one before."""
    members, assignable = group
    kept = {each: members[each]._replace(assigned=assigned[each]) for each in members}
    return assign_simple(kept, assignable)


@given(group=st.one_of(groups(equal=True), groups(equal=False)))
def test_every_partition_with_a_subscriber_has_a_member_that_subscribes(group: Group) -> None:
    members, assignable = group
    assigned = assign_simple(members, assignable)
    assert set(assigned) == set(members)
    wanted = {t for each in members.values() for t in each.topic_ids}
    found = {pair for each in assigned.values() for pair in pairs(each)}
    assert found == {(t, number) for t in wanted for number in assignable[t]}
    for member_id, owned in assigned.items():
        assert set(owned) <= members[member_id].topic_ids


@given(group=groups(equal=True))
def test_with_equal_subscriptions_sizes_differ_by_one_at_most(group: Group) -> None:
    members, assignable = group
    assigned = assign_simple(members, assignable)
    sizes = [len(pairs(each)) for each in assigned.values()]
    shares = Counter(pair for each in assigned.values() for pair in pairs(each))
    if shares:
        assert max(sizes) - min(sizes) <= 1
        assert max(shares.values()) - min(shares.values()) <= 1
        assert min(sizes) >= 1
        assert min(max(sizes), max(shares.values())) == 1


@given(group=groups(equal=False))
def test_with_different_subscriptions_each_topic_is_balanced(group: Group) -> None:
    members, assignable = group
    if len({each.topic_ids for each in members.values()}) == 1:
        return
    assigned = assign_simple(members, assignable)
    for topic_id in TOPICS:
        owned = [assigned[m].get(topic_id, frozenset()) for m in members
                 if topic_id in members[m].topic_ids]  # fmt: skip
        if owned and assignable[topic_id]:
            sizes = [len(each) for each in owned]
            assert min(sizes) >= 1
            assert max(sizes) - min(sizes) <= 1
            shares = Counter(number for each in owned for number in each)
            assert max(shares.values()) - min(shares.values()) <= 1


@given(group=st.one_of(groups(equal=True), groups(equal=False)))
def test_nothing_moves_without_a_change(group: Group) -> None:
    assigned = assign_simple(*group)
    assert again(group, assigned) == assigned


@given(group=groups(equal=True))
@example(group=({}, {TOPICS[0]: frozenset({0})}))
def test_the_order_of_members_has_no_influence(group: Group) -> None:
    members, assignable = group
    turned = {each: members[each] for each in reversed(members)}
    assert assign_simple(turned, assignable) == assign_simple(members, assignable)


def test_a_member_that_leaves_moves_only_its_partitions() -> None:
    members = {f"m{n}": Subscriber(frozenset(TOPICS[:1]), {}) for n in range(3)}
    assignable = {TOPICS[0]: frozenset(range(6))}
    before = assign_simple(members, assignable)
    rest = {each: members[each]._replace(assigned=before[each]) for each in ("m0", "m2")}
    after = assign_simple(rest, assignable)
    assert all(pairs(before[each]) < pairs(after[each]) for each in rest)


def test_members_beyond_the_partitions_share_them() -> None:
    members = {f"m{n}": Subscriber(frozenset(TOPICS[:1]), {}) for n in range(5)}
    assigned = assign_simple(members, {TOPICS[0]: frozenset({0, 3})})
    shares = Counter(pair for each in assigned.values() for pair in pairs(each))
    assert sorted(shares.values()) == [2, 3]
