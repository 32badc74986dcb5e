"""What clients that take no answers, and the largest requests, cost a broker and those beside them.

python -m bench hostile [--connections 50] [--records 200] [--json]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.processes import fresh_cluster, rss_mib, wait_whole
from bench.report import Cell, Report
from runtime.real.network import RealNetwork
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Producer
from stele.cluster.kafka_connection import KafkaConnection
from stele.wire import kafka
from stele.wire.kafka import Api, Struct
from stele.wire.kafka.messages import (
    api_versions,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    metadata,
)

TOPIC_MIB = 24
PIPELINED = 16


def _everything() -> bytes:
    """Fetches of everything, whose answers nobody will read."""
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


def _largest_requests() -> Iterator[tuple[str, int, bytes]]:
    """(what, elements, frame)."""

    def frame(api: Api[Any, Any], version: int, message: Struct) -> bytes:
        return b"".join(kafka.encode_request(api, version, 1, "hostile", message))

    many = 60_000
    names = [metadata.MetadataRequestTopic(name=f"none-{number}") for number in range(many)]
    asked = metadata.MetadataRequest(names, allow_auto_topic_creation=False)
    yield "Metadata, unknown topics", many, frame(metadata.API, 12, asked)
    partitions = [fetch.FetchPartition(number) for number in range(many)]
    of_topic = [fetch.FetchTopic("t", partitions=partitions)]
    wanted = fetch.FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=of_topic)
    yield "Fetch, partitions that do not exist", many, frame(fetch.API, 12, wanted)
    resources = [describe_configs.DescribeConfigsResource(2, "t")] * 2000
    described = describe_configs.DescribeConfigsRequest(resources=resources)
    yield (
        "DescribeConfigs, one topic again and again",
        2000,
        frame(describe_configs.API, 4, described),
    )
    new = [create_topics.CreatableTopic(f"new-{number}", 1, 1) for number in range(1000)]
    created = create_topics.CreateTopicsRequest(topics=new, timeout_ms=60_000)
    yield "CreateTopics", 1000, frame(create_topics.API, 7, created)
    gone = delete_topics.DeleteTopicsRequest(
        topic_names=[topic.name for topic in new], timeout_ms=60_000
    )
    yield "DeleteTopics", 1000, frame(delete_topics.API, 5, gone)


async def _beside(port: int, what: str, elements: int, frame: bytes) -> list[Cell]:
    """Measure small requests beside one large request. Meanwhile this process neither encodes nor
    decodes the large one."""

    def ask() -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=120) as hostile:
            hostile.sendall(frame)
            left = int.from_bytes(hostile.recv(4, socket.MSG_WAITALL), "big")
            while left:
                left -= len(hostile.recv(min(left, 1 << 20)))

    small = await KafkaConnection.open(RealNetwork(), "127.0.0.1", port, client_id="small")
    await small.request(api_versions.API, 0, api_versions.ApiVersionsRequest(), timeout_s=120)
    began = time.perf_counter()
    large = asyncio.ensure_future(asyncio.to_thread(ask))
    worst_ms = 0.0
    while not large.done():
        sent = time.perf_counter()
        await small.request(api_versions.API, 0, api_versions.ApiVersionsRequest(), timeout_s=120)
        worst_ms = max(worst_ms, 1000 * (time.perf_counter() - sent))
    await large
    small.close()
    return [what, elements, worst_ms, time.perf_counter() - began]


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
        large = [await _beside(node.kafka_port, *each) for each in _largest_requests()]
    report.table(
        f"acks=all of single records, RF 1; each of the others pipelines {PIPELINED} fetches of "
        f"{TOPIC_MIB} MiB",
        ["what", "ack p50 ms", "ack p99 ms", "ack worst ms", "broker RSS MiB"],
        rows,
    )
    report.table(
        "the longest that a small request waits beside one large request to the same broker",
        ["request", "elements", "ApiVersions worst ms", "the request itself s"],
        large,
    )
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench hostile", description=__doc__)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    asyncio.run(run(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
