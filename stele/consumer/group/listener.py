"""What an application hears of its group."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from stele.ids import TopicPartition

OnPartitions = Callable[[list[TopicPartition]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class RebalanceListener:
    """Functions that ``poll``, ``unsubscribe`` and ``close`` call, with partitions in order. The
    asyncio consumer also takes coroutine functions. What they raise comes out of that call, and the
    member goes on. They cannot poll or close the consumer.

    ``on_partitions_revoked`` is called before partitions are given up: finish what was read of
    them, and commit. ``on_partitions_lost`` is called when others may own them already, so that
    nothing can be committed; without it ``on_partitions_revoked`` is called.
    ``on_partitions_assigned`` is called after each rebalance with the partitions that are new,
    perhaps none. It may ``seek``.
    """

    on_partitions_assigned: OnPartitions | None = None
    on_partitions_revoked: OnPartitions | None = None
    on_partitions_lost: OnPartitions | None = None


async def call(function: OnPartitions | None, partitions: list[TopicPartition]) -> None:
    if function is not None:
        outcome = function(partitions)
        if inspect.isawaitable(outcome):
            await outcome
