"""The links between simulated machines: latency, loss, partitions. Protocols are built on them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chaos.sim.world.wire import Wire

if TYPE_CHECKING:
    from chaos.sim.world.loop import Scheduler
    from chaos.sim.world.process import Machine
    from chaos.sim.world.rng import Rngs

Deliver = Callable[[], object]

# TCP repeats an unacknowledged packet after 200 ms, then after twice as long, and so on.
_FIRST_RETRANSMISSION_S = 0.2
# After this time without an acknowledgement the sender's kernel gives the connection up.
GIVE_UP_S = 60.0


@dataclass(slots=True)
class LinkFaults:
    """How a network misbehaves. The defaults are a quiet local network."""

    latency_s: tuple[float, float] = (0.000_1, 0.000_5)
    # How likely a message takes up to `slow_s` longer.
    slow: float = 0.0
    slow_s: float = 0.5
    # For unary calls: how likely the request is lost, the answer is lost, the request comes twice.
    lost_request: float = 0.0
    lost_reply: float = 0.0
    duplicate: float = 0.0
    # For calls that may come late: how likely a copy arrives up to `late_copy_s` later.
    late_copy: float = 0.0
    late_copy_s: float = 6.0


class Fabric:
    """Decides whether and when something sent from one machine arrives at another."""

    def __init__(self, scheduler: Scheduler, rngs: Rngs) -> None:
        self.scheduler = scheduler
        self.faults = LinkFaults()
        self.wire = Wire()
        self._seeded = rngs
        self._cuts: set[tuple[str, str]] = set()  # (from, to); never iterated over
        self._slowness: dict[tuple[str, str], float] = {}
        self._rngs: dict[tuple[str, str], random.Random] = {}
        self._stalled: list[Route] = []  # routes that hold messages back, in order of stalling

    def rng(self, source: Machine, target: Machine) -> random.Random:
        link = source.name, target.name
        rng = self._rngs.get(link)
        if rng is None:
            rng = self._rngs[link] = self._seeded.of(f"link/{source.name}/{target.name}")
        return rng

    # --------------------------------------------------------------------------------- faults

    def cut(self, source: str, target: str) -> None:
        """Nothing sent from ``source`` reaches ``target`` any more (one way)."""
        self._cuts.add((source, target))

    def isolate(self, name: str, others: Sequence[str]) -> None:
        """Cut a machine off from others, both ways."""
        for other in others:
            self.cut(name, other)
            self.cut(other, name)

    def partition(self, *groups: Sequence[str]) -> None:
        """Cut machines of different groups off from each other. A machine in two groups reaches
        both."""
        for left in groups:
            for right in groups:
                if left is not right:
                    for a in left:
                        for b in right:
                            if not any(a in group and b in group for group in groups):
                                self.cut(a, b)

    def slow_down(self, source: str, target: str, extra_s: float) -> None:
        """Add to the latency of one direction. 0 ends that."""
        self._slowness[(source, target)] = extra_s

    @property
    def has_cuts(self) -> bool:
        return bool(self._cuts)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Mend one direction, or everything. Held messages arrive when TCP would repeat them."""
        if source is None or target is None:
            self._cuts.clear()
            self._slowness.clear()
        else:
            self._cuts.discard((source, target))
        self.retransmit()

    def retransmit(self) -> None:
        """Let every stalled route try again at its time. Also called when a machine comes back."""
        stalled, self._stalled = self._stalled, []
        for route in stalled:
            route.retransmit()

    # --------------------------------------------------------------------------------- moving

    def passes(self, source: Machine, target: Machine) -> bool:
        if not target.powered:
            return False
        cuts = self._cuts
        return not cuts or source is target or (source.name, target.name) not in cuts

    def latency_s(self, source: Machine, target: Machine, rng: random.Random) -> float:
        """The latency of one message. ``rng``: the link's."""
        faults = self.faults
        shortest_s, longest_s = faults.latency_s
        delay_s = shortest_s + (longest_s - shortest_s) * rng.random()
        if faults.slow and rng.random() < faults.slow:
            delay_s += rng.uniform(0.0, faults.slow_s)
        if self._slowness:
            delay_s += self._slowness.get((source.name, target.name), 0.0)
        return delay_s

    def send(
        self, source: Machine, target: Machine, deliver: Callable[..., object], *args: Any
    ) -> None:
        """Send one message that may overtake others."""
        delay_s = self.latency_s(source, target, self.rng(source, target))
        self.scheduler.at(delay_s, self._arrive, source, target, deliver, args)

    def _arrive(
        self,
        source: Machine,
        target: Machine,
        deliver: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        if self.passes(source, target):
            deliver(*args)
        else:
            Route(self, source, target).hold_back(lambda: deliver(*args))

    def stall(self, route: Route) -> None:
        self._stalled.append(route)


class Route:
    """Carries messages from one machine to another, reliably and in order, as TCP does.

    It holds them back while the link is cut or the target has no power. After GIVE_UP_S of that it
    closes itself and calls ``on_give_up``.
    """

    def __init__(
        self,
        fabric: Fabric,
        source: Machine,
        target: Machine,
        *,
        on_give_up: Deliver | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self._fabric = fabric
        self._rng = fabric.rng(source, target)
        self._on_give_up = on_give_up
        self._queue: deque[tuple[float, Deliver]] = deque()  # in order of arrival times
        self._last_arrival = 0.0
        self._held_since: float | None = None
        self._armed = False
        self.closed = False

    def send(self, deliver: Deliver) -> None:
        if self.closed:
            return
        fabric = self._fabric
        delay_s = fabric.latency_s(self.source, self.target, self._rng)
        arrival = max(self._last_arrival, fabric.scheduler.now + delay_s)
        self._last_arrival = arrival
        self._queue.append((arrival, deliver))
        if self._held_since is None:
            self._arm()

    def hold_back(self, deliver: Deliver) -> None:
        """Hold back a message that has just failed to arrive."""
        now = self._fabric.scheduler.now
        self._queue.append((now, deliver))
        self._hold(now)

    def drop_queued(self, keep: int) -> None:
        """Forget all but the first ``keep`` messages that are under way."""
        while len(self._queue) > keep:
            self._queue.pop()

    @property
    def queued(self) -> int:
        return len(self._queue)

    def close(self) -> None:
        self.closed = True
        self._queue.clear()

    def _arm(self) -> None:
        if not self._armed and self._queue:
            self._armed = True
            self._fabric.scheduler.world.call_at(self._queue[0][0], self._arrive)

    def _arrive(self) -> None:
        self._armed = False
        now = self._fabric.scheduler.now
        while self._queue and self._queue[0][0] <= now:
            if not self._fabric.passes(self.source, self.target):
                self._hold(now)
                return
            _, deliver = self._queue.popleft()
            deliver()
        self._arm()

    def _hold(self, now: float) -> None:
        if self._held_since is None:
            self._held_since = now
            self._fabric.scheduler.at(GIVE_UP_S, self._give_up, now)
        self._fabric.stall(self)

    def _give_up(self, held_since: float) -> None:
        if self._held_since == held_since and not self.closed:
            self.close()
            if self._on_give_up is not None:
                self._on_give_up()

    def retransmit(self) -> None:
        """Try again at the next moment of TCP's back-off: the link may be free again."""
        if self._held_since is None or self.closed:
            return
        now = self._fabric.scheduler.now
        wait_s, attempt_at = _FIRST_RETRANSMISSION_S, self._held_since + _FIRST_RETRANSMISSION_S
        while attempt_at <= now:
            wait_s *= 2
            attempt_at += wait_s
        self._fabric.scheduler.at(attempt_at - now, self._try_again)

    def _try_again(self) -> None:
        if self.closed or self._held_since is None:
            return
        if not self._fabric.passes(self.source, self.target):
            self._fabric.stall(self)
            return
        self._held_since = None
        self._arrive()
