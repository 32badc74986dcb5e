"""The live table of ``stele top``, and the keys that end it."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

from cli.top.rates import Page
from cli.top.tables import tables_of
from stele.printable import printable

if TYPE_CHECKING:
    from rich.console import Group

QUIT: Final = b"qQ\x03\x04"
"""And what Ctrl-C and Ctrl-D send if the terminal gives them as they are."""


def show_live(next_page: Callable[[], Page], interval_s: float) -> None:
    """Until q or Ctrl-C."""
    from rich.live import Live

    try:
        with keys() as wait, Live(screen=True, auto_refresh=False) as live:
            while True:
                live.update(_drawn(next_page(), interval_s), refresh=True)
                if wait(interval_s):
                    return
    except KeyboardInterrupt:
        pass


@contextmanager
def keys(handle: int | None = None) -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds, or until a key that quits is pressed: whether one
    was. The terminal is as before afterwards."""
    terminal = sys.stdin.fileno() if handle is None else handle
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)

    def wait(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            if not select.select([terminal], [], [], left_s)[0]:
                return False
            pressed = os.read(terminal, 64)
            if not pressed or set(pressed) & set(QUIT):  # nothing: the terminal was closed
                return True
        return False

    try:
        yield wait
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _drawn(page: Page, interval_s: float) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    now = datetime.now().strftime("%H:%M:%S")
    drawn: list[Table | Text] = [Text(f"{now}  every {interval_s:g} s; q ends it", style="dim")]
    for columns, rows in tables_of(page):
        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, column in enumerate(columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in rows:
            cells = ("-" if cell is None else printable(str(cell)) for cell in row)
            table.add_row(*(Text(cell) for cell in cells))
        drawn += [Text(""), table]
    return Group(*drawn)
