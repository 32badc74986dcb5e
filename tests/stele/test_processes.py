"""The clients and the command line against real node processes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import ConfigResource, NewTopic
from stele.aio import Admin, Consumer, Producer
from stele.records import ConsumerRecord

pytestmark = pytest.mark.processes

PARTITIONS = 3


@asynccontextmanager
async def running(directory: Path, controllers: int, brokers: int) -> AsyncIterator[ProcessCluster]:
    cluster = ProcessCluster(directory, controllers=controllers, brokers=brokers)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


async def read_all(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, number) for number in await consumer.partitions_for(topic)])
        ends = await consumer.end_offsets(consumer.assignment())
        assert sum(ends.values()) == count, f"the log holds {ends}, {count} were acknowledged"
        while len(records) < count:
            polled = await consumer.poll(5000, timeout_ms=10_000)
            assert polled, f"only {len(records)} of {count} came back"
            records += polled
    return records


async def test_a_leader_killed_while_producing_costs_and_doubles_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, 1, 3) as cluster:
        bootstrap = cluster.bootstrap_servers
        async with Admin(bootstrap) as admin:
            await admin.create_topics(
                [NewTopic("t", PARTITIONS, 3, configs={"min.insync.replicas": "2"})]
            )
            waits: list[str] = []
            async with Producer(bootstrap, batch_size=2000, on_wait=waits.append) as producer:
                deliveries = []
                for i in range(20_000):
                    partition = i % PARTITIONS
                    deliveries.append(
                        await producer.send(
                            "t", b"%d" % i, headers={"n": b"1"}, partition=partition
                        )
                    )
                    if i == 8000:
                        (topic,) = await admin.describe_topics(["t"])
                        victim = topic.partitions[0].leader
                        assert victim is not None
                        cluster.kill(victim)
                    if i % 100 == 0:
                        await asyncio.sleep(0.001)
            assert all(delivery.exception() is None for delivery in deliveries)
            (after,) = await admin.describe_topics(["t"])
            assert after.partitions[0].leader_epoch > topic.partitions[0].leader_epoch
        records = await read_all(bootstrap, "t", 20_000)
    for number in range(PARTITIONS):
        values = [int(each.value or b"") for each in records if each.partition == number]
        assert values == list(range(number, 20_000, PARTITIONS))
    offsets = {(each.partition, each.offset): each.value for each in records}
    for i, delivery in enumerate(deliveries):
        where = delivery.result()
        assert offsets[where.partition, where.offset] == b"%d" % i


async def test_a_paused_leader_is_left_behind(tmp_path: Path) -> None:
    """SIGSTOP for longer than the session. When the leader comes back, no record is lost or
    doubled."""
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    cluster = ProcessCluster(tmp_path, controllers=1, brokers=3, settings=settings)
    await cluster.start()
    try:
        bootstrap = cluster.bootstrap_servers
        async with Admin(bootstrap) as admin, Producer(bootstrap, batch_size=500) as producer:
            await admin.create_topics([NewTopic("t", 1, 3, configs={"min.insync.replicas": "2"})])
            await (await producer.send("t", b"0"))
            (topic,) = await admin.describe_topics(["t"])
            victim = topic.partitions[0].leader
            assert victim is not None
            cluster.pause(victim)
            for i in range(1, 500):
                await producer.send("t", b"%d" % i)
            await producer.flush()
            cluster.resume(victim)
            for i in range(500, 1000):
                await producer.send("t", b"%d" % i)
            await producer.flush()
        records = await read_all(bootstrap, "t", 1000)
        assert [each.value for each in records] == [b"%d" % i for i in range(1000)]
    finally:
        await cluster.stop()


async def test_the_command_line(tmp_path: Path) -> None:
    async with running(tmp_path / "cluster", 1, 2) as cluster:
        bootstrap = cluster.bootstrap_servers
        lines = [b"invoice-%d,item %d" % (i % 10, i) for i in range(5000)]
        file = tmp_path / "lines.csv"
        file.write_bytes(b"invoice,item\n" + b"\n".join(lines) + b"\n")

        async def stele(*arguments: str, stdin: bytes = b"") -> tuple[int, bytes, str]:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cli.main",
                *arguments,
                "--bootstrap-server",
                bootstrap,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            out, err = await process.communicate(stdin)
            assert process.returncode is not None
            return process.returncode, out, err.decode()

        create = ("topic", "create", "orders", "-p", "4", "-r", "2")
        assert (await stele(*create))[:2] == (
            0,
            b"created topic orders: 4 partitions, replication factor 2\n",
        )
        code, _, error = await stele(*create)
        assert code == 1
        assert "TOPIC_ALREADY_EXISTS" in error
        assert (await stele(*create, "--if-not-exists"))[0] == 0

        produce = ("produce", "orders", "--key-field", "1", "--compression", "lz4")
        code, _, error = await stele(*produce, "--file", str(file), "--skip-lines", "1")
        assert (code, error.splitlines()[-1]) == (
            0,
            f"5000 records, {sum(map(len, lines)) + 5000 * 9} bytes acknowledged",
        )
        code, out, _ = await stele("consume", "orders")
        assert sorted(out.splitlines()) == sorted(lines)
        code, out, _ = await stele("consume", "orders", "--max", "7", "--format", "json")
        assert [json.loads(line)["topic"] for line in out.splitlines()] == ["orders"] * 7
        code, _, error = await stele("produce", "oders", stdin=b"x\n")
        assert code == 1
        assert "Did you mean 'orders'?" in error

        code, out, _ = await stele("topic", "describe", "orders", "--json")
        (topic,) = json.loads(out)
        assert [len(each["isr"]) for each in topic["partitions"]] == [2] * 4
        assert (await stele("topic", "alter", "orders", "--config", "retention.ms=60000"))[0] == 0
        async with Admin(bootstrap) as admin:
            resource = ConfigResource.topic("orders")
            entries = (await admin.describe_configs([resource]))[resource]
            assert {e.name: e.value for e in entries}["retention.ms"] == "60000"
        code, out, _ = await stele("cluster", "describe", "--json")
        assert [each["fenced"] for each in json.loads(out)["brokers"]] == [False, False]
        code, out, _ = await stele("quorum", "describe", "--json")
        assert json.loads(out)["leader_id"] == 1
        assert (await stele("topic", "delete", "orders"))[0] == 0
        assert json.loads((await stele("topic", "list", "--json"))[1]) == []
