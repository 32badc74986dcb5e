"""The synchronous topic view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self, Unpack

from stele import aio
from stele.config import ClientOptions, ClientWorld, IsolationLevel
from stele.records import RecordMetadata
from stele.sync.face import Face
from stele.topic_view.view import Expiry, OnEviction, OnUpdate, Ttl


class TopicView(Face, Mapping[bytes, bytes]):
    """The last value of each key of a topic, kept up to date by the clients' thread.

    >>> with TopicView("127.0.0.1:9092", "prices", default_ttl_ms=60_000) as prices:
    ...     print(prices.get(b"EUR"))

    Any thread may read: looking up a key costs no change of threads. Callbacks run on the clients'
    thread, and must not call methods of synchronous clients. Everything else:
    :class:`stele.topic_view.view.TopicView`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        default_ttl_ms: int | None = None,
        janitor_interval_ms: int = 1_000,
        on_update: OnUpdate | None = None,
        on_eviction: OnEviction | None = None,
        isolation_level: IsolationLevel = "read_uncommitted",
        world: ClientWorld | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__()
        self._view = self._do(
            lambda: aio.TopicView(
                bootstrap_servers,
                topic,
                default_ttl_ms=default_ttl_ms,
                janitor_interval_ms=janitor_interval_ms,
                on_update=on_update,
                on_eviction=on_eviction,
                isolation_level=isolation_level,
                world=world,
                **options,
            )
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def start(self) -> None:
        """Begin to follow the topic, and return when the view has all that was in the topic at the
        call. Raises ApiError: the topic is not there."""
        self._run(self._view.start)

    def close(self) -> None:
        """Stop following, and forget everything. Idempotent."""
        if not self._is_open or self._is_foreign:
            return
        try:
            self._run(self._view.close)
        finally:
            self._is_open = False

    @property
    def is_caught_up(self) -> bool:
        return self._view.is_caught_up

    # Looking up one key in the dictionary of the clients' thread is safe from any thread. Going
    # through it is not.

    def __getitem__(self, key: bytes) -> bytes:
        return self._view[key]

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key, _ in self.snapshot()])

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """All keys and values at one moment."""
        return self._do(self._view.snapshot)

    def put(self, key: bytes, value: bytes, ttl_ms: Ttl = Expiry.DEFAULT) -> RecordMetadata:
        """Write a record to the topic, and return when this view has it, too."""
        return self._run(lambda: self._view.put(key, value, ttl_ms))

    def delete(self, key: bytes) -> RecordMetadata:
        """Write a tombstone to the topic, and return when this view has it, too."""
        return self._run(lambda: self._view.delete(key))

    def evict_expired(self) -> int:
        """Take expired keys out of memory. Returns their number."""
        return self._do(self._view.evict_expired)
