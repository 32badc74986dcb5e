"""Virtual time, and one event loop per simulated process on it.

A process of the simulation has its own loop, as a real one has. All loops share one
:class:`Scheduler`, which runs whatever is due next and then moves time on: nothing ever waits.
Since a task belongs to the loop it was made on, and so does everything it schedules, a process is
killed by letting go of its loop, and paused by holding back what its loop would run.
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

# A timer takes this long at least. Code that re-arms one which came a rounding error too early
# would else be called for ever at one instant; in the real world time goes on under it.
_TIMER_RESOLUTION_S = 1e-6
# A loop that never waits keeps time standing still: so many callbacks at one instant are a bug.
_INSTANT_LIMIT = 500_000
_CLOSED_AFTER = 100  # attempts
# Dead tasks are forgotten many at a time, which is cheaper than one by one.
_TASKS_KEPT = 200
# The cyclic collector runs finalizers: at a fixed count of callbacks it is part of the transcript.
_COLLECT_EVERY = 100_000


class SimulationStuckError(Exception):
    """Nothing is left to run although the simulation has not ended, or time stands still."""


def _nothing() -> None:
    """What a cancelled handle would call. It keeps nothing alive."""


class SimHandle(asyncio.Handle):
    """A callback that is ready. As asyncio's, without what only its debugging needs.

    ``SimLoop.call_soon`` makes one by hand: what runs so often has no frame for a constructor.
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
    """A callback that is due some time. ``Scheduler.timer`` makes one, by hand, too."""

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
        self.callbacks = 0  # run up to the end of the last instant
        # The loop whose callback runs at this moment.
        self.executing: SimLoop | None = None
        # Failures nobody handled, as (loop's name, text): a run with any has failed.
        self.errors: list[tuple[str, str]] = []
        self._ready: deque[SimHandle | SimTimer] = deque()
        self.push_ready = self._ready.append
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._sequence = 0
        self._cancelled_timers = 0
        self._instant_callbacks = 0  # run at this very moment
        self._collect_at = _COLLECT_EVERY
        self._watch: Callable[[], object] = lambda: None
        self._watch_every_s = self._watch_at = math.inf
        # Whose a suspended generator is, by id: a weak reference is gone before its finalizer runs.
        self._generators: dict[int, SimLoop] = {}
        self.loops: list[SimLoop] = []
        # Of all callbacks that bring none: nothing in a simulation sets context variables.
        self.context = copy_context()
        self.world = SimLoop(self, "world")

    def watch(self, every_s: float, callback: Callable[[], object]) -> None:
        """Call back whenever time is about to pass a multiple of ``every_s``.

        What is seen then is what was so at that multiple. While nothing runs nothing changes, so
        there is one call for all multiples in between. The callback may look, and do nothing else.
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
        """A new one, which runs then unless its loop is dead."""
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
        """Have the world itself (not a process) call something after a delay."""
        return self.timer(self.now + delay_s, callback, args, self.world, self.context)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run until ``main``, which stands outside of all processes, has ended."""
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
        """Kill everything that is left, so that no coroutine is dropped half-way."""
        for loop in self.loops:
            loop.kill()

    def _run_until_done(self, main: asyncio.Future[Any]) -> None:
        """Run whatever is due, instant by instant, up to the end of ``main``, the world's task."""
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
        """No callback runs."""
        self.executing = None
        _set_running_loop(None)

    def _advance(self) -> None:
        """Move time to the next due callback, and make ready all that is due then."""
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


# The type stubs hold the abstract methods against us that are refused on purpose.
_LoopBase: Any = asyncio.AbstractEventLoop


class SimLoop(_LoopBase):  # type: ignore[misc]
    """The event loop of one simulated process.

    What reaches outside of the simulation (executors, sockets, signals, subprocesses) is refused:
    ``AbstractEventLoop`` raises NotImplementedError for it.
    """

    def __init__(self, scheduler: Scheduler, name: str) -> None:
        self.name = name
        # Neither running nor dead: paused. These two are asked for at every callback.
        self.running = True
        self.dead = False
        # Something ran here; whoever watches takes it back.
        self.active = True
        self._scheduler = scheduler
        self._push_ready = scheduler.push_ready
        self._timer = scheduler.timer
        self._default_context = scheduler.context
        self.timer_cancelled = scheduler.timer_cancelled
        self._frozen: list[SimHandle | SimTimer] = []
        self._paused_at = 0.0
        # What the loop would call "now": behind the clock in the first moments after a pause.
        self._stale_time: float | None = None
        self._stale_count = 0  # so many of the frozen callbacks were ready when the pause began
        self._tasks: dict[int, weakref.ref[asyncio.Task[Any]]] = {}
        self._forget_at = _TASKS_KEPT  # so many, dead and alive
        self._next_task = 0
        scheduler.loops.append(self)

    def __repr__(self) -> str:
        state = "dead" if self.dead else "running" if self.running else "paused"
        return f"<SimLoop {self.name} {state}>"

    # ------------------------------------------------------------------- life of the process

    def pause(self) -> None:
        """Stop running callbacks; they gather, as they do for a stopped process."""
        if self.running:
            self.running = False
            self._paused_at = self._scheduler.now

    def resume(self) -> None:
        """Run what has gathered. What was ready at the pause still sees the time of the pause."""
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

        Coroutines are closed at once, against a dead process: their clean-up code can neither
        schedule anything nor reach the world.
        """
        if self.dead:
            return
        self.running, self.dead = False, True
        self._frozen.clear()
        if self._scheduler.executing is self:  # killed by something that it called itself
            self._scheduler.world.call_soon(self._close_coroutines)
        else:
            self._close_coroutines()

    def _close_coroutines(self) -> None:
        previous = asyncio.events._get_running_loop()
        _set_running_loop(self)
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)  # the dead do not speak
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
        """From outside of the process: at once if it runs, else when it goes on.

        For what resolves futures and no more: its own code runs by ``call_soon``.
        """
        if self.running:
            callback(*args)
        else:
            self.call_soon(callback, *args)

    def hold(self, handle: SimHandle | SimTimer) -> None:
        """What is due now is kept for the end of the pause, or dropped with the dead."""
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

    # False. Every future and every task asks: so there is no frame for it.
    get_debug = staticmethod(bool)

    def set_debug(self, enabled: bool) -> None:
        """Asyncio's debugging works with real time: not here."""

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
    """Its clean-up may want to wait for things that never come: it is told again, then."""
    for _ in range(_CLOSED_AFTER):
        try:
            coroutine.close()
        except BaseException:
            continue  # whatever its clean-up came to, nobody is there to care
        return
