"""A cluster of ``stele dev`` that its own commands look at, restart, stop, and find killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cli.dev.cluster_record import ClusterRecord, read_record
from tests.acceptance.test_command_line import (
    assert_none_left,
    leftovers,
    one_line,
    read_until,
    start,
    stele,
)

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("leftovers")]

__all__ = ["leftovers"]

COMBINED = ("--combined", "--base-port", "0")


def record_in(directory: Path) -> ClusterRecord:
    record = read_record(directory)
    assert record is not None
    return record


def status_of(directory: Path, code: int) -> dict[str, Any]:
    done = stele("dev", "status", "--dir", str(directory), "--json")
    assert done.returncode == code, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_detached_cluster_from_its_start_to_its_end(tmp_path: Path) -> None:
    directory = tmp_path / ("long name " * 12)  # no address of a socket is so long
    named = ("--dir", str(directory))
    begun = stele("dev", "--detach", *COMBINED, *named)
    assert begun.returncode == 0, begun
    said = begun.stdout.decode()
    assert "stele dev stop --dir" in said
    bootstrap = said.split("Brokers", 1)[1].split()[0]
    assert "runs in" in one_line(stele("dev", "--detach", *COMBINED, *named))
    assert stele("topic", "create", "kept", bootstrap=bootstrap).returncode == 0
    assert stele("produce", "kept", bootstrap=bootstrap, stdin=b"kept\n").returncode == 0

    status = status_of(directory, 0)
    (node,) = status["nodes"]
    assert (status["state"], status["is_detached"]) == ("serving", True)
    assert (node["name"], node["state"]) == ("broker-controller-1", "serves")

    restarted = stele("dev", "restart", "1", "--json", *named)
    assert restarted.returncode == 0, restarted
    assert b"has stopped" in restarted.stderr
    (again,) = status_of(directory, 0)["nodes"]
    assert json.loads(restarted.stdout)["pid"] == again["pid"] != node["pid"]
    assert stele("consume", "kept", bootstrap=bootstrap).stdout == b"kept\n"

    logs = stele("dev", "logs", *named).stdout.decode()
    assert "broker-controller-1 was restarted" in logs
    assert "broker-controller-1 | " in logs

    stopped = stele("dev", "stop", *named)
    assert stopped.returncode == 0, stopped
    assert b"broker-controller-1 has stopped" in stopped.stderr
    assert_none_left(directory)
    assert status_of(directory, 3)["state"] == "stopped"
    assert b"stele dev stop" in stele("dev", "stop", *named).stdout


def test_a_cluster_whose_owner_was_killed_is_understood_and_begins_again(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    named = ("--dir", str(directory))
    assert stele("dev", "--detach", *COMBINED, *named).returncode == 0
    record = record_in(directory)
    os.kill(record.owner.pid, signal.SIGSTOP)
    said = one_line(stele("dev", "restart", "1", *named))
    assert "does not answer" in said
    assert f"pid {record.owner.pid}" in one_line(stele("dev", "stop", *named))
    os.kill(record.owner.pid, signal.SIGKILL)
    assert_none_left(directory)
    assert status_of(directory, 3)["state"] == "killed"
    begun = stele("dev", "--detach", *record.arguments)
    assert begun.returncode == 0, begun
    assert record_in(directory).cluster_id == record.cluster_id
    assert stele("dev", "stop", "--kill", *named).returncode == 0
    assert_none_left(directory)


def test_a_cluster_in_the_foreground_obeys_the_same_commands(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    process = start("dev", *COMBINED, "--dir", str(directory))
    read_until(process, "Ctrl-C stops the cluster")
    assert status_of(directory, 0)["is_detached"] is False
    assert stele("dev", "stop", "--dir", str(directory)).returncode == 0
    process.communicate(timeout=15)
    assert process.returncode == 0
    assert_none_left(directory)


def test_what_keeps_a_detached_cluster_from_its_start_is_said_by_its_command(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "cluster"
    wrong = ("--set", "log.dirs=/dev/null/data")
    said = one_line(stele("dev", "--detach", *COMBINED, "--dir", str(directory), *wrong))
    assert "/dev/null/data" in said
    assert_none_left(directory)
