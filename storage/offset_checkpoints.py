"""The offset checkpoints of a log directory: recovery points, high watermarks, log start offsets,
and what compaction has done: up to where a log is clean, and up to where tombstones are dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from stele.ids import TopicPartition
from storage.checkpoints import (
    CLEANER_OFFSET_FILE,
    DROPPED_END_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
    encode_offsets_in_slices,
    read_offsets,
)
from storage.errors import Failure, is_disk_full
from storage.log import PartitionLog
from storage.turns import SLICE_STEPS, Slices
from world.disk import Disk

logger = logging.getLogger(__name__)

_EPOCH_FILES_PER_TURN: Final = 16
_NO_GENERATION: Final = -1  # of a log whose checkpoints must stay as they are
_NEW_SUFFIX: Final = ".new"  # the suffix of a checkpoint file that is not complete yet

_Offsets = dict[TopicPartition, int]


class Claim(NamedTuple):
    """An offset of a log that a checkpoint is to tell, and the truncation generation in which it
    was right."""

    offset: int
    generation: int

    @classmethod
    def of(cls, log: PartitionLog, offset: int) -> Claim:
        """What is right at this moment."""
        return cls(offset, log.truncation_generation)


Claims = Mapping[PartitionLog, Claim]
"""The key is the log itself, since another log may have the same name before the offsets are on
disk."""


class LogsByKey(Protocol):
    """The logs that have entries."""

    def get(self, key: TopicPartition) -> PartitionLog | None: ...

    def values(self) -> Iterable[PartitionLog]: ...


@dataclass(slots=True)
class _File:
    """A checkpoint file that is to tell ``claims``."""

    name: str
    held: _Offsets  # its content
    claims: Claims
    wanted: _Offsets = field(default_factory=dict)  # its next content


class OffsetCheckpoints:
    """The contents of the five checkpoint files, and their replacement.

    ``logs`` and ``corrupt`` are the directory's own collections and change with it. The directory
    tells by ``changed`` which keys they have gained or lost, and by ``lower`` which logs are
    truncated. So a write looks at all logs in slices, and in its last turn only at those that have
    changed since.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        logs: LogsByKey,
        corrupt: Mapping[TopicPartition, object],
    ) -> None:
        """``path`` is the log directory. Nothing is read before ``load``."""
        # The contents of the files.
        self.recovery_points: _Offsets = {}
        self.high_watermarks: _Offsets = {}
        self.start_offsets: _Offsets = {}
        self.clean_ends: _Offsets = {}  # no later record of a key below makes one below redundant
        self.dropped_ends: _Offsets = {}
        # What the file of log start offsets holds even after a power loss: the directory was synced
        # after the file was renamed into place.
        self._durable_starts: _Offsets = {}
        self._durable_dropped_ends: _Offsets = {}  # likewise
        self._renamed = False  # a file was renamed, and the directory not synced since then
        self._disk = disk
        self._path = path
        self._logs = logs
        self._corrupt = corrupt
        self._writing = asyncio.Lock()  # only one task at a time writes the files
        # The logs that were truncated, and those that came, went or became corrupt, since the
        # writing task has looked at them.
        self._changed: set[TopicPartition] = set()

    def load(self) -> None:
        """Read the files. Raises LogDirectoryError, OSError."""
        self.recovery_points = read_offsets(self._disk, f"{self._path}/{RECOVERY_POINT_FILE}")
        self.high_watermarks = read_offsets(self._disk, f"{self._path}/{HIGH_WATERMARK_FILE}")
        self.start_offsets = read_offsets(self._disk, f"{self._path}/{LOG_START_FILE}")
        self.clean_ends = read_offsets(self._disk, f"{self._path}/{CLEANER_OFFSET_FILE}")
        self.dropped_ends = read_offsets(self._disk, f"{self._path}/{DROPPED_END_FILE}")
        # The process that wrote them may have died before it synced the directory.
        self._renamed = True

    def of(self, key: TopicPartition) -> tuple[int, int, int]:
        """Recovery point, high watermark and log start offset of a partition according to the
        files."""
        point, high_watermark = self.recovery_points.get(key, 0), self.high_watermarks.get(key, 0)
        return point, high_watermark, self.start_offsets.get(key, 0)

    def know(self, key: TopicPartition) -> bool:
        """Whether a file proves that something of this log was on disk."""
        held = self.recovery_points, self.high_watermarks, self.start_offsets, self.clean_ends
        return any(offsets.get(key, 0) > 0 for offsets in held)

    def durable_start(self, key: TopicPartition) -> int:
        """The log start offset that the file has for a partition even after a power loss."""
        return min(self.start_offsets.get(key, 0), self._durable_starts.get(key, 0))

    def durable_dropped_end(self, key: TopicPartition) -> int:
        """The dropped end that the file has for a partition even after a power loss."""
        return min(self.dropped_ends.get(key, 0), self._durable_dropped_ends.get(key, 0))

    # ----------------------------------------------------------------------------- lowering

    def lower_to_high_watermarks(self) -> None:
        """Lower the recovery points, which a clean shutdown left at the logs' ends, to the high
        watermarks.

        Truncations go below the high watermark only after an unclean election. So they seldom have
        to lower a checkpoint, which waits for the disk. Corrupt logs keep their recovery points:
        these prove the corruption if its note is lost.

        A full disk leaves the file as it is until the next checkpoint. What it claims is on disk,
        and a truncation lowers it first (``lower``), or waits for room.
        """
        lowered = {
            key: point if key in self._corrupt else min(point, self.high_watermarks.get(key, 0))
            for key, point in self.recovery_points.items()
        }
        if lowered == self.recovery_points:
            return
        path = f"{self._path}/{RECOVERY_POINT_FILE}"
        try:
            self._disk.replace_file_now(path, encode_offsets(lowered))
        except OSError as error:
            if not is_disk_full(error):
                raise
            logger.warning("%s is not lowered now: %s", path, error)
        else:
            self.recovery_points = lowered

    def lower(self, key: TopicPartition, offset: int) -> None:
        """Lower what the files claim of this partition to ``offset``, before its log is truncated.
        This is on disk when it returns. Raises OSError."""
        self.changed(key)
        self._clamp(RECOVERY_POINT_FILE, self.recovery_points, key, offset)
        self._clamp(HIGH_WATERMARK_FILE, self.high_watermarks, key, offset)
        self._clamp(LOG_START_FILE, self.start_offsets, key, offset)
        self._clamp(CLEANER_OFFSET_FILE, self.clean_ends, key, offset)
        self._clamp(DROPPED_END_FILE, self.dropped_ends, key, offset)
        # What rises again later is not durable before the directory is synced again.
        for durable in (self._durable_starts, self._durable_dropped_ends):
            if durable.get(key, 0) > offset:
                durable[key] = offset

    def _clamp(self, name: str, held: _Offsets, key: TopicPartition, offset: int) -> None:
        if held.get(key, 0) > offset:
            lowered = {**held, key: offset}
            self._disk.replace_file_now(f"{self._path}/{name}", encode_offsets(lowered))
            held[key] = offset

    def changed(self, key: TopicPartition) -> None:
        """Another log has this name from now on, or no log, or the log is corrupt."""
        self._changed.add(key)

    # ----------------------------------------------------------------------------- writing

    async def committed(self) -> Claims:
        """The high watermark of each log, but at most the offset up to which the log is on disk."""
        claims: dict[PartitionLog, Claim] = {}
        slices = Slices(SLICE_STEPS)
        for log in self._logs.values():
            if self._is_here(log):  # it may have gone since the slice before
                claims[log] = Claim.of(log, self._committed_of(log))
            await slices.step()
        return claims

    def _committed_of(self, log: PartitionLog) -> int:
        try:
            return min(log.synced_offset, log.ask_high_watermark())
        except Exception as error:
            log.fail(error)
            return min(self.of(log.key)[:2])  # as before, so it claims no more

    async def write(self, recovery_points: Claims, high_watermarks: Claims) -> None:
        """Replace the files that have changed, after the epoch files of the logs. Raises OSError.
        That of one log is raised when the files have what is new of the others."""
        async with self._writing:
            # A recovery point may be on disk only after the leader epochs below it are.
            failed = await self._write_epochs()
            starts, dropped = await self._bounds()
            await self._write_offsets(
                *(
                    _File(name, held, _except_for(claims, failed))
                    for name, held, claims in (
                        (LOG_START_FILE, self.start_offsets, starts),
                        (DROPPED_END_FILE, self.dropped_ends, dropped),
                        (HIGH_WATERMARK_FILE, self.high_watermarks, high_watermarks),
                        (RECOVERY_POINT_FILE, self.recovery_points, recovery_points),
                    )
                )
            )
        for error in failed.values():
            if isinstance(error, OSError):  # else the log is offline
                raise error

    async def write_starts(self) -> None:
        """Replace the files of log start offsets and of dropped ends if one has risen. Tasks that
        wait for the files share one writing of them. Raises as ``write``."""
        async with self._writing:
            starts, dropped = await self._bounds()
            await self._write_offsets(
                _File(LOG_START_FILE, self.start_offsets, starts),
                _File(DROPPED_END_FILE, self.dropped_ends, dropped),
            )

    async def write_clean_end(self, log: PartitionLog, offset: int, generation: int) -> None:
        """A round of compaction of this log, in this truncation generation, is on disk. Raises as
        ``write``."""
        async with self._writing:
            claims = {
                each: Claim.of(each, end)
                for key, end in self.clean_ends.items()
                if (each := self._logs.get(key)) is not None
            }
            claims[log] = Claim(offset, generation)
            await self._write_offsets(_File(CLEANER_OFFSET_FILE, self.clean_ends, claims))

    async def _bounds(self) -> tuple[Claims, Claims]:
        """The current log start offsets and dropped ends. Only the task that holds ``_writing`` may
        ask: if it asked before it waited for its turn, it would replace newer offsets, already
        promised to be durable, by older ones."""
        starts: dict[PartitionLog, Claim] = {}
        dropped: dict[PartitionLog, Claim] = {}
        slices = Slices(SLICE_STEPS)
        for log in self._logs.values():
            if log.start_offset:
                starts[log] = Claim.of(log, log.start_offset)
            if log.dropped_end:
                dropped[log] = Claim.of(log, log.dropped_end)
            await slices.step()
        return starts, dropped

    async def _write_epochs(self) -> dict[PartitionLog, Exception]:
        """Returns the logs whose epochs could not be written, for no fault of the directory's."""
        written: list[tuple[PartitionLog, str]] = []
        failed: dict[PartitionLog, Exception] = {}
        slices, looks = Slices(_EPOCH_FILES_PER_TURN), Slices(SLICE_STEPS)
        try:
            for log in self._logs.values():
                await looks.step()
                path = self._write_epochs_of(log, failed) if self._is_here(log) else None
                if path is not None:
                    written.append((log, path))
                    await slices.step()
            if not written:
                return failed
            await self._disk.sync([path + _NEW_SUFFIX for _, path in written])
            for log, path in written:
                if self._is_here(log):
                    self._disk.rename(path + _NEW_SUFFIX, path)
                    await slices.step()
            await self._disk.sync([log.directory for log, _ in written])
        except BaseException:  # cancelled, or the disk is full: the next call must write them all
            for log, _ in written:
                log.epochs.dirty = True
            raise
        return failed

    def _write_epochs_of(
        self, log: PartitionLog, failed: dict[PartitionLog, Exception]
    ) -> str | None:
        """The path of the epoch file that was written anew beside the old one, if it has changed.
        An error of this log alone does not stop the others."""
        try:
            changed = log.checkpoint_epochs()
            if changed is not None:
                self._write_new(*changed)
        except Exception as error:
            log.epochs.dirty = True
            if isinstance(error, OSError):
                if Failure.of(error) is not Failure.REQUEST:
                    raise
            else:
                log.fail(error)
            failed[log] = error
            return None
        return None if changed is None else changed[0]

    def _is_here(self, log: PartitionLog) -> bool:
        """Whether the log is in use: not deleted, not replaced by another of its name, not
        corrupt."""
        return self._logs.get(log.key) is log

    async def _write_offsets(self, *files: _File) -> None:
        """Replace checkpoint files. Nothing else runs between the last look at the logs that have
        changed and the renames. So a log that was truncated or deleted meanwhile keeps the entry
        that the truncation or deletion wrote."""
        self._changed.clear()
        slices = Slices(SLICE_STEPS)
        for file in files:
            # Corrupt logs keep their entries, which prove the corruption.
            for key in [*(log.key for log in file.claims), *self._corrupt]:
                self._put(file, key)
                await slices.step()
        while True:
            for file in files:
                for key in self._changed:
                    self._put(file, key)
            self._changed.clear()
            changing = [file for file in files if file.wanted != file.held]
            if not changing:
                break
            for file in changing:
                data = await encode_offsets_in_slices(file.wanted)
                self._write_new(f"{self._path}/{file.name}", data)
            await self._disk.sync([f"{self._path}/{file.name}{_NEW_SUFFIX}" for file in changing])
            if any(
                self._entry(file, key) != file.wanted.get(key)
                for file in changing
                for key in self._changed
            ):
                continue
            self._renamed = True
            for file in changing:
                path = f"{self._path}/{file.name}"
                self._disk.rename(path + _NEW_SUFFIX, path)
                file.held.clear()
                file.held.update(file.wanted)
            break
        if self._renamed:  # perhaps by an earlier call that was cancelled before it synced
            await self._disk.sync([self._path])
            self._renamed = False
            self._durable_starts = dict(self.start_offsets)
            self._durable_dropped_ends = dict(self.dropped_ends)

    def _put(self, file: _File, key: TopicPartition) -> None:
        """Let the next content of a file have what is right for this name now."""
        offset = self._entry(file, key)
        if offset is not None:
            file.wanted[key] = offset
        else:
            file.wanted.pop(key, None)

    def _entry(self, file: _File, key: TopicPartition) -> int | None:
        """What a file must tell of this name now. None: nothing."""
        log = self._logs.get(key)
        claim = None if log is None else file.claims.get(log)
        if key not in self._corrupt:
            if log is None or claim is None:
                return None
            if log.truncation_generation == claim.generation:
                return claim.offset
        return file.held.get(key)

    def _write_new(self, path: str, data: bytes) -> None:
        """Write a file that will replace ``path`` once it is synced. Raises OSError."""
        file = self._disk.open(path + _NEW_SUFFIX, create=True)
        try:
            if file.size:
                file.truncate(0)
            file.append([data])
        finally:
            file.close()


def _except_for(claims: Claims, failed: Iterable[PartitionLog]) -> Claims:
    """The same claims, but the entries of these logs stay as they are."""
    return {**claims, **{log: Claim(0, _NO_GENERATION) for log in failed if log in claims}}
