"""The cost of producing: throughput, time to acknowledgement, CPU of the brokers.

    python -m bench produce                                  # a short set, under three minutes
    python -m bench produce --acks all --rf 1,3 --sync on,off    # all combinations of these values
    python -m bench produce --matrix                         # all combinations

There is one cluster, and each configuration has its own topic. Producers run in their own
processes. Throughput is measured with the producer's buffer always full, time to acknowledgement
with one batch of 16 KiB at a time. Busy consumers are connections that fetch 1 MiB again and again
from the leader to which the producer writes. An idempotent librdkafka (acks=all) has one request
per partition in flight: with one partition its throughput is one batch per time to acknowledgement.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

from bench.processes import ClientProcess, cpu_of, fresh_cluster, requests_of, wait_whole
from bench.report import BUSY_LATENCY, PRODUCE_CPU, Cell, Report
from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin

PRODUCE_APIS = ("PRODUCE",)
BUSY_FETCH_BYTES = 1024 * 1024
RELAXED = str(10**9)


@dataclass(frozen=True, slots=True)
class Configuration:
    """One row of the matrix."""

    client: str = "librdkafka"  # or own
    record_bytes: int = 1024
    batch_bytes: int = 16 * 1024
    acks: str = "all"  # or 1
    rf: int = 3
    sync: str = "on"  # flush.messages=1; off: only the page cache and replication
    consumers: int = 0
    partitions: int = 1

    def __str__(self) -> str:
        return " ".join(_words(self))


def _words(configuration: Configuration) -> list[str]:
    beside = f"{configuration.consumers} consumers" if configuration.consumers else "alone"
    return [
        configuration.client,
        f"{configuration.record_bytes} B",
        f"{configuration.batch_bytes // 1024} KiB",
        f"acks={configuration.acks}",
        f"RF {configuration.rf}",
        f"sync {configuration.sync}",
        beside,
        "1 partition"
        if configuration.partitions == 1
        else f"{configuration.partitions} partitions",
    ]


CHOICES: dict[str, tuple[str | int, ...]] = {
    "client": ("librdkafka", "own"),
    "record_bytes": (100, 1024),
    "batch_bytes": (16 * 1024, 128 * 1024, 1024 * 1024),
    "acks": ("1", "all"),
    "rf": (1, 3),
    "sync": ("on", "off"),
    "consumers": (0, 4),
    "partitions": (1, 6),
}

_ALONE = Configuration(acks="1", rf=1)
SHORT_SET = (
    _ALONE,
    replace(_ALONE, batch_bytes=128 * 1024),
    replace(_ALONE, batch_bytes=1024 * 1024),
    replace(_ALONE, rf=3),
    Configuration(),
    Configuration(batch_bytes=128 * 1024),
    Configuration(batch_bytes=1024 * 1024),
    Configuration(partitions=6),
    Configuration(batch_bytes=128 * 1024, partitions=6),
    Configuration(batch_bytes=128 * 1024, partitions=6, record_bytes=100),
    Configuration(sync="off"),
    Configuration(consumers=4),
    Configuration(client="own"),
    Configuration(client="own", batch_bytes=128 * 1024),
    Configuration(client="own", consumers=4),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measurements of one configuration."""

    records_per_s: float
    mb_per_s: float
    full_p50_ms: float  # while the producer's buffer is full
    p50_ms: float  # one batch at a time
    p99_ms: float
    cpu_us_per_request: float  # sum over the brokers with replicas
    cpu_ms_per_mb: float
    helper_us_per_request: float


async def measure(
    cluster: ProcessCluster,
    admin: Admin,
    topic: str,
    configuration: Configuration,
    *,
    seconds: float,
) -> Outcome:
    """Measure one configuration in its own topic."""
    await _create(admin, topic, configuration)
    job = {"bootstrap": cluster.bootstrap_servers, "topic": topic, **asdict(configuration)}
    producer = await ClientProcess.start(job)
    readers = None
    try:
        if configuration.consumers:
            wanted = {"connections": configuration.consumers, "fetch_bytes": BUSY_FETCH_BYTES}
            readers = await ClientProcess.start({**job, **wanted, "client": "readers"})
        return await _measure(cluster, admin, topic, producer, readers, seconds)
    finally:
        for client in (producer, readers):
            if client is not None:
                await client.close()
        await admin.delete_topics([topic])


async def _create(admin: Admin, topic: str, configuration: Configuration) -> None:
    configs = {
        "flush.messages": "1" if configuration.sync == "on" else RELAXED,
        "min.insync.replicas": str(min(2, configuration.rf)),
        "max.message.bytes": str(4 * 1024 * 1024),
    }
    await admin.create_topics(
        [NewTopic(topic, configuration.partitions, configuration.rf, configs)]
    )
    await wait_whole(admin, [topic])


async def _measure(
    cluster: ProcessCluster,
    admin: Admin,
    topic: str,
    producer: ClientProcess,
    readers: ClientProcess | None,
    seconds: float,
) -> Outcome:
    (description,) = await admin.describe_topics([topic])
    hosts = sorted({each for partition in description.partitions for each in partition.replicas})
    brokers = [cluster.nodes[each] for each in hosts]
    reading = None
    if readers is not None:
        # Longer than both measurements. The end of the process ends it.
        reading = asyncio.create_task(readers.ask(do="throughput", seconds=seconds * 10))
    try:
        requests_before = requests_of(brokers, *PRODUCE_APIS)
        cpu_before = cpu_of(brokers)
        full = await producer.ask(do="throughput", seconds=seconds)
        cpu = cpu_of(brokers) - cpu_before
        requests = requests_of(brokers, *PRODUCE_APIS) - requests_before
        single = await producer.ask(do="latency", seconds=seconds)
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    megabytes = full["bytes"] / 1e6
    return Outcome(
        records_per_s=full["records"] / full["seconds"],
        mb_per_s=megabytes / full["seconds"],
        full_p50_ms=full["p50_ms"],
        p50_ms=single["p50_ms"],
        p99_ms=single["p99_ms"],
        cpu_us_per_request=cpu.nodes / requests * 1e6,
        cpu_ms_per_mb=cpu.nodes / megabytes * 1e3,
        helper_us_per_request=cpu.helpers / requests * 1e6,
    )


# --------------------------------------------------------------------------------- report

_MEASURED = [
    "records/s",
    "MB/s",
    "ack p50 ms, buffer full",
    "ack p50 ms, one batch",
    "ack p99 ms, one batch",
    "broker CPU, µs/request",
    "broker CPU, ms/MB",
    "helper CPU, µs/request",
]


def _tables(report: Report, outcomes: dict[Configuration, Outcome]) -> None:
    rows: list[list[Cell]] = [
        [str(configuration), *asdict(outcome).values()]
        for configuration, outcome in outcomes.items()
    ]
    report.table("Producing", ["configuration", *_MEASURED], rows)
    if ratios := list(_ratios(outcomes)):
        report.table(
            "What one change does (ratios within this run)",
            ["from", "to", "with", "MB/s", "ack p50", "ack p99", "CPU/request", "CPU/MB"],
            ratios,
        )


def _ratios(outcomes: dict[Configuration, Outcome]) -> list[list[Cell]]:
    """A row for each pair of configurations that differ in one value only."""
    rows: list[list[Cell]] = []
    for (one, before), (two, after) in itertools.combinations(outcomes.items(), 2):
        pairs = list(zip(_words(one), _words(two), strict=True))
        changed = [pair for pair in pairs if pair[0] != pair[1]]
        if len(changed) != 1:
            continue
        same = " ".join(first for first, second in pairs if first == second)
        rows.append(
            [
                *changed[0],
                same,
                after.mb_per_s / before.mb_per_s,
                after.p50_ms / before.p50_ms,
                after.p99_ms / before.p99_ms,
                after.cpu_us_per_request / before.cpu_us_per_request,
                after.cpu_ms_per_mb / before.cpu_ms_per_mb,
            ]
        )
    return rows


def _compare(report: Report, outcomes: dict[Configuration, Outcome]) -> None:
    if (alone := outcomes.get(_ALONE)) is not None:
        report.compare(PRODUCE_CPU, alone.cpu_us_per_request)
    if (busy := outcomes.get(Configuration(consumers=4))) is not None:
        report.compare(BUSY_LATENCY, busy.p99_ms)


# ------------------------------------------------------------------------------- options


def _values(kind: type[int] | type[str], text: str) -> list[int | str]:
    return [kind(each) for each in text.split(",")]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench produce", description="What producing costs.")
    for field in fields(Configuration):
        choices = CHOICES[field.name]
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            type=functools.partial(_values, type(choices[0])),
            metavar="A,B",
            help=f"of {', '.join(map(str, choices))}; any other value of the kind will do",
        )
    parser.add_argument("--matrix", action="store_true", help="every combination; slow")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def _chosen(options: argparse.Namespace) -> list[Configuration]:
    """The short set, or all combinations of the given values with the defaults of the rest."""
    named = {each.name: getattr(options, each.name) for each in fields(Configuration)}
    if not options.matrix and not any(named.values()):
        return list(SHORT_SET)
    rest = CHOICES if options.matrix else {each: (value,) for each, value in _defaults().items()}
    values = [named[each.name] or rest[each.name] for each in fields(Configuration)]
    return [Configuration(*combination) for combination in itertools.product(*values)]


def _defaults() -> dict[str, str | int]:
    return asdict(Configuration())


async def run(options: argparse.Namespace) -> None:
    report = Report("produce", as_json=options.json)
    outcomes: dict[Configuration, Outcome] = {}
    async with fresh_cluster() as cluster, Admin(cluster.bootstrap_servers) as admin:
        for number, configuration in enumerate(_chosen(options)):
            report.note(f"  {configuration} ...")
            outcomes[configuration] = await measure(
                cluster,
                admin,
                f"bench-{number}",
                configuration,
                seconds=options.seconds,
            )
    _tables(report, outcomes)
    _compare(report, outcomes)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    asyncio.run(run(_parse(arguments)))


if __name__ == "__main__":
    main()
