"""The laws of what members of share groups are told: delivery counts and lags."""

from __future__ import annotations

import pytest

from chaos.sim.laws.share_counts import DeliveriesAreCounted
from chaos.sim.laws.share_holders import Hold
from chaos.sim.laws.share_lags import LagsCountWhatIsLeft
from chaos.sim.laws.shared_records import RecordName, Told
from tests.chaos.sim.laws.test_share_records import PLACE, RECORD, STATE, Bench, changed
from tests.support.law_bench import PARTITION, image


class CountBench(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.records.delivery_limits["g"] = 5
        self.counts = DeliveriesAreCounted.of(self.scene)
        self.lags = LagsCountWhatIsLeft.of(self.scene)

    def deliver(self, member: str, asked_s: float, told_s: float, count: int = 1) -> Hold:
        hold = super().deliver(member, asked_s, told_s, count)
        self.counts.delivered(RECORD, hold.told, count)
        hold.count = count
        return hold


@pytest.fixture
def bench() -> CountBench:
    return CountBench()


def test_a_count_is_not_above_the_number_of_deliveries(bench: CountBench) -> None:
    bench.deliver("one", 1.0, 1.1, 1)
    bench.deliver("one", 2.0, 2.1, 1)  # the first leader died before it could persist the first
    bench.deliver("one", 3.0, 3.1, 3)
    assert not bench.broken()
    bench.deliver("one", 4.0, 4.1, 5)
    (report,) = bench.broken()
    assert "delivery 5 went to one, of at most 4" in report


def test_a_fetch_without_an_answer_may_have_been_a_delivery(bench: CountBench) -> None:
    bench.records.asking("g", PLACE)
    bench.records.lost("g", PLACE, 1.0)
    bench.deliver("one", 2.0, 2.1, 2)
    assert not bench.broken()


def test_a_delivery_that_was_given_back_does_not_count(bench: CountBench) -> None:
    bench.counts.given_back(bench.deliver("one", 1.0, 1.1, 1))
    bench.deliver("one", 2.0, 2.1, 1)
    assert not bench.broken()
    bench.counts.given_back(bench.deliver("one", 3.0, 3.1, 2))
    bench.deliver("one", 4.0, 4.1, 3)
    assert len(bench.broken()) == 1


def test_a_released_delivery_counts_for_ever(bench: CountBench) -> None:
    bench.deliver("one", 1.0, 1.1, 1)
    bench.counts.released(bench.deliver("one", 2.0, 2.1, 2), 3.0)
    bench.deliver("other", 2.9, 3.1, 2)  # its fetch was sent before the answer
    bench.deliver("other", 4.0, 4.1, 3)
    late = Told("late", 1.0, 1.1, is_of_leader=True)
    bench.counts.released(Hold(RECORD, late, 4, None, 1.0, 2.0, 1), 5.0)
    bench.commit(image(51, changed(leader=2, leader_epoch=6)))
    bench.deliver("other", 5.0, 5.1, 2)  # broker 1 does not know yet that it leads no more
    bench.commit(image(52, STATE))
    assert not bench.broken()
    bench.deliver("other", 6.0, 6.1, 2)
    (report,) = bench.broken()
    assert "delivery 2 was released at 3.0" in report


def test_a_lag_counts_only_what_is_left(bench: CountBench) -> None:
    bench.scene.high_watermarks[PARTITION] = 10
    for offset in range(1, 8):
        bench.records.decided(RecordName("g", PLACE, offset), 1.0)
    bench.records.decided(RecordName("g", PLACE, 7), 2.0)  # a later answer says nothing new
    question = bench.lags.asks("g", PLACE)
    bench.records.decided(RecordName("g", PLACE, 8), 2.0)  # after the question
    bench.lags.answered(question, 0, 3)
    bench.lags.answered(question, -1, -1)
    assert not bench.broken()
    bench.lags.answered(question, 0, 4)
    (report,) = bench.broken()
    assert "4 records are left" in report
    assert bench.lags.looked == 2
