"""The quorum's log and state on disk: ``<directory>/__cluster_metadata-0``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from raft.api import CommittedBatch
from raft.log_view import LogView
from raft.messages import Batch, SnapshotId
from raft.ready import HardState, ReadRange
from raft.voter_history import VoterHistory
from runtime.quorum import state as quorum_state
from runtime.quorum.config import QuorumConfig
from runtime.quorum.control import ControlRecordError, encode_control, voters_in
from runtime.quorum.snapshots import Snapshot, SnapshotError, SnapshotStore
from runtime.quorum.state import QuorumStateError
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.wire.batch import (
    BatchBuilder,
    BatchHeader,
    batches,
    decode,
)
from stele.world import MAX_MESSAGE_BYTES, Buffer
from storage.checkpoints import RECOVERY_POINT_FILE, encode_offsets, read_offsets
from storage.config import NO_LIMIT, LogConfig
from storage.directory_names import METADATA_PARTITION, METADATA_TOPIC
from storage.errors import CorruptLogError, StorageError, is_device_failure
from storage.log import PartitionLog
from storage.log_types import SyncTicket
from storage.opening import open_log
from world.world import World

_log = logging.getLogger(__name__)

_PARTITION: Final = TopicPartition(METADATA_TOPIC, METADATA_PARTITION)
_READ_BYTES: Final = 1 << 20
_RESERVE_BYTES: Final = 1 << 20
_SEGMENT_BYTES_MIN: Final = 1 << 20  # a cut frees whole segments only
_VOTE_ROOM_BYTES: Final = 1 << 16
"""For the quorum-state file, and for the first batch of an epoch that a vote in it may win."""
_ROOM_INTERVAL_S: Final = 1.0

BATCH_BYTES_MAX: Final = MAX_MESSAGE_BYTES // 2
"""The most bytes of records in one batch. Replicas fetch a batch whole, in one message of gRPC. A
batch above that could never commit, and no later batch either."""


class CorruptMetadataLogError(SteleError):
    """The metadata log holds something else than was written. The replica must not start."""


class Committed(NamedTuple):
    """Committed batches that were read, and where the next read begins."""

    batches: list[CommittedBatch]
    next_offset: int
    size_bytes: int  # on disk, control batches included


class HistoryPiece(NamedTuple):
    """A part of what was ever committed: first the oldest snapshot, then decisions in order."""

    snapshot: Snapshot | None
    batches: list[CommittedBatch]
    next_offset: int


class QuorumLog:
    """A ``PartitionLog`` and a ``quorum-state`` file, and what is durable of both.

    Also the log's owner: nobody else syncs it, and its failure is the replica's. So it owns its
    directory (``Disk.own``), which may lie within one of a broker's log directories.
    """

    def __init__(self, config: QuorumConfig, world: World, log_directory: str) -> None:
        """Recover what is there. Raises SteleError (it may not be used), OSError."""
        self._config = config
        self._disk = world.disk
        self._clock = world.clock
        self.directory = f"{log_directory}/{_PARTITION}"
        # A controller that forgot something needs another directory id: it is another replica.
        self._remedy = (
            f"empty {log_directory}, format it again, and have this voter removed and added"
            if config.may_vote
            else f"remove {self.directory}: the node will fetch it again"
        )
        self._state_path = f"{self.directory}/{quorum_state.FILE_NAME}"
        self._recovery_path = f"{self.directory}/{RECOVERY_POINT_FILE}"
        self._replacing = False  # a snapshot takes the place of the log just now
        self._disown = self._disk.own(self.directory)
        try:
            self._recover(log_directory)
        except BaseException:
            self._disown()
            raise

    def _recover(self, log_directory: str) -> None:
        # In the file; <= the high watermark, so that no truncation ever has to lower it.
        self._recovery_point = read_offsets(self._disk, self._recovery_path).get(_PARTITION, 0)
        state = quorum_state.read(self._disk, self._state_path, self._config.cluster_id)
        self.snapshots = SnapshotStore(self._disk, self.directory, self._config.cluster_id)
        self._check_newest_snapshot()
        self._log = self._open()
        self._check_vote_is_known(state)
        self._join_snapshots()
        self.hard_state = state or HardState()
        # A vote is durable only if the directory that holds its file is.
        self._disk.sync_now(log_directory)

    def _open(self) -> PartitionLog:
        newest = self.snapshots.newest
        # What a snapshot holds is not lost with the log: a crash while one took its place.
        covered = newest is not None and newest.end_offset >= self._recovery_point
        point = 0 if covered else self._recovery_point
        segment_bytes = min(max(self._config.snapshot_after_bytes, _SEGMENT_BYTES_MIN), 1 << 30)
        try:
            return open_log(
                self._disk,
                self.directory,
                LogConfig(segment_bytes=segment_bytes, retention_ms=NO_LIMIT, flush_messages=1),
                self._clock,
                key=_PARTITION,
                recovery_point=point,
                high_watermark_checkpoint=point,
                owner=self,
            )
        except CorruptLogError as error:
            raise CorruptMetadataLogError(
                f"{error}. A voter that lost a part of the metadata log must not vote:"
                f" {self._remedy}"
            ) from error

    def _check_newest_snapshot(self) -> None:
        newest = self.snapshots.newest
        if newest is None:
            return
        try:
            self.snapshots.load(newest)
        except SnapshotError as error:
            raise CorruptMetadataLogError(
                f"{error}. Restore the file, or {self._remedy}"
            ) from error

    def _join_snapshots(self) -> None:
        """Let the log begin where the oldest snapshot ends, or at the newest if it has not that."""
        newest = self.snapshots.newest
        end_offset = 0 if newest is None else newest.end_offset
        if self._log.start_offset > end_offset:
            self._log.close()
            raise CorruptMetadataLogError(
                f"{self.directory} begins at {self._log.start_offset}, and the snapshot before it"
                f" is missing. Restore it, or {self._remedy}"
            )
        if newest is None:
            return
        epoch = self._log.epochs.epoch_for(end_offset - 1)
        if self._log.end_offset < end_offset or epoch not in (-1, newest.epoch):
            self._replace_log(newest)
        elif (start_offset := self.snapshots.ids[0].end_offset) >= self._log.start_offset:
            self._log.advance_start_offset(start_offset)
        else:
            self.snapshots.remove_before(self._log.start_offset)

    def _replace_log(self, snapshot: SnapshotId) -> None:
        self._replacing = True
        try:
            self._log.reset_to(snapshot.end_offset)
        finally:
            self._replacing = False
        self.snapshots.remove_before(snapshot.end_offset)

    def _check_vote_is_known(self, state: HardState | None) -> None:
        """No record reaches the log of a voter before its epoch is in the file."""
        used = self._log.end_offset > 0 or self.snapshots.newest is not None
        if state is None and self._config.may_vote and used:
            self._log.close()
            raise QuorumStateError(
                f"{self._state_path} is missing beside a log: this voter no longer knows how it"
                f" voted; restore the file, or {self._remedy}"
            )

    def view(self) -> LogView:
        """The log as the core is to see it. Recovery has made all of it durable."""
        log = self._log
        epochs = [entry for entry in log.epochs.entries if entry[1] < log.end_offset]
        if self.snapshots.ids:
            before = self.snapshots.ids[0]
            later = [entry for entry in epochs if entry[0] > before.epoch]
            epochs = [(before.epoch, before.end_offset - 1), *later]
        return LogView(start_offset=log.start_offset, end_offset=log.end_offset, epochs=epochs)

    @property
    def start_offset(self) -> int:
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        return self._log.end_offset

    # ------------------------------------------------------------------------------ writing

    def append(self, appended: Sequence[Batch]) -> None:
        """Append the batches of the core. Raises StorageError. The driver asks for room before it
        gives the core anything to append, so the core never has a record that is not here."""
        if appended:
            data = b"".join(self._encoded(batch) for batch in appended)
            self._log.append_as_follower(data, verify_crc=False)

    def require_room(self, size: int) -> None:
        """Raise StorageError when the disk has no room for so many bytes and a reserve.

        The reserve keeps the small files writable that a replica cannot do without.
        """
        free_bytes = self._disk.free_bytes(self.directory)
        if free_bytes < size + _RESERVE_BYTES:
            raise StorageError(
                f"{self.directory}: {free_bytes} bytes free, {size + _RESERVE_BYTES} needed for"
                " the metadata log; free space on this disk"
            )

    def has_room(self) -> bool:
        """Whether a small batch would leave the reserve whole."""
        return self._disk.free_bytes(self.directory) >= _VOTE_ROOM_BYTES + _RESERVE_BYTES

    def encode_proposal(self, records: Sequence[bytes], epoch: int) -> bytes:
        """One batch of a leader of ``epoch``, to stand at the log's end. Raises ApiError
        RECORD_LIST_TOO_LARGE."""
        size = sum(map(len, records))
        if size > BATCH_BYTES_MAX:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a decision of {len(records)} records and {size} bytes is too large for the"
                f" metadata log, which takes {BATCH_BYTES_MAX} bytes at once",
            )
        builder = BatchBuilder(self._log.end_offset)
        now_ms = self._clock.time_ms()
        for record in records:
            builder.append(None, record, timestamp_ms=now_ms)
        return bytes(builder.build(leader_epoch=epoch))

    def _encoded(self, batch: Batch) -> bytes:
        if isinstance(batch.payload, bytes):
            return batch.payload
        return encode_control(batch, batch.payload, self._clock.time_ms())

    def truncate_to(self, offset: int) -> None:
        """Raises StorageError. What is left is durable."""
        end_offset = self._log.truncate_to(offset)
        if end_offset != offset:
            raise CorruptMetadataLogError(
                f"{self.directory}: {offset} lies inside the batch at {end_offset}"
            )

    # ---------------------------------------------------------------------------- snapshots

    def install(self, snapshot: SnapshotId) -> None:
        """Put a checked snapshot in the place of the log, durably. Raises OSError, StorageError."""
        self.snapshots.adopt(snapshot)
        self._replace_log(snapshot)

    def add_snapshot(self, snapshot: SnapshotId) -> int:
        """Adopt a snapshot that was written here, keep the one before it and the log since that
        (for those who are a little behind), and return where the log begins now.

        Raises OSError, StorageError.
        """
        self.snapshots.adopt(snapshot)
        if len(self.snapshots.ids) > 1:
            self.snapshots.remove_before(self.snapshots.ids[-2].end_offset)
            self._log.advance_start_offset(self.snapshots.ids[0].end_offset)
            self._log.remove_dead_segments(in_order=True)
        return self._log.start_offset

    # ------------------------------------------------------------------------------ syncing

    def begin_sync(self) -> SyncTicket | None:
        """The files that a sync beginning now covers; None when all of the log is durable."""
        if self._log.durable_offset == self._log.end_offset:
            return None
        return self._log.begin_sync()

    async def sync(self, hard_state: HardState | None, ticket: SyncTicket | None) -> None:
        """Make both durable. Raises OSError, and then nothing may be sent any more."""
        if hard_state is not None:
            await self._write_state(quorum_state.encode(hard_state, self._config.cluster_id))
            self.hard_state = hard_state
        if ticket is not None:
            await self._disk.sync(ticket.paths)
            self._log.finish_sync(ticket)

    async def _write_state(self, data: bytes) -> None:
        """A vote that finds no room waits for it: what it promises is sent only afterwards."""
        while True:
            free_bytes = self._disk.free_bytes(self.directory)
            if free_bytes >= _VOTE_ROOM_BYTES:
                try:
                    await self._disk.replace_file(self._state_path, data)
                    return
                except OSError as error:
                    if is_device_failure(error):
                        raise
                    _log.error("%s cannot be written: %s", self._state_path, error)
            _log.error(
                "%s: %d bytes free: this replica neither votes nor leads until there is room;"
                " free space on this disk",
                self.directory,
                free_bytes,
            )
            await asyncio.sleep(_ROOM_INTERVAL_S)

    async def checkpoint(self, high_watermark: int) -> None:
        """Note the recovery point and the high watermark: below both a cut is corruption."""
        point = min(high_watermark, self._log.durable_offset)
        if point <= self._recovery_point:
            return
        epochs = self._log.checkpoint_epochs()
        if epochs is not None:
            try:
                await self._disk.replace_file(*epochs)
            except BaseException:  # cancelled, most likely: the next checkpoint must write it
                self._log.epochs.dirty = True
                raise
        await self._disk.replace_file(self._recovery_path, encode_offsets({_PARTITION: point}))
        self._recovery_point = point

    # ------------------------------------------------------------------------------ reading

    async def read(self, wanted: ReadRange, limit_offset: int | None = None) -> Buffer:
        """Whole batches. Raises ApiError (the log ends before the range, or is offline)."""
        while True:
            result = self._log.read(wanted.offset, wanted.max_bytes, limit_offset=limit_offset)
            if result.cold is None:
                return result.data
            await self._log.warm(result.cold)

    async def read_committed(self, offset: int, high_watermark: int) -> Committed:
        """Some batches from ``offset`` on, control batches left out."""
        data = await self.read(ReadRange(offset, _READ_BYTES), limit_offset=high_watermark)
        if not len(data):
            raise CorruptMetadataLogError(
                f"{self.directory}: no batch at {offset} ends at or below {high_watermark}"
            )
        found = []
        for position, header in batches(data):
            offset = header.next_offset
            if not header.is_control:
                found.append(_committed(data, position, header))
        return Committed(found, offset, len(data))

    async def read_history(self, offset: int, end_offset: int) -> HistoryPiece:
        """Committed batches from ``offset`` on, some at a time, up to ``end_offset``.

        If the log begins later, the oldest snapshot comes first and the batches after it. Raises
        SteleError (the snapshot is damaged), ApiError (a snapshot just took the log's place).
        """
        snapshot = None
        if self.snapshots.ids and offset < self.snapshots.ids[0].end_offset:
            snapshot = self.snapshots.load(self.snapshots.ids[0])
            offset = snapshot.id.end_offset
        if offset >= end_offset:
            return HistoryPiece(snapshot, [], offset)
        found = await self.read_committed(offset, end_offset)
        return HistoryPiece(snapshot, found.batches, found.next_offset)

    async def voter_history(self) -> VoterHistory:
        """The voters as the oldest snapshot and the records after it say, or, without either, as
        `stele format` or the configuration does. Raises SteleError."""
        try:
            history = self._first_voters()
            offset = self._log.start_offset
            while offset < self._log.end_offset:
                data = await self.read(ReadRange(offset, _READ_BYTES))
                for position, header in batches(data):
                    offset = header.next_offset
                    if header.is_control and (voters := voters_in(data, position)) is not None:
                        history.append(header.base_offset, voters)
        except (SnapshotError, ControlRecordError) as error:
            self.close()
            raise CorruptMetadataLogError(
                f"{self.directory}: {error}. Restore it, or {self._remedy}"
            ) from error
        return history

    @property
    def is_founder(self) -> bool:
        """Whether this disk was formatted for one of the first voters. Raises SnapshotError."""
        formatted = self.snapshots.first_voters()
        first = self._config.first_voters if formatted is None else formatted
        return first.get(self._config.node_id) is not None

    def _first_voters(self) -> VoterHistory:
        if self.snapshots.ids:
            oldest = self.snapshots.ids[0]
            voters = self.snapshots.load(oldest).voters
            if voters is not None:
                return VoterHistory(voters, oldest.end_offset - 1)
        else:
            voters = self.snapshots.first_voters()
        return VoterHistory(self._config.first_voters if voters is None else voters)

    # ------------------------------------------------------------------- as the log's owner

    def dirty(self, log: PartitionLog) -> None:
        """Nothing to do: the driver syncs after every Ready that asks for it."""

    def unflushed(self, log: PartitionLog) -> None:
        """Never: every record of the quorum is synced before it is answered."""

    def failed(self, log: PartitionLog, error: OSError) -> None:
        """Nothing to do: the StorageError that follows stops the replica."""

    def refused(self, log: PartitionLog, size_bytes: int) -> None:
        """Nothing to do: every append asks for room first (``require_room``)."""

    def set_aside(self, paths: list[str]) -> None:
        """Removed at once: few voters ever cut a whole segment, and theirs are small."""
        for path in paths:
            if self._disk.exists(path):
                self._disk.remove(path)

    def lower_checkpoints(self, log: PartitionLog, offset: int) -> None:
        if offset < self._recovery_point and not self._replacing:
            raise CorruptMetadataLogError(
                f"{self.directory}: asked to cut committed records at {offset}, below"
                f" {self._recovery_point}"
            )

    def close(self) -> None:
        self._log.close()
        self._disown()


def _committed(data: Buffer, position: int, header: BatchHeader) -> CommittedBatch:
    records = tuple(record.value or b"" for record in decode(data, position))
    return CommittedBatch(
        header.base_offset, header.leader_epoch, header.base_timestamp_ms, records
    )
