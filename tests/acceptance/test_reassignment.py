"""Partitions move to other brokers in a cluster of processes: by command, under load, and by a
Kafka client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Consumer, Producer
from tests.support.acceptance import running

pytestmark = pytest.mark.processes

TOPIC = "orders"
PARTITIONS = 4
STELE = [sys.executable, "-m", "cli.main"]
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ProcessCluster]:
    async with running(tmp_path, brokers=5, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
async def admin(cluster: ProcessCluster) -> AsyncIterator[Admin]:
    async with Admin(cluster.bootstrap_servers, on_wait=lambda _: None) as admin:
        yield admin


async def stele(cluster: ProcessCluster, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    process = await asyncio.create_subprocess_exec(
        *STELE,
        *arguments,
        "--bootstrap-server",
        cluster.bootstrap_servers,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


async def a_topic(admin: Admin, *replicas: int) -> None:
    turns = {
        number: [*replicas[number % len(replicas) :], *replicas[: number % len(replicas)]]
        for number in range(PARTITIONS)
    }
    await admin.create_topics(
        [NewTopic(TOPIC, assignments=turns, configs={"min.insync.replicas": "2"})]
    )


class Load:
    """Writes with acks=all to all partitions in turn, and remembers what was acknowledged."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._servers = cluster.bootstrap_servers
        self._done = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = 0
        async with Producer(self._servers, on_wait=lambda _: None) as producer:
            while not self._done:
                sent = []
                for _ in range(50):
                    number += 1
                    value = b"%d" % number
                    sent.append(
                        (value, await producer.send(TOPIC, value, partition=number % PARTITIONS))
                    )
                for value, delivery in sent:
                    told = await delivery
                    self.acknowledged[told.partition, told.offset] = value

    async def until(self, more: int) -> None:
        wanted = len(self.acknowledged) + more
        async with asyncio.timeout(60):
            while len(self.acknowledged) < wanted:  # noqa: ASYNC110 - others do it
                await asyncio.sleep(0.02)

    async def finish(self) -> None:
        self._done = True
        await self._task


async def read_everything(cluster: ProcessCluster, count: int) -> dict[tuple[int, int], bytes]:
    found: dict[tuple[int, int], bytes] = {}
    async with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(TOPIC, number) for number in range(PARTITIONS)])
        async with asyncio.timeout(60):
            while len(found) < count:
                for record in await consumer.poll(timeout_ms=500):
                    found[record.partition, record.offset] = record.value or b""
    return found


def logs(cluster: ProcessCluster, broker: int) -> list[str]:
    """The partitions of a broker, without the replicas that only wait to be deleted."""
    directory = Path(cluster.nodes[broker].settings["log.dirs"])
    found = (path.name for path in directory.glob(f"{TOPIC}-*"))
    return sorted(name for name in found if not name.endswith("-delete"))


async def until_logs(cluster: ProcessCluster, broker: int, count: int) -> None:
    async with asyncio.timeout(30):
        while len(logs(cluster, broker)) != count:  # noqa: ASYNC110 - polls others
            await asyncio.sleep(0.05)


async def until_verified(cluster: ProcessCluster, plan: Path) -> None:
    async with asyncio.timeout(90):
        while (done := await stele(cluster, "reassign", "verify", "-f", str(plan))).returncode:
            assert b"in progress" in done.stdout, done


async def test_a_topic_moves_under_load_and_back_past_a_broker_that_is_down(
    cluster: ProcessCluster, admin: Admin, tmp_path: Path
) -> None:
    first, second, third, fourth, fifth = cluster.broker_ids
    await a_topic(admin, first, second, third)
    load = Load(cluster)
    await load.until(1000)

    brokers = f"{third},{fourth},{fifth}"
    generated = await stele(
        cluster, "reassign", "generate", "--topic", TOPIC, "--broker-list", brokers
    )
    assert generated.returncode == 0, generated
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    plan.write_bytes(generated.stdout)
    executed = await stele(cluster, "reassign", "execute", "-f", str(plan), "--json")
    assert executed.returncode == 0, executed
    back.write_text(json.dumps(json.loads(executed.stdout)["current"]))
    await until_verified(cluster, plan)
    assert b"no partition is being moved" in (await stele(cluster, "reassign", "list")).stdout
    (topic,) = await admin.describe_topics([TOPIC])
    for state in topic.partitions:
        assert sorted(state.replicas) == [third, fourth, fifth]
        assert state.isr == (third, fourth, fifth)
        assert state.leader in state.isr
    for broker, count in ((first, 0), (second, 0), (third, 4), (fourth, 4), (fifth, 4)):
        await until_logs(cluster, broker, count)
    await load.until(1000)

    cluster.kill(fifth)
    assert (await stele(cluster, "reassign", "execute", "-f", str(back))).returncode == 0
    await until_verified(cluster, back)
    assert len(logs(cluster, fifth)) == 4
    await cluster.restart(fifth)
    for broker, count in ((first, 4), (second, 4), (third, 4), (fourth, 0), (fifth, 0)):
        await until_logs(cluster, broker, count)
    await load.until(1000)
    await load.finish()
    found = await read_everything(cluster, len(load.acknowledged))
    assert {place: found.get(place) for place in load.acknowledged} == load.acknowledged


async def test_a_move_that_waits_is_seen_and_cancelled(
    cluster: ProcessCluster, admin: Admin, tmp_path: Path
) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    first, second, third, fourth, fifth = cluster.broker_ids
    await a_topic(admin, first, second, third)
    before = {
        each.partition: each.replicas
        for each in (await admin.describe_topics([TOPIC]))[0].partitions
    }
    cluster.kill(fifth)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [
                    {"topic": TOPIC, "partition": 0, "replicas": [fifth, fourth, first]}
                ],
            }
        )
    )
    assert (await stele(cluster, "reassign", "execute", "-f", str(plan))).returncode == 0
    again = await stele(cluster, "reassign", "execute", "-f", str(plan))
    assert b"1 partitions are being moved already" in again.stderr
    (entry,) = json.loads((await stele(cluster, "reassign", "list", "--json")).stdout)
    assert (entry["adding"], entry["removing"]) == ([fourth, fifth], [second, third])
    assert fifth in entry["not_in_sync"]
    described = (await stele(cluster, "topic", "describe", TOPIC)).stdout.decode()
    assert "ADDING" in described
    assert f"{fourth},{fifth}   {second},{third}" in described
    verified = await stele(cluster, "reassign", "verify", "-f", str(plan), "--json")
    assert verified.returncode == 1
    assert json.loads(verified.stdout)[0]["status"] == "in progress"

    def with_kafka() -> None:
        client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(",")[:1])
        place, another = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
        try:
            listed = client.list_partition_reassignments()
            assert set(listed) == {place}
            assert set(listed[place]["adding_replicas"]) == {fourth, fifth}
            assert client.alter_partition_reassignments({another: [fifth, first, second]}) == {
                another: None
            }
            assert set(client.list_partition_reassignments([another])) == {another}
            assert client.alter_partition_reassignments({another: None}) == {another: None}
            refused = client.alter_partition_reassignments({another: None, place: [999]})
            assert [error.__name__ for error in refused.values()] == [
                "NoReassignmentInProgressError",
                "InvalidReplicationAssignmentError",
            ]
        finally:
            client.close()

    await asyncio.to_thread(with_kafka)
    cancelled = await stele(cluster, "reassign", "cancel", "--all")
    assert cancelled.stdout == f"cancelled the move of {TOPIC}-0\n".encode()
    (topic,) = await admin.describe_topics([TOPIC])
    assert {each.partition: each.replicas for each in topic.partitions} == before
    await until_logs(cluster, fourth, 0)
