"""What clients that take no answers cost a broker, and a producer beside them.

python -m bench hostile [--connections 50] [--records 200] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import time
from collections.abc import Sequence

from bench.processes import fresh_cluster, rss_mib, wait_whole
from bench.report import Cell, Report
from stele.admin import NewTopic
from stele.aio import Admin, Producer
from stele.wire import kafka
from stele.wire.kafka.messages import fetch

TOPIC_MIB = 24
PIPELINED = 16


def _everything() -> bytes:
    """Fetches of all that is there, which nobody will read."""
    message = fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=2**31 - 1,
        max_bytes=2**31 - 1,
        topics=[
            fetch.FetchTopic(
                "t", partitions=[fetch.FetchPartition(0, partition_max_bytes=2**31 - 1)]
            )
        ],
    )
    return b"".join(
        b"".join(kafka.encode_request(fetch.API, 12, number, "hostile", message))
        for number in range(PIPELINED)
    )


async def _acks_ms(producer: Producer, records: int) -> list[float]:
    took_ms = []
    for _ in range(records):
        began = time.perf_counter()
        await (await producer.send("t", b"record"))
        took_ms.append(1000 * (time.perf_counter() - began))
    return took_ms


def _row(what: str, took_ms: list[float], pid: int) -> list[Cell]:
    worst = statistics.quantiles(took_ms, n=100)[98]
    return [what, statistics.median(took_ms), worst, max(took_ms), rss_mib(pid)]


async def run(options: argparse.Namespace) -> None:
    report = Report("hostile", as_json=options.json)
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(fresh_cluster())
        admin = await stack.enter_async_context(Admin(cluster.bootstrap_servers))
        await admin.create_topics([NewTopic("t", 1, 1)])
        await wait_whole(admin, ["t"])
        leader = (await admin.describe_topics(["t"]))[0].partitions[0].leader
        assert leader is not None
        node = cluster.nodes[leader]
        assert node.kafka_port is not None
        producer = await stack.enter_async_context(
            Producer(cluster.bootstrap_servers, acks="all", linger_ms=0)
        )
        for _ in range(4 * TOPIC_MIB):
            await (await producer.send("t", b"v" * (1 << 18)))
        rows = [_row("alone", await _acks_ms(producer, options.records), node.pid)]
        for _ in range(options.connections):
            hostile = stack.enter_context(socket.create_connection(("127.0.0.1", node.kafka_port)))
            hostile.sendall(_everything())
        await asyncio.sleep(1)
        what = f"beside {options.connections} that read nothing"
        rows.append(_row(what, await _acks_ms(producer, options.records), node.pid))
    report.table(
        f"acks=all of single records, RF 1; each of the others pipelines {PIPELINED} fetches of "
        f"{TOPIC_MIB} MiB",
        ["what", "ack p50 ms", "ack p99 ms", "ack worst ms", "broker RSS MiB"],
        rows,
    )
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench hostile", description="Clients that read nothing.")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
