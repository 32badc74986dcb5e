"""What a connection takes of the event loop, for ``request_percentage`` (KIP-124)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")
Clock = Callable[[], float]


class LoopShare:
    """Two calls of the clock measure a turn, however many requests it serves: their decoding, their
    handlers, and the encoding of their answers."""

    __slots__ = ("_is_timed", "_taken_s")

    def __init__(self) -> None:
        self._taken_s = 0.0
        self._is_timed = False

    def run(self, clock: Clock, work: Callable[..., None], *arguments: Any) -> None:
        """Do a turn's work, and count its time. Work within it is part of it."""
        if self._is_timed:
            work(*arguments)
            return
        self._is_timed = True
        began_s = clock()
        try:
            work(*arguments)
        finally:
            self._is_timed = False
            self._taken_s += clock() - began_s

    async def run_async(self, clock: Clock, work: Awaitable[T]) -> T:
        """Do the work, and count the time of its steps."""
        return await _Steps(self, clock, work)

    def add(self, seconds: float) -> None:
        """Work for the connection took so long. Within a turn it is counted already."""
        if not self._is_timed:
            self._taken_s += seconds

    def take(self) -> float:
        """The time since the last call. The present turn counts when it is over."""
        taken_s, self._taken_s = self._taken_s, 0.0
        return taken_s


class _Steps(Awaitable[T]):
    """An awaitable that measures each step of another."""

    def __init__(self, share: LoopShare, clock: Clock, work: Awaitable[T]) -> None:
        self._share, self._clock, self._work = share, clock, work

    def __await__(self) -> Generator[Any, Any, T]:
        steps: Any = self._work.__await__()
        step: Callable[[], Any] = partial(next, steps)
        while True:
            began_s = self._clock()
            try:
                waits_for = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._share.add(self._clock() - began_s)
            try:
                sent = yield waits_for
            except BaseException as error:
                step = partial(steps.throw, error)
            else:
                step = partial(next, steps) if sent is None else partial(steps.send, sent)
