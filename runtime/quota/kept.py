"""What is kept of each bucket of clients: bounded, and forgotten after a time without use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from metadata.client_quotas import ClientQuotas
from runtime.quota.precedence import Bucket, Client, Found, find

MAX: Final = 10_000
"""The most buckets, and clients whose quotas are remembered. Clients choose their ids freely."""

IDLE_S: Final = 3600.0

SAMPLES_MAX: Final = 200
"""Samples of a metric by clients. Nobody bounds their number, so it shows the newest ones."""

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Throttle(NamedTuple):
    """Why a client is to wait, and for how long."""

    seconds: float
    key: str
    found: Found
    observed: float
    """What the bound is compared with."""


class Finder:
    """The quotas of clients, remembered from one request to the next."""

    __slots__ = ("_found", "_quotas")

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas
        self._found: dict[tuple[str, Client], Found | None] = {}

    def take(self, quotas: ClientQuotas) -> None:
        """Go by these from now on."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self._found.clear()

    def find(self, key: str, client: Client) -> Found | None:
        """See ``runtime.quota.precedence.find``."""
        wanted = key, client
        try:
            return self._found[wanted]
        except KeyError:
            if len(self._found) >= MAX:
                self._found.clear()
            found = self._found[wanted] = find(self._quotas, key, client)
            return found


class _Entry(Generic[T]):
    __slots__ = ("used_s", "value")

    def __init__(self, value: T, used_s: float) -> None:
        self.value = value
        self.used_s = used_s


class Recent(Generic[K, T]):
    """A value for each key. The one that was used least recently goes first."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        # In the order of their last use.
        self._entries: OrderedDict[K, _Entry[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[K, T]]:
        """The one that was used last comes first."""
        for key, entry in reversed(self._entries.items()):
            yield key, entry.value

    def get(self, key: K, now_s: float) -> T | None:
        """The value, which counts as used. None: there is none, or it was idle for too long."""
        entry = self._entries.get(key)
        if entry is None or now_s - entry.used_s >= IDLE_S:
            return None
        entry.used_s = now_s
        self._entries.move_to_end(key)
        return entry.value

    def peek(self, key: K) -> T | None:
        """The value, which does not count as used."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def put(self, key: K, value: T, now_s: float) -> None:
        """Keep a new value."""
        entries = self._entries
        while entries:
            oldest = next(iter(entries))
            if len(entries) < MAX and now_s - entries[oldest].used_s < IDLE_S:
                break
            del entries[oldest]
        entries[key] = _Entry(value, now_s)
        entries.move_to_end(key)


class Kept(Generic[T]):
    """A value for each quota's key and bucket."""

    __slots__ = ("_recent",)

    def __init__(self) -> None:
        self._recent: Recent[tuple[str, Bucket], T] = Recent()

    def __len__(self) -> int:
        return len(self._recent)

    def __iter__(self) -> Iterator[tuple[str, Bucket, T]]:
        """The one that was used last comes first."""
        for (key, bucket), value in self._recent:
            yield key, bucket, value

    def get(self, key: str, bucket: Bucket, now_s: float) -> T | None:
        """As ``Recent.get``."""
        return self._recent.get((key, bucket), now_s)

    def peek(self, key: str, bucket: Bucket) -> T | None:
        """As ``Recent.peek``."""
        return self._recent.peek((key, bucket))

    def put(self, key: str, bucket: Bucket, value: T, now_s: float) -> None:
        """As ``Recent.put``."""
        self._recent.put((key, bucket), value, now_s)
