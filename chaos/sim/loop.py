"""Virtual time, and one event loop per simulated process on it.

A process of the simulation has its own loop, as a real one has. All loops share one
:class:`Scheduler`, which runs whatever is due next and then moves time on: nothing ever waits.
Since a task belongs to the loop it was made on, and so does everything it schedules, a process is
killed by letting go of its loop, and paused by holding back what its loop would run.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import enum
import gc
import heapq
import logging
import sys
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, NoReturn, TypeVar, cast

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A timer takes this long at least. Code that re-arms one which came a rounding error too early
# would else be called for ever at one instant; in the real world time goes on under it.
_TIMER_RESOLUTION_S = 1e-6
# A loop that never waits keeps time standing still: so many callbacks at one instant are a bug.
_INSTANT_LIMIT = 500_000
# The cyclic collector runs finalizers: at a fixed count of callbacks it is part of the transcript.
_COLLECT_EVERY = 100_000


class SimulationStuckError(Exception):
    """Nothing is left to run although the simulation has not ended, or time stands still."""


class LoopState(enum.Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Scheduler:
    """Virtual time: runs the callbacks of all loops in the order of their due times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.callbacks = 0
        self._instant_callbacks = 0  # run at this very moment
        # Failures nobody handled, as (loop's name, text): a run with any has failed.
        self.errors: list[tuple[str, str]] = []
        self._ready: deque[tuple[SimLoop, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, SimLoop, asyncio.Handle]] = []
        self._sequence = 0
        self._cancelled_timers = 0
        # Whose a suspended generator is, by id: a weak reference is gone before its finalizer runs.
        self._generators: dict[int, SimLoop] = {}
        self.loops: list[SimLoop] = []
        self.world = SimLoop(self, "world")

    def push_ready(self, loop: SimLoop, handle: asyncio.Handle) -> None:
        self._ready.append((loop, handle))

    def push_timer(self, loop: SimLoop, when: float, handle: asyncio.Handle) -> None:
        self._sequence += 1
        when = max(when, self.now + _TIMER_RESOLUTION_S)
        heapq.heappush(self._timers, (when, self._sequence, loop, handle))

    def timer_cancelled(self) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[3].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def at(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Have the world itself (not a process) call something after a delay."""
        return self.world.call_later(delay_s, callback, *args)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until ``main``, which stands outside of all processes, has ended."""
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        sys.set_asyncgen_hooks(self._generator_started, self._generator_dropped)
        gc.disable()
        try:
            task = self.world.create_task(main)
            while not task.done():
                self._run_instant(task)
            return task.result()
        finally:
            asyncio.events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def close(self) -> None:
        """Kill everything that is left, so that no coroutine is dropped half-way."""
        for loop in self.loops:
            loop.kill()

    def _run_instant(self, main: asyncio.Future[Any]) -> None:
        """Move time to the next due callback and run all that is due at that instant."""
        if not self._ready:
            before = self.now
            self._advance()
            if self.now > before:
                self._instant_callbacks = 0
        while self._ready and not main.done():
            loop, handle = self._ready.popleft()
            loop.run_handle(handle)
            self.callbacks += 1
            if self.callbacks % _COLLECT_EVERY == 0:
                gc.collect()
            self._instant_callbacks += 1
            if self._instant_callbacks > _INSTANT_LIMIT:
                raise SimulationStuckError(f"time stands still at {self.now}: {loop} {handle!r}")

    def _advance(self) -> None:
        timers = self._timers
        while timers and timers[0][3].cancelled():
            heapq.heappop(timers)
            self._cancelled_timers -= 1
        if not timers:
            raise SimulationStuckError(f"nothing is scheduled any more at {self.now}")
        self.now = timers[0][0]
        while timers and timers[0][0] <= self.now:
            _, _, loop, handle = heapq.heappop(timers)
            if handle.cancelled():
                self._cancelled_timers -= 1
            else:
                self._ready.append((loop, handle))

    def _generator_started(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = asyncio.events._get_running_loop()
        if isinstance(loop, SimLoop):
            self._generators[id(generator)] = loop

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = self._generators.pop(id(generator), None)
        if loop is not None and loop.state is LoopState.RUNNING:
            loop.create_task(generator.aclose())


# The type stubs hold the abstract methods against us that are refused on purpose.
_LoopBase: Any = asyncio.AbstractEventLoop


class SimLoop(_LoopBase):  # type: ignore[misc]
    """The event loop of one simulated process.

    What reaches outside of the simulation (executors, sockets, signals, subprocesses) is refused:
    ``AbstractEventLoop`` raises NotImplementedError for it.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        self.state = LoopState.RUNNING
        self._scheduler = scheduler
        self._frozen: list[asyncio.Handle] = []
        self._paused_at = 0.0
        # What the loop would call "now": behind the clock in the first moments after a pause.
        self._stale_time: float | None = None
        self._stale_count = 0  # so many of the frozen callbacks were ready when the pause began
        self._tasks: dict[int, weakref.ref[asyncio.Task[Any]]] = {}
        self._next_task = 0
        self._executing = False
        scheduler.loops.append(self)

    def __repr__(self) -> str:
        return f"<SimLoop {self.name} {self.state.value}>"

    # ------------------------------------------------------------------- life of the process

    def pause(self) -> None:
        """Stop running callbacks; they gather, as they do for a stopped process."""
        if self.state is LoopState.RUNNING:
            self.state = LoopState.PAUSED
            self._paused_at = self._scheduler.now

    def resume(self) -> None:
        """Run what has gathered. What was ready at the pause still sees the time of the pause."""
        if self.state is not LoopState.PAUSED:
            return
        self.state = LoopState.RUNNING
        self._stale_time = self._paused_at
        frozen, self._frozen = self._frozen, []
        stale, self._stale_count = self._stale_count, 0
        for handle in frozen[:stale]:
            self._scheduler.push_ready(self, handle)
        self.call_soon(self._update_time)
        for handle in frozen[stale:]:
            self._scheduler.push_ready(self, handle)

    def kill(self) -> None:
        """Stop for good: nothing that belongs to this loop runs again.

        Coroutines are closed at once, against a dead process: their clean-up code can neither
        schedule anything nor reach the world.
        """
        if self.state is LoopState.DEAD:
            return
        self.state = LoopState.DEAD
        self._frozen.clear()
        if self._executing:  # killed by something that it called itself
            self._scheduler.world.call_soon(self._close_coroutines)
        else:
            self._close_coroutines()

    def _close_coroutines(self) -> None:
        previous = asyncio.events._get_running_loop()
        asyncio.events._set_running_loop(self)
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # the dead do not speak
        try:
            for number in sorted(self._tasks):
                reference = self._tasks.get(number)
                task = None if reference is None else reference()
                if task is None or task.done():
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                try:
                    cast(Coroutine[Any, Any, Any], task.get_coro()).close()
                except BaseException:
                    continue  # whatever its clean-up came to, nobody is there to care
        finally:
            logging.disable(disabled)
            asyncio.events._set_running_loop(previous)
            self._tasks.clear()

    def run_handle(self, handle: asyncio.Handle) -> None:
        """Called by the scheduler."""
        if self.state is LoopState.DEAD or handle.cancelled():
            return
        if self.state is LoopState.PAUSED:
            self._freeze(handle)
            return
        asyncio.events._set_running_loop(self)
        self._executing = True
        try:
            handle._run()
        finally:
            self._executing = False
            asyncio.events._set_running_loop(None)

    def _freeze(self, handle: asyncio.Handle) -> None:
        self._frozen.append(handle)
        if self._scheduler.now == self._paused_at:
            self._stale_count = len(self._frozen)

    def _update_time(self) -> None:
        self._stale_time = None

    # -------------------------------------------------------------------- asyncio's interface

    def time(self) -> float:
        return self._scheduler.now if self._stale_time is None else self._stale_time

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if self.state is not LoopState.DEAD:
            self._scheduler.push_ready(self, handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> NoReturn:
        raise NotImplementedError("there are no threads in the simulation")

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self.state is not LoopState.DEAD:
            self._scheduler.push_timer(self, when, handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._scheduler.timer_cancelled()

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        if self.state is LoopState.DEAD:  # asked for by clean-up code of a killed process
            coro.close()
            return cast("asyncio.Task[T]", self.create_future())
        number = self._next_task
        self._next_task += 1
        task = asyncio.Task(
            cast(Coroutine[Any, Any, T], coro),
            loop=self,
            name=name or f"{self.name}-{number}",
            context=context,
        )
        self._tasks[number] = weakref.ref(task, lambda _: self._tasks.pop(number, None) and None)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.state is LoopState.DEAD:
            return
        error = context.get("exception")
        logger.error("%s: %s", self.name, context.get("message"), exc_info=error)
        self._scheduler.errors.append((self.name, f"{context.get('message')}: {error!r}"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Asyncio's debugging works with real time: not here."""

    def get_task_factory(self) -> None:
        return None

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.state is LoopState.DEAD

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> NoReturn:
        raise NotImplementedError("Scheduler.run drives all loops")

    def run_in_executor(self, *args: Any) -> NoReturn:
        raise NotImplementedError("there are no threads in the simulation")
