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
    ...     prices.put(b"EUR", b"1.08")

    It is a ``Mapping`` of bytes to bytes. Any thread may read: looking up a key costs no change of
    threads. The topic is best a compacted one (``cleanup.policy=compact``). Records without a key
    are passed over.

    **Time to live.** A key lives from the timestamp of its record on for as long as the record's
    header ``ttl-ms`` says, and otherwise for ``default_ttl_ms``. The view does not show an expired
    key. Expiry changes nothing in the topic.

    **Callbacks** run on the clients' thread, and must not call methods of synchronous clients. What
    they raise is logged.

    **Errors.** A batch that cannot be read stops the view. From then on every read raises the
    reason, because the values may be old.
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
        """``default_ttl_ms``: how long a key lives, in milliseconds. None: for ever.

        ``janitor_interval_ms``: how often expired keys are taken out of memory. 0: there is no
        janitor, and ``evict_expired`` does its work.

        ``on_update(key, earlier value or None, new value)`` is called for each record,
        ``on_eviction(key, last value, reason)`` for each key that leaves.

        With ``isolation_level="read_committed"`` the view shows nothing of open and aborted
        transactions. Records behind the first one of an open transaction wait for its end, and so
        does ``put``.

        ``options`` are the fields of :class:`stele.config.ClientConfig`. Raises ConfigError.
        """
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
        """Begin to follow the topic, and return when the view has everything that was in the topic
        at the call. The ``with`` block calls it.

        Raises ApiError if the topic is not there, or if nothing of it comes within
        ``default_api_timeout_ms``.
        """
        self._run(self._view.start)

    def close(self) -> None:
        """Stop following the topic, and forget everything. Idempotent."""
        if not self._is_open or self._is_foreign:
            return
        try:
            self._run(self._view.close)
        finally:
            self._is_open = False

    @property
    def is_caught_up(self) -> bool:
        """Whether the view has everything that was in the topic when its reading began. It is False
        again while a partition is read once more from its start."""
        return self._view.is_caught_up

    # Looking up one key in the dictionary of the clients' thread is safe from any thread. Going
    # through it is not.

    def __getitem__(self, key: bytes) -> bytes:
        """Raises KeyError, and the error that stopped the view."""
        return self._view[key]

    def __len__(self) -> int:
        """The number of keys. It counts each expired key until the janitor comes."""
        return len(self._view)

    def __iter__(self) -> Iterator[bytes]:
        """The keys as they are now."""
        return iter([key for key, _ in self.snapshot()])

    def snapshot(self) -> list[tuple[bytes, bytes]]:
        """All keys and values at this moment, without expired ones."""
        return self._do(self._view.snapshot)

    def put(self, key: bytes, value: bytes, ttl_ms: Ttl = Expiry.DEFAULT) -> RecordMetadata:
        """Write a record to the topic, and return when this view has it, too.

        ``ttl_ms``: how long the key lives, in milliseconds, or ``Expiry.DEFAULT`` or
        ``Expiry.NONE`` (for ever).

        Raises the producer's errors, and ApiError REQUEST_TIMED_OUT if the record is written but
        the view does not read it within ``default_api_timeout_ms``.
        """
        return self._run(lambda: self._view.put(key, value, ttl_ms))

    def delete(self, key: bytes) -> RecordMetadata:
        """Write a tombstone, and return when this view has it, too. Raises as ``put``."""
        return self._run(lambda: self._view.delete(key))

    def evict_expired(self) -> int:
        """Take expired keys out of memory, and call ``on_eviction`` for them. Returns their
        number.
        """
        return self._do(self._view.evict_expired)
