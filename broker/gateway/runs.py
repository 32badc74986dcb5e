"""Runs of records on their way to a leader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from broker.gateway.refusals import Refusal
from stele.wire.batch import Header

EncodedAs = tuple[bytes | None, bytes | None, Sequence[Header], int]
"""A record's key, value, headers and timestamp."""


class Written(NamedTuple):
    """Where records are. ``base_offset``: of the first of them; None: not known."""

    partition: int
    base_offset: int | None
    log_append_time_ms: int  # -1: the records have their own timestamps
    is_duplicate: bool


class Receipt(Protocol):
    """Takes what became of records of a run: from ``first`` on, so many."""

    def stored(self, run: Run, first: int, record_count: int, written: Written) -> None: ...

    def refused(self, run: Run, first: int, record_count: int, refusal: Refusal) -> None: ...


@dataclass(slots=True, eq=False)
class Run:
    """Records of one message for one partition, in their order."""

    receipt: Receipt
    records: list[EncodedAs] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of each record in its stream
    size: int = 0  # bytes in a batch, approximately
    base_sequence: int = -1  # the publisher's number of the first record; -1: none
    unresolved: int = 0  # records without an outcome

    @property
    def next_sequence(self) -> int:
        return self.base_sequence + len(self.records)


class Room:
    """How many bytes of records may wait for leaders, of all streams together."""

    def __init__(self, limit_bytes: int) -> None:
        self._left = limit_bytes
        self._waiting: list[asyncio.Event] = []

    def take(self, size: int) -> None:
        """May exceed the limit. Look at ``is_full`` before."""
        self._left -= size

    def give(self, size: int) -> None:
        self._left += size
        if not self.is_full:
            waiting, self._waiting = self._waiting, []
            for each in waiting:
                each.set()

    @property
    def is_full(self) -> bool:
        return self._left <= 0

    async def wait(self, timeout_s: float) -> bool:
        """Wait until it is not full. Returns whether that was in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.is_full:
                    given = asyncio.Event()
                    self._waiting.append(given)
                    await given.wait()
        except TimeoutError:
            return False
        return True
