"""The program of docs/clients.md that reads, transforms and writes exactly once, run as it stands
there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from stele import Consumer, Producer
from tests.conftest import CreateTopic

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
    with Consumer(
        servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([(target, each) for each in consumer.partitions_for(target)])
        ends = consumer.end_offsets(consumer.assignment())
        found: list[bytes | None] = []
        while any(consumer.position(*place) < end for place, end in ends.items()):
            found += [record.value for record in consumer.poll()]
    assert sorted(found) == sorted(b"ORDER %d" % each for each in range(COUNT))  # type: ignore[type-var]
