"""A simulation: one seed, virtual time, machines, a network between them, and a transcript."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from chaos.sim.world.clock import SimClock
from chaos.sim.world.disk import VirtualDisk
from chaos.sim.world.fabric import Fabric
from chaos.sim.world.loop import Scheduler
from chaos.sim.world.network import SimNetwork
from chaos.sim.world.process import Machine, Process
from chaos.sim.world.rng import Rngs
from chaos.sim.world.transcript import Transcript

T = TypeVar("T")


class Simulation:
    """The world of one run. Everything in it follows from the seed."""

    def __init__(self, seed: int, *, keep_transcript: bool = False) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.rngs = Rngs(seed)
        self.fabric = Fabric(self.scheduler, self.rngs)
        self.transcript = Transcript(keep=keep_transcript)
        self.machines: dict[str, Machine] = {}
        self._incarnations: dict[str, int] = {}

    @property
    def now(self) -> float:
        return self.scheduler.now

    def note(self, where: str, kind: str, text: str = "") -> None:
        """Add an event to the transcript."""
        self.transcript.add(self.scheduler.now, where, kind, text)

    def machine(self, name: str) -> Machine:
        """The machine of that name, which is also its host name. The first call makes it."""
        machine = self.machines.get(name)
        if machine is None:
            rng = self.rngs.of(f"machine/{name}")
            disk = VirtualDisk(
                self.rngs.of(f"disk/{name}"),
                lambda: self.scheduler.now,
                lambda kind, text: self.note(name, kind, text),
            )
            clock = SimClock(self.scheduler, rng.uniform(1.0, 1e6), rng.randint(-50, 50))
            machine = self.machines[name] = Machine(name, disk, clock)
        return machine

    def process(self, machine: str, name: str | None = None) -> Process:
        """Start a new, empty process on a machine. By default it has the machine's name."""
        name = name or machine
        incarnation = self._incarnations[name] = self._incarnations.get(name, 0) + 1
        process = Process(self.machine(machine), name, self.scheduler, incarnation)
        process.make_world(SimNetwork(self, process), self.rngs.of(f"process/{name}/{incarnation}"))
        self.note(name, "start", f"incarnation {incarnation}")
        return process

    def kill(self, process: Process) -> None:
        """Kill a process as by kill -9."""
        self.note(process.name, "kill")
        process.kill()

    def power_off(self, machine: str) -> None:
        self.note(machine, "power-off")
        self.machines[machine].power_off()

    def power_on(self, machine: str) -> None:
        self.note(machine, "power-on")
        self.machines[machine].power_on()
        self.fabric.retransmit()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run to the end of ``main``, which runs outside of all processes.

        Every process is killed after that. Raises the error of ``main``, or SimulationFailedError
        if a process had an unhandled failure.
        """
        try:
            result = self.scheduler.run(main)
        finally:
            self.scheduler.close()
        if self.scheduler.errors:
            raise SimulationFailedError(
                f"seed {self.seed}: "
                + "; ".join(f"{name}: {text}" for name, text in self.scheduler.errors[:5])
            )
        return result


class SimulationFailedError(AssertionError):
    """A process had a failure that its own code did not handle."""
