"""The command ``stele``, and ``python -m cli``.

Before anything else is imported, it sees to it that Ctrl-C ends it silently: there is nothing to
clear away yet, and imports take a moment.
"""

from __future__ import annotations

import os
import signal
import sys

from cli.interruption import EXIT_INTERRUPTED
from stele.errors import SteleError


def main() -> None:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # who is started in the background ignores it
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(EXIT_INTERRUPTED))
    try:
        from cli.main import main as run_command
    except SteleError as error:  # STELE_NATIVE asks for what is not there
        sys.exit(f"stele: {error}")
    signal.signal(signal.SIGINT, before)
    run_command()


if __name__ == "__main__":
    main()
