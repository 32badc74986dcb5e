"""The record of a cluster whose owner was killed, and what is left to end."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli import main
from cli.dev.cluster_record import (
    SERVING,
    STARTING,
    STOPPED,
    ClusterRecord,
    NodeRecord,
    read_record,
    write_record,
)
from cli.dev.process_identity import ProcessIdentity
from cli.options import EXIT_NOT_WELL

LONG_GONE = ProcessIdentity(os.getpid(), "at another time")
"""Its number means this process now, which no test survives that ends it."""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def record_of(*nodes: ProcessIdentity | None, owner: ProcessIdentity = LONG_GONE) -> ClusterRecord:
    return ClusterRecord(
        SERVING,
        1_764_300_000_000,
        None,
        owner,
        True,
        ("--dir", "/a b", "--combined"),
        "c3RlbGUtY29tcG9zZS0xMQ",
        "127.0.0.1:1",
        tuple(
            NodeRecord(number, f"broker-{number}", each, None, 1, 1, None, 1, "log", "config")
            for number, each in enumerate(nodes, 101)
        ),
    )


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    return identity


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for record in (record_of(LONG_GONE, None), dataclasses.replace(record_of(), state=STOPPED)):
        write_record(tmp_path, record)
        assert read_record(tmp_path) == record
    assert record.start_command == "stele dev --detach --dir '/a b' --combined"


def test_a_cluster_is_well_when_it_serves_and_not_before(tmp_path: Path) -> None:
    own = ProcessIdentity.of(os.getpid())
    assert own is not None
    for state, code in ((SERVING, main.EXIT_OK), (STARTING, EXIT_NOT_WELL)):
        write_record(tmp_path, dataclasses.replace(record_of(owner=own), state=state))
        assert main.run(["dev", "status", "--dir", str(tmp_path)]) == code


def test_settings_that_are_written_down_are_read_by_their_user_alone(tmp_path: Path) -> None:
    write_record(tmp_path, record_of())
    assert (tmp_path / "dev.json").stat().st_mode & 0o777 == 0o600


def test_a_record_of_an_owner_that_was_killed_is_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_record(tmp_path, record_of(LONG_GONE))
    assert main.run(["dev", "status", "--dir", str(tmp_path)]) == EXIT_NOT_WELL
    said = capsys.readouterr().out
    assert "no cluster runs" in said
    assert "kill -9" in said
    assert "stele dev --detach" in said
    assert main.run(["dev", "status", "--json", "--dir", str(tmp_path)]) == EXIT_NOT_WELL
    told = json.loads(capsys.readouterr().out)
    assert (told["is_running"], told["state"], told["pid"]) == (False, "killed", None)
    assert main.run(["dev", "restart", "101", "--dir", str(tmp_path)]) == main.EXIT_FAILED
    assert "no cluster runs" in capsys.readouterr().err


def test_stop_ends_the_nodes_that_a_killed_owner_left_and_no_other_process(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    write_record(tmp_path, record_of(LONG_GONE, identity_of(sleeper), None))
    assert main.run(["dev", "stop", "--json", "--dir", str(tmp_path)]) == main.EXIT_OK
    output = capsys.readouterr()
    assert json.loads(output.out)["ended"] == {"broker-102": "killed by SIGKILL"}
    assert f"broker-102 (pid {sleeper.pid})" in output.err
    assert sleeper.wait() == -9


def test_an_owner_that_cannot_be_asked_is_only_killed_on_request(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    write_record(tmp_path, record_of(owner=identity_of(sleeper)))
    assert main.run(["dev", "stop", "--dir", str(tmp_path)]) == main.EXIT_FAILED
    said = capsys.readouterr().err
    assert f"pid {sleeper.pid}" in said
    assert "--kill" in said
    assert sleeper.poll() is None
    assert main.run(["dev", "stop", "--kill", "--dir", str(tmp_path)]) == main.EXIT_OK
    assert sleeper.wait() == -9
    assert "SIGKILL" in capsys.readouterr().out


@pytest.mark.parametrize("command", [["status"], ["stop"], ["restart", "101"], ["logs"]])
def test_a_directory_without_a_cluster_is_refused(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["dev", *command, "--dir", str(tmp_path / "none")]) == main.EXIT_FAILED
    assert "stele dev has never run in" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_record_that_was_edited_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("", "[]", "{}", '{"owner": 1}'):
        (tmp_path / "dev.json").write_text(text)
        assert main.run(["dev", "status", "--dir", str(tmp_path)]) == main.EXIT_FAILED
        assert "is not what stele dev writes" in capsys.readouterr().err


def test_options_of_a_start_do_not_stand_before_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["dev", "--dir", str(tmp_path), "stop"]) == main.EXIT_USAGE
    assert "--dir before stop" in capsys.readouterr().err


def test_an_unknown_node_is_refused_with_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_record(tmp_path, record_of(None, None))
    assert main.run(["dev", "logs", "7", "--dir", str(tmp_path)]) == main.EXIT_FAILED
    assert "broker-101, broker-102" in capsys.readouterr().err
