"""The messages of a cluster of processes about a failed start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.process_cluster import THIS_VERSION, ClusterError, ProcessCluster

pytestmark = pytest.mark.processes


async def refusal(directory: Path, **settings: str) -> str:
    names = {key.replace("_", "."): value for key, value in settings.items()}
    cluster = ProcessCluster(directory, brokers=1, combined=True, settings=names)
    with pytest.raises(ClusterError) as caught:
        await cluster.start()
    await cluster.stop()
    return str(caught.value)


def logs_in(directory: Path) -> list[Path]:
    return list(directory.rglob("node.log"))


async def test_a_failed_start_is_reported_without_the_starts_before(tmp_path: Path) -> None:
    first = await refusal(tmp_path, min_insync_replicas="none")
    assert "min.insync.replicas=none" in first
    second = await refusal(tmp_path, ssl_keystore_location="/etc/keystore.jks")
    assert "ssl.keystore.location protects nothing" in second
    assert "min.insync.replicas" not in second
    assert "\n" not in second
    (log,) = logs_in(tmp_path)
    assert f"(its log: {log})" in second
    assert log.read_text().count("stele: ") == 2, "the log keeps them all"


async def test_a_node_of_another_version_is_formatted_and_executed_by_its_command(
    tmp_path: Path,
) -> None:
    cluster = ProcessCluster(tmp_path, brokers=1, combined=True)
    cluster.lay_out()
    (node,) = cluster.nodes.values()
    script = tmp_path / "stele-of-another-version"
    command = " ".join(THIS_VERSION)
    script.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/called\nexec {command} "$@"\n')
    script.chmod(0o755)
    node.command = (str(script),)
    await cluster.start()
    await cluster.stop()
    assert (tmp_path / "called").read_text() == "format\nserver\n"


async def test_what_another_version_says_of_a_format_that_failed_is_told(tmp_path: Path) -> None:
    cluster = ProcessCluster(tmp_path, brokers=1, combined=True)
    cluster.lay_out()
    cluster.nodes[1].command = (*THIS_VERSION, "--no-such-option")
    with pytest.raises(ClusterError, match="No such option: --no-such-option"):
        await cluster.start()


async def test_a_second_cluster_in_a_directory_changes_nothing_there(tmp_path: Path) -> None:
    first = ProcessCluster(tmp_path, brokers=1, combined=True)
    await first.start()
    try:
        (node,) = first.nodes.values()
        config = node.config_file.read_text()
        second = ProcessCluster(tmp_path, brokers=1, combined=True)
        with pytest.raises(ClusterError, match=r"a cluster runs in .* already: stop it, or choose"):
            await second.start()
        assert node.config_file.read_text() == config
        assert node.running
    finally:
        await first.stop()
    again = ProcessCluster(tmp_path, brokers=1, combined=True)
    await again.start()
    await again.stop()


def test_a_node_that_has_ended_is_neither_paused_nor_resumed(tmp_path: Path) -> None:
    """Its process id may be that of another process by now."""
    cluster = ProcessCluster(tmp_path, brokers=1)
    cluster.lay_out()
    node = cluster.nodes[101]
    with pytest.raises(ClusterError, match="broker-101 does not run"):
        cluster.pause(101)
    node.process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    node.process.wait()
    for signal_node in (cluster.pause, cluster.resume):
        with pytest.raises(ClusterError, match="broker-101 ended with exit code 3: it said"):
            signal_node(101)
