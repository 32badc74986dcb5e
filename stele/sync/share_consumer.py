"""The synchronous share consumer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self, Unpack

from stele import aio
from stele.config import ClientWorld, ShareConsumerOptions
from stele.errors import ApiError, WakeupError
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, ShareRecord
from stele.sync.calls_back import CallsBack


class ShareConsumer(CallsBack):
    """Takes records from a share group, as from a queue.

    Any number of members share the same partitions. Each record is given to one member, and is
    done when this member accepts it. Each of them can be any record of the topics: order between
    records is not kept.

    Explicitly, where the application says what became of each record:

    >>> with ShareConsumer(
    ...     "127.0.0.1:9092", group_id="mails", share_acknowledgement_mode="explicit"
    ... ) as consumer:
    ...     consumer.subscribe(["orders"])
    ...     for record in consumer:
    ...         with consumer.processing(record):
    ...             send_mail(record.value)

    Implicitly, where each ``poll`` accepts what was returned before:

    >>> with ShareConsumer("127.0.0.1:9092", group_id="mails") as consumer:
    ...     consumer.subscribe(["orders"])
    ...     while records := consumer.poll():
    ...         for record in records:
    ...             send_mail(record.value)

    **Promise.** Every record is processed at least once. A record is delivered again if its member
    releases it, dies, or loses the connection to the partition's leader before the leader has
    answered the acknowledgement.

    **Locks.** A record belongs to this member for ``share.record.lock.duration.ms``. The client
    renews the lock by itself while the application works, for at most ``max_poll_interval_ms``
    after the poll.

    **A new group begins at the end** of each partition, unless the group's configuration
    ``share.auto.offset.reset`` says ``earliest``.

    **Errors.** Calls raise ConfigError (a wrong argument, or a call that does not fit the mode),
    ClosedError, ApiError (a broker refuses, or REQUEST_TIMED_OUT) and UnreachableError. An
    acknowledgement that does not count is no exception: ``commit`` returns it, and
    ``on_acknowledged`` is called with it, by the clients' own thread.

    **Threads and signals.** One thread at a time polls. Any thread may call ``acknowledge``,
    ``processing``, ``holds`` and ``commit``, also while another one polls with explicit
    acknowledgement. Any thread, and any signal handler, may call ``wakeup`` and ``close``.

    Options and their defaults: :class:`stele.config.ShareConsumerConfig`.
    """

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        world: ClientWorld | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """``bootstrap_servers``: ``host:port`` of one or more brokers, with commas between them.
        The other brokers are found by asking these.

        ``options`` are the fields of :class:`stele.config.ShareConsumerConfig`; ``group_id`` must
        be one of them. Raises ConfigError for an unknown or invalid option.
        """
        super().__init__()
        self._consumer = self._do(
            lambda: aio.ShareConsumer(bootstrap_servers, world=world, **options)
        )

    def close(self) -> None:
        """Send the acknowledgements that wait, release everything else, leave the group and release
        all resources. Idempotent.

        With implicit acknowledgement the records of the last poll are released, too: ``commit``
        before, if they are done. Any thread may call it, and a signal handler: a poll that is under
        way raises ClosedError. If a signal interrupts it, closing goes on, and another call waits
        for its end.
        """
        if not self._is_open or self._is_foreign:
            return
        self._settle_to_close()
        self._call_back(self._consumer.close, is_closing=True)
        self._is_open = False

    def wakeup(self) -> None:
        """Make a ``poll`` or an iteration raise WakeupError: the one that is under way, or else the
        next one. Any thread may call it, and a signal handler.
        """
        if self._is_open:
            self._loop.call_soon_threadsafe(self._wake, WakeupError("wakeup() was called"))

    # ------------------------------------------------------------------- subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Take records of these topics. The next polls join the group.

        A further call replaces the subscription. Records of other topics that were returned can
        still be acknowledged, and no further ones are returned. Raises ConfigError.

        >>> consumer.subscribe(["orders", "payments"])
        """
        names = topics if isinstance(topics, str) else list(topics)
        self._do(self._consumer.subscribe, names)

    def unsubscribe(self) -> None:
        """Release everything that was not acknowledged, and leave the group. If the caller is
        cancelled, the group is left all the same."""
        self._settle_alone()
        self._call_back(self._consumer.unsubscribe)

    def subscription(self) -> list[str]:
        """The topics, in order of their names."""
        return self._do(self._consumer.subscription)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that the coordinator has assigned, as far as their names are known. Other
        members may have the same ones."""
        return self._do(self._consumer.assignment)

    # ------------------------------------------------------------------------ reading

    def poll(self, max_records: int | None = None, timeout_ms: float = 1000) -> list[ShareRecord]:
        """Records of the subscribed topics, at most ``max_records`` (at least 1,
        default: ``max_poll_records``).

        Returns as soon as there are any, and an empty list after ``timeout_ms`` without any. With
        implicit acknowledgement it first accepts everything that was returned before. With explicit
        acknowledgement records may be polled while others are still being processed.

        Raises ApiError if a partition cannot be read or the group refuses this member. For a right
        that is missing it is raised once each time a broker refuses. Further polls ask again, and
        return records when the right is back. Raises WakeupError after ``wakeup``.
        """
        self._settle_alone()
        call, records = self._call_back(lambda: self._consumer.poll(max_records, timeout_ms))
        call.returned = call.count  # as in ``Consumer.poll``
        return records

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ShareRecord:
        """The next record. Waits for it without a limit. With implicit acknowledgement it accepts
        the one before."""
        while True:
            self._settle_alone()
            call, records = self._call_back(lambda: self._consumer.poll(1))
            if records:
                record = records[0]
                call.returned = call.count
                return record

    def put_back(self, records: Iterable[ShareRecord]) -> None:
        """Have the next poll return these records, because they did not reach the application."""
        self._settle()
        self._do(self._consumer.put_back, list(records))

    # --------------------------------------------------------------- acknowledgements

    def acknowledge(
        self, record: ShareRecord, kind: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """Say what became of a record that a poll has returned.

        It is sent in the background. ``commit`` waits for the answer. Raises ConfigError with
        implicit acknowledgement.

        >>> consumer.acknowledge(record, AcknowledgeType.REJECT)
        """
        self._do(self._consumer.acknowledge, record, kind)

    @contextmanager
    def processing(self, record: ShareRecord) -> Iterator[ShareRecord]:
        """Accept a record at the end of the block, or release it if the block raises. A record that
        was acknowledged within the block stays so.

        >>> with consumer.processing(record):
        ...     send_mail(record.value)
        """
        self._do(self._consumer.begin_processing)
        try:
            yield record
        except BaseException:
            self._end_processing(record, AcknowledgeType.RELEASE)
            raise
        self._end_processing(record, AcknowledgeType.ACCEPT)

    def _end_processing(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        if self._is_open:
            self._do(self._consumer.end_processing, record, kind)

    def holds(self, record: ShareRecord) -> bool:
        """Whether the record still belongs to this consumer: it was not acknowledged, its lock
        lasts, and its partition has the same leader. Otherwise another member may have it."""
        return self._do(self._consumer.holds, record)

    def commit(self, *, timeout_ms: float | None = None) -> dict[TopicPartition, ApiError | None]:
        """Wait until all acknowledgements are answered. With implicit acknowledgement it first
        accepts everything that was returned.

        Returns for each partition that was acknowledged since the last call None, or the first
        error: then records of it are delivered again. ``timeout_ms`` None means
        ``default_api_timeout_ms``. Raises ApiError REQUEST_TIMED_OUT, or the reason why the
        consumer cannot go on.

        >>> for partition, error in (consumer.commit()).items():
        ...     if error is not None:
        ...         print(partition, error)
        """
        return self._run(lambda: self._consumer.commit(timeout_ms=timeout_ms))

    def _put_back(self, records: Sequence[ShareRecord]) -> None:
        self._consumer.put_back(records)
