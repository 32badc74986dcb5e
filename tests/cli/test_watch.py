"""``--watch``: which commands have it, and what it shows when."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import typer

from cli import main
from cli.command_list import CommandList
from cli.interruption import EXIT_INTERRUPTED
from cli.options import Json, Timeout
from cli.output import CommandError, UsageError
from cli.watch import watch, with_seconds
from tests.cli.test_commands import ASKING, COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_shows_the_state_of_a_cluster_can_be_watched(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*name.split(), "--help"]) == 0
    verb = name.split()[-1]
    shows = verb in ("describe", "list", "log-dirs", "clients") and name in ASKING
    assert ("--watch [SECONDS]" in capsys.readouterr().out) == shows


@pytest.mark.parametrize(
    ("typed", "taken"),
    [
        (["t", "--watch"], ["t", "--watch", "2.0"]),
        (["--watch", "t"], ["--watch", "2.0", "t"]),
        (["--watch", "--json"], ["--watch", "2.0", "--json"]),
        (["--watch", "5", "t"], ["--watch", "5", "t"]),
        (["--watch=0.5", "t"], ["--watch=0.5", "t"]),
        (["--watch", "nan", "t"], ["--watch", "2.0", "nan", "t"]),
        (["--", "--watch"], ["--", "--watch"]),
        ([], []),
    ],
)
def test_the_seconds_may_be_left_out(typed: list[str], taken: list[str]) -> None:
    assert with_seconds(typed) == taken


class Clock:
    """Ctrl-C comes after so many pauses."""

    def __init__(self, pauses: int) -> None:
        self.left = pauses
        self.seconds: list[float] = []

    def pause(self, seconds: float) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.seconds.append(seconds)


def looking(*told: str | Exception) -> Callable[[], None]:
    looks = iter(told)

    def look() -> None:
        found = next(looks)
        if isinstance(found, Exception):
            raise found
        print(found)

    return look


def test_looks_follow_one_another_and_an_error_is_shown_among_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock(2)
    look = looking("one", CommandError("no broker\nanswers"), "three")
    with pytest.raises(KeyboardInterrupt):
        watch(look, 5.0, "title", clock.pause)
    assert capsys.readouterr().out == "one\n\nstele: no broker answers\n\nthree\n\n"
    assert clock.seconds == [5.0, 5.0]


def test_an_error_of_the_first_look_ends_the_command() -> None:
    with pytest.raises(CommandError, match="no topic"):
        watch(looking(CommandError("no topic")), 5.0, "title", Clock(0).pause)


def test_a_wrong_usage_ends_the_command_at_any_time() -> None:
    with pytest.raises(UsageError):
        watch(looking("one", UsageError("nonsense")), 5.0, "title", Clock(1).pause)


def test_each_look_has_the_arguments_of_the_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = typer.Typer(cls=CommandList)

    @app.command("describe")
    def describe(name: str, as_json: Json = False, timeout: Timeout = 3.0) -> None:
        print(name, as_json, timeout)

    @app.command("other")
    def other() -> None: ...

    clock = Clock(1)
    monkeypatch.setattr("cli.watch.time.sleep", clock.pause)
    code = app(["describe", "t", "--watch", "--json"], standalone_mode=False)
    assert code == EXIT_INTERRUPTED
    assert capsys.readouterr().out == "t True 3.0\n\nt True 3.0\n\n"
    assert clock.seconds == [2.0]
