"""A partition that this broker leads, as share groups read it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.replication.led import LedPartition
from broker.replication.replica import Replica, ReportCorrupt, Wake
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchHeader, batches
from stele.world import Buffer
from storage.cold_range import ColdRange
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.txn_index import AbortedTransaction


class SharedBatch(NamedTuple):
    """A record batch."""

    first: int
    last: int
    is_deliverable: bool
    """False: no member may see it. It is a control batch, or one of an aborted transaction."""
    data: Buffer


class SharedPartition(LedPartition):
    """One partition in one leader epoch."""

    def __init__(
        self,
        replica: Replica,
        *,
        lease_valid: Callable[[], bool],
        deposed: Callable[[], bool],
        on_corrupt: ReportCorrupt,
    ) -> None:
        super().__init__(replica, lease_valid=lease_valid, deposed=deposed)
        self._on_corrupt = on_corrupt

    @property
    def start_offset(self) -> int:
        return self.replica.machine.start_offset

    def end_offset(self, *, read_committed: bool) -> int:
        """Where the records end that a member may get."""
        machine = self.replica.machine
        return machine.last_stable_offset if read_committed else machine.high_watermark

    async def offset_of_time(self, time_ms: int) -> int:
        """The offset of the first record of this time or later. Without one, it is the high
        watermark. Raises ApiError as ``read``."""
        log = self.log
        try:
            found = await log.offset_for_timestamp(time_ms)
        except CorruptLogError as error:
            raise self._corrupt(log, error) from error
        self.check_led()
        end = self.high_watermark
        return end if found is None else min(found.offset, end)

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool
    ) -> Sequence[SharedBatch]:
        """The batches from the one with ``offset`` on. The first one may be larger than
        ``max_bytes``. Raises ApiError: it is not led any more, or its log cannot be read."""
        log = self.log
        try:
            while True:
                limit = self.end_offset(read_committed=read_committed)
                if offset >= limit:
                    return ()
                found = log.read(offset, max_bytes, limit_offset=limit, min_one_batch=True)
                cold = found.cold
                if cold is None:
                    aborted = self._aborted(log, offset, found.next_offset, read_committed)
                    if not isinstance(aborted, ColdRange):
                        return [
                            _batch(header, found.data, position, aborted)
                            for position, header in batches(found.data)
                        ]
                    cold = aborted
                await log.warm(cold)
                self.check_led()
                log = self.log
        except CorruptLogError as error:
            raise self._corrupt(log, error) from error

    def _corrupt(self, log: PartitionLog, error: CorruptLogError) -> ApiError:
        """The error for the reader. The replica is given up."""
        self._on_corrupt(self.replica, log, error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _aborted(
        self, log: PartitionLog, offset: int, end_offset: int, read_committed: bool
    ) -> Sequence[AbortedTransaction] | ColdRange:
        if not read_committed or not log.transactions.has_aborted:
            return ()
        return log.transactions.aborted(offset, end_offset)

    def watch(self, token: object, wake: Wake) -> None:
        """Have ``wake`` called when the high watermark has risen, and sometimes when it has
        not."""
        self.replica.consumers[token] = wake

    def unwatch(self, token: object) -> None:
        self.replica.consumers.pop(token, None)


def _batch(
    header: BatchHeader, data: Buffer, position: int, aborted: Sequence[AbortedTransaction]
) -> SharedBatch:
    is_aborted = header.is_transactional and any(
        each.producer_id == header.producer_id
        and each.first_offset <= header.base_offset <= each.last_offset
        for each in aborted
    )
    return SharedBatch(
        header.base_offset,
        header.last_offset,
        not header.is_control and not is_aborted,
        memoryview(data)[position : position + header.size_bytes],
    )
