"""The log of a partition as share groups read it, faked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from broker.replication.replica import Wake
from broker.replication.shared import SharedBatch
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import encode
from stele.wire.record import Header, Record


class FakeSharedLog:
    """All records are committed. Each is a batch of some offsets, whose data are its name."""

    def __init__(self, partition: PartitionId, leader_epoch: int = 5) -> None:
        self.id = partition
        self.leader_epoch = leader_epoch
        self.is_led = True
        self.refusal = ErrorCode.NONE
        self.start_offset = 0
        self.batches: list[SharedBatch] = []
        self.stable_end: int | None = None  # None: no transaction is open
        self.times: dict[int, int] = {}  # offsets by time
        self.reading: asyncio.Event | None = None  # a read waits for it
        self.reads: list[tuple[int, int]] = []
        self.looks = 0  # questions where it ends
        self._watching: dict[object, Wake] = {}

    def append(self, count: int = 1, *, is_deliverable: bool = True) -> SharedBatch:
        first = self._end
        data = f"{first}".encode()
        batch = SharedBatch(first, first + count - 1, is_deliverable, data)
        self.batches.append(batch)
        for wake in list(self._watching.values()):
            wake()
        return batch

    def append_records(self, *values: bytes | None, headers: Sequence[Header] = ()) -> SharedBatch:
        """A batch of records with these values and keys of their offsets. Where there is None,
        compaction has removed the record."""
        first = self._end
        data = encode(
            [
                Record(first + each, 0, b"%d" % (first + each), value, tuple(headers))
                for each, value in enumerate(values)
                if value is not None
            ],
            base_offset=first,
        )
        batch = SharedBatch(first, first + len(values) - 1, True, data)
        self.batches.append(batch)
        return batch

    @property
    def _end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def end_offset(self, *, read_committed: bool) -> int:
        self.looks += 1
        return self._end if self.stable_end is None or not read_committed else self.stable_end

    async def offset_of_time(self, time_ms: int) -> int:
        return self.times.get(time_ms, self._end)

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool
    ) -> Sequence[SharedBatch]:
        self.reads.append((offset, max_bytes))
        if self.reading is not None:
            await self.reading.wait()
        if not self.is_led:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end = self.end_offset(read_committed=read_committed)
        found = [each for each in self.batches if each.last >= offset and each.first < end]
        size = 0
        some: list[SharedBatch] = []
        for each in found:
            size += len(each.data)
            if some and size > max_bytes:
                break
            some.append(each)
        return some

    def watch(self, token: object, wake: Wake) -> None:
        self._watching[token] = wake

    def unwatch(self, token: object) -> None:
        self._watching.pop(token, None)

    @property
    def watchers(self) -> int:
        return len(self._watching)
