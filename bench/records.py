"""What a record costs our producer and consumer, beside confluent-kafka's in the same run.

    python -m bench records [--seconds 3] [--repeat 3] [--bytes 100] [--available 500000] [--json]

One broker, a topic of six partitions with one replica, acks=all. Each client is a process of its
own. A record has a key of 8 bytes. ``send`` is called for each record, and ``send_all`` for 1,000;
a figure includes the wait for all acknowledgements. Consumers read a topic that is in the page
cache from its beginning to its end, again and again. Rounds of all clients follow each other, and
each figure is the median of the rounds. Client and broker share the cores, so the client's CPU for
a record says more than the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from bench.jobs import Job
from bench.processes import ClientProcess, cpu_of, fresh_cluster, wait_whole
from bench.report import Cell, Report
from chaos.process_cluster import ProcessCluster
from stele import ProducerRecord
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer

PARTITIONS: Final = 6
_WARM_UP_S: Final = 0.5
_READ: Final = "read"

SENDING: Final[Mapping[str, Job]] = {
    "stele send": {"client": "sync send"},
    "stele.aio send": {"client": "aio send"},
    "confluent-kafka produce": {"client": "confluent produce", "has_callback": False},
    "the same, with a callback": {"client": "confluent produce", "has_callback": True},
    "stele send_all": {"client": "sync send_all"},
    "stele.aio send_all": {"client": "aio send_all"},
}
READING: Final[Mapping[str, Job]] = {
    "stele poll, objects": {"client": "own poll", "form": "objects"},
    "confluent-kafka consume, objects": {"client": "confluent consume", "form": "objects"},
    "stele poll_arrow": {"client": "own poll", "form": "arrow"},
    "confluent-kafka consume, pyarrow.table": {"client": "confluent consume", "form": "arrow"},
    "stele poll_arrow, to_pandas": {"client": "own poll", "form": "pandas"},
    "confluent-kafka consume, DataFrame": {"client": "confluent consume", "form": "pandas"},
}

Figures = tuple[float, float, float]
"""Records per second, and the CPU for each in the client and in the broker, in microseconds."""


async def _measure(cluster: ProcessCluster, job: Job, seconds: float) -> Figures:
    client = await ClientProcess.start(job)
    brokers = [cluster.nodes[each] for each in cluster.broker_ids]
    try:
        await client.ask(do="throughput", seconds=_WARM_UP_S)
        before = cpu_of(brokers)
        seen = await client.ask(do="throughput", seconds=seconds)
        spent = cpu_of(brokers) - before
    finally:
        await client.close()
    records = seen["records"]
    return (
        records / seen["seconds"],
        seen["cpu_s"] / records * 1e6,
        (spent.nodes + spent.helpers) / records * 1e6,
    )


async def _fill(cluster: ProcessCluster, records: int, record_bytes: int) -> None:
    value = bytes(record_bytes)
    async with Producer(cluster.bootstrap_servers) as producer:
        await producer.send_all(
            ProducerRecord(_READ, value, b"%08d" % number) for number in range(records)
        )


def rows_of(
    names: Sequence[str], rounds: Sequence[Sequence[Figures]], beside: Mapping[str, str]
) -> list[list[Cell]]:
    """The medians of the rounds. ``beside`` names for a client the one of confluent-kafka to which
    its ratio of rates is; above 1 is better."""
    medians = {
        name: [statistics.median(part) for part in zip(*of_client, strict=True)]
        for name, of_client in zip(names, zip(*rounds, strict=True), strict=True)
    }
    return [
        [
            name,
            rate,
            *cpu,
            rate / medians[beside[name]][0] if name in beside else None,
        ]
        for name, (rate, *cpu) in medians.items()
    ]


_PRODUCE: Final = "confluent-kafka produce"
_BESIDE_SENDING: Final = {name: _PRODUCE for name in SENDING if name.startswith("stele")}
_BESIDE_READING: Final = dict(zip(list(READING)[::2], list(READING)[1::2], strict=True))
COLUMNS: Final = [
    "client", "records/s", "client's CPU µs/record", "broker's", "rate to confluent-kafka's",
]  # fmt: skip


async def run(options: argparse.Namespace) -> None:
    report = Report("records", as_json=options.json)
    async with (
        fresh_cluster(controllers=1, brokers=1) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        await admin.create_topics([NewTopic(_READ, PARTITIONS, 1)])
        await wait_whole(admin, [_READ])
        report.note(f"filling a topic with {options.available:,} records of {options.bytes} B")
        await _fill(cluster, options.available, options.bytes)
        common: Job = {
            "bootstrap": cluster.bootstrap_servers,
            "partitions": PARTITIONS,
            "record_bytes": options.bytes,
        }
        reads = common | {"topic": _READ, "available": options.available}
        sent: list[list[Figures]] = []
        read: list[list[Figures]] = []
        for number in range(options.repeat):
            report.note(f"round {number + 1} of {options.repeat}")
            topic = f"sent-{number}"
            await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
            await wait_whole(admin, [topic])
            writes = common | {"topic": topic}
            sent.append(
                [await _measure(cluster, writes | job, options.seconds) for job in SENDING.values()]
            )
            read.append(
                [await _measure(cluster, reads | job, options.seconds) for job in READING.values()]
            )
            await admin.delete_topics([topic])
    size = f"records of {options.bytes} B"
    report.table(f"Sending {size}", COLUMNS, rows_of(list(SENDING), sent, _BESIDE_SENDING))
    report.table(f"Reading {size}", COLUMNS, rows_of(list(READING), read, _BESIDE_READING))
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="bench records", description="What a record costs our clients and confluent-kafka's."
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of all measurements")
    parser.add_argument("--bytes", type=int, default=100, help="of a value")
    parser.add_argument("--available", type=int, default=500_000, help="records that are read")
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
