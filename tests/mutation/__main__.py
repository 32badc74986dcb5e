"""``python -m tests.mutation``: are generated mutants noticed?"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from cli.interruption import exit_code_of, terminable
from cli.output import note, print_json, print_table
from tests.mutation.mutants import ROOMS, ROOT, Mutant, drawn, equivalent, mutants_of
from tests.mutation.planting import Ground
from tests.mutation.results import (
    COLUMNS,
    EQUIVALENT,
    KILLED_BY_SIMULATOR,
    KILLED_BY_TESTS,
    OPEN,
    Result,
    Results,
    rows,
)
from tests.mutation.simulated import Hunt, Hunted, hunt_all
from tests.mutation.tested import Tried, try_all

_T = TypeVar("_T")

_TOLD_EVERY_S = 10.0


def main() -> int:
    options = _options()
    chosen = _chosen(options)
    if options.list:
        for mutant in chosen:
            print(mutant.name)
        return 0
    results = Results(options.directory / "results.jsonl")
    left = [each for each in chosen if not (options.resume and results.is_killed(each))]
    _run(left, results, options)
    unexplained = [(each, found) for each in chosen if (found := results.of(each)) is not None]
    open_ones = {each.name: found for each, found in unexplained if found.outcome == OPEN}
    table = rows(chosen, results)
    if options.json:
        keys = [dict(zip(COLUMNS, row, strict=True)) for row in table]
        print_json({"rooms": keys, "open": [*open_ones]})
    else:
        print_table(COLUMNS, table)
        for name, found in open_ones.items():
            print(f"open, {found.tests} tests differ: {name}{found.by and f' ({found.by})'}")
    return 1 if open_ones else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "scripts/mutants",
        description="Change one small thing of the source at a time: do the tests notice, or does "
        "the simulator?",
    )
    names = [room.name for room in ROOMS]
    parser.add_argument("--room", action="append", choices=names, help="Of this one only.")
    parser.add_argument("--only", default="", metavar="TEXT", help="Those with it in their name.")
    parser.add_argument(
        "--sample",
        type=int,
        metavar="N",
        help="So many, drawn by --seed from "
        "the names; an equivalent one is listed, and the next one stands in for it.",
    )
    parser.add_argument("--seed", type=int, default=0, help="Of the sample.")
    parser.add_argument("--list", action="store_true", help="Print their names, run none.")
    parser.add_argument("--tests-only", action="store_true", help="Leave out the simulator.")
    parser.add_argument("--simulator-only", action="store_true", help="Leave out the tests.")
    parser.add_argument(
        "--longest",
        type=float,
        default=math.inf,
        metavar="S",
        help="Leave out tests over S seconds.",
    )
    parser.add_argument(
        "--tests",
        action="append",
        metavar="PATH",
        help="These tests of the room alone, such as one file that was just written.",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=24,
        help="Of the simulator, for each at most: 24. It gets those of the pool in which "
        "the true source, run with probes, has most often decided otherwise than it would have.",
    )
    parser.add_argument("--pool", type=int, default=96, help="Seeds to choose from: 0 to 95.")
    parser.add_argument("--seconds", type=float, default=15.0, help="Virtual, for a seed: 15.")
    parser.add_argument("--jobs", type=int, default=1, help="Processes at a time: 1.")
    parser.add_argument("--resume", action="store_true", help="Leave out those killed before.")
    parser.add_argument(
        "--directory",
        type=Path,
        default=ROOT / "build" / "mutants",
        help="For results.jsonl and what was found out of the tests: build/mutants.",
    )
    parser.add_argument("--json", action="store_true", help="Print JSON.")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Mutant]:
    made = [
        mutant
        for room in ROOMS
        if not options.room or room.name in options.room
        for mutant in mutants_of(room)
        if options.only in mutant.name
    ]
    return made if options.sample is None else drawn(made, options.sample, options.seed)


def _run(mutants: Sequence[Mutant], results: Results, options: argparse.Namespace) -> None:
    reasons = equivalent()
    ground = Ground(ROOMS)
    survivors: list[Mutant] = []
    differing: dict[Mutant, int] = {}

    def tried(one: Tried) -> None:
        mutant, tests, killed_by = one
        reason = reasons.get(mutant.name)
        if killed_by and reason is None:
            results.add(Result.of(mutant, KILLED_BY_TESTS, killed_by, tests))
        elif killed_by:
            results.add(Result.of(mutant, OPEN, f"equivalent, yet killed by {killed_by}", tests))
        elif reason is not None:
            results.add(Result.of(mutant, EQUIVALENT, reason, tests))
        else:
            results.add(Result.of(mutant, OPEN, "", tests))
            survivors.append(mutant)
            differing[mutant] = tests

    def hunted(one: Hunted) -> None:
        mutant, seed, violation, seeds = one
        if seed is not None:
            by = f"seed {seed}: {violation}"
            results.add(Result.of(mutant, KILLED_BY_SIMULATOR, by))
        else:
            hunted_with = f"hunted with {seeds} seeds"
            results.add(Result.of(mutant, OPEN, hunted_with, differing.get(mutant, 0)))

    if options.simulator_only:
        survivors = [mutant for mutant in mutants if mutant.name not in reasons]
    elif mutants:
        tell = _telling("tried by the tests", len(mutants), tried)
        cache = options.directory / "footprints"
        only = tuple(options.tests or ())
        try_all(mutants, ground, cache, options.jobs, tell, longest_s=options.longest, only=only)
    if not options.tests_only:
        told = _telling("hunted by the simulator", len(survivors), hunted)
        hunt = Hunt(range(options.pool), options.seeds, options.seconds)
        hunt_all(survivors, ground, hunt, options.jobs, told)


def _telling(what: str, total: int, then: Callable[[_T], None]) -> Callable[[_T], None]:
    """``then``, and a line now and then that tells how far it is."""
    done, told_s = 0, time.monotonic()

    def tell(one: _T) -> None:
        nonlocal done, told_s
        then(one)
        done += 1
        if time.monotonic() - told_s > _TOLD_EVERY_S:
            told_s = time.monotonic()
            note(f"{done} of {total} {what}")

    return tell


if __name__ == "__main__":
    try:
        with terminable():
            sys.exit(main())
    except KeyboardInterrupt as interruption:
        sys.exit(exit_code_of(interruption))
