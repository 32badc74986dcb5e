"""The command line without a cluster: help, errors, typos, formatting directories, dumps."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from broker.coordinator.group.consumer.records import (
    ClassicMember,
    CurrentAssignment,
    GroupValue,
    Kind,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    TargetEpoch,
    current_record,
    group_value_record,
    member_record,
    regex_record,
    target_epoch_record,
    target_record,
    tombstone,
)
from broker.coordinator.group.records import (
    CommittedOffset,
    OffsetKey,
    RecordedGroup,
    RecordedMember,
    group_record,
    offset_record,
)
from broker.coordinator.group.types import MemberProtocol
from broker.coordinator.step import KeyValue
from cli import main, output
from cli.offsets_decoder import decode_record
from cli.server import write_audit
from metadata.records import encode
from metadata.scram_credentials import ScramUser, credential_record
from runtime.audit_events import CONNECTIONS
from runtime.log_format import AUDIT_LOGGER
from stele.ids import TopicPartition
from stele.security.scram import ScramCredential
from stele.wire.batch import BatchBuilder, Record

COMMANDS = [
    [],
    ["format"],
    ["server"],
    ["dev"],
    ["dev", "status"],
    ["top"],
    ["topic"],
    ["topic", "create"],
    ["topic", "list"],
    ["topic", "describe"],
    ["topic", "delete"],
    ["topic", "alter"],
    ["topic", "delete-records"],
    ["topic", "configs"],
    ["reassign", "generate"],
    ["reassign", "execute"],
    ["reassign", "verify"],
    ["reassign", "list"],
    ["reassign", "cancel"],
    ["produce"],
    ["consume"],
    ["cluster", "describe"],
    ["cluster", "unregister"],
    ["quorum", "describe"],
    ["log", "dump"],
    ["demo"],
    ["version"],
]


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*command, "--help"]) == 0
    assert "Usage: stele" in capsys.readouterr().out


def test_help_loads_neither_grpc_nor_a_server() -> None:
    code = (
        "import sys; from cli import main; main.run(['--help']);"
        "bad = {'grpc', 'asyncio', 'node', 'broker', 'prometheus_client'} & set(sys.modules);"
        "sys.exit(f'loaded: {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["topik"], "stele: No such command 'topik'. Did you mean 'topic', 'top'?\n"),
        (["topic", "lst"], "stele: No such command 'lst'. Did you mean 'list'?\n"),
        (["topic", "create"], "stele: Missing argument 'NAME'.\n"),
        (["consume", "t", "--fromat", "json"], "--format"),
        (["consume", "t", "--format", "xml"], "'xml' is not one of"),
        (["consume"], "which topics?"),
        (["consume", "t", "--pattern", "t.*"], "give topics or --pattern, not both"),
        (["consume", "--pattern", "("], "is no regular expression"),
        (["consume", "t", "--last", "3", "--offset", "1"], "--offset and --last exclude"),
        (["consume", "t", "--last", "3", "--max", "3"], "--last and --max exclude"),
        (["consume", "t", "--follow", "--until-end"], "--follow and --until-end exclude"),
        (["consume", "t", "--group", "g", "--from-time", "1h"], "stele group reset-offsets moves"),
        (["consume", "t", "--from-time", "soon"], "'soon' is no time"),
        (["produce", "t", "f", "--file", "g"], "FILE... are whole records"),
        (["produce", "t", "f", "--key-separator", ":"], "give --key"),
        (["produce", "t", "--header", "=x"], "not of the form name=value"),
        (["topic", "create", "t", "--config", "nonsense"], "not of the form name=value"),
        (["topic", "alter", "t"], "nothing to change"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == main.EXIT_USAGE
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["server", "/nonexistent"], "cannot read /nonexistent"),
        (["log", "dump", "/nonexistent.log"], "is no file"),
        (["topic", "list", "-b", "localhost"], "host:port"),
    ],
)
def test_failures_are_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == main.EXIT_FAILED
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_nobody_at_the_port(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = unused_port()
    monkeypatch.setenv("STELE_BOOTSTRAP_SERVER", f"127.0.0.1:{port}")
    assert main.run(["topic", "list", "--timeout", "0.3"]) == main.EXIT_FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"127.0.0.1:{port}" in last
    assert "Are these the Kafka ports" in last


def test_version_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stele"]


def properties(directory: Path) -> Path:
    file = directory / "server.properties"
    file.write_text(
        "node.id=1\nprocess.roles=controller\n"
        "controller.quorum.voters=1@127.0.0.1:19093\n"
        f"log.dirs={directory}/data\n"
    )
    return file


def test_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(properties(tmp_path))
    assert main.run(["format", "-c", config, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["formatted"] == [f"{tmp_path}/data"]
    assert main.run(["format", "-c", config]) == main.EXIT_FAILED
    assert "--ignore-formatted" in capsys.readouterr().err
    again = ["format", "-c", config, "--ignore-formatted", "--cluster-id", made["cluster_id"]]
    assert main.run(again) == 0
    assert "left as it was" in capsys.readouterr().out
    other = ["format", "-c", config, "--ignore-formatted", "--cluster-id", "another"]
    assert main.run(other) == main.EXIT_FAILED


def test_format_with_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["format", "-c", str(properties(tmp_path)), "--cluster-id", "cluster"]
    wrong = [*line, "--add-scram", "SCRAM-SHA-256=[name=ann]"]
    assert main.run(wrong) == main.EXIT_FAILED
    assert "--add-scram: give user 'ann' either password" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
    user = ["--add-scram", "SCRAM-SHA-256=[name=ann,password=secret]"]
    assert main.run([*line, *user]) == 0
    assert "--add-scram" not in capsys.readouterr().err
    assert main.run([*line, *user, "--ignore-formatted"]) == 0
    assert "--add-scram has no effect: the metadata directory was formatted before" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("command", [["format", "-c"], ["server"], ["doctor", "-c"]])
def test_controllers_that_ask_for_a_login(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = properties(tmp_path)
    mapped = "listener.security.protocol.map=CONTROLLER:SASL_SSL\nsasl.enabled.mechanisms=PLAIN\n"
    config.write_text(config.read_text() + mapped)
    assert main.run([*command, str(config)]) == main.EXIT_FAILED
    said = capsys.readouterr().err
    assert "controllers cannot let anybody log in" in said
    assert "CONTROLLER:SSL in listener.security.protocol.map" in said
    assert not (tmp_path / "data").exists()


def test_the_file_of_the_audit_log_may_be_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = logging.getLogger(AUDIT_LOGGER)
    monkeypatch.setattr(audit, "handlers", [])
    monkeypatch.setattr(audit, "propagate", True)
    levels = {each: each.level for each in (audit, logging.getLogger(CONNECTIONS))}
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    try:
        write_audit(str(path))
        audit.info("before")
        path.rename(moved)
        audit.info("after")
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
        for each in audit.handlers:
            each.close()
    assert (moved.read_text(), path.read_text()) == ("before\n", "after\n")


def test_server_refuses_bad_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(properties(tmp_path))
    code = main.run(["server", config, "--set", "process.roles=king"])
    assert code == main.EXIT_FAILED
    assert "process.roles" in capsys.readouterr().err


def test_a_server_dies_with_its_parent(tmp_path: Path) -> None:
    """The parent starts it and is killed at once. The child notices this on Linux."""
    config = properties(tmp_path)
    main.run(["format", "-c", str(config)])
    server = [sys.executable, "-m", "cli.main", "server", str(config), "--set", "metrics.listener="]
    script = (
        "import os, subprocess, time\n"
        f"command = {server!r} + ['--exit-with-parent', str(os.getpid())]\n"
        "print(subprocess.Popen(command, stderr=subprocess.DEVNULL).pid, flush=True)\n"
        "time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    status = Path(f"/proc/{child}/cmdline")
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while status.exists() and status.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not status.exists() or not status.read_bytes(), "the child outlived its parent"


def test_log_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"hello", timestamp_ms=5)
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(builder.build())
    assert main.run(["log", "dump", str(file), "--records"]) == 0
    assert "hello" in capsys.readouterr().out
    assert main.run(["log", "dump", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)[str(file)]) == 1


def test_log_dump_hides_credentials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    credential = ScramCredential(b"hidden", b"hidden", b"hidden", 4096)
    builder = BatchBuilder()
    record = encode(credential_record(ScramUser("alice", 1), credential))
    builder.append(None, record, timestamp_ms=5)
    builder.append(None, b"\x82\x01\xffhidden", timestamp_ms=5)
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    for name in ("00000000000000000000.log", "00000000000000000005-0000000001.checkpoint"):
        (folder / name).write_bytes(builder.build())
        for format_ in ([], ["--json"]):
            assert main.run(["log", "dump", str(folder / name), "--records", *format_]) == 0
            said = capsys.readouterr().out
            shown = bytes.hex if format_ else bytes.decode
            assert shown(b"alice") in said
            assert shown(b"hidden") not in said
            assert "unreadable" in said


def test_log_dump_says_what_is_in_the_offsets_topic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_offset = OffsetKey("readers", TopicPartition("orders", 3))
    member = RecordedMember("m-1", None, "c", "/10.0.0.1", 60_000, 10_000, b"\0\1", b"\xff")
    group = RecordedGroup("consumer", 4, "range", "m-1", 99, (member,))
    records = [
        offset_record(of_offset, CommittedOffset(42, 5, "so far", 77, topic_id=bytes(15) + b"\1")),
        offset_record(of_offset, CommittedOffset(43, -1, "", 78, expire_time_ms=79)),
        group_record("readers", group),
        offset_record(of_offset, None),
    ]
    builder = BatchBuilder()
    for key, value in [*records, (b"\0\x63", b"?")]:
        builder.append(key, value, timestamp_ms=5)
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(builder.build())
    assert main.run(["log", "dump", str(file), "--offsets-decoder", "--json"]) == 0
    _, *rows = json.loads(capsys.readouterr().out)[str(file)]
    named = {"type": "1", "data": {"group": "readers", "topic": "orders", "partition": 3}}
    assert [row["key"] for row in rows] == [
        named, named, {"type": "2", "data": {"group": "readers"}}, named, "0063",
    ]  # fmt: skip
    offset = {"offset": 42, "leaderEpoch": 5, "metadata": "so far", "commitTimestamp": 77}
    old = {"offset": 43, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 78}
    assert rows[0]["payload"] == {
        "version": "4", "data": offset | {"topicId": "AAAAAAAAAAAAAAAAAAAAAQ"},
    }  # fmt: skip
    assert rows[1]["payload"] == {"version": "1", "data": old | {"expireTimestamp": 79}}
    told = rows[2]["payload"]["data"]
    assert (told["generation"], told["leader"], told["currentStateTimestamp"]) == (4, "m-1", 99)
    assert told["members"][0]["subscription"] == "AAE="
    assert told["members"][0]["assignment"] == "/w=="
    assert rows[3]["payload"] is None
    assert rows[4]["error"] == "a key of version 99"
    assert main.run(["log", "dump", str(file), "--offsets-decoder"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        'key={"type": "1", "data": {"group": "readers", "topic": "orders", "partition": 3}}'
        in (lines[2])
    )
    assert "payload=None" in lines[5]


def consumer_protocol_records() -> list[tuple[KeyValue, str, dict[str, Any], dict[str, Any]]]:
    """Each with its type, and what its key and its value say with the names of Kafka's schemas."""
    topic_id = bytes(15) + b"\1"
    told = MemberMetadata("i", None, "c", "/h", ("a", "b"), "x.*", 7, "range")
    classic = told._replace(classic=ClassicMember(9, (MemberProtocol("range", b"\0\1"),)))
    current = CurrentAssignment(
        3, 2, MemberState.UNREVOKED_PARTITIONS, {topic_id: frozenset({1, 0})}, {}
    )
    partitions = [{"topicId": "AAAAAAAAAAAAAAAAAAAAAQ", "partitions": [0, 1]}]
    member = {
        "instanceId": "i",
        "rackId": None,
        "clientId": "c",
        "clientHost": "/h",
        "subscribedTopicNames": ["a", "b"],
        "subscribedTopicRegex": "x.*",
        "rebalanceTimeoutMs": 7,
        "serverAssignor": "range",
    }
    protocols = {
        "sessionTimeoutMs": 9,
        "supportedProtocols": [{"name": "range", "metadata": "AAE="}],
    }
    of_group, of_member = {"groupId": "g"}, {"groupId": "g", "memberId": "m"}
    return [
        (group_value_record("g", GroupValue(4, 5)), "3", of_group, {"epoch": 4, "metadataHash": 5}),
        (member_record("g", "m", told), "5", of_member, member),
        (
            member_record("g", "m", classic),
            "5",
            of_member,
            member | {"classicMemberMetadata": protocols},
        ),
        (target_epoch_record("g", TargetEpoch(6)), "6", of_group, {"assignmentEpoch": 6}),
        (
            target_epoch_record("g", TargetEpoch(6, 7)),
            "6",
            of_group,
            {"assignmentEpoch": 6, "assignmentTimestamp": 7},
        ),
        (
            target_record("g", "m", {topic_id: frozenset({0, 1})}),
            "7",
            of_member,
            {"topicPartitions": partitions},
        ),
        (
            current_record("g", "m", current),
            "8",
            of_member,
            {
                "memberEpoch": 3,
                "previousMemberEpoch": 2,
                "state": 1,
                "assignedPartitions": partitions,
                "partitionsPendingRevocation": [],
            },
        ),
        (
            regex_record("g", "x.*", ResolvedRegex(("x1",), 8, 9)),
            "16",
            {"groupId": "g", "regularExpression": "x.*"},
            {"topics": ["x1"], "version": 8, "timestamp": 9},
        ),
    ]


def test_groups_of_the_consumer_protocol_are_decoded_too() -> None:
    for (key, value), kind, named, data in consumer_protocol_records():
        assert decode_record(Record(0, 0, key, value)) == {
            "key": {"type": kind, "data": named},
            "payload": {"version": "0", "data": data},
        }
        assert decode_record(Record(0, 0, key, None))["payload"] is None
    with pytest.raises(ValueError, match="not recorded since"):
        decode_record(Record(0, 0, tombstone(Kind.PARTITIONS, "g").key, b"\0\0"))


def test_tables_and_suggestions(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("A", "B"), [("x" * 300, None)])
    out = capsys.readouterr().out
    assert "x" * 300 in out, "a table that is no terminal's is not cut"
    assert "-" in out
    assert output.did_you_mean("oders", ["orders"]) == " Did you mean 'orders'?"
    assert output.did_you_mean("zzz", ["orders"]) == ""
