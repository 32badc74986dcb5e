"""Our own share consumer on processes: whole lives of records, and a broker that is killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from stele import AcknowledgeType, Admin, NewTopic, Producer, ShareConsumer, ShareRecord
from stele.admin.descriptions import ConfigResource

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 90.0
RECORDS = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    cluster = ProcessCluster(tmp_path_factory.mktemp("queues"), controllers=1, brokers=3)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


def filled(cluster: ProcessCluster, topic: str, group: str, count: int = RECORDS) -> list[bytes]:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 3, 3)])
        admin.alter_configs({ConfigResource.group(group): {"share.auto.offset.reset": "earliest"}})
    return produced(cluster, topic, [b"%d" % number for number in range(count)])


def produced(cluster: ProcessCluster, topic: str, values: list[bytes]) -> list[bytes]:
    with Producer(cluster.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 3)
        producer.flush()
    return values


def explicit(cluster: ProcessCluster, topic: str, group: str) -> ShareConsumer:
    consumer = ShareConsumer(
        cluster.bootstrap_servers, group_id=group, share_acknowledgement_mode="explicit"
    )
    consumer.subscribe([topic])
    return consumer


def test_records_are_accepted_released_and_rejected_once(cluster: ProcessCluster) -> None:
    values = filled(cluster, "work", "workers")
    accepted: list[bytes | None] = []
    rejected: list[bytes | None] = []
    again = 0
    until_s = time.monotonic() + PATIENCE_S
    with explicit(cluster, "work", "workers") as one, explicit(cluster, "work", "workers") as two:
        while len(accepted) + len(rejected) < RECORDS and time.monotonic() < until_s:
            for consumer in (one, two):
                for record in consumer.poll(timeout_ms=200):
                    again += record.delivery_count == 2
                    if record.offset % 10 == 3 and record.delivery_count == 1:
                        consumer.acknowledge(record, AcknowledgeType.RELEASE)
                    elif record.offset % 10 == 4:
                        consumer.acknowledge(record, AcknowledgeType.REJECT)
                        rejected.append(record.value)
                    else:
                        consumer.acknowledge(record)
                        accepted.append(record.value)
                assert not any((consumer.commit()).values())
    assert sorted(accepted + rejected, key=str) == sorted(values, key=str)
    assert (again, len(rejected)) == (30, 30)


def test_a_group_goes_on_after_the_death_of_a_broker(cluster: ProcessCluster) -> None:
    values = filled(cluster, "survived", "survivors")
    found: set[bytes | None] = set()
    killed = 0
    until_s = time.monotonic() + 2 * PATIENCE_S
    with explicit(cluster, "survived", "survivors") as consumer:
        while not set(values) <= found and time.monotonic() < until_s:
            for record in consumer.poll(50, timeout_ms=500):
                with consumer.processing(record):
                    found.add(record.value)
            if found and not killed:
                killed = cluster.broker_ids[0]
                cluster.kill(killed)
                late = [b"late %d" % number for number in range(RECORDS)]
                values += produced(cluster, "survived", late)
    asyncio.run(cluster.restart(killed))
    assert found == set(values)
    with explicit(cluster, "survived", "survivors") as consumer:
        left = [each for _ in range(4) for each in consumer.poll(timeout_ms=500)]
    assert len(left) < RECORDS, "what was acknowledged is not delivered again"


def test_locks_are_renewed_and_other_members_wait(cluster: ProcessCluster) -> None:
    """The lock is the shortest that a group may have."""
    filled(cluster, "slow", "slow", 3)
    with Admin(cluster.bootstrap_servers) as admin:
        admin.alter_configs(
            {ConfigResource.group("slow"): {"share.record.lock.duration.ms": "15000"}}
        )
    with explicit(cluster, "slow", "slow") as one, explicit(cluster, "slow", "slow") as two:
        records: list[ShareRecord] = []
        until_s = time.monotonic() + PATIENCE_S
        while len(records) < 3 and time.monotonic() < until_s:
            records += one.poll(timeout_ms=500)
        until_s = time.monotonic() + 20
        while time.monotonic() < until_s:
            assert two.poll(timeout_ms=500) == []
        for record in records:
            assert one.holds(record)
            one.acknowledge(record)
        assert not any(one.commit().values())


_DYING = """
import os, sys
from stele import ShareConsumer
consumer = ShareConsumer(sys.argv[1], group_id="mortal", share_acknowledgement_mode="explicit")
consumer.subscribe(["mortal"])
first = next(consumer)
consumer.acknowledge(first)
consumer.commit()
second = next(consumer)
os._exit(9)
"""


def test_the_record_of_a_process_that_dies_is_delivered_again(cluster: ProcessCluster) -> None:
    values = filled(cluster, "mortal", "mortal", 10)
    done = subprocess.run(
        [sys.executable, "-c", _DYING, cluster.bootstrap_servers],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 9
    found: list[bytes | None] = []
    until_s = time.monotonic() + PATIENCE_S
    with explicit(cluster, "mortal", "mortal") as consumer:
        while len(found) < len(values) - 1 and time.monotonic() < until_s:
            for record in consumer.poll(timeout_ms=500):
                with consumer.processing(record):
                    found.append(record.value)
        consumer.commit()
    assert len(found) == len(set(found)) == len(values) - 1


def command(cluster: ProcessCluster, *arguments: str) -> list[bytes]:
    """The lines that ``stele share consume`` prints."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cli", "share", "consume", *arguments),
            *("-b", cluster.bootstrap_servers),
        ],
        capture_output=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.splitlines()


def test_the_command_accepts_releases_and_rejects(cluster: ProcessCluster) -> None:
    values = filled(cluster, "printed", "printers", 6)
    first = command(cluster, "printers", "--topic", "printed", "--ack", "release", "--max", "2")
    assert len(first) == 2
    rejected = command(cluster, "printers", "--topic", "printed", "--ack", "reject", "--max", "2")
    rest = command(cluster, "printers", "--topic", "printed", "--until-idle", "5")
    assert sorted(rejected + rest) == sorted(values)


def test_the_example_worker_survives_the_death_of_its_process(cluster: ProcessCluster) -> None:
    values = filled(cluster, "examples", "examples", 12)
    arguments = [
        *(sys.executable, "-u", str(ROOT / "docs/examples/queue_worker.py")),
        *(cluster.bootstrap_servers, "examples", "examples"),
    ]

    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=ROOT, env=environment)

    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first = started()
    assert first.stdout is not None
    lines = [first.stdout.readline()]
    first.kill()
    lines += first.stdout.readlines()
    first.stdout.close()
    first.wait()
    second = started()
    assert second.stdout is not None
    found = {line.split()[3] for line in lines}
    wanted = {repr(value).encode() for value in values}
    while found != wanted:
        line = second.stdout.readline()
        assert line, "the worker has ended"
        found.add(line.split()[3])
    second.terminate()
    assert second.wait(PATIENCE_S) == 0
    second.stdout.close()
