"""Work that waits for the device, done at once or in turns of the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, TypeVar

from world.disk import Disk

T = TypeVar("T")

BATCHES_PER_TURN: Final = 256
"""A walk over this many batches takes one or two milliseconds."""


class Warm(NamedTuple):
    """The work reads these bytes of a file next."""

    path: str
    position: int
    size: int


class Sync(NamedTuple):
    """These files and directories must be on disk before the work goes on."""

    paths: tuple[str, ...]


class Turn(enum.Enum):
    """About a millisecond of work was done."""

    OVER = enum.auto()


Step = Warm | Sync | Turn

Steps = Generator[Step, None, T]
"""Work that names at each step what it waits for. If it is closed early, it releases its
resources."""


def finish(disk: Disk, steps: Steps[T]) -> T:
    """Do all steps now, waiting for the device. Raises what the work raises."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Sync):
            for path in step.paths:
                disk.sync_now(path)


async def take_turns(disk: Disk, steps: Steps[T]) -> T:
    """Do the steps in turns of the event loop, and wait for the device off the loop.

    Raises what the work raises. If it is cancelled, it closes the work.
    """
    error: OSError | None = None
    with contextlib.closing(steps):
        while True:
            try:
                step = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            error = await failure_of(disk, step)


def while_true(holds: Callable[[], bool], steps: Steps[T]) -> Steps[T | None]:
    """The same work, as long as ``holds`` says after each step that it may go on. Else None."""
    error: OSError | None = None
    with contextlib.closing(steps):
        while True:
            try:
                step = next(steps) if error is None else steps.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            error = None
            try:
                yield step
            except OSError as raised:
                error = raised
            if not holds():
                return None


async def failure_of(disk: Disk, step: Step) -> OSError | None:
    """Wait for the objects of a step. Returns the error that must be raised in the work, if any."""
    match step:
        case Sync(paths):
            try:
                await disk.sync(paths)
            except OSError as error:
                return error
        case Warm():
            # This only saves the read from waiting. If it fails, the read itself reports the error.
            with contextlib.suppress(OSError):
                await disk.warm(*step)
        case Turn.OVER:
            await asyncio.sleep(0)
    return None


class Pace:
    """The pauses of a walk over the batches of one file."""

    __slots__ = ("_bytes", "_left", "_path", "_warm_to")

    def __init__(self, path: str, chunk_bytes: int) -> None:
        """``chunk_bytes``: how much the walk reads at once."""
        self._path = path
        self._bytes = chunk_bytes
        self._left = BATCHES_PER_TURN
        self._warm_to = -1

    def begin(self, position: int, size: int) -> Iterator[Step]:
        """The steps before the first batch, at ``position``, is read."""
        if (step := self.at(position, size)) is not None:
            yield step

    def at(self, position: int, size: int) -> Step | None:
        """The step before the batch at ``position`` of the file, which has ``size`` bytes; None for
        no pause."""
        if position >= self._warm_to and position < size:
            self._warm_to = position + self._bytes
            self._left = BATCHES_PER_TURN
            return Warm(self._path, position, min(self._bytes, size - position))
        self._left -= 1
        if self._left > 0:
            return None
        self._left = BATCHES_PER_TURN
        return Turn.OVER
