"""The history of voters, compared with a list of the voters after each record."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raft.quorum import VoterSet
from raft.voter_history import NO_RECORD, VoterHistory

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.integers(1, 5)),
        st.tuples(st.just("voters"), st.integers(1, 9)),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
        st.tuples(st.just("cut"), st.integers(0, 100)),
        st.tuples(st.just("reset"), st.integers(1, 9)),
    ),
    max_size=40,
)


@given(STEPS)
def test_against_a_list(steps: list[tuple[str, int]]) -> None:
    config = VoterSet.of_ids(0)
    history = VoterHistory(config)
    # The twin: after[n] has the voters and their offset once the log has n records.
    after, start = [(config, NO_RECORD)], 0
    for kind, number in steps:
        end = len(after) - 1
        if kind == "records":
            after += [after[-1]] * number
        elif kind == "voters":
            history.append(end, VoterSet.of_ids(number))
            after.append((VoterSet.of_ids(number), end))
        elif kind == "truncate":
            end = start + number % (end + 1 - start)
            del after[end + 1 :]
            history.truncate_to(end)
        elif kind == "cut":
            start += number % (end + 1 - start)
            history.cut_before(start)
        else:
            start = end + number
            history.reset(VoterSet.of_ids(number), start - 1)
            after += [after[-1]] * (number - 1) + [(VoterSet.of_ids(number), start - 1)]
        assert (history.latest, history.latest_offset) == after[-1]
        for offset in range(start, len(after)):
            assert history.at(offset) == after[offset][0]
        changes = list(dict.fromkeys(after[start:]))
        if len(changes) > 1:
            assert history.previous == changes[-2][0]


def test_a_cut_forgets_the_sets_that_count_only_before_it() -> None:
    first, second, third = (VoterSet.of_ids(voter) for voter in (1, 2, 3))
    history = VoterHistory(first, 4)
    history.append(7, second)
    history.append(9, third)
    for offset, kept in (
        (3, [(4, first), (7, second), (9, third)]),
        (7, [(4, first), (7, second), (9, third)]),  # the first counts until 7
        (8, [(7, second), (9, third)]),
        (20, [(9, third)]),
    ):
        history.cut_before(offset)
        assert history.recorded == kept
