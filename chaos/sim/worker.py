"""A worker process: ``python -m chaos.sim.worker FIRST END SECONDS KINDS`` runs a range of seeds.

For each it prints one line of JSON, as it ends. What nodes log is not for anybody.
"""

from __future__ import annotations

import sys

from chaos.sim.swarm import Plan, run, silent


def main(first: str, end: str, seconds: str, kinds: str) -> None:
    faults = tuple(kinds.split(",")) if kinds else ()
    with silent():
        for seed in range(int(first), int(end)):
            print(run(Plan(seed, float(seconds), faults)).to_json(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
