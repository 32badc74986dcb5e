"""The law of coordinators' deadlines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chaos.sim.laws.coordinator_deadlines import DeadlinesPass


class Bench:
    """Broker 1 has the coordinator of one partition of groups, with a deadline at 1,000 ms."""

    def __init__(self) -> None:
        self.now = 0.0
        self.law = DeadlinesPass()
        self.machine = SimpleNamespace(deadline_ms=1_000.0)
        self.may_write = True
        self.process = SimpleNamespace(
            paused=False,
            world=SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: self.now)),
        )
        groups = SimpleNamespace(
            each_active=lambda: [(0, 5, self.machine)], may_write=lambda number: self.may_write
        )
        none = SimpleNamespace(each_active=list)
        node = SimpleNamespace(
            id=1,
            incarnation="b1 #0",
            process=self.process,
            broker=SimpleNamespace(groups=groups, transactions=none),
        )
        self.cluster = SimpleNamespace(brokers={1: node}, simulation=self)

    def look(self, *times_s: float) -> list[str]:
        reports: list[str] = []
        for self.now in times_s:
            self.law.look(cast(Any, self.cluster), reports.append)
        return reports


def test_a_deadline_that_stays_due_is_reported() -> None:
    bench = Bench()
    assert bench.look(2.0, 12.0) == []
    (report,) = bench.look(12.5)
    assert "__consumer_offsets-0 on broker 1 is due for 10 s" in report


def test_a_deadline_that_is_not_due_yet_is_not_judged() -> None:
    bench = Bench()
    bench.machine.deadline_ms = 60_000.0
    assert bench.look(2.0, 50.0) == []
    assert bench.law.looked == 0


def test_a_coordinator_without_deadlines_is_not_judged() -> None:
    bench = Bench()
    bench.machine.deadline_ms = None
    assert bench.look(2.0, 50.0) == []


def test_the_next_deadline_has_its_own_time() -> None:
    bench = Bench()
    assert bench.look(2.0, 11.0) == []
    bench.machine.deadline_ms = 2_000.0
    assert bench.look(13.0, 22.0) == []
    assert len(bench.look(23.5)) == 1


def test_while_the_log_takes_no_records_deadlines_wait() -> None:
    bench = Bench()
    assert bench.look(2.0, 11.0) == []
    bench.may_write = False
    assert bench.look(13.0, 30.0) == []
    bench.may_write = True
    assert bench.look(31.0, 40.0) == []


def test_a_paused_process_handles_nothing() -> None:
    bench = Bench()
    assert bench.look(2.0, 11.0) == []
    bench.process.paused = True
    assert bench.look(13.0) == []
    bench.process.paused = False
    assert bench.look(14.0, 23.0) == []
