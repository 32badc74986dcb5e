"""What an input costs: the longest turn of the event loop that works on it, and memory.

An input is run to see its turns. Every fourth is run again to see its memory, because tracing makes
turns longer than they are.
"""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeVar

from chaos.sim.world.loop import SimLoop

T = TypeVar("T")

TURN_MAX_S: Final = 0.1
"""The longest turn of the event loop that a request may cost, in CPU time (docs/limits.md)."""

MEMORY_MAX_BYTES: Final = 64 * 1024 * 1024
MEMORY_PER_BYTE: Final = 4
"""The memory that one request may take, with its answer: the greater of ``MEMORY_MAX_BYTES`` and so
many times its size (docs/limits.md)."""

MEMORY_SEEN_EVERY: Final = 4
_ATTEMPTS: Final = 3


def memory_max(size_bytes: int) -> int:
    return max(MEMORY_MAX_BYTES, MEMORY_PER_BYTE * size_bytes)


class CostError(AssertionError):
    """A turn or the memory of a request exceeds its bound."""


class Meter:
    """Of one run of one input. It is a context manager, inside which loops are watched."""

    def __init__(self, *, sees_memory: bool = False) -> None:
        self.longest_turn_s = 0.0
        self.memory_bytes = 0
        """The most that one request used."""
        self.excess: str | None = None
        self._sees_memory = sees_memory
        self._size_bytes: int | None = None
        self._before_bytes = 0
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Meter:
        if self._sees_memory:
            tracemalloc.start()
            self._stack.callback(tracemalloc.stop)
        else:
            self._stack.enter_context(_watched_loops(self.turn))
        return self

    def __exit__(self, *_: object) -> None:
        self._end_request()
        self._stack.close()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A turn of the event loop, or a part of the work that stands for one."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.longest_turn_s = max(self.longest_turn_s, time.thread_time() - began)

    def request(self, size_bytes: int) -> None:
        """The memory from here to the next request counts for one of this size."""
        self._end_request()
        if self._sees_memory:
            tracemalloc.reset_peak()
            self._before_bytes = tracemalloc.get_traced_memory()[0]
            self._size_bytes = size_bytes

    def _end_request(self) -> None:
        if self._size_bytes is None:
            return
        used = tracemalloc.get_traced_memory()[1] - self._before_bytes
        self.memory_bytes = max(self.memory_bytes, used)
        most = memory_max(self._size_bytes)
        if used > most:
            self.excess = (
                f"a request of {self._size_bytes} bytes used {used} bytes of memory, "
                f"which is more than {most}"
            )
        self._size_bytes = None


Turn = Callable[[], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def _watched_loops(turn: Turn) -> Iterator[None]:
    """Time every callback of simulated event loops, except clients' callbacks."""
    originals = {name: getattr(SimLoop, name) for name in ("call_soon", "call_later", "call_at")}

    def timed(callback: Callable[..., object], *args: Any) -> None:
        with turn():
            callback(*args)

    def call_soon(self: SimLoop, callback: Any, *args: Any, context: Any = None) -> Any:
        if self.name == "client":
            return originals["call_soon"](self, callback, *args, context=context)
        return originals["call_soon"](self, timed, callback, *args, context=context)

    def call_later(
        self: SimLoop, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        return originals["call_later"](self, delay, timed, callback, *args, context=context)

    def call_at(self: SimLoop, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        return originals["call_at"](self, when, timed, callback, *args, context=context)

    watched = {"call_soon": call_soon, "call_later": call_later, "call_at": call_at}
    for name, function in watched.items():
        setattr(SimLoop, name, function)
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(SimLoop, name, function)


class Target(Protocol):
    """What is fuzzed. It stands in a file of ``tests/fuzz/targets``, as ``TARGET``."""

    name: str
    examples: int
    """How many inputs the tests try. ``scripts/fuzz`` goes on."""

    def draw(self, rng: Any) -> Any:
        """An input, which can be pickled."""
        ...

    def run(self, data: Any, meter: Meter) -> str:
        """What came of it. Raises anything for a defect."""
        ...


class Judge:
    """Runs inputs of one target, and keeps the worst costs."""

    def __init__(
        self,
        target: Target,
        *,
        memory_every: int = MEMORY_SEEN_EVERY,
        turn_max_s: float = TURN_MAX_S,
    ) -> None:
        self.target = target
        self._turn_max_s = turn_max_s
        self.longest_turn_s = 0.0
        self.memory_bytes = 0
        self._memory_every = memory_every
        self._inputs = 0

    def check(self, data: Any) -> str:
        """What came of an input. Raises CostError if it costs too much, and whatever the target
        raises."""
        outcome = self._check_turns(data)
        self._inputs += 1
        if self._inputs % self._memory_every == 0:
            self._check_memory(data)
        return outcome

    def _check_turns(self, data: Any) -> str:
        """Of several attempts the shortest counts: others use the machine, too, and the first
        compiles what it needs."""
        took: list[float] = []
        while True:
            with Meter() as meter:
                outcome = self.target.run(data, meter)
            took.append(meter.longest_turn_s)
            if min(took) <= self._turn_max_s or len(took) == _ATTEMPTS:
                break
        self.longest_turn_s = max(self.longest_turn_s, min(took))
        if min(took) > self._turn_max_s:
            raise CostError(f"{1000 * min(took):.0f} ms in one turn of the event loop")
        return outcome

    def _check_memory(self, data: Any) -> None:
        with Meter(sees_memory=True) as meter:
            self.target.run(data, meter)
        self.memory_bytes = max(self.memory_bytes, meter.memory_bytes)
        if meter.excess is not None:
            raise CostError(meter.excess)
