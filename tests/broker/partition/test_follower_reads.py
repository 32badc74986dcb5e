"""What a follower shows consumers, and to which replica a leader sends them (KIP-392)."""

from __future__ import annotations

from dataclasses import dataclass

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


def test_a_follower_in_the_isr_serves_consumers_that_may_read_from_any_replica() -> None:
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


def test_a_leader_keeps_consumers_that_are_near_it() -> None:
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


def test_a_replica_is_preferred_only_for_what_it_has() -> None:
    bench = leading(end=6)
    bench.fetch(2, 4, start=2)
    offsets = [offset for offset in range(8) if bench.machine.preferred_replica(offset, {2}) == 2]
    assert offsets == [2, 3, 4]


def test_a_replica_that_is_fenced_or_outside_of_the_isr_is_not_preferred() -> None:
    bench = leading(end=4, isr=(1, 2))
    bench.eligible[3] = False
    bench.fetch(2, 4)
    bench.fetch(3, 4)
    assert bench.machine.preferred_replica(0, {2, 3}) == 2
    assert bench.machine.preferred_replica(0, {3}) == -1
    bench.eligible[2] = False
    bench.fetch(2, 4)
    assert bench.machine.preferred_replica(0, {2, 3}) == -1


@dataclass(frozen=True)
class Follower:
    """One follower as its last fetch showed it."""

    in_isr: bool
    eligible: bool
    nearby: bool
    start: int
    end: int

    def may_serve(self, offset: int) -> bool:
        return self.in_isr and self.eligible and self.nearby and self.start <= offset <= self.end


_mostly = st.sampled_from([True, True, True, False])
_followers = st.fixed_dictionaries(
    {
        broker_id: st.builds(
            Follower,
            in_isr=_mostly,
            eligible=_mostly,
            nearby=_mostly,
            start=st.integers(0, 2),
            end=st.integers(0, 6),
        )
        for broker_id in (2, 3, 4)
    }
)


@given(followers=_followers, offset=st.integers(-1, 7), here=st.sampled_from([False] * 4 + [True]))
def test_the_preferred_replica_is_in_sync_and_has_the_offset(
    followers: dict[int, Follower], offset: int, here: bool
) -> None:
    """``here``: the leader is near, too."""
    bench = MachineBench(end=6)
    isr = (1, *(broker_id for broker_id, each in followers.items() if each.in_isr))
    bench.update(state(replicas=(1, 2, 3, 4), isr=isr))
    for broker_id, each in followers.items():
        bench.eligible[broker_id] = each.eligible
        bench.fetch(broker_id, each.end, start=each.start)
    nearby = {broker_id for broker_id, each in followers.items() if each.nearby} | (
        {1} if here else set()
    )
    ends = {broker_id: each.end for broker_id, each in followers.items() if each.may_serve(offset)}
    chosen = bench.machine.preferred_replica(offset, nearby)
    if here or not ends:
        assert chosen == -1
    else:
        assert ends[chosen] == max(ends.values())
