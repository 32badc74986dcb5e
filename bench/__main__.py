"""``python -m bench produce|fetch|failover|idle|storage|codec|sim|all [options]``."""

from __future__ import annotations

import runpy
import sys

BENCHMARKS = ("codec", "storage", "produce", "fetch", "idle", "failover", "sim")


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] not in (*BENCHMARKS, "all"):
        print(f"usage: bench {'|'.join((*BENCHMARKS, 'all'))} [options]", file=sys.stderr)
        return 2
    name, options = sys.argv[1], sys.argv[2:]
    for each in BENCHMARKS if name == "all" else (name,):
        if name == "all":
            print(f"\n== {each} ==\n")
        sys.argv = [f"bench {each}", *options]
        runpy.run_module(f"bench.{each}", run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
