"""What the shell is offered: commands, and topics and groups of the cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import typer

from cli.completion import complete_group, complete_topic
from stele.errors import UnreachableError
from tests.cli.test_commands import COMMANDS


class FakeAdmin:
    """A cluster with three topics and two groups. ``asked``: the servers and time-outs."""

    asked: list[tuple[str, int]]
    error: Exception | None = None

    def __init__(self, servers: str, **options: Any) -> None:
        FakeAdmin.asked.append((servers, options["total_timeout_ms"]))

    def __enter__(self) -> Self:
        if FakeAdmin.error is not None:
            raise FakeAdmin.error
        return self

    def __exit__(self, *_: object) -> None: ...

    def list_topics(self, linearizable: bool = True) -> list[SimpleNamespace]:
        names = ("orders", "payments", "__consumer_offsets")
        return [SimpleNamespace(name=each) for each in names]

    def list_groups(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(group_id=each) for each in ("billing", "reports")]


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("stele.sync.Admin", FakeAdmin)
    monkeypatch.setattr(FakeAdmin, "asked", [], raising=False)


def context(name: str, *arguments: str) -> typer.Context:
    """The command with these arguments, as far as they are typed."""
    made: typer.Context = COMMANDS[name].make_context(name, list(arguments), resilient_parsing=True)
    return made


@pytest.mark.parametrize(
    ("complete", "incomplete", "offered"),
    [
        (complete_topic, "", ["orders", "payments"]),
        (complete_topic, "o", ["orders"]),
        (complete_topic, "__", ["__consumer_offsets"]),
        (complete_group, "b", ["billing"]),
    ],
)
def test_names_are_those_of_the_cluster(
    complete: Callable[[typer.Context, str], list[str]], incomplete: str, offered: list[str]
) -> None:
    assert complete(context("topic describe", "-b", "h:1"), incomplete) == offered
    assert FakeAdmin.asked == [("h:1", 1000)]


def test_without_an_answer_nothing_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeAdmin, "error", UnreachableError("gone"))
    assert complete_topic(context("consume"), "") == []


@pytest.mark.parametrize(
    ("name", "number", "offered"),
    [
        ("consume", 0, "orders"),
        ("produce", 0, "orders"),
        ("topic describe", 0, "orders"),
        ("topic delete", 0, "orders"),
        ("group describe", 0, "billing"),
    ],
)
def test_arguments_that_name_topics_and_groups_are_completed(
    name: str, number: int, offered: str
) -> None:
    parameter = COMMANDS[name].params[number]
    found = parameter.shell_complete(context(name, "-b", "h:1"), offered[:2])
    assert [each.value for each in found] == [offered]


@pytest.mark.parametrize(
    ("words", "count", "offered"),
    [
        ("stele topi", 1, "topic"),
        ("stele topic desc", 2, "describe"),
        ("stele consume --unt", 2, "--until-end"),
    ],
)
def test_the_shell_is_offered_commands_and_options(words: str, count: int, offered: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cli"],
        env={"_STELE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == [offered], done


def test_completion_is_installed_for_bash(tmp_path: Path) -> None:
    """The command finds out which shell has called it, so bash calls it here."""
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m cli --install-completion; exit $?"],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    installed = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert any("_STELE_COMPLETE=complete_bash" in each.read_text() for each in installed)
