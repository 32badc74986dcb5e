"""A share fetch: records for one member out of several share partitions, or a wait for some.

An answer leaves as soon as there is a record, or an error, or when its time is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.replication.shared import SharedBatch
from broker.share.values import Acquired
from broker.sharing.partition import LedSharePartition
from broker.sharing.sessions import ShareSession
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.world import Buffer, Clock

_READ_BYTES: Final = 1 << 20
"""The most of one partition in one answer, apart from its first batch."""
_READS_MAX: Final = 16
"""The most reads of one partition for one answer. Control batches give no records."""


class Wanted(NamedTuple):
    """What a member asks for."""

    max_wait_ms: int
    max_bytes: int
    max_records: int
    is_strict: bool
    """Never more than ``max_records``. Otherwise a batch is not cut."""


@dataclass(slots=True)
class Delivery:
    """What a member gets of one partition."""

    error: ApiError | None = None
    records: list[Buffer] = field(default_factory=list)
    acquired: list[Acquired] = field(default_factory=list)


class ShareFetch:
    """One fetch of one member."""

    def __init__(
        self,
        session: ShareSession,
        partitions: Sequence[LedSharePartition],
        wanted: Wanted,
        clock: Clock,
        answer_share: Callable[[], int],
    ) -> None:
        """``answer_share``: how many bytes an answer may take now."""
        self._session = session
        self._partitions = partitions
        self._wanted = wanted
        self._clock = clock
        self._answer_share = answer_share
        self._woken = asyncio.Event()
        self._is_at_rest = False
        self._left_records = wanted.max_records
        self._left_bytes = 0

    async def run(self) -> dict[PartitionId, Delivery]:
        """Deliver the partitions that have records, or an error."""
        session = self._session
        until_s = self._clock.monotonic() + self._wanted.max_wait_ms / 1000
        session.on_end = self.wake
        for each in self._partitions:
            each.wait(self)
        try:
            while True:
                self._woken.clear()
                found = await self._look()
                left_s = until_s - self._clock.monotonic()
                if found or left_s <= 0 or not session.is_open:
                    return found
                self._is_at_rest = not self._woken.is_set()
                try:
                    async with asyncio.timeout(left_s):
                        await self._woken.wait()
                except TimeoutError:
                    return await self._look()
        finally:
            session.on_end = lambda: None
            self._is_at_rest = False
            for each in self._partitions:
                each.forget(self)

    def wake(self) -> bool:
        """Look for records again. Returns whether it was at rest until now."""
        was_at_rest, self._is_at_rest = self._is_at_rest, False
        self._woken.set()
        return was_at_rest

    async def _look(self) -> dict[PartitionId, Delivery]:
        """Take what there is now."""
        self._is_at_rest = False
        self._left_bytes = min(self._wanted.max_bytes, self._answer_share())
        found = {}
        for each in self._partitions:
            delivery = await self._delivered(each)
            if delivery is not None:
                found[each.log.id] = delivery
            if self._left_records <= 0 or (found and self._left_bytes <= 0):
                break
        return found

    async def _delivered(self, partition: LedSharePartition) -> Delivery | None:
        delivery = Delivery()
        try:
            for number in range(_READS_MAX):
                # One delivery of a partition is all: a suspect record must have no others with it.
                if delivery.acquired or not await self._read(partition, delivery, number):
                    break
            else:
                self._woken.set()  # to look again: a log may have many batches without records
        except ApiError as error:
            if not delivery.acquired:
                return Delivery(error)
        return delivery if delivery.acquired else None

    async def _read(self, partition: LedSharePartition, delivery: Delivery, number: int) -> bool:
        """Read once, after ``number`` reads that have found no record for the member. Returns
        whether there may be more. Raises ApiError."""
        if partition.failure is not None:
            raise ApiError(partition.failure.code, partition.failure.message)
        offset = partition.fetch_offset()
        if offset is None or partition.is_reading or not self._session.is_open:
            return False
        partition.is_reading = True
        try:
            may_be_more = await self._take(partition, delivery, offset, number)
        finally:
            partition.is_reading = False
            partition.pass_on()
        if may_be_more and not delivery.acquired:
            await asyncio.sleep(0)  # there may be many batches without records for members
        return may_be_more

    async def _take(
        self, partition: LedSharePartition, delivery: Delivery, offset: int, number: int
    ) -> bool:
        """Read from ``offset`` on, and take what the member gets of it. The rest as ``_read``."""
        max_bytes = self._bytes_to_read(partition, number)
        is_committed = partition.settings.read_committed
        batches = await partition.log.read(offset, max_bytes, read_committed=is_committed)
        # The read may have waited for the disk. A session that has ended, or a leader without a
        # lease, gives nobody records.
        refusal = partition.log.refusal
        if refusal is not ErrorCode.NONE:
            raise ApiError(refusal, "this broker does not lead the partition")
        if not self._session.is_open or not batches:
            return False
        acquired = partition.acquire(
            self._session.key.member_id,
            offset,
            batches,
            self._left_records,
            is_strict=self._wanted.is_strict,
        )
        delivery.acquired += acquired
        given = _of_acquired(batches, acquired)
        delivery.records += [each.data for each in given]
        size = sum(len(each.data) for each in given)
        self._left_bytes -= size
        if given:
            partition.record_bytes = size / sum(each.last - each.first + 1 for each in given)
        self._left_records -= sum(each.last - each.first + 1 for each in acquired)
        return True

    def _bytes_to_read(self, partition: LedSharePartition, number: int) -> int:
        """Twice what the member's records take if they are as large as those before. A member that
        wants one record must not cost a read of a MiB. After each read in vain, four times as
        much: records of others or control batches may lie between."""
        most = min(self._left_bytes, _READ_BYTES)
        if partition.record_bytes:
            expected = int(2 * self._left_records * partition.record_bytes)
            most = min(most, expected << 2 * number)
        return max(1, most)


def _of_acquired(batches: Sequence[SharedBatch], acquired: Sequence[Acquired]) -> list[SharedBatch]:
    """The batches with a record that was acquired. Both ascend."""
    found: list[SharedBatch] = []
    ranges = iter(acquired)
    at = next(ranges, None)
    for each in batches:
        while at is not None and at.last < each.first:
            at = next(ranges, None)
        if at is not None and at.first <= each.last and each.is_deliverable:
            found.append(each)
    return found
