"""Fetch: record batches to clients and to followers, and the wait for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.replication.fetch_query import FetchQuery
from broker.replication.types import Cancel, FetchEntry, FetchResult
from broker.service.context import BrokerContext
from broker.service.items import merge


class Fetch:
    """One request: what it finds, and withdrawing it."""

    __slots__ = ("_context", "_done", "_is_waiting", "_items", "_query", "_withdraw")

    def __init__(
        self,
        context: BrokerContext,
        items: Sequence[FetchEntry | FetchResult],
        query: FetchQuery,
        done: Callable[[list[FetchResult]], None],
    ) -> None:
        """``query.entries`` is filled from the items; ``done`` gets a result for each, in order. A
        session has no items: its results are those of the partitions that it names."""
        self._context = context
        self._items = items
        self._query = query
        self._done = done
        self._is_waiting = False
        self._withdraw: Cancel | None = None

    def run(self) -> None:
        """A fetch of which any item is refused does not wait: the client must hear of it."""
        query = self._query
        if query.replica_id < 0:
            query.max_bytes = min(query.max_bytes, self._context.config.fetch_max_bytes)
        query.entries = [item for item in self._items if isinstance(item, FetchEntry)]
        if len(query.entries) < len(self._items):
            query.max_wait_ms = 0
        self._is_waiting = True
        self._context.metrics.fetch_waiting += 1
        if not query.entries and self._items:
            self._finish([])
        else:
            self._withdraw = self._context.replicas.fetch(query, self._finish)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._leave()
        if self._withdraw is not None:
            self._withdraw()

    def _finish(self, results: list[FetchResult]) -> None:
        self._leave()
        if self._query.session is None and len(results) < len(self._items):
            results = merge(self._items, FetchEntry, results)
        self._done(results)

    def _leave(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._context.metrics.fetch_waiting -= 1
