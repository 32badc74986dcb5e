"""Orders with Spark's driver and the brokers killed at random: every line once, and the right sums.

    ./scripts/spark-kills [--lines N] [--kills 3] [--seed 1] [--work DIRECTORY]

Starts a cluster, writes order lines, and runs the pipeline ``orders`` exactly once. The driver is
killed, with its JVM and all its Python processes, and started again; it goes on from its
checkpoints. Meanwhile a broker after the other is killed and started again. At the end this reads
the topics without Spark, and compares them with the file: each line has one verdict of each rule,
is validated or failed once, and the sums of the table are the sums of the lines.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import gzip
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from chaos.process_cluster import ProcessCluster
from spark.pipelines import base, orders
from stele import Admin, ConsumerRecord
from stele.aio import Consumer
from stele.ids import TopicPartition

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "online-retail.csv.gz"
UNITS = 5_000
DRIVER_S = 3_600.0


class MismatchError(Exception):
    """The topics are not what the file says."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


# ------------------------------------------------------------------------------- the driver


class Driver:
    """The pipeline as a process in a session of its own, so that all it starts can be found."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        own = {name: value for name, value in os.environ.items() if "PYSPARK_GATEWAY" not in name}
        environment = {**own, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONUNBUFFERED": "1"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "spark.pipelines.orders",
            *self._arguments,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env=environment,
        )

    async def lines(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            yield line.decode().rstrip()

    async def result(self) -> int:
        assert self._process is not None
        return await self._process.wait()

    async def kill(self) -> None:
        """The driver, the JVM and its Python workers, which have groups of their own."""
        assert self._process is not None
        for pid in _of_session(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await self._process.wait()


def _of_session(session: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # Behind the name, which may contain anything: state, parent, group, session.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    yield int(entry.name)


async def drive(arguments: Sequence[str], kills: int, failures: int, rng: random.Random) -> None:
    """Run the pipeline to its end, killed so many times on the way.

    It may end by itself a few times: Spark gives a Python process ten seconds to start, which can
    be too little on a busy machine. A driver that starts again must not care why.
    """
    while True:
        driver = Driver(arguments)
        await driver.start()
        batches = rng.randint(1, 3) if kills else None
        doomed: asyncio.Task[None] | None = None
        try:
            async for line in driver.lines():
                say(f"  {line}")
                if batches is not None and " batch " in line and doomed is None:
                    batches -= 1
                    if not batches:
                        doomed = asyncio.create_task(_kill_soon(driver, rng.uniform(0, 10)))
            code = await driver.result()
        finally:
            if doomed is not None:
                await doomed
            await driver.kill()
        if code == 0:
            break
        if doomed is None:
            failures -= 1
            if failures < 0:
                raise MismatchError(f"the driver ended by itself with code {code}")
            say(f"the driver ended by itself with code {code}, {failures} more times may it")
            continue
        kills -= 1
        say(f"the driver was killed, {kills} more times")
    if kills:
        raise MismatchError(f"the driver ended before it was killed {kills} more times")


async def _kill_soon(driver: Driver, after_s: float) -> None:
    await asyncio.sleep(after_s)
    await driver.kill()


async def kill_brokers(cluster: ProcessCluster, rng: random.Random, done: asyncio.Event) -> None:
    """One after the other. All of them serve when this ends."""
    while not done.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done.wait(), rng.uniform(20, 60))
            return
        broker = rng.choice(cluster.broker_ids)
        say(f"broker {broker} is killed")
        cluster.kill(broker)
        await asyncio.sleep(rng.uniform(1, 4))
        await cluster.restart(broker)
        await cluster.wait_serving(cluster.broker_ids, timeout_s=120)


# -------------------------------------------------------------------------------- the truth


def expected(path: Path, most: int | None) -> tuple[Counter[str], dict[str, list[Any]]]:
    """The lines of the file, and lines, quantity and revenue by country."""
    lines: Counter[str] = Counter()
    sums: dict[str, list[Any]] = {}
    with gzip.open(path, "rt") as file:
        next(file)
        for number, text in enumerate(file):
            if number == most:
                break
            line = text.rstrip("\r\n")
            (row,) = csv.reader([line])
            lines[line] += 1
            entry = sums.setdefault(row[7], [0, 0, Decimal(0)])
            entry[0] += 1
            entry[1] += int(row[3])
            entry[2] += int(row[3]) * Decimal(row[5])
    return lines, sums


async def committed(servers: str, topic: str) -> list[ConsumerRecord]:
    """All records that readers of committed records see."""
    found: list[ConsumerRecord] = []
    async with Consumer(
        servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        places = [TopicPartition(topic, each) for each in await consumer.partitions_for(topic)]
        ends = await consumer.end_offsets(places)
        consumer.assign(places)
        async with asyncio.timeout(600):
            for place in places:
                while await consumer.position(*place) < ends[place]:
                    found += await consumer.poll(50_000, timeout_ms=1_000)
    return found


async def check(servers: str, path: Path, most: int | None) -> None:
    """Raises MismatchError."""
    lines, sums = expected(path, most)
    count = lines.total()
    inputs = {
        f"{each.partition}-{each.offset}": (each.value or b"").decode()
        for each in await committed(servers, orders.ORDERS)
    }
    _same("lines that were written", Counter(inputs.values()), lines)
    verdicts = Counter(
        ((each.key or b"").decode(), json.loads(each.value or b"")["check"])
        for each in await committed(servers, orders.VALIDATIONS)
    )
    _same("verdicts", (verdicts.total(), len(verdicts)), (3 * count, 3 * count))
    outputs: dict[str, str] = {}
    twice = 0
    for topic in (orders.VALIDATED, orders.FAILED):
        for each in await committed(servers, topic):
            name = (each.key or b"").decode()
            twice += name in outputs
            outputs[name] = json.loads(each.value or b"")["line"]
    _same("lines that are there twice", twice, 0)
    _same("lines that came out", outputs, inputs)
    table: dict[bytes, dict[str, Any]] = {}
    for each in await committed(servers, orders.REVENUE):
        table[each.key or b""] = json.loads(each.value or b"", parse_float=Decimal)
    found: dict[str, list[Any]] = {}
    for row in table.values():
        entry = found.setdefault(row["country"], [0, 0, Decimal(0)])
        for n, name in enumerate(("lines", "quantity", "revenue")):
            entry[n] += row[name]
    _same("sums by country", found, sums)
    with Admin(servers) as admin:
        open_now = [each.transactional_id for each in admin.list_transactions(states=("Ongoing",))]
    _same("open transactions", open_now, [])
    totals = [sum(each[n] for each in found.values()) for n in range(3)]
    say(
        f"{totals[0]:,} lines once each, quantity {totals[1]:,}, revenue {totals[2]:,.2f}, "
        f"{len(found)} countries as in the file, no transaction open"
    )


def _same(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise MismatchError(f"{what}: {str(found)[:300]}, not {str(wanted)[:300]}")


# ------------------------------------------------------------------------------------ start


async def run(options: argparse.Namespace, work: Path) -> None:
    rng = random.Random(options.seed)
    cluster = ProcessCluster(
        work / "cluster", settings={"transaction.two.phase.commit.enable": "true"}
    )
    await cluster.start()
    try:
        servers = cluster.bootstrap_servers
        arguments = ["--bootstrap-server", servers, "--checkpoints", str(work / "checkpoints")]
        arguments += ["--max-offsets-per-trigger", str(options.batch)]
        settings = base.settings(base.parser("orders", "").parse_args(arguments))
        base.ensure_topics(settings, *orders.TOPICS, compacted=orders.TABLES)
        count = orders.load(options.data, settings, UNITS, options.lines)
        say(f"{count:,} lines are written")
        done = asyncio.Event()
        killing = asyncio.create_task(kill_brokers(cluster, rng, done))
        try:
            await drive(arguments, options.kills, options.failures, rng)
        finally:
            done.set()
            await killing
        await check(servers, options.data, options.lines)
    finally:
        await cluster.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="spark-kills", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--data", type=Path, default=DATA, help="UCI's Online Retail as CSV")
    parser.add_argument("--lines", type=int, help="only so many of the file")
    parser.add_argument("--kills", type=int, default=3, help="of the driver")
    parser.add_argument("--failures", type=int, default=3, help="that Spark may have by itself")
    parser.add_argument("--batch", type=int, default=100_000, help="records of a micro-batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, help="kept afterwards; otherwise a temporary one")
    options = parser.parse_args(arguments)
    work = options.work or Path(tempfile.mkdtemp(prefix="stele-spark-kills-"))
    try:
        asyncio.run(run(options, work))
    except MismatchError as error:
        say(f"WRONG  {error}")
        return 1
    finally:
        if options.work is None:
            shutil.rmtree(work, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
