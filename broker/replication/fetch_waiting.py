"""A fetch between its arrival and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.replication.deadlines import Deadline
from broker.replication.fetch_query import FetchQuery
from broker.replication.replica import Replica
from broker.replication.types import FetchEntry, FetchResult
from stele.ids import PartitionId

Done = Callable[[list[FetchResult]], None]


class WaitingFetch:
    """What it asks for, where it stands, and what is known of it so far."""

    __slots__ = (
        "counted",
        "counted_bytes",
        "deadline",
        "done",
        "has_begun",
        "is_due",
        "is_expired",
        "is_follower",
        "is_queued",
        "min_bytes",
        "parked",
        "query",
        "stirred",
        "unread",
        "warming",
        "woken",
    )

    def __init__(self, query: FetchQuery, done: Done) -> None:
        self.query = query
        self.is_follower = query.replica_id >= 0
        # The bytes to wait for: never more than the answer may hold.
        self.min_bytes = min(query.min_bytes, query.max_bytes)
        # None once answered or withdrawn.
        self.done: Done | None = done
        # The replicas whose lists it stands in.
        self.parked: list[Replica] = []
        self.deadline: Deadline | None = None
        # Of a consumer's: whether it had its first look, whether its time is over, and whether it
        # is to be looked at in a later turn of the loop.
        self.has_begun = False
        self.is_expired = False
        self.is_queued = False
        self.woken = False
        self.warming: Warming | None = None
        # Partitions of which a read failed: that is their answer.
        self.unread: set[PartitionId] = set()
        # Of a consumer's: how much each partition has to give, as counted last, and the entries
        # to be counted anew; once it is due, it is read and answered.
        self.counted: dict[PartitionId, int] = {}
        self.counted_bytes = 0  # of all of them together
        self.stirred: dict[PartitionId, FetchEntry] = {}
        self.is_due = False


class Warming:
    """A range of a log on its way into memory, and the fetches that wait for it.

    It goes on even if all of them have been answered: a device takes longer over a bad sector than
    a fetch lasts, and the error must not be lost.
    """

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiting: dict[WaitingFetch, None] = {}
