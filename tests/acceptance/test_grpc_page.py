"""The programs of docs/grpc.md on a cluster of plaintext."""

from __future__ import annotations

import json
import re
import shutil
import sys
import time
from pathlib import Path

import pytest

from chaos.process_cluster import ProcessCluster
from stele import Admin, ConfigResource, Consumer, Producer
from tests.conftest import CreateTopic
from tests.support.acceptance import committed, grpc_port
from tests.support.page_programs import (
    ROOT,
    build_for_go,
    compile_for_python,
    install_for_node,
    program,
    run,
    with_compiled_stubs,
)

pytestmark = pytest.mark.processes


def check(output: str) -> None:
    """Three records were written to one partition, and read with these offsets."""
    written = re.findall(r"^written (\d+) (\d+)$", output, re.MULTILINE)
    read = re.findall(r"^read (\d+) (\d+) (line \d)$", output, re.MULTILINE)
    assert len(written) == 3
    assert read == [(*place, f"line {number}") for number, place in enumerate(written)]


def topic_that_ends_with_markers(cluster: ProcessCluster, create_topic: CreateTopic) -> str:
    """Each of its six partitions has one aborted record, and the marker of the transaction."""
    topic = create_topic(6)
    with Producer(cluster.bootstrap_servers, transactional_id=f"ends-{topic}") as producer:
        producer.begin_transaction()
        for partition in range(6):
            producer.send(topic, b"before", partition=partition).result()
        producer.abort_transaction()
    with Consumer(cluster.bootstrap_servers, isolation_level="read_committed") as consumer:
        names = [(topic, number) for number in range(6)]
        deadline = time.monotonic() + 30
        while set(consumer.end_offsets(names).values()) != {2}:
            assert time.monotonic() < deadline, "no markers"
    return topic


def test_python(process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path) -> None:
    compile_for_python(tmp_path)
    (tmp_path / "thin.py").write_text(with_compiled_stubs(program("python")))
    address = f"127.0.0.1:{grpc_port(process_cluster, 101)}"
    topic = topic_that_ends_with_markers(process_cluster, create_topic)
    check(run(sys.executable, "thin.py", address, topic, directory=tmp_path))


def test_transactions(
    process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    compile_for_python(tmp_path)
    source = with_compiled_stubs(program("python transactions"))
    (tmp_path / "transactions.py").write_text(source)
    address, topic = f"127.0.0.1:{grpc_port(process_cluster, 102)}", create_topic(3)
    output = run(sys.executable, "transactions.py", address, topic, directory=tmp_path)
    assert [line.strip() for line in output.splitlines()] == ["committed", "aborted"]
    found = committed(process_cluster.bootstrap_servers, topic)
    assert sorted(found) == [b"line 0", b"line 1", b"line 2"]


def queue_of_three(cluster: ProcessCluster, create_topic: CreateTopic) -> str:
    """A topic with three records, and a share group of its name that begins with the first."""
    topic = create_topic(3)
    with Admin(cluster.bootstrap_servers) as admin:
        earliest = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs({ConfigResource.group(topic): earliest})
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(3):
            producer.send(topic, b"line %d" % number, partition=number)
    return topic


def check_worker(output: str, cluster: ProcessCluster, topic: str) -> None:
    """It has worked on each record once and heard that each is done, and so it is."""
    lines = sorted(line.strip() for line in output.splitlines())
    assert lines == [
        *(f"acknowledged {each} 0" for each in range(3)),
        *(f"works on line {each} delivery 1" for each in range(3)),
    ]
    with Admin(cluster.bootstrap_servers) as admin:
        offsets = admin.list_share_group_offsets(topic)
    assert [each.lag for each in offsets.values()] == [0, 0, 0]


def test_python_worker(
    process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    compile_for_python(tmp_path)
    (tmp_path / "worker.py").write_text(with_compiled_stubs(program("python worker")))
    address = f"127.0.0.1:{grpc_port(process_cluster, 102)}"
    topic = queue_of_three(process_cluster, create_topic)
    output = run(sys.executable, "worker.py", address, topic, topic, "3", directory=tmp_path)
    check_worker(output, process_cluster, topic)


def test_node_worker(
    process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    install_for_node(tmp_path)
    (tmp_path / "worker.js").write_text(program("js worker"))
    address, proto = f"127.0.0.1:{grpc_port(process_cluster, 103)}", str(ROOT / "proto")
    topic = queue_of_three(process_cluster, create_topic)
    output = run("node", "worker.js", address, topic, topic, "3", proto, directory=tmp_path)
    check_worker(output, process_cluster, topic)


def test_node(process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path) -> None:
    install_for_node(tmp_path)
    (tmp_path / "thin.js").write_text(program("js"))
    address = f"127.0.0.1:{grpc_port(process_cluster, 103)}"
    proto = str(ROOT / "proto")
    topic = topic_that_ends_with_markers(process_cluster, create_topic)
    check(run("node", "thin.js", address, topic, proto, directory=tmp_path))


def test_go(process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path) -> None:
    build_for_go(program("go"), tmp_path)
    address = f"127.0.0.1:{grpc_port(process_cluster, 102)}"
    topic = topic_that_ends_with_markers(process_cluster, create_topic)
    check(run(str(tmp_path / "thin"), address, topic, directory=tmp_path))


def calls(page: str) -> list[str]:
    """Every call of grpcurl on the page."""
    blocks = re.findall(r"^```sh\n(grpcurl .*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [each for block in blocks for each in re.split(r"\n(?=grpcurl )", block.strip())]


def test_grpcurl(
    process_cluster: ProcessCluster, create_topic: CreateTopic, tmp_path: Path
) -> None:
    if shutil.which("grpcurl") is None:
        pytest.skip("grpcurl is not installed")
    topic = create_topic(6)
    address = f"127.0.0.1:{grpc_port(process_cluster, 101)}"
    publish, subscribe, member = (
        each.replace('"orders"', f'"{topic}"').replace("127.0.0.1:9192", address)
        for each in calls((ROOT / "docs/grpc.md").read_text())
    )
    written = json.loads(run("sh", "-c", publish, directory=tmp_path))
    (result,) = written["results"]
    assert "error" not in result
    # Ten records were granted and one is there, so the time that the page gives ends the call.
    for reading in (subscribe, member):
        found = run("sh", "-c", f"{reading} || true", directory=tmp_path)
        assert '"value": "aGVsbG8="' in found
        assert '"key": "NTM2MzY1"' in found
