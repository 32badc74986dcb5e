"""When a replica writes a snapshot of what it was delivered, and how the log is cut behind it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from raft.core import RaftCore
from raft.messages import SnapshotId
from runtime.quorum.config import QuorumConfig
from runtime.quorum.delivery import Delivery
from runtime.quorum.log import QuorumLog
from stele.world import Clock
from storage.errors import is_device_failure

_log = logging.getLogger(__name__)

SnapshotSource = Callable[[], Iterable[bytes] | None]


class SnapshotWriter:
    """Writes one after so many bytes of records, or after so long, whichever comes first."""

    def __init__(
        self,
        config: QuorumConfig,
        clock: Clock,
        log: QuorumLog,
        delivery: Delivery,
        source: SnapshotSource,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._delivery = delivery
        self._source = source
        self._taken_at = clock.monotonic()
        self._bytes_then = 0  # what had been delivered then

    def _is_due(self) -> bool:
        size = self._delivery.bytes_delivered - self._bytes_then
        age_s = self._clock.monotonic() - self._taken_at
        interval_s = self._config.snapshot_interval_ms / 1000
        return size >= self._config.snapshot_after_bytes or 0 < interval_s <= age_s

    async def take_if_due(self, core: RaftCore | None) -> None:
        """Raises OSError if the device failed, and StorageError."""
        end_offset, newest = self._delivery.delivered, self._log.snapshots.newest
        known = 0 if newest is None else newest.end_offset
        # The log may be cut up to here one day: it must not be ahead of its own disk.
        if core is None or not known < end_offset <= core.log.durable_end_offset:
            return
        if not self._is_due():
            return
        values = self._source()
        if values is None:
            return
        snapshot = SnapshotId(end_offset, core.log.epoch_of(end_offset - 1))
        self._taken_at = self._clock.monotonic()
        self._bytes_then = self._delivery.bytes_delivered
        voters = core.voters_at(end_offset)
        try:
            await self._log.snapshots.write(
                snapshot, self._delivery.timestamp_ms, values, voters if len(voters) else None
            )
        except OSError as error:
            if is_device_failure(error):
                raise
            _log.error("no snapshot of the metadata this time: %s", error)
            self._log.snapshots.discard(snapshot)
            return
        self._take_over(core, snapshot, newest)

    def _take_over(
        self, core: RaftCore, snapshot: SnapshotId, newest_before: SnapshotId | None
    ) -> None:
        if self._log.snapshots.newest != newest_before:
            self._log.snapshots.discard(snapshot)  # the leader's came meanwhile
            return
        start_offset = self._log.add_snapshot(snapshot)
        core.snapshot_taken(snapshot, start_offset)
        _log.info("snapshot %s: the log begins at %d", snapshot, start_offset)
