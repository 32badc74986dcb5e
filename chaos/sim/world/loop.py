"""Virtual time, and one event loop for each simulated process.

Each simulated process has its own loop, as a real one has. All loops share one :class:`Scheduler`,
which runs the callbacks that are due and then moves time to the next one, so no real time is spent
waiting. A task, and everything that it schedules, belongs to the loop that made it. So a process is
killed by dropping its loop, and paused by holding back its loop's callbacks.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import gc
import logging
import math
import sys
import weakref
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, NoReturn, TypeVar, cast

logger = logging.getLogger(__name__)

T = TypeVar("T")

_new = object.__new__

# A timer takes this long at least. Code that re-arms a timer which came a rounding error too early
# would otherwise run for ever at one instant. In the real world time passes while it runs.
_TIMER_RESOLUTION_S = 1e-6
# Virtual time stands still while callbacks run, so this many at one instant mean an endless loop.
_INSTANT_LIMIT = 500_000
_CLOSED_AFTER = 100  # attempts
# Dead tasks are forgotten many at a time, which is cheaper than one by one.
_TASKS_KEPT = 200
# The cyclic collector runs finalizers. It runs at fixed counts of callbacks, so that every run of a
# seed has them at the same moments.
_COLLECT_EVERY = 100_000


class SimulationStuckError(Exception):
    """Nothing is left to run although the simulation has not ended, or time stands still."""


def _nothing() -> None:
    """The callback of a cancelled handle, which keeps nothing alive."""


class SimHandle(asyncio.Handle):
    """A callback that is ready, like asyncio's but without the parts for debugging.

    ``SimLoop.call_soon`` fills its fields itself: it runs so often that a constructor's frame
    costs too much.
    """

    __slots__ = ()
    _callback: Callable[..., object]
    _loop: SimLoop
    _context: Context

    def __repr__(self) -> str:
        return f"<SimHandle {self._callback!r} {self._args!r}>"

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class SimTimer(asyncio.TimerHandle):
    """A callback that is due at some time. ``Scheduler.timer`` fills its fields itself, too."""

    __slots__ = ()
    _callback: Callable[..., object]
    _loop: SimLoop
    _context: Context
    _when: float
    _scheduled: bool

    def __repr__(self) -> str:
        return f"<SimTimer {self._when} {self._callback!r} {self._args!r}>"

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = _nothing, ()
            if self._scheduled:
                self._loop.timer_cancelled()


class Scheduler:
    """Virtual time: runs the callbacks of all loops in the order of their due times."""

    def __init__(self) -> None:
        self.now = 0.0
        self.callbacks = 0  # how many ran before the present instant
        # The loop whose callback runs at this moment.
        self.executing: SimLoop | None = None
        # Unhandled failures, as (loop's name, text). A run with any of them has failed.
        self.errors: list[tuple[str, str]] = []
        self._ready: deque[SimHandle | SimTimer] = deque()
        self.push_ready = self._ready.append
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._sequence = 0
        self._cancelled_timers = 0
        self._instant_callbacks = 0  # how many ran at the present instant
        self._collect_at = _COLLECT_EVERY
        self._watch: Callable[[], object] = lambda: None
        self._watch_every_s = self._watch_at = math.inf
        # The loop of each suspended generator, by its id. A weak reference would be gone before the
        # finalizer runs.
        self._generators: dict[int, SimLoop] = {}
        self.loops: list[SimLoop] = []
        # The context of all callbacks without one: nothing in a simulation sets context variables.
        self.context = copy_context()
        self.world = SimLoop(self, "world")

    def watch(self, every_s: float, callback: Callable[[], object]) -> None:
        """Call back whenever time is about to pass a multiple of ``every_s``.

        The callback sees the state at that multiple. Nothing changes while nothing runs, so one
        call stands for all multiples in between. The callback may only look.
        """
        self._watch, self._watch_every_s, self._watch_at = callback, every_s, self.now

    def timer(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        loop: SimLoop,
        context: Context,
    ) -> SimTimer:
        """A new timer, which runs at ``when`` unless its loop is dead."""
        timer = _new(SimTimer)
        timer._when = when
        timer._callback = callback
        timer._args = args
        timer._loop = loop
        timer._context = context
        timer._cancelled = False
        timer._scheduled = not loop.dead
        if not loop.dead:
            self._sequence = sequence = self._sequence + 1
            due = self.now + _TIMER_RESOLUTION_S
            if when > due:
                due = when
            heappush(self._timers, (due, sequence, timer))
        return timer

    def timer_cancelled(self) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    def at(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call something after a delay, in the world's loop and not in a process's."""
        return self.timer(self.now + delay_s, callback, args, self.world, self.context)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until ``main`` has ended. It runs outside of all processes."""
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        sys.set_asyncgen_hooks(self._generator_started, self._generator_dropped)
        gc.disable()
        try:
            task = self.world.create_task(main)
            self._run_until_done(task)
            return task.result()
        finally:
            self._leave()
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def close(self) -> None:
        """Kill all loops, so that no coroutine is dropped while it is suspended."""
        for loop in self.loops:
            loop.kill()

    def _run_until_done(self, main: asyncio.Future[Any]) -> None:
        """Run all due callbacks, instant by instant, until ``main``, the world's task, ends."""
        ready, enter, world = self._ready, _set_running_loop, self.world
        take = ready.popleft
        count, limit = 0, _INSTANT_LIMIT - self._instant_callbacks
        while True:
            while not ready:
                self.callbacks += count
                self._instant_callbacks += count
                self._advance()
                count, limit = 0, _INSTANT_LIMIT - self._instant_callbacks
            handle = take()
            count += 1
            if handle._cancelled:
                continue
            loop = handle._loop
            if not loop.running:
                loop.hold(handle)
                continue
            if loop is not self.executing:
                enter(loop)
                self.executing = loop
            loop.active = True
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                loop.call_exception_handler(
                    {"message": f"a callback failed: {handle!r}", "exception": error}
                )
            if loop is world and main.done():
                self.callbacks += count
                self._instant_callbacks += count
                return
            if count > limit:
                raise SimulationStuckError(f"time stands still at {self.now}: {loop} {handle!r}")

    def _leave(self) -> None:
        """Note that no callback runs now."""
        self.executing = None
        _set_running_loop(None)

    def _advance(self) -> None:
        """Move time to the next due callback, and make all callbacks ready that are due then."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
            self._cancelled_timers -= 1
        if not timers:
            raise SimulationStuckError(f"nothing is scheduled any more at {self.now}")
        now = timers[0][0]
        if now >= self._watch_at:
            self._leave()
            self._watch()
            self._watch_at = (now // self._watch_every_s + 1) * self._watch_every_s
        if self.callbacks >= self._collect_at:
            self._leave()
            gc.collect()
            self._collect_at += _COLLECT_EVERY
        if now > self.now:
            self._instant_callbacks = 0
        self.now = now
        push = self.push_ready
        while timers and timers[0][0] <= now:
            timer = heappop(timers)[2]
            if timer._cancelled:
                self._cancelled_timers -= 1
            else:
                timer._scheduled = False
                push(timer)

    def _generator_started(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = asyncio.events._get_running_loop()
        if isinstance(loop, SimLoop):
            self._generators[id(generator)] = loop

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        loop = self._generators.pop(id(generator), None)
        if loop is not None and loop.running:
            loop.create_task(generator.aclose())


# The type stubs would demand the abstract methods that SimLoop refuses on purpose.
_LoopBase: Any = asyncio.AbstractEventLoop


class SimLoop(_LoopBase):  # type: ignore[misc]
    """The event loop of one simulated process.

    It refuses everything outside of the simulation (executors, sockets, signals, subprocesses):
    ``AbstractEventLoop`` raises NotImplementedError for that.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        # A loop that is neither running nor dead is paused. Every callback reads these fields.
        self.running = True
        self.dead = False
        # A callback has run. Watchers reset it.
        self.active = True
        self._scheduler = scheduler
        self._push_ready = scheduler.push_ready
        self._timer = scheduler.timer
        self._default_context = scheduler.context
        self.timer_cancelled = scheduler.timer_cancelled
        self._frozen: list[SimHandle | SimTimer] = []
        self._paused_at = 0.0
        # The time that callbacks see which were ready when the pause began: a real loop, too, reads
        # its clock once per turn.
        self._stale_time: float | None = None
        self._stale_count = 0  # how many of the frozen callbacks were ready when the pause began
        self._tasks: dict[int, weakref.ref[asyncio.Task[Any]]] = {}
        self._forget_at = _TASKS_KEPT  # forget dead tasks when there are so many in all
        self._next_task = 0
        scheduler.loops.append(self)

    def __repr__(self) -> str:
        state = "dead" if self.dead else "running" if self.running else "paused"
        return f"<SimLoop {self.name} {state}>"

    # ------------------------------------------------------------------- life of the process

    def pause(self) -> None:
        """Stop running callbacks. They accumulate, as for a stopped process."""
        if self.running:
            self.running = False
            self._paused_at = self._scheduler.now

    def resume(self) -> None:
        """Run the callbacks that have accumulated. Those that were ready when the pause began still
        see its time."""
        if self.running or self.dead:
            return
        self.running = True
        self._stale_time = self._paused_at
        frozen, self._frozen = self._frozen, []
        stale, self._stale_count = self._stale_count, 0
        for handle in frozen[:stale]:
            self._push_ready(handle)
        self.call_soon(self._update_time)
        for handle in frozen[stale:]:
            self._push_ready(handle)

    def kill(self) -> None:
        """Stop for good: nothing that belongs to this loop runs again.

        Coroutines are closed at once. The process is dead by then, so their clean-up code can
        neither schedule anything nor reach the world.
        """
        if self.dead:
            return
        self.running, self.dead = False, True
        self._frozen.clear()
        if self._scheduler.executing is self:  # its own callback has led to its death
            self._scheduler.world.call_soon(self._close_coroutines)
        else:
            self._close_coroutines()

    def _close_coroutines(self) -> None:
        previous = asyncio.events._get_running_loop()
        _set_running_loop(self)
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # a dead process logs nothing
        try:
            for number in sorted(self._tasks):
                reference = self._tasks.get(number)
                task = None if reference is None else reference()
                if task is None or task.done():
                    continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _close(cast("Coroutine[Any, Any, Any]", task.get_coro()))
        finally:
            logging.disable(disabled)
            _set_running_loop(previous)
            self._tasks.clear()

    def hand_in(self, callback: Callable[..., object], *args: Any) -> None:
        """Call back from outside of the process: at once if it runs, else after its pause.

        Only for callbacks that resolve futures. The process's own code runs by ``call_soon``.
        """
        if self.running:
            callback(*args)
        else:
            self.call_soon(callback, *args)

    def hold(self, handle: SimHandle | SimTimer) -> None:
        """Keep a callback that is due now for the end of the pause. A dead loop drops it."""
        if self.dead:
            return
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
        if context is None:
            context = self._default_context
        handle = _new(SimHandle)
        handle._callback = callback
        handle._args = args
        handle._loop = self
        handle._context = context
        handle._cancelled = False
        if not self.dead:
            self._push_ready(handle)
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
        stale = self._stale_time
        when = (self._scheduler.now if stale is None else stale) + delay
        if context is None:
            context = self._default_context
        return self._timer(when, callback, args, self, context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if context is None:
            context = self._default_context
        return self._timer(when, callback, args, self, context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        if self.dead:  # asked for by clean-up code of a killed process
            coro.close()
            return cast("asyncio.Task[T]", self.create_future())
        number = self._next_task
        self._next_task += 1
        task: asyncio.Task[T] = asyncio.Task(
            coro,
            loop=self,
            name=name or f"{self.name}-{number}",
            context=context,
        )
        self._tasks[number] = weakref.ref(task)
        if len(self._tasks) >= self._forget_at:
            self._tasks = {n: each for n, each in self._tasks.items() if each() is not None}
            self._forget_at = 2 * len(self._tasks) + _TASKS_KEPT
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.dead:
            return
        error = context.get("exception")
        logger.error("%s: %s", self.name, context.get("message"), exc_info=error)
        self._scheduler.errors.append((self.name, f"{context.get('message')}: {error!r}"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None

    # Returns False. Every future and every task asks, so it costs no Python frame.
    get_debug = staticmethod(bool)

    def set_debug(self, enabled: bool) -> None:
        """Ignored: asyncio's debugging works with real time."""

    def get_task_factory(self) -> None:
        return None

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.dead

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> NoReturn:
        raise NotImplementedError("Scheduler.run drives all loops")

    def run_in_executor(self, *args: Any) -> NoReturn:
        raise NotImplementedError("there are no threads in the simulation")


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Close a coroutine. Its clean-up may await something, which never comes: close it again."""
    for _ in range(_CLOSED_AFTER):
        try:
            coroutine.close()
        except BaseException:
            continue  # nobody is left who could handle an error of the clean-up
        return
