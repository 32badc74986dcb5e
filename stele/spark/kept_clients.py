"""Clients that a Python worker of Spark leaves open for its next task or micro-batch.

Spark runs all tasks and all commits of a query in the same few Python workers. Each worker does one
thing at a time. A worker would open the same clients for each micro-batch again, so it leaves
them open for the next one. These rules hold:

- One user at a time has a client. A second one of the same options gets a client of its own.
- A client is as good as new, or closed: one whose user has raised anything is closed.
- At most ``MOST_IDLE`` clients wait, and none of them longer than ``IDLE_S``. At the end of the
  process they are closed.
- A forked process has none of its parent's clients: their sockets and threads stay with the parent.
- Clients with ``total.timeout.ms`` are for one call, so they are closed after it.
- What an idle client remembers may be old. Its users ask again for everything that may have
  changed.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

log = logging.getLogger(__name__)

MOST_IDLE = 4
IDLE_S = 60.0


class Options(Protocol):
    """The options of a source or of a sink."""

    @property
    def client(self) -> Mapping[str, Any]:
        """The settings of its clients."""
        ...


class Client(Protocol):
    """A client, or several ones together. Its users are threads, one at a time."""

    def close(self) -> None: ...


OptionsT = TypeVar("OptionsT", bound=Options)
ClientT = TypeVar("ClientT", bound=Client)


class _Idle(NamedTuple, Generic[ClientT]):
    key: object
    client: ClientT
    since: float


class KeptClients(Generic[OptionsT, ClientT]):
    """The clients of one kind in a process. Any thread may open them."""

    def __init__(
        self,
        make: Callable[[OptionsT], ClientT],
        key: Callable[[OptionsT], object],
        *,
        most_idle: int = MOST_IDLE,
        idle_s: float = IDLE_S,
    ) -> None:
        """``key``: options with the same key have the same clients."""
        self._make = make
        self._key = key
        self._most_idle = most_idle
        self._idle_s = idle_s
        self.forget()

    def forget(self) -> None:
        """A child process leaves the clients to its parent: ``os.register_at_fork`` has this."""
        self._lock = threading.Lock()
        self._idle: list[_Idle[ClientT]] = []  # the one that has waited longest comes first
        self._timer: threading.Timer | None = None  # it runs while clients wait
        self._has_end = False

    @contextmanager
    def opened(
        self, options: OptionsT, fits: Callable[[ClientT], bool] = lambda client: True
    ) -> Iterator[ClientT]:
        """A client for these options. Nobody else has it within the block. ``fits``: whether one
        that was used before may be used again."""
        key = self._key(options)
        client = self._take(key, fits) or self._make(options)
        self._close_at_end()
        try:
            yield client
        except BaseException:
            _close(client)
            raise
        if "total_timeout_ms" in options.client:
            _close(client)
        else:
            self._put_back(key, client)

    def close_idle(self, longer_than_s: float = -1.0) -> None:
        """Close the clients that have waited for longer; all of them without an argument."""
        with self._lock:
            before = time.monotonic() - longer_than_s
            closed = [each for each in self._idle if each.since < before]
            self._idle = [each for each in self._idle if each.since >= before]
        for each in closed:
            _close(each.client)

    def _close_at_end(self) -> None:
        """Functions at the end of a process run in reverse order. So this comes after the first
        client, whose own function stops the loop that closes clients."""
        with self._lock:
            if not self._has_end:
                self._has_end = True
                atexit.register(self.close_idle)

    def _take(self, key: object, fits: Callable[[ClientT], bool]) -> ClientT | None:
        with self._lock:
            for at in reversed(range(len(self._idle))):
                if self._idle[at].key == key and fits(self._idle[at].client):
                    return self._idle.pop(at).client
        return None

    def _put_back(self, key: object, client: ClientT) -> None:
        with self._lock:
            self._idle.append(_Idle(key, client, time.monotonic()))
            surplus = self._idle[: -self._most_idle]
            self._idle = self._idle[-self._most_idle :]
            if self._timer is None:
                self._watch()
        for each in surplus:
            _close(each.client)

    def _watch(self) -> None:
        self._timer = threading.Timer(self._idle_s / 2, self._close_old)
        self._timer.name, self._timer.daemon = "stele-spark-clients", True
        self._timer.start()

    def _close_old(self) -> None:
        self.close_idle(self._idle_s / 2)
        with self._lock:
            self._timer = None
            if self._idle:
                self._watch()


def _close(client: Client) -> None:
    try:
        client.close()
    except Exception as error:
        log.info("a client of Spark's tasks was not closed in order: %s", error)
