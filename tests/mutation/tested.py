"""Mutants against the unit tests of their rooms, which are collected once for all of them."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import itertools
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.mutation import children
from tests.mutation.children import Job, Lost
from tests.mutation.footprints import Cache, Footprint, Tracer
from tests.mutation.mutants import ROOT, Mutant, Room
from tests.mutation.planting import Ground

_TRACING_LIMIT_S = 600.0  # for the tests of one file
_LEAST_LIMIT_S, _SLOWER = 10.0, 5.0  # a mutant has so long, and so many times what its tests take
_LEAST_TEST_LIMIT_S = 3.0  # likewise for one test: a mutant that hangs costs no more than that


class TestsError(Exception):
    """The tests cannot be collected, or fail on the true source: they prove nothing of a mutant."""

    __test__ = False


class Tried(NamedTuple):
    """What the tests made of a mutant."""

    mutant: Mutant
    tests: int  # in which it decides something otherwise
    killed_by: str  # the test that failed, or how the process ended; empty: it survived


def try_all(
    mutants: Sequence[Mutant],
    ground: Ground,
    cache: Path,
    jobs: int,
    on_tried: Callable[[Tried], None],
    *,
    longest_s: float = math.inf,
    only: tuple[str, ...] = (),
) -> None:
    """Tell of each as it ends. ``cache``: a directory for what is found out of the tests. Tests
    that take longer than ``longest_s`` are left out. ``only``: paths; without any, all tests of
    the mutants' rooms.

    Raises TestsError.
    """
    rooms = sorted({mutant.room for mutant in mutants}, key=lambda room: room.name)

    def try_with(tests: _Tests) -> None:
        attempts: list[Job] = []
        for room in rooms:
            kept = Cache(cache / f"{room.name}.json", room)
            found = {
                test: footprint
                for test, footprint in _footprints(tests, room, kept, ground, jobs).items()
                if footprint.seconds <= longest_s
            }
            attempts += [
                _attempt(mutant, tests, found, ground) for mutant in mutants if mutant.room is room
            ]
        gc.freeze()  # a child's collections would copy all that it shares with this process
        with children.running(attempts, jobs) as answers:
            for done, said in answers:
                mutant, count = done.key
                on_tried(Tried(mutant, count, said.reason if isinstance(said, Lost) else said))

    _collect(only or sorted({path for room in rooms for path in room.tests}), try_with)


def _attempt(mutant: Mutant, tests: _Tests, found: dict[str, Footprint], ground: Ground) -> Job:
    chosen = [
        item for item in tests.items if item.nodeid in found and found[item.nodeid].touches(mutant)
    ]
    chosen.sort(key=lambda item: found[item.nodeid].seconds)  # the fastest first

    def attempt() -> str:
        ground.plant(mutant)
        running = tests.run(chosen)
        try:
            for item in chosen:
                children.allow(_LEAST_TEST_LIMIT_S + _SLOWER * found[item.nodeid].seconds)
                if not next(running)[1]:
                    return item.nodeid
        except BaseException as error:  # a mutant may end pytest itself
            return type(error).__name__
        return ""

    limit_s = _LEAST_LIMIT_S + _SLOWER * sum(found[item.nodeid].seconds for item in chosen)
    return Job((mutant, len(chosen)), attempt, limit_s)


def _footprints(
    tests: _Tests, room: Room, cache: Cache, ground: Ground, jobs: int
) -> dict[str, Footprint]:
    """Of the room's tests, by their ids. Raises TestsError where one fails."""
    found: dict[str, Footprint] = {}
    unknown: list[Job] = []
    own = [
        item
        for item in tests.items
        if item.nodeid.startswith(room.tests) and not item.nodeid.startswith(room.counting)
    ]
    for file, items in itertools.groupby(own, key=lambda item: item.path):
        kept = cache.get(file)
        if kept is None:
            trace = functools.partial(_trace, tests, list(items), room, ground)
            unknown.append(Job(file, trace, _TRACING_LIMIT_S))
        else:
            found |= kept
    with children.running(unknown, jobs) as answers:
        for done, said in answers:
            if isinstance(said, Lost):
                raise TestsError(f"on the true source {done.key} {said.reason}")
            if isinstance(said, str):
                raise TestsError(said)
            cache.put(done.key, said)
            found |= said
    return found


def _trace(
    tests: _Tests, items: Sequence[pytest.Item], room: Room, ground: Ground
) -> dict[str, Footprint] | str:
    """By the tests' ids, or which one fails and why."""
    tracer = Tracer(room, ground)
    found: dict[str, Footprint] = {}
    running = tests.run(items)
    for item in items:
        found[item.nodeid], passed = tracer.trace(lambda: next(running)[1])
        if not passed:
            return f"{item.nodeid} fails on the true source:\n{tests.reason}"
    return found


# ------------------------------------------------------------------------------------- pytest


def _collect(paths: Sequence[str], work: Callable[[_Tests], None]) -> None:
    """Do ``work`` with the tests of ``paths`` in place of running them. Raises TestsError."""
    output = io.StringIO()
    tests = _Tests(work)
    options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:randomly", "--rootdir", str(ROOT)]
    with tempfile.TemporaryDirectory(prefix="stele-mutants-") as directory:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = directory  # tmp_path of whoever is killed, too
        with contextlib.redirect_stdout(output):
            status = pytest.main([*options, *(str(ROOT / path) for path in paths)], [tests])
    if tests.raised is not None:
        raise tests.raised
    if status is not pytest.ExitCode.OK:
        raise TestsError(output.getvalue())


class _Tests:
    """A plugin of pytest that hands the tests to ``work``, and runs those it is asked to."""

    def __init__(self, work: Callable[[_Tests], None]) -> None:
        self.items: list[pytest.Item] = []
        self.raised: BaseException | None = None
        self.reason = ""  # of the last failure
        self._work = work
        self._failed = False

    def run(self, items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, bool]]:
        """In their order, each with whether it passed. A child's: fixtures are set up."""
        for item, following in itertools.pairwise([*items, None]):
            assert item is not None
            self._failed = False
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item, not self._failed

    # -------------------------------------------------------------------------------- hooks

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        """Property tests try the same examples whenever they run, and shrink none. However long
        these take on a busy machine, the true source passes."""
        from hypothesis import HealthCheck, Phase, settings  # pytest rewrites its assertions first

        settings.register_profile(
            "mutation",
            settings.default,
            phases=(Phase.explicit, Phase.generate),
            database=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow],
        )
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None  # pytest says what cannot be collected
        self.items = session.items
        try:
            self._work(self)
        except BaseException as error:  # pytest would make a status of it
            self.raised = error
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed, self.reason = True, report.longreprtext
