"""An unmodified client and our commands move replicas between the directories of a real broker."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import (
    LogDirNotFoundError,
    NoError,
    UnknownTopicOrPartitionError,
)

from chaos.process_cluster import ProcessCluster
from node.format import format_directory
from runtime.real.world import RealWorld
from stele import Admin
from stele.admin.descriptions import ConfigResource as OurResource
from stele.errors import BulkError

pytestmark = pytest.mark.processes

TOPIC = "orders"
BROKER = 1
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Stage:
    """One broker, to which a second log directory was added."""

    def __init__(self, cluster: ProcessCluster, directories: tuple[str, str]) -> None:
        self.cluster = cluster
        self.directories = directories
        self.admin: Any = None

    def connect(self) -> None:
        self.admin = KafkaAdminClient(bootstrap_servers=self.cluster.bootstrap_servers)

    def move(self, directory: str, topic: str = TOPIC, partition: int = 0) -> Any:
        (error,) = self.admin.alter_replica_log_dirs(
            {(topic, partition, BROKER): directory}
        ).values()
        return error

    def places(self) -> dict[str, bool]:
        """The directories that hold the partition, and whether it is a future one there."""
        (described,) = self.admin.describe_log_dirs()
        return {
            directory["log_dir"]: each["is_future_key"]
            for directory in described["log_dirs"]
            for topic in directory["topics"]
            for each in topic["partitions"]
            if topic["name"] == TOPIC
        }

    def set_rate(self, bytes_per_s: int) -> None:
        self.admin.alter_configs(
            [ConfigResource(ConfigResourceType.BROKER, str(BROKER), {RATE: str(bytes_per_s)})]
        )

    def write(self, count: int) -> None:
        with KafkaProducer(
            bootstrap_servers=self.cluster.bootstrap_servers, acks="all"
        ) as producer:
            for number in range(count):
                producer.send(TOPIC, b"%06d" % number + bytes(1000), partition=0)
            producer.flush(30)

    def read(self) -> list[int]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap_servers, auto_offset_reset="earliest"
        )
        place = TopicPartition(TOPIC, 0)
        consumer.assign([place])
        (end,) = consumer.end_offsets([place]).values()
        found: list[int] = []
        while consumer.position(place) < end:
            for records in consumer.poll(1000).values():
                found += [int(record.value[:6]) for record in records]
        consumer.close()
        return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory: Path = tmp_path_factory.mktemp("directories")
    one, two = str(directory / "one"), str(directory / "two")
    cluster = ProcessCluster(
        directory / "cluster", brokers=1, combined=True, settings={"log.dirs": one}
    )

    async def start() -> None:
        await cluster.start()
        await cluster.stop_node(BROKER)
        node = cluster.nodes[BROKER]
        node.settings["log.dirs"] = f"{one},{two}"
        node.write_config()
        world = RealWorld()
        disk, rng = world.world.disk, world.world.rng
        format_directory(disk, [two], cluster.cluster_id, BROKER, rng)
        world.close()
        await cluster.restart(BROKER)

    asyncio.run(start())
    stage = Stage(cluster, (one, two))
    stage.connect()
    yield stage
    stage.admin.close()
    asyncio.run(cluster.stop())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_replica_moves_through_a_kill_of_its_broker(stage: Stage) -> None:
    stage.admin.create_topics([NewTopic(TOPIC, 1, 1)])
    stage.write(600)
    ((present, is_future),) = stage.places().items()
    assert not is_future
    (other,) = {*stage.directories} - {present}
    stage.set_rate(1000)
    assert stage.move(other) is NoError
    assert stage.places() == {present: False, other: True}
    until(lambda: _size(f"{other}/{TOPIC}-0") > 0)
    stage.admin.close()
    stage.cluster.kill(BROKER)
    asyncio.run(stage.cluster.restart(BROKER))
    stage.connect()
    assert stage.places() == {present: False, other: True}
    assert stage.move(present) is NoError  # a cancellation
    assert stage.places() == {present: False}
    assert stage.move(other) is NoError
    assert stage.places() == {present: False, other: True}
    stage.set_rate(1 << 40)
    until(lambda: stage.places() == {other: False})
    stage.write(10)
    assert stage.read() == [*range(600), *range(10)]
    assert not Path(present, f"{TOPIC}-0").exists()


def _size(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory).glob("*.log"))


def test_what_cannot_be_moved_is_refused_with_the_reason(stage: Stage) -> None:
    one, _ = stage.directories
    assert stage.move("/elsewhere") is LogDirNotFoundError
    assert stage.move(one, "unknown") is UnknownTopicOrPartitionError
    assert stage.move(one, TOPIC, 7) is UnknownTopicOrPartitionError


def stele(stage: Stage, *arguments: str, code: int = 0) -> Any:
    """The JSON that a command prints, or the line of its error."""
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments, "--json"],
        capture_output=True,
        timeout=60,
        env={**os.environ, "STELE_BOOTSTRAP_SERVER": stage.cluster.bootstrap_servers},
    )
    assert done.returncode == code, done
    return json.loads(done.stdout) if done.stdout else done.stderr.decode()


def test_a_plan_chooses_the_directories(stage: Stage, tmp_path: Path) -> None:
    topic = "planned"
    stage.admin.create_topics([NewTopic(topic, 1, 1)])
    before = stele(stage, "cluster", "log-dirs", "--topic-list", topic)
    assert [each["path"] for each in before] == sorted(stage.directories)
    (present,) = [each["path"] for each in before if each["replicas"]]
    (other,) = {*stage.directories} - {present}

    def plan(path: str) -> str:
        entry = {"topic": topic, "partition": 0, "replicas": [BROKER], "log_dirs": [path]}
        file = tmp_path / "plan.json"
        file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
        return str(file)

    said = stele(stage, "reassign", "execute", "-f", plan("/elsewhere"), code=1)
    assert f"has no log directory /elsewhere; it has {', '.join(sorted(stage.directories))}" in said
    throttle = ["--replica-alter-log-dirs-throttle", str(1 << 40)]
    told = stele(stage, "reassign", "execute", "-f", plan(other), *throttle)
    assert told["current"]["partitions"][0]["log_dirs"] == [present]
    assert told["target"]["partitions"][0]["log_dirs"] == [other]

    def verified() -> bool:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", "reassign", "verify", "-f", plan(other)],
            capture_output=True,
            timeout=60,
            env={**os.environ, "STELE_BOOTSTRAP_SERVER": stage.cluster.bootstrap_servers},
        )
        assert done.returncode == 0 or b"in progress" in done.stdout, done
        return done.returncode == 0

    until(verified)
    after = stele(stage, "cluster", "log-dirs", "--topic-list", topic)
    (directory,) = [each for each in after if each["replicas"]]
    assert directory["path"] == other
    assert directory["replicas"] == [
        {"topic": topic, "partition": 0, "size_bytes": 0, "offset_lag": 0, "is_future": False}
    ]
    with Admin(stage.cluster.bootstrap_servers) as admin:
        (entries,) = admin.describe_configs([OurResource.broker(BROKER)]).values()
    assert [each.source for each in entries if each.name == RATE] == ["DEFAULT"]


def test_a_move_between_directories_is_cancelled_by_its_plan(stage: Stage, tmp_path: Path) -> None:
    ((present, _),) = stage.places().items()
    (other,) = {*stage.directories} - {present}
    entry = {"topic": TOPIC, "partition": 0, "replicas": [BROKER], "log_dirs": [other]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    stele(
        stage, "reassign", "execute", "-f", str(plan), "--replica-alter-log-dirs-throttle", "1000"
    )
    assert stage.places() == {present: False, other: True}
    (cancelled,) = stele(stage, "reassign", "cancel", "-f", str(plan))
    assert cancelled == {"topic": TOPIC, "partition": 0, "broker_id": BROKER, "log_dir": present}
    assert stage.places() == {present: False}


def test_of_several_moves_the_refused_ones_are_named(stage: Stage) -> None:
    ((present, _),) = stage.places().items()
    with (
        Admin(stage.cluster.bootstrap_servers) as admin,
        pytest.raises(BulkError, match="unknown-0 on broker 1") as raised,
    ):
        admin.alter_replica_log_dirs({(TOPIC, 0, BROKER): present, ("unknown", 0, BROKER): present})
    assert list(raised.value.failed) == ["unknown-0 on broker 1"]
    assert list(raised.value.succeeded) == [(TOPIC, 0, BROKER)]
