"""What a leader asks before it takes the first records of a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stele.errors import ErrorCode
from stele.ids import TopicPartition


class TransactionVerifier(Protocol):
    """``broker.coordinator.verification.Verification``."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """``done`` gets, later, NONE if the partition is part of the open transaction of this
        producer. ``add``: the coordinator makes it part of it."""
        ...
