"""A fetch between its arrival and its answer. One object goes the whole way.

1. ``broker.api.fetch.KafkaFetch`` decodes the request. It derives from
   ``broker.service.session_fetch.SessionFetch``, which finds out what the caller may read and takes
   the request up in its fetch session, and that from ``WaitingFetch``.
2. ``FetchRequests.begin`` looks at it. ``FetchReader`` reads, and there is either an answer at
   once, or the fetch waits. Then it stands in a list of each of its partitions, or in its session,
   and in the deadline wheel. When it is woken, ``FetchRequests`` looks at it again.
3. ``FetchRequests`` takes it out of all lists and calls ``WaitingFetch.take``. The fetch's
   ``answer`` encodes the results. After ``FetchRequests.withdraw`` it is never called.

Consumers and followers share all of this. What differs goes by ``is_follower`` and ``session``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from broker.replication.deadlines import Deadline
from broker.replication.fetch_session import FetchSession
from broker.replication.replica import Replica
from broker.replication.types import FetchEntry, FetchResult
from stele.ids import PartitionId


class WaitingFetch(ABC):
    """A fetch by a consumer (``replica_id`` -1) or by a follower with its broker epoch: its
    request, its place in the lists, and its results so far."""

    __slots__ = (
        "_has_refusals",
        "_items",
        "any_replica",
        "counted",
        "counted_bytes",
        "deadline",
        "entries",
        "has_begun",
        "is_due",
        "is_expired",
        "is_follower",
        "is_open",
        "is_queued",
        "is_refused",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "nearby",
        "parked",
        "read_committed",
        "replica_epoch",
        "replica_id",
        "session",
        "spend",
        "stirred",
        "unread",
        "warming",
        "woken",
    )

    def __init__(
        self,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        replica_id: int = -1,
        replica_epoch: int = -1,
        read_committed: bool = False,
        any_replica: bool = False,
        nearby: frozenset[int] = frozenset(),
    ) -> None:
        """``any_replica``: a follower may serve this consumer, up to the high watermark that the
        follower knows. ``nearby``: the brokers that are nearer to the consumer than this one. The
        leader names one of them if that has the offset. It is empty for followers, for consumers
        that do not say where they are, and where the configuration does not ask for it."""
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes  # to wait for
        self.max_bytes = max_bytes  # that the answer may hold
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.read_committed = read_committed
        self.any_replica = any_replica
        self.nearby = nearby
        self.is_follower = replica_id >= 0
        self._items: Sequence[FetchEntry | FetchResult] = ()
        # Those among the items that can be read. In a session there are none: it knows what to
        # read.
        self.entries: Sequence[FetchEntry] = ()
        self.session: FetchSession | None = None
        self._has_refusals = False  # some of the items are results
        self.is_refused = False  # all of them are
        # Whether it waits for its answer: from its first look until it is answered or withdrawn.
        self.is_open = False
        # The replicas whose lists it stands in.
        self.parked: list[Replica] = []
        self.deadline: Deadline | None = None
        # Of a consumer's: whether it had its first look, whether its time is over, and whether it
        # is to be looked at in a later turn of the loop.
        self.has_begun = False
        self.is_expired = False
        self.is_queued = False
        self.woken = False
        # Does a look at the fetch after its arrival, and counts the time for the client. None: no
        # time is counted.
        self.spend: Callable[[Callable[[WaitingFetch], None], WaitingFetch], None] | None = None
        self.warming: Warming | None = None
        # Partitions whose read failed. The error is their answer.
        self.unread: set[PartitionId] = set()
        # Of a consumer's: how much each partition has to give, as counted last, and the entries
        # to be counted anew; once it is due, it is read and answered.
        self.counted: dict[PartitionId, int] = {}
        self.counted_bytes = 0  # of all of them together
        self.stirred: dict[PartitionId, FetchEntry] = {}
        self.is_due = False

    def ask(self, items: Sequence[FetchEntry | FetchResult]) -> None:
        """Name what to read, and the results of partitions that are refused already. A fetch with
        a refused partition does not wait: the client must hear of it."""
        self._items = items
        self.entries = [item for item in items if isinstance(item, FetchEntry)]
        if len(self.entries) < len(items):
            self.max_wait_ms = 0
            self._has_refusals, self.is_refused = True, not self.entries

    def take(self, results: list[FetchResult]) -> None:
        """``results`` are of the entries, or of the partitions that the session looked at."""
        if self._has_refusals:
            read = iter(results)
            results = [next(read) if isinstance(item, FetchEntry) else item for item in self._items]
        self.answer(results)

    def admits(self, read_bytes: int) -> bool:
        """Whether a consumer may have an answer with so many bytes of records. False: it is given
        another answer, and none of these."""
        return True

    @abstractmethod
    def answer(self, results: list[FetchResult]) -> None:
        """Send a result for each item, in order. Called once at most."""


class Warming:
    """A range of a log on its way into memory, and the fetches that wait for it.

    It goes on even if all of them have been answered: a device takes longer over a bad sector than
    a fetch lasts, and the error must not be lost.
    """

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiting: dict[WaitingFetch, None] = {}
