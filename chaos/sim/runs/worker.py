"""A worker process: ``python -m chaos.sim.runs.worker SEEDS PLAN``: runs a plan.

``SEEDS`` have commas between, ``PLAN`` is JSON. For each seed it prints one line of JSON, as it
ends. What nodes log is not for anybody.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from dataclasses import replace

from chaos.sim.runs.swarm import Plan, run, silent


def main(seeds: str, plan: str) -> None:
    # Whoever asked may be gone: what nobody reads ends it without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    order = Plan.from_json(plan)
    spent_s = 0.0
    # What was imported stays: it is not to be looked through at every collection.
    gc.collect()
    gc.freeze()
    with silent():
        for seed in map(int, seeds.split(",")):
            outcome = run(replace(order, seed=seed))
            now_s = time.process_time()
            outcome.cpu_s, spent_s = now_s - spent_s, now_s
            print(outcome.to_json(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
