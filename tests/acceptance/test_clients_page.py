"""The program of docs/clients.md that reads, transforms and writes exactly once, run as it stands
there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.process_cluster import ProcessCluster
from stele import Producer, TransactionAbortableError
from tests.conftest import CreateTopic
from tests.support.acceptance import committed

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
COUNT = 60


def program() -> str:
    page = (ROOT / "docs/clients.md").read_text()
    (found,) = re.findall(r"^```python exactly-once\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return str(found)


def test_exactly_once(
    process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    servers, source, target = process_cluster.bootstrap_servers, create_topic(3), create_topic(2)
    with Producer(servers, transactional_id="source-of-the-page") as producer:
        for start in range(0, COUNT, 10):
            with producer.transaction():
                for number in range(start, start + 10):
                    producer.send(source, b"order %d" % number, key=b"%d" % number)
            producer.begin_transaction()
            producer.send(source, b"never", key=b"0")
            producer.flush()
            producer.abort_transaction()
    script = tmp_path / "shout.py"
    script.write_text(program())
    done = subprocess.run(
        [sys.executable, str(script), servers, source, target, str(COUNT)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = committed(servers, target)
    assert sorted(found) == sorted(b"ORDER %d" % each for each in range(COUNT))


def test_a_record_that_cannot_be_sent_is_not_left_out_silently(
    process_cluster: ProcessCluster, create_topic: CreateTopic
) -> None:
    """In the synchronous client only the delivery has the error, and a program may ignore it."""
    servers, topic = process_cluster.bootstrap_servers, create_topic(1)
    wrong: Any = "text, which is not bytes"
    with Producer(servers, transactional_id="careless") as producer:
        producer.begin_transaction()
        producer.send(topic, b"lost")
        producer.send(topic, wrong)
        with pytest.raises(TransactionAbortableError, match="must be bytes"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"kept")
    assert committed(servers, topic) == [b"kept"]
