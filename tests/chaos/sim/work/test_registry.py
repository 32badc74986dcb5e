"""Each kind of work is in the registry, and each step is taken of all works before the next one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, ClassVar

import pytest

import chaos.sim.work
from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work import workload
from chaos.sim.work.load import LoadKind
from chaos.sim.work.registry import WORKS
from chaos.sim.work.work import Work

STEPS = ("prepare", "start", "goes_on", "settle", "finish", "read_back", "judge")


class Witness(Work):
    """Notes its steps, and works until all work is done."""

    steps: ClassVar[list[tuple[str, str]]] = []

    def _note(self, step: str) -> None:
        self.steps.append((step, self.name))

    async def prepare(self) -> None:
        self._note("prepare")

    def start(self) -> list[Coroutine[Any, Any, None]]:
        self._note("start")
        return [self._work()]

    async def _work(self) -> None:
        while not self.site.is_done():
            self.counts[f"turns of {self.name}"] += 1
            await asyncio.sleep(0.1)

    def goes_on(self, least: int) -> Callable[[], bool]:
        self._note("goes_on")
        return lambda: self.counts[f"turns of {self.name}"] >= least

    async def settle(self) -> None:
        self._note("settle")

    async def finish(self) -> None:
        self._note("finish")

    async def read_back(self) -> None:
        self._note("read_back")

    def judge(self) -> int:
        self._note("judge")
        return 1


class Enclosing(Witness):
    name = "enclosing"
    encloses = True


class Outlasting(Witness):
    name = "outlasting"
    outlasts = True


class Usual(Witness):
    name = "usual"


def test_each_step_is_taken_of_all_works_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Witness, "steps", [])
    # The others come first, so that the order of these three says all.
    monkeypatch.setattr(workload, "WORKS", (*WORKS, Outlasting, Usual, Enclosing))
    with silent():
        outcome = run(Plan(0, seconds=5, faults=(), load=LoadKind.LIGHT))
    assert outcome.ok, outcome.violations
    in_order = ["outlasting", "usual", "enclosing"]
    orders = {step: [name for taken, name in Witness.steps if taken == step] for step in STEPS}
    assert list(orders) == list(dict.fromkeys(step for step, _ in Witness.steps))
    assert orders == dict.fromkeys(STEPS, in_order) | {
        "prepare": ["enclosing", "outlasting", "usual"],
        "start": ["usual", "enclosing", "outlasting"],
        "finish": ["usual", "enclosing", "outlasting"],
        "read_back": in_order,
        "judge": in_order,
    }
    assert all(outcome.coverage[f"turns of {name}"] > 10 for name in in_order)


def test_no_kind_of_work_is_missing_or_has_the_name_or_generator_of_another() -> None:
    folder = Path(chaos.sim.work.__file__).parent
    written = sum(text.count("(Work):") for text in map(Path.read_text, folder.glob("*.py")))
    assert written == len(WORKS)
    parts = [work.load.label for work in WORKS if work.load is not None]
    assert max(Counter([work.name for work in WORKS]).values()) == 1
    assert max(Counter(parts).values()) == 1
