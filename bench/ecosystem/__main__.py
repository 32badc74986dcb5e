"""``scripts/ecosystem [--only NAME]...``: programs of others against a cluster of Stele.

The exit code is 1 if one of them found a difference. A program that is not on this machine is
named, and nothing is said of it.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.ecosystem import kafka_disks, kafka_runtimes, kafka_tools, python_frameworks
from bench.ecosystem.stage import CheckError, MissingError, Stage
from bench.kafka_cluster import KafkaError
from bench.maven import MavenError
from chaos.process_cluster import ProcessCluster
from cli.output import print_table
from stele.errors import SteleError

CHECKS: Final[dict[str, Callable[[Stage], str]]] = {
    "kcat": kafka_tools.kcat,
    "kafka-topics": kafka_tools.topics,
    "kafka-configs": kafka_tools.configs,
    "kafka-console": kafka_tools.console,
    "kafka-offsets": kafka_tools.offsets,
    "kafka-verifiable": kafka_tools.verifiable,
    "kafka-share": kafka_tools.share_groups,
    "kafka-streams": kafka_runtimes.streams,
    "kafka-connect": kafka_runtimes.connect,
    "mirror-maker": kafka_runtimes.mirror_maker,
    "stopped-broker": kafka_disks.stopped_broker,
    "quix-streams": python_frameworks.quix_streams,
    "faststream": python_frameworks.faststream,
}
"""Each has a row in docs/ecosystem.md."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/ecosystem", description=__doc__)
    parser.add_argument("--only", action="append", choices=CHECKS, metavar="NAME", default=[])
    chosen = parser.parse_args().only or list(CHECKS)
    directory = Path(tempfile.mkdtemp(prefix="stele-ecosystem-"))
    cluster = ProcessCluster(directory / "cluster", controllers=1, brokers=3)
    rows: list[tuple[str, str, str]] = []
    asyncio.run(cluster.start())
    try:
        for name in chosen:
            rows.append((name, *_outcome(name, cluster, directory / name)))
            print(": ".join(rows[-1]), file=sys.stderr, flush=True)
    finally:
        asyncio.run(cluster.stop())
    print_table(("PROGRAM", "OUTCOME", "WHAT"), rows)
    if any(outcome == "different" for _, outcome, _ in rows):
        print(f"the programs' files are in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


def _outcome(name: str, cluster: ProcessCluster, directory: Path) -> tuple[str, str]:
    directory.mkdir()
    stage = Stage(cluster.bootstrap_servers, directory)
    began = time.monotonic()
    try:
        said = CHECKS[name](stage)
    except MissingError as error:
        return "not run", f"{error} is not on this machine"
    except MavenError as error:
        return "not run", str(error)
    except (CheckError, KafkaError, SteleError) as error:
        return "different", str(error)
    finally:
        stage.stop_all()
    return "the same", f"{said} ({time.monotonic() - began:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
