"""Connections that wait for their turn, in a bounded queue that is fair to addresses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

HELD_MAX: Final = 1000
"""Each takes a file handle. The system's own queue of a listener is as long on most machines."""

C = TypeVar("C", bound=Hashable)


class FairQueue(Generic[C]):
    """One connection of each address in turn. Pure.

    If the queue is full, the address with the most connections in it loses its newest one. So a
    flood from one address keeps no other address out, and delays it by one turn only.
    """

    def __init__(self) -> None:
        # The address whose turn it is comes first. Of each its connections in their order; no
        # address stays without any.
        self._by_address: OrderedDict[str, dict[C, None]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, connection: C, address: str) -> C | None:
        """Returns the connection that has no room if the queue is full. It may be the new one."""
        out: C | None = None
        if self._count >= HELD_MAX:
            greediest = max(self._by_address, key=lambda each: len(self._by_address[each]))
            most = len(self._by_address[greediest])
            if len(self._by_address.get(address, ())) >= most:
                return connection
            out = next(reversed(self._by_address[greediest]))
            self.remove(out, greediest)
        self._by_address.setdefault(address, {})[connection] = None
        self._count += 1
        return out

    def pop(self) -> C:
        """The next one. The queue must not be empty."""
        address, waiting = next(iter(self._by_address.items()))
        connection = next(iter(waiting))
        self.remove(connection, address)
        if address in self._by_address:
            self._by_address.move_to_end(address)
        return connection

    def remove(self, connection: C, address: str) -> None:
        """If it is there."""
        waiting = self._by_address.get(address)
        if waiting is None or connection not in waiting:
            return
        del waiting[connection]
        self._count -= 1
        if not waiting:
            del self._by_address[address]
