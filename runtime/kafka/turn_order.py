"""Whose connection is served next when there is more to do than the event loop can: pure.

Users take turns, the client ids of a user take turns within its share, and so do the connections of
a client id within that. So neither many connections nor many requests make a share larger. This is
deficit round robin (Shreedhar and Varghese, 1995) on three levels. The cost of a turn is known
only afterwards, so a turn may cost more than its share. The user then owes the difference, and is
passed over until rounds have made up for it.

A user takes memory only while it waits, or while it owes something and others wait.
"""

from __future__ import annotations

from typing import Final, Generic, Protocol, TypeVar

QUANTUM_S: Final = 0.0004
"""What a user, and a client id within its user's share, may take in a round."""

DEBT_MAX_S: Final = 20 * QUANTUM_S
"""At most so much is owed: one long turn shuts nobody out for long."""

T = TypeVar("T")


class _Member(Protocol):
    """One that takes turns in a ring."""

    credit_s: float

    @property
    def waits(self) -> bool:
        """Whether it has anything to do."""
        ...


M = TypeVar("M", bound=_Member)


class _Ring(Generic[M]):
    """Members in the order of their turns. A member without work stays in it while it owes."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members: dict[str, M] = {}

    def turn(self) -> M:
        """The member whose turn it is. At least one must wait."""
        members = self.members
        while True:
            name = next(iter(members))
            member = members[name]
            if member.waits and member.credit_s > 0:
                return member
            # The end of its turn. What is left of a share is not kept for later rounds.
            del members[name]
            member.credit_s = min(member.credit_s, 0.0) + QUANTUM_S
            if member.waits or member.credit_s <= 0:
                members[name] = member


class _Client(Generic[T]):
    """A client id of a user."""

    __slots__ = ("credit_s", "items")

    def __init__(self) -> None:
        self.credit_s = QUANTUM_S
        self.items: dict[T, None] = {}  # in the order of their coming

    @property
    def waits(self) -> bool:
        return bool(self.items)


class _User(Generic[T]):
    __slots__ = ("credit_s", "ring", "waiting")

    def __init__(self) -> None:
        self.credit_s = QUANTUM_S
        self.ring: _Ring[_Client[T]] = _Ring()
        self.waiting = 0  # items of all its clients

    @property
    def waits(self) -> bool:
        return self.waiting > 0


class TurnOrder(Generic[T]):
    """Items that wait for a turn: connections. Each waits at most once."""

    def __init__(self) -> None:
        self._ring: _Ring[_User[T]] = _Ring()
        self.waiting: Final[dict[T, tuple[_User[T], _Client[T]]]] = {}  # read it only
        # That of the last turn: the first of their rings, unless nobody has waited since.
        self._first: tuple[_User[T], _Client[T]] | None = None
        # That of the item which came last, and its names: both are in their rings.
        self._newest: tuple[_User[T], _Client[T]] | None = None
        self._newest_names = ("", "")

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, item: T) -> bool:
        return item in self.waiting

    def wait(self, item: T, user_name: str, client_id: str) -> None:
        """The item has something to do."""
        found = self._newest
        if found is None or self._newest_names != (user_name, client_id):
            found = self._newest = self._found(user_name, client_id)
            self._newest_names = user_name, client_id
        user, client = found
        client.items[item] = None
        user.waiting += 1
        self.waiting[item] = found

    def _found(self, user_name: str, client_id: str) -> tuple[_User[T], _Client[T]]:
        users = self._ring.members
        user = users.get(user_name)
        if user is None:
            user = users[user_name] = _User()
        clients = user.ring.members
        client = clients.get(client_id)
        if client is None:
            client = clients[client_id] = _Client()
        return user, client

    def leave(self, item: T) -> None:
        """The item has nothing to do any more. It need not wait."""
        found = self.waiting.pop(item, None)
        if found is not None:
            user, client = found
            del client.items[item]
            user.waiting -= 1

    def next(self) -> T:
        """The item whose turn it is, which waits no more. At least one must wait."""
        user, client = self._first or self._turn()
        if not client.items or client.credit_s <= 0 or user.credit_s <= 0:
            user, client = self._turn()
        item = next(iter(client.items))
        del client.items[item]
        del self.waiting[item]
        user.waiting -= 1
        return item

    def _turn(self) -> tuple[_User[T], _Client[T]]:
        """Ask the rings. They find the first ones again as long as these wait and have credit."""
        self._newest = None  # a ring may lose it now
        user = self._ring.turn()
        self._first = user, user.ring.turn()
        return self._first

    def spent(self, cost_s: float) -> None:
        """The turn of the last item has cost so much. Call it after the item waits again, if it
        does."""
        assert self._first is not None
        user, client = self._first
        client.credit_s -= cost_s
        if client.credit_s < -DEBT_MAX_S:
            client.credit_s = -DEBT_MAX_S
        user.credit_s -= cost_s
        if user.credit_s < -DEBT_MAX_S:
            user.credit_s = -DEBT_MAX_S
        if not self.waiting:
            self._ring.members.clear()  # nobody waits for what is owed
            self._first = self._newest = None
