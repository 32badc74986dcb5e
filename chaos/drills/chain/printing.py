"""How the processes of the chain speak to the drill: one line of JSON at a time."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Coroutine
from typing import Any


def print_line(line: object) -> None:
    """A process that is killed meanwhile leaves a line without an end, which does not count."""
    sys.stdout.write(json.dumps(line, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def run_until_terminated(work: Coroutine[Any, Any, None]) -> None:
    """Run it on a loop. SIGTERM cancels it."""
    loop = asyncio.new_event_loop()
    working = loop.create_task(work)
    loop.add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        loop.run_until_complete(working)
    except (asyncio.CancelledError, BrokenPipeError):
        pass
    finally:
        loop.close()
