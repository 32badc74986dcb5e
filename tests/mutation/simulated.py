"""Mutants against the simulator: runs of whole clusters, in which a law is to be broken."""

from __future__ import annotations

import functools
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.load import LoadKind
from tests.mutation import children
from tests.mutation.children import Job, Lost
from tests.mutation.mutants import Mutant
from tests.mutation.planting import Ground
from tests.mutation.probing import Probes

_SEED_LIMIT_S = 45.0  # of processor time, ten times what a run takes: then it does not end
_PROBES_LIMIT_S = 600.0


class _TooLongError(KeyboardInterrupt):
    """A run does not end, and is ended as by Ctrl-C. The source would take a TimeoutError for an
    error of its own, and go on."""


class Hunt(NamedTuple):
    """How mutants are hunted. The same for all of them."""

    pool: range  # the seeds that are looked at
    most: int  # the number of them that hunt one mutant: seeds that could notice it
    seconds: float  # virtual, of faults


class Hunted(NamedTuple):
    """What the simulator made of a mutant."""

    mutant: Mutant
    seed: int | None  # None: it survived all of them
    violation: str
    seeds: int  # with which it was hunted, at most


def hunt_all(
    mutants: Sequence[Mutant],
    ground: Ground,
    hunt: Hunt,
    jobs: int,
    on_hunted: Callable[[Hunted], None],
) -> None:
    """Tell of each as it ends. Seeds that the true source fails on catch nothing."""
    differed = _differed(mutants, ground, hunt, jobs)

    def chase(mutant: Mutant, seeds: Sequence[int]) -> tuple[int, str] | None:
        ground.plant(mutant)
        return _first_violation(seeds, hunt.seconds)

    hunts = []
    for number, mutant in enumerate(mutants):
        seeds = _where_most(number, differed)[: hunt.most]
        if seeds:
            limit_s = _SEED_LIMIT_S * (len(seeds) + 1.0)
            chased = functools.partial(chase, mutant, seeds)
            hunts.append(Job((mutant, seeds), chased, limit_s))
        else:
            on_hunted(Hunted(mutant, None, "", 0))
    with children.running(hunts, jobs) as answers:
        for job, said in answers:
            mutant, seeds = job.key
            if isinstance(said, Lost):
                said = (seeds[0], said.reason)
            seed, violation = said or (None, "")
            on_hunted(Hunted(mutant, seed, violation, len(seeds)))


def _differed(
    mutants: Sequence[Mutant], ground: Ground, hunt: Hunt, jobs: int
) -> dict[int, Counter[int]]:
    """By the seeds that the true source passes: how often each mutant would have decided
    otherwise, by its place in the sequence."""

    def look(seed: int) -> Counter[int] | None:
        probes = Probes()
        ground.plant_probes(mutants, probes)
        with silent():
            outcome = run(_plan(seed, hunt.seconds))
        return probes.differed if outcome.ok else None

    looks = [
        Job(seed, functools.partial(look, seed), _PROBES_LIMIT_S)
        for seed in (hunt.pool if mutants else ())
    ]
    with children.running(looks, jobs) as answers:
        found = {job.key: said for job, said in answers if isinstance(said, Counter)}
    return dict(sorted(found.items()))


def _where_most(number: int, differed: Mapping[int, Counter[int]]) -> list[int]:
    """The seeds in which a mutant could be noticed, those first in which it differs most often."""
    seeds = [seed for seed, found in differed.items() if found[number]]
    return sorted(seeds, key=lambda seed: (-differed[seed][number], seed))


def _first_violation(seeds: Sequence[int], seconds: float) -> tuple[int, str] | None:
    signal.signal(signal.SIGPROF, _give_up)
    with silent():
        for seed in seeds:
            signal.setitimer(signal.ITIMER_PROF, _SEED_LIMIT_S)
            try:
                outcome = run(_plan(seed, seconds))
            except _TooLongError as error:
                return seed, str(error)
            if not outcome.ok:
                return seed, outcome.violations[0]
    return None


def _plan(seed: int, seconds: float) -> Plan:
    return Plan(seed, seconds, load=LoadKind.RARE, hasty=True)


def _give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise _TooLongError(f"no end after {_SEED_LIMIT_S:g} s of processor time")
