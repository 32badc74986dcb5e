"""Produce requests that wait for an offset to be passed."""

from __future__ import annotations

import heapq
import itertools

from broker.partition.effects import Token


class OffsetWaiters:
    """Tokens by the offset that frees them, least first; in order of arrival among equals."""

    __slots__ = ("_heap", "_numbers", "live")

    def __init__(self) -> None:
        # Every waiting token stands in both; the heap may hold entries of withdrawn ones too,
        # known by their number, at most about as many as live ones.
        self._heap: list[tuple[int, int, Token]] = []
        # By number. Public, so that to ask whether anybody waits costs no call.
        self.live: dict[int, Token] = {}
        self._numbers = itertools.count()

    def add(self, offset: int, token: Token) -> int:
        """Wait until ``offset`` is reached; the number returned withdraws."""
        number = next(self._numbers)
        self.live[number] = token
        heapq.heappush(self._heap, (offset, number, token))
        return number

    def withdraw(self, number: int) -> None:
        """Forget a token; harmless when it is gone already."""
        self.live.pop(number, None)
        if len(self._heap) > 2 * len(self.live) + 64:
            self._heap = [entry for entry in self._heap if entry[1] in self.live]
            heapq.heapify(self._heap)

    def reach(self, offset: int) -> tuple[Token, ...]:
        """Take out every token whose offset is not above ``offset``."""
        heap = self._heap
        tokens = []
        while heap and heap[0][0] <= offset:
            _, number, token = heapq.heappop(heap)
            if self.live.pop(number, None) is not None:
                tokens.append(token)
        return tuple(tokens)

    def drain(self) -> tuple[Token, ...]:
        """Take out every token, in order of arrival."""
        tokens = tuple(self.live.values())
        self.live.clear()
        self._heap.clear()
        return tokens
