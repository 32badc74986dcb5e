"""When each connection of a node may take requests, so that no client keeps the loop from others.

As long as the node keeps up, a connection takes what it has received at once. In one go it takes at
most ``TURN_REQUESTS``. When connections have taken requests for ``BURST_S`` without a pause, or one
has more than fits in one go, they wait for one another: ``turn_order`` says who is next, and after
each ``BURST_S`` of work the loop looks for input and completions. A connection that waits is read
once more at most, so what a greedy client sends stays with it. Nobody is refused anything.

A connection that has taken all turns for ``ALONE_AFTER_S`` keeps nobody from anything, so its
bursts are longer. Followers then fetch more at once. They do not count here, since they fetch what
the connection writes. With acks=1 that was measured as a quarter more of throughput.

An example: a client has eight connections with 200 requests each, and a request takes 0.1 ms.
Another client's request would wait for all that the eight have received, 51 ms with 64 requests
in flight on each of them. With turns it waits for one turn, some 0.8 ms, and for the rest of a
burst.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, Protocol

from runtime.kafka.turn_order import TurnOrder
from stele.world import Clock

BURST_S: Final = 0.001
"""So long connections take requests before the loop does anything else."""

BURST_ALONE_S: Final = 0.004
"""The same while one connection alone takes requests, besides followers."""

ALONE_AFTER_S: Final = 0.1
"""A connection is alone when no other one has taken a turn for so long."""

TURN_REQUESTS: Final = 8
"""A connection's turn ends after so many requests, and where it must receive more. So it is about a
chunk of small requests (``FrameReader``) or one large request."""

CLIENT_ID_BYTES: Final = 128
"""So many bytes from the beginning of a request tell client ids apart."""

REQUEST_FLOOR_S: Final = 0.00005
"""A request costs at least so much. Handlers that go on later have more work than is measured in
the turn, and in the simulator no work takes any time."""

_FREE_TURNS: Final = 4
"""So many turns may pass before a callback is due that finds out that the loop goes round."""


class Taker(Protocol):
    """A connection."""

    @property
    def is_of_follower(self) -> bool:
        """Whether a follower fetches here."""
        ...

    def take_turn(self) -> int:
        """Take some of the requests that are there. Returns their number. If there are more, it
        waits again by itself."""
        ...


class Turns:
    """Shared by all connections of a node. Without a clock each connection takes all at once."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._now_s: Final = clock.monotonic if clock is not None else None
        self.requests: Final = sys.maxsize if clock is None else TURN_REQUESTS
        self._order: TurnOrder[Taker] = TurnOrder()
        self._taken_s = 0.0  # by turns since the loop last went round
        self._free_turns = 0  # turns since then for which nobody waited
        self._is_due = False  # _go_on is about to be called
        self.is_contended = False
        """Whether a connection must wait for its turn: a burst is over, or others wait."""
        self._burst_s = BURST_S
        self._last: Taker | None = None  # it took the last turn, those of followers apart
        self._last_since_s = 0.0  # no other one has taken a turn since

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return len(self._order)

    @property
    def is_going_on(self) -> bool:
        """Whether the connections that wait get turns when the loop goes round."""
        return self._is_due

    def wait(self, taker: Taker, user: str, client_id: str) -> None:
        """Call ``take_turn`` when it is the connection's turn."""
        self._order.wait(taker, user, client_id)
        self.is_contended = True
        if not self._is_due:
            self._arm()

    def leave(self, taker: Taker) -> None:
        """Wait no more: the connection is closed."""
        self._order.leave(taker)
        self._look()
        if self._last is taker:
            self._last = None

    def run(self, taker: Taker) -> None:
        """A turn that nobody has to wait for."""
        now_s = self._now_s
        if now_s is None:
            taker.take_turn()
            return
        began_s = now_s()
        if taker is not self._last:
            self._note(taker, began_s)
        requests = taker.take_turn()
        if requests:
            self._taken_s += max(now_s() - began_s, requests * REQUEST_FLOOR_S)
            if self._taken_s >= self._burst_s:
                self.is_contended = True
            self._free_turns += 1
            if self._free_turns >= _FREE_TURNS and not self._is_due:
                self._arm()

    def _note(self, taker: Taker, now_s: float) -> None:
        """Another one than the last takes a turn."""
        if not taker.is_of_follower:
            self._last = taker
            self._last_since_s = now_s
            if self._burst_s != BURST_S:
                self._burst_s = BURST_S
                self._look()

    def _look(self) -> None:
        self.is_contended = self._taken_s >= self._burst_s or bool(self._order.waiting)

    def _arm(self) -> None:
        self._is_due = True
        asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """The loop has gone round."""
        self._is_due = False
        self._free_turns = 0
        self._taken_s = 0.0
        order, now_s = self._order, self._now_s
        assert now_s is not None
        began_s = now_s()
        is_alone = began_s - self._last_since_s >= ALONE_AFTER_S
        self._burst_s = BURST_ALONE_S if is_alone else BURST_S
        waiting = order.waiting
        while waiting and self._taken_s < self._burst_s:
            taker = order.next()
            if not waiting:
                self._look()  # nobody waits for this turn
            if taker is not self._last:
                self._note(taker, began_s)
            requests = taker.take_turn()
            ended_s = now_s()
            cost_s = max(ended_s - began_s, (requests or 1) * REQUEST_FLOOR_S)
            began_s = ended_s
            order.spent(cost_s)
            self._taken_s += cost_s
        self._look()
        # Otherwise nobody waits any more. A turn may have made it due already.
        if self._taken_s >= self._burst_s and not self._is_due:
            self._arm()
