"""Vote arithmetic, compared with trying every subset."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from raft.quorum import ReplicaKey, Voter, VoterSet, VoteTally, majority_time, majority_value

SIZES = st.integers(1, 7)


def majorities(ids: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The dumb twin: every subset with more than half of the voters."""
    return [
        chosen
        for size in range(len(ids) + 1)
        for chosen in combinations(ids, size)
        if 2 * size > len(ids)
    ]


@given(st.lists(st.integers(-1, 20), min_size=1, max_size=7))
def test_high_watermark_is_what_some_majority_has(ends: list[int]) -> None:
    values = dict(enumerate(ends))
    voters = VoterSet.of_ids(*values)
    expected = max(min(values[v] for v in chosen) for chosen in majorities(voters.ids))
    assert majority_value(voters, values) == expected
    as_times = {voter: float(value) for voter, value in values.items()}
    assert majority_time(voters, as_times) == expected


@given(SIZES, st.data())
def test_won_and_lost(size: int, data: st.DataObject) -> None:
    voters = VoterSet.of_ids(*range(size))
    votes = data.draw(st.dictionaries(st.integers(0, size - 1), st.booleans()))
    tally = VoteTally(voters)
    for voter, granted in votes.items():
        tally.record(voter, granted)
    groups = majorities(voters.ids)
    assert tally.won == any(all(votes.get(v) is True for v in chosen) for chosen in groups)
    assert tally.lost == all(any(votes.get(v) is False for v in chosen) for chosen in groups)


@given(SIZES)
def test_any_two_majorities_meet(size: int) -> None:
    voters = VoterSet.of_ids(*range(size))
    smallest = [set(chosen) for chosen in majorities(voters.ids) if len(chosen) == voters.majority]
    assert all(one & other for one in smallest for other in smallest)


def test_the_first_answer_counts() -> None:
    tally = VoteTally(VoterSet.of_ids(1, 2, 3))
    tally.record(2, granted=False)
    tally.record(2, granted=True)
    assert tally.rejected == {2}
    assert not tally.granted


def test_a_missing_voter_has_nothing() -> None:
    assert majority_value(VoterSet.of_ids(1, 2, 3), {1: 9}) == -1


def test_another_disk_is_another_replica() -> None:
    one, other = ReplicaKey(1, b"a" * 16), ReplicaKey(1, b"b" * 16)
    assert one in VoterSet([Voter(one)])
    assert other not in VoterSet([Voter(one)])
    assert other in VoterSet.of_ids(1)  # its directory is not known
    assert ReplicaKey(2) not in VoterSet.of_ids(1)


def test_no_voters() -> None:
    none = VoterSet([])
    assert not len(none)
    assert ReplicaKey(1) not in none


def test_sets_are_values() -> None:
    first, second = Voter(ReplicaKey(1, b"a" * 16), "one:1"), Voter(ReplicaKey(2), "two:2")
    both = VoterSet([second, first])
    assert both == VoterSet([first]).with_voter(second)
    assert both.voters == (first, second)
    assert both.without(2) == VoterSet([first]) != both
    moved = Voter(first.key, "elsewhere:1")
    assert both.with_voter(moved).get(1) == moved
    assert both.get(1) == first
    assert both.get(3) is None
