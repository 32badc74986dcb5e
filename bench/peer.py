"""Stele and Apache Kafka side by side: the same clients, the same machine, one cluster at a time.

Each has 3 controllers and 3 brokers, RF 3, min.insync.replicas 2, and acks=all. Stele syncs before
each acknowledgement. Kafka acknowledges from the page cache, and is measured again with
flush.messages=1. Before it is measured, Java's compiler is warmed with ``--warm-gb`` of records.

python -m bench peer [--kafka 4.1.1] [--jars DIRECTORY] [--rounds 1] [--seconds 5] [--warm-gb 6]
                     [--idle 100,1000] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from bench.jobs import Job, measured, reading, sending, single_records
from bench.kafka_cluster import KafkaError, fresh_kafka, jars
from bench.maven import CACHE, MavenError
from bench.processes import ClientProcess, all_pids, cpu_percent, fresh_cluster, pss_mib
from bench.report import Cell, Report
from chaos.process_cluster import ProcessCluster

PARTITIONS: Final = 6
RECORD_BYTES: Final = (100, 1024, 10 * 1024)
BATCH_BYTES: Final = 128 * 1024
READERS: Final = 6
RATES: Final = (1000, 5000)
BESIDE_PER_S: Final = 200
_SETTLE_S: Final = 3.0
_WARM_SLICE_S: Final = 5.0
_WAIT_S: Final = 120.0
_POLL_S: Final = 0.05
_RELAXED: Final = {"min.insync.replicas": "2"}
_SYNCED: Final = {**_RELAXED, "flush.messages": "1"}
_WORN: Final = {**_RELAXED, "segment.bytes": str(64 << 20), "retention.bytes": str(64 << 20)}

# What is better more than less; of everything else the less the better.
_MORE_IS_BETTER: Final = "MB/s"


class Contender(Protocol):
    """A cluster of six nodes."""

    @property
    def bootstrap_servers(self) -> str: ...

    async def start(self) -> None:
        """Format and start all nodes."""
        ...

    def pids(self) -> list[int]:
        """The ids of all processes."""
        ...


class _Stele:
    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    async def start(self) -> None:
        await self._cluster.start()

    def pids(self) -> list[int]:
        return all_pids(self._cluster)


@contextlib.asynccontextmanager
async def _fresh_stele() -> AsyncIterator[Contender]:
    async with fresh_cluster(start=False) as cluster:
        yield _Stele(cluster)


@dataclass(slots=True)
class Topics:
    """Creates topics as any client of the Kafka protocol does."""

    bootstrap: str

    async def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic, and wait until every partition has a leader and a complete ISR."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        wanted = NewTopic(name, partitions, 3, config=dict(settings))
        async with asyncio.timeout(_WAIT_S):
            while True:  # a cluster that starts refuses while it has too few brokers
                try:
                    admin.create_topics([wanted], operation_timeout=30)[name].result()
                    break
                except KafkaException:
                    await asyncio.sleep(_POLL_S)
            while not _is_whole(admin, name, partitions):  # noqa: ASYNC110 - other processes
                await asyncio.sleep(_POLL_S)


def _is_whole(admin: Any, name: str, partitions: int) -> bool:
    found = admin.list_topics(name, timeout=30).topics[name].partitions.values()
    return len(found) == partitions and all(p.leader >= 0 and len(p.isrs) == 3 for p in found)


@dataclass(slots=True)
class Figures:
    """What was measured of one contender, by the name of the measure."""

    contender: str
    of: dict[str, float] = field(default_factory=dict)


class _Measuring:
    """One contender that runs."""

    def __init__(self, cluster: Contender, options: argparse.Namespace, report: Report) -> None:
        self._cluster = cluster
        self._topics = Topics(cluster.bootstrap_servers)
        self._seconds: float = options.seconds
        self._report = report

    async def _ask(self, job: Job, warm_s: float = 0.0) -> dict[str, float]:
        return await measured(self._cluster.bootstrap_servers, job, self._seconds, warm_s=warm_s)

    async def warm(self, gigabytes: float) -> None:
        """Let Java's compiler see every path that is measured."""
        if not gigabytes:
            return
        await self._topics.create("warm", PARTITIONS, _WORN)
        client = await ClientProcess.start(
            {"bootstrap": self._cluster.bootstrap_servers, **_sending("warm", 1024)}
        )
        sent = 0.0
        try:
            while sent < gigabytes * 1e9:
                sent += (await client.ask(do="throughput", seconds=_WARM_SLICE_S))["bytes"]
                self._report.note(f"  warming: {sent / 1e9:.1f} of {gigabytes:g} GB ...")
        finally:
            await client.close()
        await self._ask(single_records("warm", PARTITIONS, RATES[0]))
        # Readers begin at offset 0, which retention has deleted there.
        await self._topics.create("warm-whole", PARTITIONS, _RELAXED)
        await self._ask(_sending("warm-whole", 1024))
        await self._ask(reading("warm-whole", PARTITIONS, READERS))

    async def throughput(self, kind: str, settings: Mapping[str, str]) -> dict[str, float]:
        """Producing and consuming; ``kind`` names the topics."""
        found = {}
        for size in RECORD_BYTES:
            self._report.note(f"  {kind}: records of {size} B ...")
            topic = f"{kind}-{size}"
            await self._topics.create(topic, PARTITIONS, settings)
            told = await self._ask(_sending(topic, size))
            found[f"produce records of {size:,} B, MB/s"] = told["bytes"] / told["seconds"] / 1e6
        told = await self._ask(reading(f"{kind}-1024", PARTITIONS, READERS))
        found["consume records of 1,024 B, MB/s"] = told["bytes"] / told["seconds"] / 1e6
        return found

    async def small(self, kind: str, settings: Mapping[str, str]) -> dict[str, float]:
        """Requests of one record each, at steady rates."""
        topic, found = f"{kind}-small", {}
        await self._topics.create(topic, PARTITIONS, settings)
        for per_s in RATES:
            self._report.note(f"  {kind}: {per_s} requests/s ...")
            told = await self._ask(single_records(topic, PARTITIONS, per_s), _SETTLE_S)
            found[f"{per_s:,} single records/s, p50 ms"] = told["p50_ms"]
            found[f"{per_s:,} single records/s, p99 ms"] = told["p99_ms"]
        return found

    async def beside(self, idle: int, more: int) -> dict[str, float]:
        """One busy partition beside ``idle`` others, ``more`` of which are created now."""
        self._report.note(f"  beside {idle} idle partitions ...")
        await self._topics.create(f"idle-{idle}", more, _RELAXED)
        await self._topics.create(f"busy-{idle}", 1, _RELAXED)
        await asyncio.sleep(_SETTLE_S)
        cpu = await cpu_percent(self._cluster.pids(), self._seconds)
        told = await self._ask(single_records(f"busy-{idle}", 1, BESIDE_PER_S), _SETTLE_S)
        return {
            f"idle CPU, {idle:,} partitions, % of one core": cpu,
            f"{BESIDE_PER_S}/s beside {idle:,} idle partitions, p50 ms": told["p50_ms"],
        }

    def memory_mib(self) -> float:
        return sum(map(pss_mib, self._cluster.pids()))


def _sending(topic: str, record_bytes: int) -> Job:
    return sending(topic, PARTITIONS, record_bytes, BATCH_BYTES)


async def _measure(
    cluster: Contender,
    kinds: Mapping[str, Mapping[str, str]],
    warm_gb: float,
    options: argparse.Namespace,
    report: Report,
) -> list[Figures]:
    """Start a cluster and measure it. ``kinds``: the settings of topics, by the name under which
    their figures are shown. The first kind has those figures that do not depend on them."""
    began = time.perf_counter()
    await cluster.start()
    measuring = _Measuring(cluster, options, report)
    await _first_acknowledgement(cluster.bootstrap_servers)
    found = [Figures(kind) for kind in kinds]
    of = found[0].of
    of["start to first acknowledgement, s"] = time.perf_counter() - began
    await asyncio.sleep(_SETTLE_S)
    of["memory (PSS) at the start, MiB"] = measuring.memory_mib()
    await measuring.warm(warm_gb)
    for figures, (kind, settings) in zip(found, kinds.items(), strict=True):
        name = kind.replace(" ", "-").replace(",", "")
        figures.of |= await measuring.throughput(name, settings)
        figures.of |= await measuring.small(name, settings)
    of["memory (PSS) after that, MiB"] = measuring.memory_mib()
    there = 0
    for idle in options.idle:
        of |= await measuring.beside(idle, idle - there)
        there = idle
    return found


async def _first_acknowledgement(bootstrap: str) -> None:
    from confluent_kafka import Producer

    await Topics(bootstrap).create("first", 1, _RELAXED)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce("first", b"record")
    if producer.flush(_WAIT_S):
        raise RuntimeError(f"no record was acknowledged within {_WAIT_S:.0f} s")


def _rows(all_figures: Sequence[Figures]) -> list[list[Cell]]:
    """A row for each measure: the medians of the rounds, and how much better Stele is."""
    contenders = list(dict.fromkeys(each.contender for each in all_figures))
    measures = list(dict.fromkeys(name for each in all_figures for name in each.of))
    rows: list[list[Cell]] = []
    for measure in measures:
        medians = []
        for contender in contenders:
            values = [
                each.of[measure]
                for each in all_figures
                if each.contender == contender and measure in each.of
            ]
            medians.append(statistics.median(values) if values else None)
        ours, *theirs = medians
        rows.append([measure, *medians, *(_better(measure, ours, each) for each in theirs)])
    return rows


def _better(measure: str, ours: float | None, theirs: float | None) -> Cell:
    if ours is None or theirs is None or not ours or not theirs:
        return None
    return ours / theirs if measure.endswith(_MORE_IS_BETTER) else theirs / ours


async def run(options: argparse.Namespace) -> None:
    report = Report("peer", as_json=options.json)
    report.note(f"  Kafka {options.kafka} from Maven Central, unless it is in {options.jars} ...")
    kafka_jars = jars(options.kafka, options.jars)
    found: list[Figures] = []
    for number in range(options.rounds):
        report.note(f"Stele, round {number + 1} ...")
        async with _fresh_stele() as stele:
            found += await _measure(stele, {"Stele": _RELAXED}, 0, options, report)
        report.note(f"Kafka, round {number + 1} ...")
        kinds = {"Kafka": _RELAXED, "Kafka, synced": _SYNCED}
        async with fresh_kafka(kafka_jars) as kafka:
            found += await _measure(kafka, kinds, options.warm_gb, options, report)
    report.table(
        f"Stele and Kafka {options.kafka}, 3 controllers and 3 brokers, RF 3, acks=all",
        ["what", "Stele", "Kafka", "Kafka, synced", "times better, than Kafka", "than synced"],
        _rows(found),
    )
    report.finish()


def _counts(text: str) -> list[int]:
    counts = [int(each) for each in text.split(",") if each]
    if counts != sorted(set(counts)) or any(each < 1 for each in counts):
        raise argparse.ArgumentTypeError("must be ascending numbers, for example 100,1000,3000")
    return counts


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench peer", description="Stele beside Apache Kafka.")
    parser.add_argument("--kafka", default="4.1.1", metavar="VERSION")
    parser.add_argument("--jars", type=Path, default=CACHE, help="where fetched jars are kept")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--warm-gb", type=float, default=6.0, help="for Java's compiler; 0: none")
    parser.add_argument("--idle", type=_counts, default=[100, 1000], metavar="COUNTS")
    parser.add_argument("--json", action="store_true")
    try:
        asyncio.run(run(parser.parse_args(arguments)))
    except (KafkaError, MavenError) as error:
        sys.exit(f"bench peer: {error}")


if __name__ == "__main__":
    main()
