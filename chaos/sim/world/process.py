"""Simulated machines and the processes on them.

A machine has what survives a process: its disk, its clocks, its place on the network. A process has
what dies with it: its event loop, its open connections, its ports.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from chaos.sim.world.clock import SimClock
from chaos.sim.world.compute import SimCompute
from chaos.sim.world.disk import VirtualDisk
from chaos.sim.world.disk_view import SimDisk
from chaos.sim.world.loop import Scheduler, SimLoop
from world.network import Network
from world.world import World

T = TypeVar("T")


class Resource(Protocol):
    """Something that the operating system holds for a process and clears up after it."""

    def die(self, *, silent: bool) -> None:
        """The process is dead. ``silent``: the machine is dead, too, so no peer is told."""
        ...


class Machine:
    """A host of the simulated network."""

    def __init__(self, name: str, disk: VirtualDisk, clock: SimClock) -> None:
        self.name = name
        self.disk = disk
        self.clock = clock
        disk.time_ms = clock.time_ms
        self.powered = True
        self.ports: dict[int, Resource] = {}  # listeners by port number
        self.processes: list[Process] = []
        self._next_ephemeral = 49_152

    def ephemeral_port(self) -> int:
        while self._next_ephemeral in self.ports:
            self._next_ephemeral += 1
        self._next_ephemeral += 1
        return self._next_ephemeral - 1

    def power_off(self) -> None:
        """End everything on it at once, without telling peers. The disk keeps what was synced."""
        self.powered = False
        for process in list(self.processes):
            process.end(silent=True)
        self.disk.power_loss()

    def power_on(self) -> None:
        self.powered = True


class Process:
    """A process. It owns its tasks, timers and connections, and they end with it."""

    def __init__(self, machine: Machine, name: str, scheduler: Scheduler, incarnation: int) -> None:
        self.machine = machine
        self.name = name
        self.incarnation = incarnation  # counts the processes of that name, from 1
        self.loop = SimLoop(scheduler, name)
        self.world: World  # set by the simulation, which knows the network
        self._scheduler = scheduler
        self._resources: dict[int, Resource] = {}  # in the order in which they were made
        self._next_resource = 0
        machine.processes.append(self)

    @property
    def dead(self) -> bool:
        return self.loop.dead

    @property
    def paused(self) -> bool:
        return not (self.loop.running or self.loop.dead)

    def make_world(self, network: Network, rng: random.Random) -> None:
        self.world = World(
            clock=self.machine.clock,
            disk=SimDisk(self.machine.disk, self),
            network=network,
            rng=rng,
            compute=SimCompute(self),
        )

    def own(self, resource: Resource) -> int:
        """Clear the resource up when this process dies. Returns a number for ``disown``."""
        self._next_resource += 1
        self._resources[self._next_resource] = resource
        return self._next_resource

    def disown(self, number: int) -> None:
        self._resources.pop(number, None)

    # -------------------------------------------------------------------------------- running

    def start(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine in this process."""
        return self.loop.create_task(main)

    async def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in this process, and wait for its result outside.

        Raises ProcessEndedError if the process dies first.
        """
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        watch = self.own(_Watch(self.name, outcome))
        task = self.start(main)
        task.add_done_callback(lambda done: _copy_outcome(done, outcome))
        try:
            return await outcome
        finally:
            self.disown(watch)

    async def sleep(self, delay_s: float) -> None:
        """Wait for a device of the machine. The device works on while the process is paused."""
        future = self.loop.create_future()
        self._scheduler.at(delay_s, self.loop.hand_in, _resolve, future)
        await future

    def kill(self) -> None:
        """Die as by kill -9: nothing runs after it, and the kernel closes open connections."""
        self.end(silent=False)

    def end(self, *, silent: bool) -> None:
        if self.dead:
            return
        self.loop.kill()
        self.machine.processes.remove(self)
        for number in list(self._resources):
            resource = self._resources.pop(number, None)
            if resource is not None:
                resource.die(silent=silent)

    def pause(self) -> None:
        """Stop as by SIGSTOP: connections stay open, and messages that arrive wait."""
        self.loop.pause()

    def resume(self) -> None:
        self.loop.resume()


class ProcessEndedError(Exception):
    """The process died before it had finished a request."""


class _Watch:
    def __init__(self, name: str, outcome: asyncio.Future[Any]) -> None:
        self._name = name
        self._outcome = outcome

    def die(self, *, silent: bool) -> None:
        if not self._outcome.done():
            self._outcome.set_exception(ProcessEndedError(self._name))


def _copy_outcome(done: asyncio.Task[T], outcome: asyncio.Future[T]) -> None:
    if outcome.done():
        return
    if done.cancelled():
        outcome.cancel()
    elif (error := done.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
