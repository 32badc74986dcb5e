"""A fetch of a test: what it asks for, and a callback that takes the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.types import FetchEntry, FetchResult

Done = Callable[[list[FetchResult]], None]


class AskedFetch(WaitingFetch):
    def __init__(
        self,
        items: Sequence[FetchEntry | FetchResult],
        done: Done,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        replica_id: int = -1,
        replica_epoch: int = -1,
        read_committed: bool = False,
        any_replica: bool = False,
        nearby: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            read_committed=read_committed,
            any_replica=any_replica,
            nearby=nearby,
        )
        self._done = done
        self.ask(items)

    def answer(self, results: list[FetchResult]) -> None:
        self._done(results)
