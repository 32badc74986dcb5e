"""Small clusters of ``stele dev`` are whole: an unmodified client has transactions and groups."""

from __future__ import annotations

import os
import re
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from tests.acceptance.test_command_line import leftovers, read_until, start, stele

pytestmark = pytest.mark.processes

__all__ = ["leftovers"]


@pytest.fixture(
    params=[["--combined"], ["--brokers", "1"], ["--brokers", "2", "--controllers", "1"]],
    ids=" ".join,
)
def said(request: pytest.FixtureRequest, tmp_path: Path, leftovers: None) -> Iterator[str]:
    """What ``stele dev`` with these options says when it serves."""
    process = start("dev", *request.param, "--dir", str(tmp_path / "c"), "--base-port", "0")
    yield read_until(process, "Ctrl-C stops the cluster")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)


def test_transactions_and_groups_work_and_every_address_is_said(said: str, tmp_path: Path) -> None:
    bootstrap = said.split("Brokers", 1)[1].split()[0]
    assert stele("topic", "create", "t", "-p", "2", bootstrap=bootstrap).returncode == 0
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": str(uuid.uuid4())}
    )
    producer.init_transactions(30)
    for value in ("kept", "dropped", "kept"):
        producer.begin_transaction()
        producer.produce("t", value)
        if value == "kept":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["t"])
    values: list[bytes | None] = []
    while len(values) < 2:
        message = consumer.poll(30)
        assert message is not None, values
        assert message.error() is None
        values.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert values == [b"kept", b"kept"]

    configured = [each.read_text() for each in (tmp_path / "c").rglob("server.properties")]
    addresses = set(re.findall(r"127\.0\.0\.1:\d+", "".join(configured)))
    assert addresses == set(re.findall(r"127\.0\.0\.1:\d+", said))
