"""Mutants against the simulator: runs of whole clusters, in which a law is to be broken."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NamedTuple, NoReturn

from chaos.sim.runs.swarm import Plan, run, silent
from tests.mutation import children
from tests.mutation.children import Job, Lost
from tests.mutation.mutants import Mutant
from tests.mutation.planting import Ground

_SEED_LIMIT_S = 90  # of real time; a run that takes longer does not end


class Hunted(NamedTuple):
    """What the simulator made of a mutant."""

    mutant: Mutant
    seed: int | None  # None: it survived all of them
    violation: str


def hunt_all(
    mutants: Sequence[Mutant],
    ground: Ground,
    seeds: Sequence[int],
    seconds: float,
    jobs: int,
    on_hunted: Callable[[Hunted], None],
) -> None:
    """Tell of each as it ends. Seeds that the true source fails on catch nothing."""
    checks = [
        Job(seed, functools.partial(_first_violation, [seed], seconds), _SEED_LIMIT_S)
        for seed in (seeds if mutants else ())
    ]
    with children.running(checks, jobs) as answers:
        sound = sorted(job.key for job, said in answers if said is None)

    def hunt(mutant: Mutant) -> tuple[int, str] | None:
        ground.plant(mutant)
        return _first_violation(sound, seconds)

    limit_s = _SEED_LIMIT_S * (len(sound) + 1.0)
    hunts = [Job(mutant, functools.partial(hunt, mutant), limit_s) for mutant in mutants]
    with children.running(hunts, jobs) as answers:
        for job, said in answers:
            if isinstance(said, Lost):
                said = (sound[0], said.reason)
            seed, violation = said or (None, "")
            on_hunted(Hunted(job.key, seed, violation))


def _first_violation(seeds: Sequence[int], seconds: float) -> tuple[int, str] | None:
    signal.signal(signal.SIGALRM, _give_up)
    with silent():
        for seed in seeds:
            signal.alarm(_SEED_LIMIT_S)
            outcome = run(Plan(seed, seconds, light=True, hasty=True))
            if not outcome.ok:
                return seed, outcome.violations[0]
    return None


def _give_up(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise TimeoutError(f"no end after {_SEED_LIMIT_S} s")
