"""A worker process: ``python -m chaos.sim.worker SEEDS SECONDS KINDS [hasty]`` runs seeds.

``SEEDS`` and ``KINDS`` have commas between. For each seed it prints one line of JSON, as it ends;
``hasty``: at the first violation. What nodes log is not for anybody.
"""

from __future__ import annotations

import sys

from chaos.sim.swarm import Plan, run, silent


def main(seeds: str, seconds: str, kinds: str, haste: str = "") -> None:
    faults = tuple(kinds.split(",")) if kinds else ()
    with silent():
        for seed in map(int, seeds.split(",")):
            plan = Plan(seed, float(seconds), faults, hasty=haste == "hasty")
            print(run(plan).to_json(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
