"""A worker process that runs a plan: ``python -m chaos.sim.runs.worker SEEDS PLAN``.

``SEEDS`` are separated by commas; ``PLAN`` is JSON. When a seed's run ends, it prints one line of
JSON. Nodes' logs are not shown.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from dataclasses import replace

from chaos.sim.runs.swarm import Plan, run, silent


def main(seeds: str, plan: str) -> None:
    # If the reader of its output is gone, the process ends without a message.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    order = Plan.from_json(plan)
    spent_s = 0.0
    # Imported objects stay for good, so the collector need not scan them every time.
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
