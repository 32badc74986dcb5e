"""A footprint names the mutants that a test may notice, and is known while nothing changes."""

from __future__ import annotations

import functools
import gc
from pathlib import Path

from stele.spark.numbers import Numbers
from tests.mutation import children
from tests.mutation.children import Job
from tests.mutation.footprints import Cache, Footprint, Tracer
from tests.mutation.mutants import ROOMS, ROOT
from tests.mutation.planting import Ground

SPARK = next(room for room in ROOMS if room.name == "spark")
HIGHEST_FLOOR = (
    "stele/spark/numbers.py: Numbers.union: `max` to `min` in `max(self.floor, other.floor)`"
)


def test_a_footprint_names_the_mutants_that_decide_otherwise_in_this_test() -> None:
    gc.unfreeze()  # a ground finds functions that the collector knows
    ground = Ground([SPARK])

    def footprints() -> list[tuple[bool, tuple[tuple[int, int], ...]]]:
        tracer = Tracer(SPARK, ground)
        found = []
        for floors in ((3, 5), (4, 4)):  # the lesser of two equal floors is the greater, too
            one, other = (Numbers(((6, 9),), floor) for floor in floors)
            footprint, united = tracer.trace(functools.partial(one.union, other))
            found.append((HIGHEST_FLOOR in footprint.mutants, united.ranges))
        return found

    with children.running([Job(0, footprints, 60.0)], 1) as answers:
        assert [said for _, said in answers] == [[(True, ((6, 9),)), (False, ((6, 9),))]]


def test_a_cache_knows_the_tests_of_a_file_while_it_stays_as_it_is(tmp_path: Path) -> None:
    tests = ROOT / "tests" / "mutation" / "test_footprints.py"
    found = {"a test": Footprint(0.5, frozenset({HIGHEST_FLOOR}))}
    Cache(tmp_path / "spark.json", SPARK).put(tests, found)
    assert Cache(tmp_path / "spark.json", SPARK).get(tests) == found
    assert Cache(tmp_path / "spark.json", SPARK).get(tests.with_name("test_sites.py")) is None
