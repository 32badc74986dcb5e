"""The law of dead letters: each record that is given up has one, and no other record has any."""

from __future__ import annotations

import pytest

from chaos.sim.laws.dead_letters import DeadLettersAreWrittenOnce
from chaos.sim.laws.shared_records import RecordName
from tests.chaos.sim.laws.test_share_records import PLACE, RECORD, Bench

OTHER = RecordName("g", PLACE, RECORD.offset + 1)


class LetterBench(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.records.delivery_limits["g"] = 2
        self.letters = DeadLettersAreWrittenOnce.of(self.scene)


@pytest.fixture
def bench() -> LetterBench:
    return LetterBench()


def test_a_rejected_record_has_one_letter(bench: LetterBench) -> None:
    bench.decided.decides(RECORD, accepts=False)
    bench.decided.decides(OTHER, accepts=True)
    bench.letters.read([RECORD, OTHER], [RECORD])
    assert not bench.broken()
    assert bench.letters.looked == 3
    bench.letters.read([RECORD, OTHER], [])
    (report,) = bench.broken()
    assert "no member has accepted it, and it has no letter" in report


def test_no_record_has_two_letters(bench: LetterBench) -> None:
    bench.decided.decides(RECORD, accepts=False)
    bench.letters.read([RECORD], [RECORD, RECORD])
    (report,) = bench.broken()
    assert "it has 2 dead letters" in report


def test_a_letter_needs_a_rejection_or_deliveries_up_to_the_limit(bench: LetterBench) -> None:
    bench.deliver("one", 1.0, 1.1, 1)
    bench.letters.read([], [RECORD])
    (report,) = bench.broken()
    assert "no member has given it up" in report
    bench.deliver("one", 2.0, 2.1, 2)
    bench.letters.read([RECORD], [RECORD])
    assert not bench.broken()


def test_a_record_that_a_member_may_have_accepted_needs_no_letter(bench: LetterBench) -> None:
    """The acceptance may have come too late, and then it has one."""
    for count in (1, 2):
        bench.deliver("one", float(count), count + 0.1, count)
    bench.decided.decides(RECORD, accepts=True)
    bench.letters.read([RECORD], [])
    bench.letters.read([RECORD], [RECORD])
    assert not bench.broken()
