"""``--watch [SECONDS]``: a command that shows something shows it again and again, until Ctrl-C.

The option is added to each command of these names that asks a cluster, so that none lacks it.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import datetime
from io import StringIO
from typing import Any, Final

from cli.output import CommandError, UsageError
from stele.errors import SteleError

WATCHED: Final = frozenset({"describe", "list", "log-dirs", "clients"})
DEFAULT_S: Final = 2.0
_OPTION: Final = "--watch"

_watching: list[str] = []  # the title of the command that shows itself again and again


def is_watching() -> bool:
    """Whether there will be another look: a command may then compare it with this one."""
    return bool(_watching)


def add_watch(name: str, command: Any) -> None:
    """Give a command the option, if it has such a name and asks a cluster."""
    options = {text: each for each in command.params for text in each.opts}
    if name not in WATCHED or "--timeout" not in options or _OPTION in options:
        return
    # A copy, because the constructor's arguments differ between typer's versions.
    added = copy.copy(options["--timeout"])
    added.name, added.opts, added.secondary_opts = "watch", [_OPTION], []
    added.default, added.show_default, added.metavar = None, False, "[SECONDS]"
    added.help = f"Show it again every so many seconds (default: {DEFAULT_S:.0f}), until Ctrl-C."
    command.params.append(added)
    parse, run = command.parse_args, command.invoke

    def parse_args(context: Any, arguments: list[str]) -> Any:
        return parse(context, with_seconds(arguments))

    def invoke(context: Any) -> Any:
        seconds = context.params.pop("watch", None)
        if seconds is None:
            return run(context)
        given = dict(context.params)

        def look() -> None:
            context.params = dict(given)  # a command may take from them what it has read
            run(context)

        return watch(look, seconds, context.command_path, time.sleep)

    command.parse_args, command.invoke = parse_args, invoke


def with_seconds(arguments: Sequence[str]) -> list[str]:
    """The option always with its value: a number that follows it, or else the default."""
    found: list[str] = []
    for place, each in enumerate(arguments):
        if each == "--":
            return [*found, *arguments[place:]]
        found.append(each)
        if each == _OPTION and not _is_number(arguments[place + 1 : place + 2]):
            found.append(str(DEFAULT_S))
    return found


def _is_number(following: Sequence[str]) -> bool:
    try:
        return bool(following) and float(following[0]) == float(following[0])
    except ValueError:
        return False


def watch(
    look: Callable[[], None],
    seconds: float,
    title: str,
    pause: Callable[[float], None],
) -> None:
    """An error of the first look ends the command. Later ones are shown in place of what it
    shows: a cluster that is restarted comes back."""
    _watching[:] = [title]
    try:
        with _shown(title, seconds) as show:
            show(_looked(look, is_first=True))
            while True:
                pause(seconds)
                show(_looked(look, is_first=False))
    finally:
        _watching.clear()


def _looked(look: Callable[[], None], *, is_first: bool) -> str:
    output = _Captured()
    try:
        with redirect_stdout(output), redirect_stderr(output):
            look()
    except UsageError:
        raise
    except (CommandError, SteleError, OSError) as error:
        if is_first:
            raise
        output.write(f"stele: {' '.join(str(error).split())}\n")
    return output.getvalue()


class _Captured(StringIO):
    """Tables are made for the terminal on which they will be."""

    def __init__(self) -> None:
        super().__init__()
        self._is_terminal = sys.stdout.isatty()

    def isatty(self) -> bool:
        return self._is_terminal


@contextmanager
def _shown(title: str, seconds: float) -> Iterator[Callable[[str], None]]:
    """On a terminal the newest look alone; elsewhere one after the other."""
    if not sys.stdout.isatty():
        yield lambda text: print(text, flush=True)
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    live = Live(
        console=Console(),
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:

        def show(text: str) -> None:
            now = datetime.now().strftime("%H:%M:%S")
            head = f"{now}  {title}, every {seconds:g} s, until Ctrl-C\n\n"
            live.update(Text(head + text), refresh=True)

        yield show
