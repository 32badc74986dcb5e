"""Shares of partitions: against kafka-python's for range and roundrobin, and by the rules of
cooperative-sticky."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from stele.consumer.group.assignors import ASSIGNORS, Candidate, Shares
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import Subscription

TOPICS = ("a", "b", "c")
STICKY = ASSIGNORS["cooperative-sticky"]

Wanted = dict[str, tuple[str, ...]]
COUNTS = st.fixed_dictionaries({topic: st.integers(0, 7) for topic in TOPICS})
WANTED: st.SearchStrategy[Wanted] = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(6)]),
    st.lists(st.sampled_from(TOPICS), min_size=1, unique=True).map(
        lambda each: tuple(sorted(each))
    ),
    min_size=1,
)


class _Cluster:
    """Of a kind that aiokafka's assignors ask."""

    def __init__(self, counts: dict[str, int]) -> None:
        self._counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._counts[topic])) or None


def candidates(wanted: Wanted, owned: Shares | None = None, generation: int = 1) -> list[Candidate]:
    return [
        Candidate(
            member,
            None,
            Subscription(topics, None, tuple((owned or {}).get(member, ())), generation),
        )
        for member, topics in wanted.items()
    ]


def all_partitions(wanted: Wanted, counts: dict[str, int]) -> set[TopicPartition]:
    topics = {topic for each in wanted.values() for topic in each}
    return {TopicPartition(topic, n) for topic in topics for n in range(counts[topic])}


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)],
)
@given(wanted=WANTED, counts=COUNTS)
def test_shares_agree_with_another_client(
    name: str, theirs: Any, wanted: Wanted, counts: dict[str, int]
) -> None:
    metadata = {
        member: ConsumerProtocolMemberMetadata(0, list(topics), b"")
        for member, topics in wanted.items()
    }
    expected = theirs.assign(_Cluster(counts), metadata)
    found = ASSIGNORS[name].assign(candidates(wanted), counts)
    assert {member: sorted(share) for member, share in found.items()} == {
        member: sorted(TopicPartition(*each) for each in share.partitions())
        for member, share in expected.items()
    }


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_come_first(name: str) -> None:
    subscription = Subscription(("a",))
    shares = ASSIGNORS[name].assign(
        [
            Candidate("x", None, subscription),
            Candidate("y", "second", subscription),
            Candidate("z", "first", subscription),
        ],
        {"a": 3},
    )
    assert shares == {
        "z": [TopicPartition("a", 0)],
        "y": [TopicPartition("a", 1)],
        "x": [TopicPartition("a", 2)],
    }


def settle(wanted: Wanted, counts: dict[str, int], owned: Shares) -> tuple[Shares, int]:
    """The shares when nobody releases anything any more, and how many rounds that took."""
    for rounds in range(1, 8):
        shares = STICKY.assign(candidates(wanted, owned), counts)
        claims = {name: member for member, share in owned.items() for name in share}
        for member, share in shares.items():
            assert all(claims.get(name, member) == member for name in share), "not released yet"
        if all(set(owned.get(member, ())) <= set(shares[member]) for member in wanted):
            return shares, rounds
        owned = shares
    raise AssertionError("no end of rounds")


@given(wanted=WANTED, counts=COUNTS, first=WANTED, first_counts=COUNTS)
def test_sticky_shares_are_whole_and_even_and_settle(
    wanted: Wanted, counts: dict[str, int], first: Wanted, first_counts: dict[str, int]
) -> None:
    owned, _ = settle(first, first_counts, {})
    still_there = {member: share for member, share in owned.items() if member in wanted}
    shares, rounds = settle(wanted, counts, still_there)
    if len(set(wanted.values())) == 1:
        assert rounds <= 2
    given_out = [name for share in shares.values() for name in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == all_partitions(wanted, counts)
    for member, share in shares.items():
        assert {name.topic for name in share} <= set(wanted[member])
        for name in share:
            fewest = min(len(shares[each]) for each in wanted if name.topic in wanted[each])
            assert len(share) <= fewest + 1


@given(
    counts=COUNTS,
    before=st.integers(1, 6),
    after=st.integers(1, 6),
)
def test_sticky_moves_as_little_as_possible(
    counts: dict[str, int], before: int, after: int
) -> None:
    first: Wanted = {f"m{n}": TOPICS for n in range(before)}
    then: Wanted = {f"m{n}": TOPICS for n in range(after)}
    owned, _ = settle(first, counts, {})
    shares, _ = settle(then, counts, {m: s for m, s in owned.items() if m in then})
    total = sum(counts.values())
    least, with_one_more = divmod(total, after)
    sizes = sorted((len(owned.get(member, ())) for member in then), reverse=True)
    could_stay = sum(
        min(size, least + (number < with_one_more)) for number, size in enumerate(sizes)
    )
    stayed = sum(len(set(owned.get(member, ())) & set(shares[member])) for member in then)
    assert stayed == could_stay


def test_a_claim_of_an_old_generation_is_no_ownership_but_must_be_released() -> None:
    (both,) = [[TopicPartition("a", 0)]]
    found = STICKY.assign(
        [
            Candidate("old", None, Subscription(("a",), None, tuple(both), 3)),
            Candidate("new", None, Subscription(("a",), None, tuple(both), 4)),
        ],
        {"a": 1},
    )
    assert found == {"old": [], "new": []}
    found = STICKY.assign(
        [
            Candidate("old", None, Subscription(("a",), None, (), 5)),
            Candidate("new", None, Subscription(("a",), None, tuple(both), 5)),
        ],
        {"a": 1},
    )
    assert found == {"old": [], "new": both}


def test_whoever_has_more_than_an_even_share_keeps_it_while_there_is_enough() -> None:
    """Of five partitions one member gets three: the one that has them."""
    names = [TopicPartition("a", number) for number in range(5)]
    wanted: Wanted = {"few": ("a",), "many": ("a",)}
    found = STICKY.assign(candidates(wanted, {"few": names[:1], "many": names[1:4]}), {"a": 5})
    assert found == {"few": [names[0], names[4]], "many": names[1:4]}


def test_a_partition_that_two_claim_at_once_counts_as_neithers_share() -> None:
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    wanted: Wanted = {"one": ("a",), "both": ("a",)}
    found = STICKY.assign(candidates(wanted, {"one": [first], "both": [first, second]}), {"a": 2})
    assert found == {"one": [], "both": [second]}, "the first one has to be released"


@pytest.mark.parametrize(
    ("generation", "shares"),
    [(1, {"a": [], "b": [TopicPartition("a", 0)]}), (2, {"a": [TopicPartition("a", 0)], "b": []})],
)
def test_a_claim_counts_unless_another_one_is_as_new(generation: int, shares: Shares) -> None:
    """A partition counts as a member's share although others have to release it first. One that
    nobody owns goes to whoever has none, and that member has nothing else then."""
    claimed = (TopicPartition("a", 1),)
    found = STICKY.assign(
        [
            Candidate("a", None, Subscription(("a",), None, claimed, 2)),
            Candidate("b", None, Subscription(("a",), None, claimed, generation)),
        ],
        {"a": 2},
    )
    assert found == shares


def test_a_claim_without_a_generation_counts_while_nobody_else_claims() -> None:
    """A client of the first version of the protocol says no generation."""
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    found = STICKY.assign(
        [
            Candidate("new", None, Subscription(("a",), None)),
            Candidate("there", None, Subscription(("a",), None, (first,))),
        ],
        {"a": 2},
    )
    assert found == {"new": [second], "there": [first]}


def test_the_generation_of_an_older_client_is_in_its_user_data() -> None:
    claimed = (TopicPartition("a", 0),)
    found = STICKY.assign(
        [
            Candidate("left", None, Subscription(("a",), STICKY.user_data(3), claimed)),
            Candidate("there", None, Subscription(("a",), STICKY.user_data(4), claimed)),
        ],
        {"a": 2},
    )
    assert found == {"left": [TopicPartition("a", 1)], "there": []}
