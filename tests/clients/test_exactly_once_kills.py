"""Reading, transforming and writing exactly once while everything that takes part is killed: the
processes that do it, a leader, and the coordinators of transactions and of the group. One of the
processes speaks gRPC, the other one Kafka's protocol.

``STELE_KILL_ROUNDS=20`` kills for longer.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from metadata.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC, coordinating_partition
from stele import Admin, Consumer, Producer
from tests.conftest import CreateTopic

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("STELE_KILL_ROUNDS", "1"))
PARTITIONS = 4
PROGRESS = 40
"""The least number of records that are copied between two kills."""
WITHIN_S = 120.0


class Copier:
    """A process that copies. It is started again with the same transactional id."""

    def __init__(self, number: int, directory: Path, *arguments: str) -> None:
        self._arguments = (*arguments, f"{arguments[-1]}-{number}")
        self._log = directory / f"copier-{number}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def transactional_id(self) -> str:
        return self._arguments[-1]

    @property
    def said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.copier", *self._arguments],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Source(threading.Thread):
    """Writes numbers until ``end``."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        self._servers = bootstrap
        self._topic = topic
        self._end = threading.Event()
        self.count = 0

    def run(self) -> None:
        with Producer(self._servers) as producer:
            while not self._end.wait(0.02):
                key = b"%d" % self.count
                producer.send(self._topic, b"order %d" % self.count, key=key)
                self.count += 1

    def end(self) -> int:
        """Stop. Returns how many numbers were written; all were acknowledged."""
        self._end.set()
        self.join()
        return self.count


class Target:
    """What readers of committed records get."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        self._consumer.assign([(topic, each) for each in self._consumer.partitions_for(topic)])
        self.values: list[bytes | None] = []

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: {len(self.values)} copied"
            self.values += [record.value for record in self._consumer.poll(timeout_ms=200)]

    def close(self) -> None:
        self._consumer.close()


def leader(admin: Admin, topic: str, partition: int) -> int:
    (described,) = admin.describe_topics([topic])
    found = described.partitions[partition].leader
    assert found is not None
    return found


def coordinator(admin: Admin, topic: str, key: str) -> int:
    (described,) = admin.describe_topics([topic])
    return leader(admin, topic, coordinating_partition(key, len(described.partitions)))


def test_every_record_is_copied_exactly_once(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic, tmp_path: Path
) -> None:
    source, target = create_topic(PARTITIONS), create_topic(PARTITIONS)
    group = f"copiers-of-{source}"
    copiers = [Copier(number, tmp_path, bootstrap, source, target, group) for number in range(2)]
    written, read = Source(bootstrap, source), Target(bootstrap, target)

    def progress(what: str) -> None:
        wanted = len(read.values) + PROGRESS
        read.until(lambda: len(read.values) >= wanted, what)

    def victims() -> list[tuple[str, int]]:
        with Admin(bootstrap) as admin:
            return [
                ("coordinator of transactions", coordinator(
                    admin, TRANSACTION_TOPIC, copiers[0].transactional_id)),
                ("coordinator of the group", coordinator(admin, GROUP_TOPIC, group)),
                ("leader", leader(admin, target, 0)),
            ]  # fmt: skip

    killed: int | None = None
    try:
        written.start()
        for each in copiers:
            each.start()
        progress("the copiers begin")
        for number in range(ROUNDS):
            copiers[number % 2].kill()
            progress("the other copier takes over")
            copiers[number % 2].start()
            progress("the copier is back")
            for place in range(3):
                name, killed = victims()[place]
                process_cluster.kill(killed)
                progress(f"without the {name}")
                asyncio.run(process_cluster.restart(killed))
                killed = None
                progress(f"the {name} is back")
        count = written.end()
        read.until(lambda: len(set(read.values)) >= count, "everything is copied")
    finally:
        written.end()
        for each in copiers:
            each.kill()
        if killed is not None:
            asyncio.run(process_cluster.restart(killed))
        read.close()
        for each in copiers:
            print(each.transactional_id, each.said[-3000:])
    twice = {value: times for value, times in Counter(read.values).items() if times > 1}
    assert twice == {}
    assert set(read.values) == {b"ORDER %d" % each for each in range(count)}
