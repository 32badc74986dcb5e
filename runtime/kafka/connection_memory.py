"""The memory that all Kafka connections of a node hold together, and the queue for more of it.

Requests and answers under way count: received bytes, decoded messages, answers that are not written
yet, and written bytes that the peer has not taken. Above the limit the node reads only from
connections that hold next to nothing themselves. So clients that send much, or take nothing, wait
for one another, and the others do not notice. The memory stays below the limit plus, for each
connection, its free share, one request or answer, and the ``SMALL_BYTES`` that do not count.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final, Protocol

FREE_SHARE_BYTES: Final = 2 * 1024 * 1024
"""Bytes that each connection may hold whatever the others do: a request of ordinary size."""

SMALL_BYTES: Final = 16 * 1024
"""A connection that holds less than this counts as one that holds nothing, besides what its
encryption holds. So most requests of ordinary clients change nothing here."""

PATIENCE_S: Final = 10.0
"""How long a half received request may wait for memory that only such requests hold."""

_ANSWER_SHARE = 4
"""One answer takes at most this part of what is left: the next client finds some, too."""


class Holder(Protocol):
    """A connection."""

    def memory_freed(self) -> None:
        """The wait is over. A connection that still lacks memory asks again."""
        ...

    def give_way(self) -> bool:
        """Let go of a half received request, if that is all it holds; whether it did."""
        ...


class MemoryShare:
    """What one connection holds."""

    __slots__ = ("_holder", "_memory", "awaits", "held_bytes")

    def __init__(self, memory: ConnectionMemory, holder: Holder) -> None:
        self._memory = memory
        self._holder = holder
        self.held_bytes = 0  # as noted last
        self.awaits = False  # whether the connection waits for more

    @property
    def is_lacking(self) -> bool:
        """Whether the connection must wait for more."""
        return self.held_bytes >= FREE_SHARE_BYTES and self._memory.is_short

    def note(self, held_bytes: int) -> None:
        """The connection holds so much now."""
        delta, self.held_bytes = held_bytes - self.held_bytes, held_bytes
        self._memory.change(delta)

    def wait(self, awaits: bool) -> None:
        """Whether the connection waits for more."""
        if awaits:
            self._memory.wait(self._holder)
        elif self.awaits:
            self._memory.leave(self._holder)
        self.awaits = awaits

    def freed(self) -> None:
        """The wait is over."""
        self.awaits = False

    def close(self) -> None:
        """The connection is lost."""
        self._memory.leave(self._holder)
        self.note(0)


class ConnectionMemory:
    """``limit_bytes`` is ``queued.max.request.bytes``; -1: none."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = sys.maxsize if limit_bytes < 0 else limit_bytes
        self.held_bytes = 0
        # In the order of their coming. Not empty only while memory is short, or a turn longer.
        self._waiting: dict[Holder, None] = {}
        self._patience: asyncio.TimerHandle | None = None
        self._is_waking = False

    @property
    def is_short(self) -> bool:
        return self.held_bytes >= self._limit_bytes

    @property
    def waiting(self) -> int:
        """How many connections wait."""
        return len(self._waiting)

    def answer_share(self) -> int:
        """How many bytes the next answer may take: fewer and fewer as memory runs short."""
        return max(0, self._limit_bytes - self.held_bytes) // _ANSWER_SHARE

    def change(self, delta_bytes: int) -> None:
        """A connection holds ``delta_bytes`` more, or less."""
        self.held_bytes += delta_bytes
        if delta_bytes < 0 and self._waiting and not self.is_short and not self._is_waking:
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def wait(self, holder: Holder) -> None:
        """Be told when there is memory."""
        if holder in self._waiting:
            return
        self._waiting[holder] = None
        if self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._lose_patience)

    def leave(self, holder: Holder) -> None:
        """Wait no more."""
        self._waiting.pop(holder, None)
        if not self._waiting and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _wake(self) -> None:
        self._is_waking = False
        for holder in list(self._waiting):
            if self.is_short:
                break
            if holder in self._waiting:
                self.leave(holder)
                holder.memory_freed()

    def _lose_patience(self) -> None:
        """Break the deadlock of half received requests that hold all memory and wait for more."""
        self._patience = None
        if self.is_short:
            for holder in list(self._waiting):
                if holder.give_way():
                    break
        else:
            self._wake()
        if self._waiting and self._patience is None:
            self._patience = asyncio.get_running_loop().call_later(PATIENCE_S, self._lose_patience)
