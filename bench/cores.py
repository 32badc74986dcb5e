"""On how many cores the brokers of one host run: more and more of them, as busy as they can be.

python -m bench cores [--brokers 1,2,3] [--seconds 5] [--json]

A broker is one process and uses one core, so a host has several. Each broker leads as many
partitions as any other, with one replica each, and has a client process of its own: librdkafka
that writes batches, then connections that read whole batches and decode nothing. Clients share the
cores with the brokers. Where both together use all cores, more brokers bring nothing more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bench.jobs import reading, sending
from bench.processes import ClientProcess, cpu_of, cpu_s, fresh_cluster, wait_whole
from bench.report import Cell, Report
from stele.admin.descriptions import NewTopic
from stele.aio import Admin

PARTITIONS: Final = 4  # of each broker
RECORD_BYTES: Final = 1024
BATCH_BYTES: Final = 128 * 1024
CONNECTIONS: Final = 4  # that read from each broker
_WARM_UP_S: Final = 1.0


class Measured(NamedTuple):
    mb_per_s: float
    broker_cores: float
    client_cores: float


def _topic(broker_id: int) -> str:
    return f"broker-{broker_id}"


async def _measured(
    bootstrap: str, jobs: Sequence[dict[str, Any]], nodes: Sequence[Any], seconds: float
) -> Measured:
    """What the clients of all jobs reach together, each in a process of its own."""
    async with contextlib.AsyncExitStack() as running:
        clients = []
        for job in jobs:
            client = await ClientProcess.start({"bootstrap": bootstrap, **job})
            running.push_async_callback(client.close)
            clients.append(client)
        await _all(clients, _WARM_UP_S)
        began = cpu_of(nodes), sum(cpu_s(each.pid) for each in clients)
        told = await _all(clients, seconds)
        used = cpu_of(nodes) - began[0]
        clients_s = sum(cpu_s(each.pid) for each in clients) - began[1]
    longest_s = max(each["seconds"] for each in told)
    return Measured(
        sum(each["bytes"] / each["seconds"] for each in told) / 1e6,
        (used.nodes + used.helpers) / longest_s,
        clients_s / longest_s,
    )


async def _all(clients: Sequence[ClientProcess], seconds: float) -> list[dict[str, float]]:
    asked = [each.ask(do="throughput", seconds=seconds) for each in clients]
    return list(await asyncio.gather(*asked))


async def _of(brokers: int, seconds: float) -> tuple[Measured, Measured]:
    """What is written to so many brokers, and what is read from them."""
    async with (
        fresh_cluster(controllers=1, brokers=brokers) as cluster,
        Admin(cluster.bootstrap_servers) as admin,
    ):
        topics = {
            _topic(each): NewTopic(
                _topic(each), assignments={number: [each] for number in range(PARTITIONS)}
            )
            for each in cluster.broker_ids
        }
        await admin.create_topics(list(topics.values()))
        await wait_whole(admin, list(topics))
        nodes = [cluster.nodes[each] for each in cluster.broker_ids]
        servers = cluster.bootstrap_servers
        writing = [sending(each, PARTITIONS, RECORD_BYTES, BATCH_BYTES) for each in topics]
        fetching = [reading(each, PARTITIONS, CONNECTIONS) for each in topics]
        written = await _measured(servers, writing, nodes, seconds)
        return written, await _measured(servers, fetching, nodes, seconds)


async def run(options: argparse.Namespace) -> None:
    report = Report("cores", as_json=options.json)
    numbers = [int(each) for each in options.brokers.split(",")]
    measured = []
    for brokers in numbers:
        report.note(f"  {brokers} brokers ...")
        measured.append(await _of(brokers, options.seconds))
    columns = ["brokers", "MB/s", "to the first row", "cores of brokers", "cores of clients"]
    for what, column in zip(("written", "read"), zip(*measured, strict=True), strict=True):
        rows: list[list[Cell]] = [
            [brokers, each.mb_per_s, each.mb_per_s / column[0].mb_per_s, *each[1:]]
            for brokers, each in zip(numbers, column, strict=True)
        ]
        title = f"Brokers on one host, a client process for each, {os.cpu_count()} cores: {what}"
        report.table(title, columns, rows)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="bench cores", description="On how many cores brokers of one host run."
    )
    parser.add_argument("--brokers", default="1,2,3", help="numbers of brokers")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
