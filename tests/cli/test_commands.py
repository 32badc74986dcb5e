"""What holds for every command. The test walks over the whole tree, so that it includes new
commands."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli import client_properties, main, profiles
from cli.command_list import first_sentence
from cli.output import table_lines
from runtime.config.node import from_environment
from tests.support.kafka_directories import KafkaDirectory, batch

PRINTS_ITS_OWN_FORMAT = {
    *("server", "dev logs", "demo", "console", "consume", "reassign generate", "spark run"),
    "share consume",
    *("users add", "users password", "users remove"),
    *("quotas set", "quotas remove", "tokens renew", "tokens expire"),
    *("profile add", "profile use", "profile remove"),
    *("telemetry subscribe", "telemetry unsubscribe"),
}
"""Commands without --json: they run in the foreground, print records or a plan already, or print no
data."""

SERVING = {"console"}
"""Commands that begin without a cluster, too: their pages say that it cannot be reached."""

PLAN = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}

ARGUMENTS = {
    "produce": ["t"],
    "consume": ["t"],
    "share consume": ["g", "--topic", "t"],
    "acls add": ["User:ann", "READ", "topic:t"],
    "acls list": [],
    "acls remove": ["--all"],
    "acls test": ["User:ann", "READ", "topic:t"],
    "topic create": ["t"],
    "topic list": [],
    "topic describe": ["t"],
    "topic delete": ["t"],
    "topic alter": ["t", "--config", "retention.ms=1000"],
    "topic configs": ["t"],
    "topic elect": ["t"],
    "share list": [],
    "share describe": ["g"],
    "share redrive": ["g"],
    "share reset": ["g", "--topic", "t", "--to-latest"],
    "share delete": ["g"],
    "share delete-offsets": ["g", "--topic", "t"],
    "doctor": [],
    "explain partition": ["t-0"],
    "explain topic": ["t"],
    "explain broker": ["1"],
    "explain group": ["g"],
    "whatif": ["--kill", "1"],
    "topic delete-records": ["t", "--partition", "0", "--before", "1"],
    "reassign generate": ["--topic", "t", "--broker-list", "1"],
    "reassign execute": ["-f", "PLAN"],
    "reassign verify": ["-f", "PLAN"],
    "reassign list": [],
    "reassign cancel": ["--all"],
    "cluster describe": [],
    "cluster unregister": ["1"],
    "cluster log-dirs": [],
    "cluster restart-check": ["1"],
    "quorum describe": [],
    "quorum transfer": ["--to", "1"],
    "quorum add-voter": [
        *("--id", "1", "--directory-id", "AAAAAAAAAAAAAAAAAAAAAQ", "--endpoint", "c1:9093"),
    ],
    "quorum remove-voter": ["--id", "1", "--directory-id", "AAAAAAAAAAAAAAAAAAAAAQ"],
    "features describe": [],
    "features upgrade": ["--metadata", "2"],
    "features downgrade": ["--metadata", "1"],
    "features disable": ["--feature", "f"],
    "group list": [],
    "group describe": ["g"],
    "group delete": ["g"],
    "group delete-offsets": ["g", "--topic", "t"],
    "group reset-offsets": ["g", "--topic", "t", "--to-earliest"],
    "users add": ["ann", "--password-file", "PLAN"],
    "users list": [],
    "users password": ["ann", "--password-file", "PLAN"],
    "users remove": ["ann"],
    "quotas set": ["--user", "ann", "producer_byte_rate=1000"],
    "quotas list": [],
    "quotas remove": ["--user", "ann"],
    "quotas why": ["ann"],
    "clients": [],
    "explain client": ["c"],
    "explain queue": ["g", "t-0"],
    "telemetry subscribe": ["m", "--metrics", "*"],
    "telemetry unsubscribe": ["m"],
    "telemetry list": [],
    "tokens create": [],
    "tokens list": [],
    "tokens renew": ["id"],
    "tokens expire": ["id"],
    "transaction list": [],
    "transaction describe": ["p"],
    "transaction describe-producers": ["--topic", "t", "--partition", "0"],
    "transaction find-hanging": [],
    "transaction abort": ["--topic", "t", "--partition", "0", "--start-offset", "1"],
    "transaction force-terminate": ["p"],
    "spark sweep": [],
    "import": ["LOGS"],
    "perf produce": [
        *("--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "1"),
    ],
    "perf consume": ["--topic", "t", "--messages", "1"],
    "perf end-to-end": ["--topic", "t", "--num-records", "1", "--record-size", "16"],
}
"""Of every command that asks a cluster: a use of it that is right."""


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, each in getattr(command, "commands", {}).items():
        yield from _walk(each, (*path, name))
    if not hasattr(command, "commands"):
        yield " ".join(path), command


COMMANDS = dict(_walk(typer.main.get_command(main.app), ()))


def _options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


ASKING = [name for name, command in COMMANDS.items() if "--timeout" in _options(command)]
ASKING.remove("verify mirror")  # asks two clusters: tests/acceptance/test_verify_mirror.py


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_listed_with_a_whole_sentence(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    *group, command = name.split()
    assert main.run([*group, "--help"]) == 0
    listed = "".join(capsys.readouterr().out.split())
    assert "".join((command + first_sentence(COMMANDS[name].help or "")).split()) in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    command = COMMANDS[name]
    assert (command.help or "").strip().endswith("."), "a sentence that says what it does"
    unexplained = [each.opts for each in command.params if not getattr(each, "help", None)]
    assert not unexplained


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_prints_data_prints_json(name: str) -> None:
    assert ("--json" in _options(COMMANDS[name])) != (name in PRINTS_ITS_OWN_FORMAT)


def test_every_command_that_asks_a_cluster_is_tried_without_one() -> None:
    asking = {name for name, each in COMMANDS.items() if "--bootstrap-server" in _options(each)}
    asking.remove("profile add")  # which writes the servers down
    assert asking - SERVING == set(ASKING) == set(ARGUMENTS)


def test_a_node_passes_by_the_variables_of_commands() -> None:
    """It would warn of an unknown configuration, were it started in the same shell."""
    variables = {
        each.envvar
        for command in COMMANDS.values()
        for each in command.params
        if isinstance(each.envvar, str)
    }
    variables |= {profiles.VARIABLE, client_properties.VARIABLE}
    assert {"STELE_BOOTSTRAP_SERVER", "STELE_METRICS_SERVERS"} <= variables
    assert from_environment(dict.fromkeys(variables, "x")) == {}


@pytest.fixture(params=["refuses", "is silent"])
def dead_server(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address at which no broker answers: connections are refused at once, or never answered."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        if request.param == "is silent":
            listening.listen(100)
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("name", ARGUMENTS)
def test_without_a_cluster_a_command_ends_in_time_and_says_so_once(
    name: str, dead_server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    kafka = KafkaDirectory(tmp_path / "logs")
    kafka.segment("t", 0, 0, [batch([0])])
    files = {"PLAN": str(tmp_path / "plan.json"), "LOGS": str(kafka.path)}
    arguments = [files.get(each, each) for each in ARGUMENTS[name]]
    if name.startswith("spark "):
        pytest.importorskip("stele.spark.exactly_once_sink")  # to import Spark takes seconds
    began = time.monotonic()
    servers = f"{dead_server},{dead_server}"
    code = main.run([*name.split(), *arguments, "-b", servers, "--timeout", "0.3"])
    assert code == main.EXIT_FAILED
    assert time.monotonic() - began < 5
    output = capsys.readouterr()
    assert output.out == ""
    said = output.err.splitlines()[-1]
    assert said.startswith("stele: ")
    assert dead_server in said or "no answer within" in said


# --------------------------------------------------------------------------------- tables

COLUMNS = ("NODE", "ROLE", "DIRECTORY ID", "ENDPOINT")
ROWS = [
    (1, "leader", "3Db5QLSqSZieL3rJBUUegA", "controller-1.example.com:9093"),
    (2, "voter", "AAAAAAAAAAAAAAAAAAAAAQ", None),
]


def test_a_table_that_fits_is_aligned() -> None:
    assert table_lines(COLUMNS, ROWS, 80) == [
        "NODE   ROLE     DIRECTORY ID             ENDPOINT",
        "1      leader   3Db5QLSqSZieL3rJBUUegA   controller-1.example.com:9093",
        "2      voter    AAAAAAAAAAAAAAAAAAAAAQ   -",
    ]
    assert table_lines(COLUMNS, ROWS, None) == table_lines(COLUMNS, ROWS, 200)


def test_a_table_that_is_too_wide_is_stacked() -> None:
    assert table_lines(COLUMNS, ROWS, 60) == [
        "NODE          1",
        "ROLE          leader",
        "DIRECTORY ID  3Db5QLSqSZieL3rJBUUegA",
        "ENDPOINT      controller-1.example.com:9093",
        "",
        "NODE          2",
        "ROLE          voter",
        "DIRECTORY ID  AAAAAAAAAAAAAAAAAAAAAQ",
    ]


@pytest.mark.parametrize("width", [1, 20, 40, 80, 200, None])
def test_no_cell_is_ever_cut(width: int | None) -> None:
    text = "\n".join(table_lines(COLUMNS, ROWS, width))
    assert all(str(cell) in text for row in ROWS for cell in row if cell is not None)


def test_a_table_without_rows_is_its_columns() -> None:
    assert table_lines(COLUMNS, [], 200) == ["NODE   ROLE   DIRECTORY ID   ENDPOINT"]
    assert table_lines(COLUMNS, [], 10) == table_lines(COLUMNS, [], 200)
