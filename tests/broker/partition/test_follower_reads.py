"""What a follower shows consumers, and to which replica a leader sends them (KIP-392)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.errors import ApiError, ErrorCode
from tests.support.broker import MachineBench, leading, position, state


def following(*, isr: tuple[int, ...] = (1, 2, 3), end: int = 0, known: int = 0) -> MachineBench:
    bench = MachineBench(end=end, high_watermark=known)
    bench.update(state(leader=2, isr=isr))
    return bench


def refusal(bench: MachineBench, offset: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        bench.machine.readable_end(offset)
    return caught.value.code


def test_a_follower_in_the_isr_serves_who_may_read_from_any_replica() -> None:
    machine = following().machine
    assert machine.fence(-1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert machine.fence(-1, any_replica=True) is ErrorCode.NONE
    assert machine.fence(5, any_replica=True) is ErrorCode.NONE
    assert machine.fence(4, any_replica=True) is ErrorCode.FENCED_LEADER_EPOCH
    assert machine.fence(6, any_replica=True) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_outside_of_the_isr_sends_its_readers_away() -> None:
    machine = following(isr=(2, 3)).machine
    assert machine.fence(5, any_replica=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_that_knows_nothing_of_the_partition_yet_serves_nobody() -> None:
    bench = MachineBench(end=3, high_watermark=3)
    assert bench.machine.fence(-1, any_replica=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_shows_what_it_knows_to_be_committed() -> None:
    bench = following(end=6, known=4)
    assert [bench.machine.readable_end(offset) for offset in (0, 4, 6)] == [4, 4, 4]
    assert refusal(bench, 7) is ErrorCode.OFFSET_NOT_AVAILABLE
    bench.log = position(6, start=2)
    bench.machine.copied(bench.log, 6)
    assert bench.machine.readable_end(2) == 6
    assert refusal(bench, 1) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_past_the_end_of_the_leader_there_is_nothing() -> None:
    bench = leading(end=3)
    assert refusal(bench, 4) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_tells_when_it_learns_of_committed_records() -> None:
    bench = following(end=6, known=4)
    assert not bench.machine.copied(position(6), 4)
    assert not bench.machine.copied(position(8), 4)
    assert bench.machine.copied(position(8), 7)
    assert not bench.machine.copied(position(8), 5)
    assert bench.machine.copied(position(8), 9)


def test_only_committed_history_of_a_follower_is_evidence() -> None:
    bench = following(end=6, known=4)
    assert [bench.machine.knows_history(offset) for offset in (3, 4, 5)] == [True, True, False]
    assert leading(end=6).machine.knows_history(6)


def test_a_leader_sends_nobody_away_who_is_near_it() -> None:
    bench = leading(end=4)
    bench.fetch(2, 4)
    assert bench.machine.preferred_replica(0, {1, 2}) == -1
    assert bench.machine.preferred_replica(0, {2}) == 2


def test_a_replica_that_was_never_seen_is_not_preferred() -> None:
    bench = leading(end=4)
    assert bench.machine.preferred_replica(0, {2, 3}) == -1


def test_among_equal_replicas_the_one_that_was_caught_up_last_is_preferred() -> None:
    bench = leading(end=4)
    bench.fetch(3, 4)
    bench.now_ms += 5
    bench.fetch(2, 4)
    assert bench.machine.preferred_replica(4, {2, 3}) == 2
    bench.fetch(3, 4)
    assert bench.machine.preferred_replica(4, {2, 3}) == 3  # the same time: the higher id


Seen = tuple[int, int, bool, bool]


@given(
    isr=st.sets(st.sampled_from((2, 3, 4))),
    seen=st.lists(
        st.tuples(st.sampled_from((2, 3, 4)), st.integers(0, 6), st.integers(0, 3), st.booleans()),
        max_size=6,
    ),
    nearby=st.frozensets(st.sampled_from((1, 2, 3, 4, 5))),
    offset=st.integers(-1, 7),
)
def test_the_preferred_replica_is_in_sync_and_has_the_offset(
    isr: set[int],
    seen: list[tuple[int, int, int, bool]],
    nearby: frozenset[int],
    offset: int,
) -> None:
    """Beside a twin that keeps the last fetch of each replica."""
    bench = MachineBench(end=6)
    bench.update(state(replicas=(1, 2, 3, 4), isr=(1, *sorted(isr))))
    twin: dict[int, tuple[int, int, bool]] = {}
    for broker_id, end, start, eligible in seen:
        bench.eligible[broker_id] = eligible
        bench.fetch(broker_id, end, start=start)
        twin[broker_id] = end, start, eligible
    may_serve = {
        broker_id: end
        for broker_id, (end, start, eligible) in twin.items()
        if broker_id in nearby and broker_id in isr and eligible and start <= offset <= end
    }
    chosen = bench.machine.preferred_replica(offset, nearby)
    if 1 in nearby or not may_serve:
        assert chosen == -1
    else:
        assert may_serve[chosen] == max(may_serve.values())
