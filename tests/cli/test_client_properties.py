"""``--command-config``: each command that asks a cluster can say who it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from cli.client_properties import OPTION, VARIABLE
from cli.main import app, run


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


def options(command: Any) -> set[str]:
    return {name for each in command.params for name in each.opts}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_commands_that_ask_a_cluster_take_client_properties(path: tuple[str, ...]) -> None:
    found = options(COMMANDS[path])
    asks = "--bootstrap-server" in found and path != ("profile", "add")
    assert asks == (OPTION in found) == ("--profile" in found)


def test_several_commands_ask_a_cluster() -> None:
    assert len([path for path, command in COMMANDS.items() if OPTION in options(command)]) > 30


def test_the_file_counts_before_the_cluster_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SLL")
    assert run(["topic", "list", OPTION, str(file)]) == 1
    assert "security_protocol='SLL' must be one of" in capsys.readouterr().err


def test_the_variable_names_a_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    for arguments in (["cluster", "describe"], ["produce", "t"], ["consume", "t"]):
        assert run(arguments) == 1
        assert "gone: the client properties cannot be read" in capsys.readouterr().err


def test_a_file_counts_for_its_own_command_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "list", OPTION, str(tmp_path / "gone")]) == 1
    capsys.readouterr()
    assert run(["topic", "list", "-b", "127.0.0.1:1", "--timeout", "0.2"]) == 1
    assert "client properties" not in capsys.readouterr().err
