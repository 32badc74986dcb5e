"""Work on files that takes seconds or minutes: what ``Disk.carry_out`` carries out.

It is a generator function of a Disk and of plain values (numbers, text, bytes, tuples and lists of
them), found by its name in its module. It yields the steps of ``storage.steps``, what it has cost
so far, and the parts of its result, which are plain values, too. A node runs it in a helper
process; the simulator and tests run it in turns of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any, NamedTuple

from storage.steps import Step, failure_of
from world.disk import Disk


class Spent(NamedTuple):
    """The work has read or written so many bytes since the last ``Spent``, and should wait until
    that is no more than ``bytes_per_s`` allow."""

    size_bytes: int
    bytes_per_s: float

    @property
    def seconds(self) -> float:
        """How long these bytes take at this rate."""
        return self.size_bytes / self.bytes_per_s


class Part(NamedTuple):
    """A part of the result is ready."""

    value: Any


LongWork = Generator[Step | Spent | Part, None, None]
"""If it is closed early, it releases its resources."""


async def parts_of(disk: Disk, work: LongWork) -> AsyncGenerator[Any, None]:
    """The parts of the result of ``work``, which is done in turns of the event loop. Raises what
    the work raises."""
    error: OSError | None = None
    with contextlib.closing(work):
        while True:
            try:
                step = next(work) if error is None else work.throw(error)
            except StopIteration:
                return
            error = None
            match step:
                case Part(value):
                    yield value
                case Spent():
                    await asyncio.sleep(step.seconds)
                case _:
                    error = await failure_of(disk, step)
