"""The assignors of the consumer protocol, beside a twin that tries everything."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.coordinator.assignors.range import assign_range
from broker.coordinator.assignors.spec import Assignor, Partitions, Subscriber
from broker.coordinator.assignors.uniform import assign_uniform

TOPICS = tuple(bytes([number]) * 16 for number in range(1, 5))
Pairs = frozenset[tuple[bytes, int]]


def pairs(assigned: Partitions) -> Pairs:
    assert all(assigned.values())
    return frozenset(
        (topic_id, number) for topic_id, numbers in assigned.items() for number in numbers
    )


def grouped(of_member: Pairs) -> Partitions:
    topic_ids = {topic_id for topic_id, _ in of_member}
    return {
        topic_id: frozenset(number for each, number in of_member if each == topic_id)
        for topic_id in topic_ids
    }


Group = tuple[dict[str, Subscriber], dict[bytes, int]]


@st.composite
def groups(
    draw: st.DrawFn, *, topics: int = 4, members: int = 6, partitions: int = 9, equal: bool = False
) -> Group:
    """Members with the assignment of some former time, in which topics were of other sizes."""
    ids = TOPICS[:topics]
    counts = {each: draw(st.integers(1, partitions)) for each in ids}
    names = [f"m{number}" for number in range(draw(st.integers(1, members)))]
    subscriptions = st.sets(st.sampled_from(ids), min_size=int(equal)).map(frozenset)
    same = draw(subscriptions)
    former: dict[str, set[tuple[bytes, int]]] = {each: set() for each in names}
    for topic_id in ids:
        for number in range(partitions):
            owner = draw(st.none() | st.sampled_from(names))
            if owner is not None:
                former[owner].add((topic_id, number))
    found = {
        each: Subscriber(
            same if equal else draw(subscriptions),
            grouped(frozenset(former[each])),
            draw(st.none() | st.just(f"i-{each}")),
        )
        for each in names
    }
    return found, counts


def check_complete(group: Group, assigned: Mapping[str, Partitions]) -> None:
    """Every partition with a subscriber has one owner, who subscribes to it."""
    members, counts = group
    assert set(assigned) == set(members)
    owners = Counter(pair for each in assigned.values() for pair in pairs(each))
    subscribed = {topic_id for each in members.values() for topic_id in each.topic_ids}
    assert owners == Counter((each, n) for each in subscribed for n in range(counts[each]))
    for member_id, owned in assigned.items():
        assert set(owned) <= members[member_id].topic_ids


@pytest.mark.parametrize("assignor", [assign_range, assign_uniform])
@given(group=groups())
def test_every_partition_has_one_owner_that_subscribes_to_it(
    assignor: Assignor, group: Group
) -> None:
    assigned = assignor(*group)
    check_complete(group, assigned)
    shuffled = dict(reversed(group[0].items()))
    assert assignor(shuffled, group[1]) == assigned


@pytest.mark.parametrize("assignor", [assign_range, assign_uniform])
@given(group=groups())
def test_an_unchanged_group_keeps_its_assignment(assignor: Assignor, group: Group) -> None:
    members, counts = group
    assigned = assignor(members, counts)
    again = {each: members[each]._replace(assigned=assigned[each]) for each in members}
    assert assignor(again, counts) == assigned


def balanced(members: list[str], partitions: list[tuple[bytes, int]]) -> Iterator[dict[str, Pairs]]:
    """The twin: all assignments whose sizes differ by one at most."""
    for owners in itertools.product(members, repeat=len(partitions)):
        sizes = Counter(dict.fromkeys(members, 0)) + Counter(owners)
        counts = [sizes[each] for each in members]
        if max(counts) - min(counts) <= 1:
            yield {
                each: frozenset(p for p, o in zip(partitions, owners, strict=True) if o == each)
                for each in members
            }


@settings(max_examples=40, deadline=None)
@given(group=groups(topics=2, members=3, partitions=3, equal=True))
def test_uniform_is_balanced_and_moves_as_little_as_the_best_of_all(group: Group) -> None:
    members, counts = group
    (subscription,) = {each.topic_ids for each in members.values()}
    partitions = [(each, n) for each in sorted(subscription) for n in range(counts[each])]
    former = {each: pairs(members[each].assigned) for each in members}
    best = max(
        sum(len(owned & former[each]) for each, owned in candidate.items())
        for candidate in balanced(list(members), partitions)
    )
    assigned = {each: pairs(owned) for each, owned in assign_uniform(members, counts).items()}
    sizes = [len(each) for each in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    assert sum(len(owned & former[each]) for each, owned in assigned.items()) == best


@given(group=groups())
def test_uniform_leaves_nothing_that_could_go_to_a_smaller_subscriber(group: Group) -> None:
    members, counts = group
    assigned = {each: pairs(owned) for each, owned in assign_uniform(members, counts).items()}
    for owner, owned in assigned.items():
        for topic_id in {each for each, _ in owned}:
            for other, member in members.items():
                if topic_id in member.topic_ids:
                    assert len(owned) - len(assigned[other]) <= 1, (owner, other)


def test_uniform_gives_a_new_member_its_share_and_moves_nothing_else() -> None:
    topic_id = TOPICS[0]
    before = {
        "a": Subscriber(frozenset({topic_id}), {topic_id: frozenset({0, 1, 2})}),
        "b": Subscriber(frozenset({topic_id}), {topic_id: frozenset({3, 4, 5})}),
        "c": Subscriber(frozenset({topic_id}), {}),
    }
    assigned = assign_uniform(before, {topic_id: 6})
    assert {each: len(owned[topic_id]) for each, owned in assigned.items()} == dict.fromkeys(
        "abc", 2
    )
    assert assigned["a"][topic_id] < {0, 1, 2}
    assert assigned["b"][topic_id] < {3, 4, 5}


@given(group=groups())
def test_range_co_partitions_topics_of_the_same_subscribers_and_size(group: Group) -> None:
    members, counts = group
    assigned = assign_range(members, counts)
    for one, other in itertools.combinations(TOPICS, 2):
        alike = all((one in m.topic_ids) == (other in m.topic_ids) for m in members.values())
        if alike and counts[one] == counts[other]:
            for owned in assigned.values():
                assert owned.get(one) == owned.get(other)


@given(group=groups())
def test_range_gives_contiguous_ranges_in_the_order_of_static_and_other_members(
    group: Group,
) -> None:
    members, counts = group
    assigned = assign_range(members, counts)
    order = sorted(each for each in members if members[each].instance_id is not None)
    order += sorted(each for each in members if members[each].instance_id is None)
    for topic_id in TOPICS:
        of_topic = [each for each in order if topic_id in members[each].topic_ids]
        numbers = [n for each in of_topic for n in sorted(assigned[each].get(topic_id, ()))]
        assert not of_topic or numbers == list(range(counts[topic_id]))
        sizes = [len(assigned[each].get(topic_id, ())) for each in of_topic]
        assert sizes == sorted(sizes, reverse=True)
        assert not sizes or sizes[0] - sizes[-1] <= 1


def test_range_gives_a_static_member_the_same_partitions_under_another_id() -> None:
    topic_id = TOPICS[0]
    static = Subscriber(frozenset({topic_id}), {}, "i")
    other = Subscriber(frozenset({topic_id}), {})
    before = assign_range({"z": static, "m": other}, {topic_id: 4})
    after = assign_range({"a": static, "m": other}, {topic_id: 4})
    assert before["z"] == after["a"]
    assert before["m"] == after["m"]


def test_nobody_is_assigned_nothing() -> None:
    assert assign_range({}, {}) == {}
    assert assign_uniform({}, {}) == {}
