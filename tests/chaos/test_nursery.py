"""Nodes that a nursery forks: how they end, and what becomes of them without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.nursery import ForkedProcess, fork_command
from chaos.process_cluster import ClusterError, ProcessCluster

pytestmark = pytest.mark.processes

WITHIN_S = 30.0


def parent_of(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1])


def test_what_a_command_says_and_how_it_ends_is_known(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        missing = tmp_path / "no.properties"
        node = fork_command(("server", str(missing)), os.environ, log.fileno())
        other = fork_command(("no-such-command",), os.environ, log.fileno())
    assert node.wait(WITHIN_S) == node.poll() == node.returncode == 1
    assert other.wait() == 2
    node.kill()  # does nothing to whoever has its number now
    said = (tmp_path / "log").read_text()
    assert f"stele: cannot read {missing}" in said
    assert "no-such-command" in said


async def test_a_node_is_killed_and_begins_anew_also_without_its_nursery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The one that all tests of this process share has nodes of theirs.
    monkeypatch.setattr("chaos.nursery._nurseries", {})
    cluster = ProcessCluster(tmp_path, brokers=1, combined=True)
    await cluster.start()
    try:
        (node,) = cluster.nodes.values()
        process = node.process
        assert isinstance(process, ForkedProcess)
        assert os.getsid(process.pid) == process.pid
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        assert process.poll() is None
        cluster.kill(node.node_id)
        assert process.returncode == -signal.SIGKILL

        await cluster.restart(node.node_id)
        process = node.process
        assert process is not None
        os.kill(parent_of(process.pid), signal.SIGKILL)
        assert process.wait(WITHIN_S) == -signal.SIGKILL

        await cluster.restart(node.node_id)
        process = node.process
        assert process is not None
        await cluster.stop_node(node.node_id)
        assert process.returncode == 0
        node.environment["LANG"] = "C"
        await cluster.restart(node.node_id)
        assert parent_of(node.pid) == os.getpid()
    finally:
        await cluster.stop()


async def test_without_a_nursery_a_node_is_executed_and_says_itself_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.nursery._nurseries", {})
    monkeypatch.setattr("chaos.nursery.NURSERY", (sys.executable, "-c", "raise SystemExit(1)"))
    settings = {"min.insync.replicas": "none"}
    cluster = ProcessCluster(tmp_path, brokers=1, combined=True, settings=settings)
    with pytest.raises(ClusterError, match=r"min\.insync\.replicas=none"):
        await cluster.start()
    (node,) = cluster.nodes.values()
    assert isinstance(node.process, subprocess.Popen)


def test_a_signal_for_a_process_whose_end_is_on_its_way_is_no_error() -> None:
    """The nursery reaps a process before it says so."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    reads, writes = os.pipe()
    os.write(writes, b"%d\n" % ended.pid)
    process = ForkedProcess(reads)
    process.send_signal(signal.SIGTERM)
    assert process.poll() is None
    os.write(writes, b"7\n")
    assert process.wait() == 7
    os.close(writes)
