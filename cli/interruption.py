"""SIGTERM as a Ctrl-C with another exit code: what a command has begun is cleared away."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM has come."""


def exit_code_of(interruption: KeyboardInterrupt) -> int:
    """128 and the signal's number, as a shell has it."""
    return EXIT_TERMINATED if isinstance(interruption, Terminated) else EXIT_INTERRUPTED


class Termination:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.has_come = False


@contextmanager
def terminable() -> Iterator[Termination]:
    """The first SIGTERM raises Terminated in the main thread; what is cleared away then is not
    disturbed by more of them."""
    termination = Termination()

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        termination.has_come = True
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield termination
    finally:
        signal.signal(signal.SIGTERM, before)
