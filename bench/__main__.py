"""Runs the benchmarks: ``python -m bench NAME [options]``, or ``all``."""

from __future__ import annotations

import runpy
import sys

BENCHMARKS = (
    "codec",
    "storage",
    "compaction",
    "turns",
    "calls",
    "produce",
    "small",
    "floor",
    "fetch",
    "records",
    "thin",
    "idle",
    "partitions",
    "hostile",
    "tenants",
    "connections",
    "secure",
    "groups",
    "share",
    "transactions",
    "failover",
    "hung",
    "peer",
    "scale",
    "cores",
    "sim",
    "spark",
    "commits",
)


def main() -> int:
    name, options = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("", [])
    if name == "all" and not options:  # each benchmark has its own options
        for each in BENCHMARKS:
            print(f"\n== {each} ==\n", flush=True)
            _run(each, [])
        return 0
    if name in BENCHMARKS:
        _run(name, options)
        return 0
    print(f"usage: bench {'|'.join(BENCHMARKS)} [options], or bench all", file=sys.stderr)
    return 2


def _run(name: str, options: list[str]) -> None:
    sys.argv = [f"bench {name}", *options]
    runpy.run_module(f"bench.{name}", run_name="__main__")


if __name__ == "__main__":
    sys.exit(main())
