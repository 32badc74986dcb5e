"""How fast simulated time goes: virtual seconds for each second of one core.

python -m bench sim [--seconds 60] [--json]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from bench.report import SIMULATION, Cell, Report
from chaos.sim.storm import KINDS
from chaos.sim.swarm import Plan, run, silent


def measure(what: str, plan: Plan) -> tuple[float, list[Cell]]:
    """Virtual seconds per second of CPU, and the row that tells it."""
    began_cpu_s, began_s = time.process_time(), time.perf_counter()
    with silent():
        outcome = run(plan)
    cpu_s, real_s = time.process_time() - began_cpu_s, time.perf_counter() - began_s
    if not outcome.ok:
        raise SystemExit(f"{what}: {outcome.violations[0]}")
    speed = outcome.virtual_s / cpu_s
    acknowledged = outcome.coverage["acknowledged"]
    return speed, [what, outcome.virtual_s, acknowledged, speed, outcome.virtual_s / real_s]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench sim", description="How fast simulations are.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    report = Report("sim", as_json=options.json)
    with silent():
        run(Plan(0, seconds=1.0, faults=(), light=True))  # imports, caches
    quiet = Plan(0, seconds=options.seconds, faults=(), light=True)
    speed, calm = measure("no faults", quiet)
    _, stormy = measure("all faults", Plan(0, seconds=options.seconds, faults=KINDS, light=True))
    report.table(
        "3 controllers, 3 brokers, five acks=all batches of five records a second, one process",
        ["run", "virtual s", "records acknowledged", "virtual s / CPU s", "virtual s / s"],
        [calm, stormy],
    )
    report.compare(SIMULATION, 1000 / speed)
    report.finish()


if __name__ == "__main__":
    main()
