"""The clients of this process through which exactly-once writes reach their clusters.

Spark runs all tasks and all commits of a query in the same few Python workers. Each worker does one
thing at a time. A worker would open the same clients for each micro-batch again, so it leaves
them open for the next one. These rules hold:

- One user at a time has a door. A second one of the same options gets a door of its own.
- A door is as good as new, or closed: one whose user has raised anything is closed.
- At most ``MOST_IDLE`` doors wait, and none of them longer than ``IDLE_S``. At the end of the
  process they are closed.
- A forked process has none of its parent's doors: their sockets and threads stay with the parent.
- Clients with ``total.timeout.ms`` are for one call, so their door is closed after it.
- What an idle door remembers may be old. Its users ask again for everything that may have changed.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from stele.spark.client_settings import of_admins
from stele.spark.ledger import Ledger
from stele.spark.options import SinkOptions

if TYPE_CHECKING:
    from stele.sync.prepared import PreparedTransactions

log = logging.getLogger(__name__)

MOST_IDLE = 4
IDLE_S = 60.0


class Door:
    """The clients for one set of options. Use it from one thread at a time."""

    def __init__(self, options: SinkOptions) -> None:
        from stele import Admin  # loaded where it runs: Spark forks its workers

        self._options = options
        self.admin = Admin(options.bootstrap_servers, **of_admins(options.client))
        self.ledger = Ledger(options, self.admin)
        self._prepared: PreparedTransactions | None = None

    @property
    def prepared(self) -> PreparedTransactions:
        """The client that ends the prepared transactions of tasks."""
        if self._prepared is None:
            from stele.sync.prepared import PreparedTransactions

            self._prepared = PreparedTransactions(
                self._options.bootstrap_servers, **self._options.client
            )
        return self._prepared

    def close(self) -> None:
        self.ledger.close()
        if self._prepared is not None:
            self._prepared.close()
        self.admin.close()


class _Idle(NamedTuple):
    key: tuple[object, ...]
    door: Door
    since: float


class Doors:
    """The doors of a process. Any thread may open them."""

    def __init__(
        self,
        make: Callable[[SinkOptions], Door] = Door,
        *,
        most_idle: int = MOST_IDLE,
        idle_s: float = IDLE_S,
    ) -> None:
        self._make = make
        self._most_idle = most_idle
        self._idle_s = idle_s
        self.forget()

    def forget(self) -> None:
        """A child process leaves the doors to its parent."""
        self._lock = threading.Lock()
        self._idle: list[_Idle] = []  # the one that has waited longest comes first
        self._timer: threading.Timer | None = None  # it runs while doors wait
        self._has_end = False

    @contextmanager
    def opened(self, options: SinkOptions) -> Iterator[Door]:
        """A door for these options. Nobody else has it within the block."""
        key = _key(options)
        door = self._take(key) or self._make(options)
        self._close_at_end()
        try:
            yield door
        except BaseException:
            _close(door)
            raise
        if "total_timeout_ms" in options.client:
            _close(door)
        else:
            self._put_back(key, door)

    def close_idle(self, longer_than_s: float = -1.0) -> None:
        """Close the doors that have waited for longer; all of them without an argument."""
        with self._lock:
            before = time.monotonic() - longer_than_s
            closed = [each for each in self._idle if each.since < before]
            self._idle = [each for each in self._idle if each.since >= before]
        for each in closed:
            _close(each.door)

    def _close_at_end(self) -> None:
        """Functions at the end of a process run in reverse order. So this comes after the first
        client, whose own function stops the loop that closes clients."""
        with self._lock:
            if not self._has_end:
                self._has_end = True
                atexit.register(self.close_idle)

    def _take(self, key: tuple[object, ...]) -> Door | None:
        with self._lock:
            for at in reversed(range(len(self._idle))):
                if self._idle[at].key == key:
                    return self._idle.pop(at).door
        return None

    def _put_back(self, key: tuple[object, ...], door: Door) -> None:
        with self._lock:
            self._idle.append(_Idle(key, door, time.monotonic()))
            surplus = self._idle[: -self._most_idle]
            self._idle = self._idle[-self._most_idle :]
            if self._timer is None:
                self._watch()
        for each in surplus:
            _close(each.door)

    def _watch(self) -> None:
        self._timer = threading.Timer(self._idle_s / 2, self._close_old)
        self._timer.name, self._timer.daemon = "stele-spark-doors", True
        self._timer.start()

    def _close_old(self) -> None:
        self.close_idle(self._idle_s / 2)
        with self._lock:
            self._timer = None
            if self._idle:
                self._watch()


def _key(options: SinkOptions) -> tuple[object, ...]:
    """Options with the same key have the same clients."""
    settings = tuple(sorted(options.client.items()))
    return options.bootstrap_servers, options.ledger_topic, settings


def _close(door: Door) -> None:
    try:
        door.close()
    except Exception as error:
        log.info("the clients of an exactly-once write were not closed in order: %s", error)


doors = Doors()
os.register_at_fork(after_in_child=doors.forget)
