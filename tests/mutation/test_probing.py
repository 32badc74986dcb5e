"""Probes note when a mutant would decide otherwise, and change nothing."""

from __future__ import annotations

import ast
import gc
from textwrap import dedent
from typing import Any

import numpy
import pytest

from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.load import LoadKind
from tests.mutation import children
from tests.mutation.children import Job
from tests.mutation.mutants import ROOMS, mutants_of
from tests.mutation.planting import Ground
from tests.mutation.probing import Probes, names_for, with_probes
from tests.mutation.sites import sites


def differ(source: str, *args: Any) -> tuple[Any, set[str]]:
    """What the only function returns, and the changes that would have decided otherwise."""
    tree = ast.parse(dedent(source))
    found = sites(tree)
    probes = Probes()
    names = names_for(probes)
    exec(compile(with_probes(tree, list(enumerate(found))), "f.py", "exec"), names)
    return names["f"](*args), {found[number].change for number in probes.differed}


@pytest.mark.parametrize(
    ("expression", "args", "returns", "changes"),
    [
        ("a < b", (1, 2), True, set()),
        ("a < b", (2, 2), False, {"`<` to `<=` in `a < b`"}),
        ("0 <= a < b", (0, 2), True, {"`<=` to `<` in `0 <= a < b`"}),
        ("0 <= a < b", (2, 2), False, {"`<` to `<=` in `0 <= a < b`"}),
        ("min(a, b)", (1, 2), 1, {"`min` to `max` in `min(a, b)`"}),
        ("min(a, b)", (2, 2), 2, set()),
        ("max([a, b], default=0)", (1, 2), 2, {"`max` to `min` in `max([a, b], default=0)`"}),
        ("a + 1", (1, 2), 2, {"drop one of `a + 1`"}),
        ("a and b", (True, False), False, {"drop operand `b` of `a and b`"}),
        ("a and b", (False, True), False, {"drop operand `a` of `a and b`"}),
        ("a and b", (True, True), True, set()),
        ("a or b", ("", "x"), "x", {"drop operand `b` of `a or b`"}),
        ("a is not None and a.x", (None, 0), False, {"drop operand `a is not None`", "is not"}),
        ("a and b()", (0, bool), 0, {"drop operand `a` of `a and b()`"}),
    ],
)
def test_an_expression_says_what_it_says(
    expression: str, args: tuple[Any, ...], returns: Any, changes: set[str]
) -> None:
    said, found = differ(f"def f(a, b):\n    return {expression}", *args)
    assert said == returns
    if "None" not in expression:
        assert found == changes
    else:
        assert len(found) == 2


def test_the_comparison_of_arrays_is_the_array() -> None:
    said, found = differ("def f(a, b):\n    return a < b", numpy.array([1, 2]), numpy.array([2, 2]))
    assert (said.tolist(), found) == ([True, False], {"`<` to `<=` in `a < b`"})


def test_an_operand_that_does_something_counts_when_it_is_reached() -> None:
    source = "def f(a, b):\n    return a() and b"
    said, found = differ(source, lambda: True, True)
    assert (said, found) == (True, {"drop operand `a()` of `a() and b`"})


def test_what_only_the_mutant_would_call_is_not_called() -> None:
    def never() -> bool:
        raise AssertionError

    said, found = differ("def f(a, b):\n    return a and b()", False, never)
    assert (said, found) == (False, {"drop operand `a` of `a and b()`"})


def test_a_guard_counts_when_it_would_have_left() -> None:
    source = """
        def f(a, b):
            if a > b:
                return 1
            b += 1
            return b
    """
    assert differ(source, 3, 1) == (1, {"drop guard `a > b`"})
    assert differ(source, 1, 1) == (2, {"`>` to `>=` in `a > b`", "drop `b += 1`"})


def test_a_condition_that_binds_a_name_counts_when_it_is_reached() -> None:
    said, found = differ("def f(a, b):\n    return a and (c := b) and c > 1", 1, 3)
    assert said is True
    assert len(found) == 3


def test_a_run_with_probes_is_the_run_without() -> None:
    mutants = [mutant for room in ROOMS for mutant in mutants_of(room)]
    gc.unfreeze()  # a ground finds functions that the collector knows
    ground = Ground(ROOMS)
    gc.freeze()

    def probed() -> tuple[str, int]:
        probes = Probes()
        ground.plant_probes(mutants, probes)
        return digest(), len(probes.differed)

    def digest() -> str:
        with silent():
            return run(Plan(1, 2.0, load=LoadKind.LIGHT)).digest

    with children.running([Job(0, digest, 300.0), Job(1, probed, 300.0)], 2) as answers:
        said = {job.key: answer for job, answer in answers}
    assert said[1][0] == said[0]
    assert 100 < said[1][1] < len(mutants)
