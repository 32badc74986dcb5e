"""How fast simulated time goes: virtual seconds for each second of CPU, in one process.

python -m bench sim [--seconds 60] [--seeds 10] [--json]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bench.report import SIMULATION, Cell, Report
from chaos.sim.runs.swarm import Plan, run, silent
from chaos.sim.work.load import LoadKind


def measure(what: str, order: Plan, seeds: Iterable[int]) -> tuple[float, list[Cell]]:
    """Virtual seconds per second of CPU, and the row of the table.

    The start, the healing and the judgement of each run count as well as its storm.
    """
    runs, virtual_s, acknowledged, acts = 0, 0.0, 0, 0
    began_s = time.process_time()
    with silent():
        for seed in seeds:
            outcome = run(replace(order, seed=seed))
            if not outcome.ok:
                raise SystemExit(f"{what}, seed {seed}: {outcome.violations[0]}")
            runs += 1
            virtual_s += outcome.virtual_s
            acknowledged += outcome.coverage["acknowledged"]
            acts += outcome.acts
    cpu_s = time.process_time() - began_s
    speed = virtual_s / cpu_s
    return speed, [what, runs, virtual_s, acknowledged, acts, cpu_s / runs, speed]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench sim", description="How fast simulations are.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=10, help="runs of each kind with faults")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    report = Report("sim", as_json=options.json)
    light = Plan(0, seconds=options.seconds, load=LoadKind.LIGHT)
    with silent():
        run(replace(light, seconds=1.0, faults=()))  # imports, caches
    gc.collect()
    gc.freeze()  # as in the processes of `stele sim`
    seeds = range(options.seeds)
    speed, calm = measure("no faults, light load", replace(light, faults=()), range(2))
    _, stormy = measure("all faults, light load", light, seeds)
    _, drawn = measure("all faults, drawn load", replace(light, load=LoadKind.DRAWN), seeds)
    report.table(
        "light: 3 controllers, 3 brokers, five acks=all batches of five records a second",
        [
            "run",
            "runs",
            "virtual s",
            "records acknowledged",
            "acts",
            "CPU s / run",
            "virtual s / CPU s",
        ],
        [calm, stormy, drawn],
    )
    report.compare(SIMULATION, 1000 / speed)
    report.finish()


if __name__ == "__main__":
    main()
