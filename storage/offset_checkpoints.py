"""The offset checkpoints of a log directory: where recovery begins, what was committed, and where
the logs start."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import Final

from stele.ids import TopicPartition
from storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    encode_offsets,
    read_offsets,
)
from storage.errors import StorageError, is_disk_full
from storage.log import PartitionLog
from storage.turns import Slices
from world.disk import Disk

_EPOCH_FILES_PER_TURN: Final = 16
_NEW_SUFFIX: Final = ".new"  # of a checkpoint file on its way

_Offsets = dict[TopicPartition, int]
OffsetsOfLogs = Mapping[PartitionLog, int]
"""By the log itself: another one may bear its name before they are on disk."""


class OffsetCheckpoints:
    """What the three files hold, and how they are replaced.

    ``logs`` and ``corrupt`` are the directory's own, as they are at each moment.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        logs: Mapping[TopicPartition, PartitionLog],
        corrupt: Container[TopicPartition],
    ) -> None:
        """Of the log directory at ``path``; nothing is read before ``load``."""
        # What the files hold.
        self.recovery_points: _Offsets = {}
        self.high_watermarks: _Offsets = {}
        self.start_offsets: _Offsets = {}
        # What the file of the starts holds after a power loss, too: the directory was synced since
        # the file was renamed into its place.
        self._durable_starts: _Offsets = {}
        self._renamed = False  # and the directory not synced since
        self._disk = disk
        self._path = path
        self._logs = logs
        self._corrupt = corrupt
        self._writing = asyncio.Lock()  # the files have one writer at a time

    def load(self) -> None:
        """Raises LogDirectoryError, OSError."""
        self.recovery_points = read_offsets(self._disk, f"{self._path}/{RECOVERY_POINT_FILE}")
        self.high_watermarks = read_offsets(self._disk, f"{self._path}/{HIGH_WATERMARK_FILE}")
        self.start_offsets = read_offsets(self._disk, f"{self._path}/{LOG_START_FILE}")
        self._renamed = True  # their writer may have died before it synced the directory

    def of(self, key: TopicPartition) -> tuple[int, int, int]:
        """Recovery point, high watermark and start of a partition, as the files say."""
        point, high_watermark = self.recovery_points.get(key, 0), self.high_watermarks.get(key, 0)
        return point, high_watermark, self.start_offsets.get(key, 0)

    def durable_start(self, key: TopicPartition) -> int:
        """What the file of the starts says of a partition, and still says after a power loss."""
        return min(self.start_offsets.get(key, 0), self._durable_starts.get(key, 0))

    # ----------------------------------------------------------------------------- lowering

    def lower_to_high_watermarks(self) -> None:
        """A clean shutdown left recovery points at the logs' ends. Truncations never go below the
        high watermark, but for unclean elections: with this they seldom have to wait for the disk.
        Corrupt logs keep theirs, which proves the corruption, should the note of it be lost.
        """
        lowered = {
            key: point if key in self._corrupt else min(point, self.high_watermarks.get(key, 0))
            for key, point in self.recovery_points.items()
        }
        if lowered != self.recovery_points:
            self._disk.replace_file_now(
                f"{self._path}/{RECOVERY_POINT_FILE}", encode_offsets(lowered)
            )
            self.recovery_points = lowered

    def lower(self, key: TopicPartition, offset: int) -> None:
        """No file claims more than ``offset`` of this partition: on disk when it returns. Raises
        OSError."""
        self._clamp(RECOVERY_POINT_FILE, self.recovery_points, key, offset)
        self._clamp(HIGH_WATERMARK_FILE, self.high_watermarks, key, offset)
        self._clamp(LOG_START_FILE, self.start_offsets, key, offset)
        if self._durable_starts.get(key, 0) > offset:
            self._durable_starts[key] = offset

    def _clamp(self, name: str, held: _Offsets, key: TopicPartition, offset: int) -> None:
        if held.get(key, 0) > offset:
            lowered = {**held, key: offset}
            self._disk.replace_file_now(f"{self._path}/{name}", encode_offsets(lowered))
            held[key] = offset

    # ----------------------------------------------------------------------------- writing

    async def write(
        self,
        recovery_points: OffsetsOfLogs,
        high_watermarks: OffsetsOfLogs,
    ) -> None:
        """Replace what has changed of the three files, and of the logs' leader epochs before.

        Raises StorageError when the disk is full, OSError when it failed.
        """
        generations = self._generations()
        async with self._writing:
            # A recovery point may be on disk only when the epochs below it are.
            await self._write_epochs()
            await self._write_offsets(
                (
                    (LOG_START_FILE, self.start_offsets, self._starts()),
                    (HIGH_WATERMARK_FILE, self.high_watermarks, high_watermarks),
                    (RECOVERY_POINT_FILE, self.recovery_points, recovery_points),
                ),
                self._generations() | generations,  # of logs made meanwhile there are starts only
            )

    async def write_starts(self) -> None:
        """Replace the file of the logs' starts, if one has moved. Those who wait for the same file
        share the next writing of it. Raises as ``write``."""
        async with self._writing:
            starts = LOG_START_FILE, self.start_offsets, self._starts()
            await self._write_offsets((starts,), self._generations())

    def _generations(self) -> dict[PartitionLog, int]:
        return {log: log.truncation_generation for log in self._logs.values()}

    def _starts(self) -> dict[PartitionLog, int]:
        """As they are now. Asked for only by the one writer: a writer that asked and then waited
        for its turn would put earlier starts in the place of those that were promised."""
        return {log: log.start_offset for log in self._logs.values() if log.start_offset}

    async def _write_epochs(self) -> None:
        written: list[tuple[PartitionLog, str]] = []
        slices = Slices(_EPOCH_FILES_PER_TURN)
        try:
            for log in list(self._logs.values()):
                changed = log.checkpoint_epochs() if self._is_here(log) else None
                if changed is not None:
                    path, data = changed
                    written.append((log, path))
                    self._write_new(path, data)
                    await slices.step()
            if not written:
                return
            await self._disk.sync([path + _NEW_SUFFIX for _, path in written])
            for log, path in written:
                if self._is_here(log):
                    self._disk.rename(path + _NEW_SUFFIX, path)
                    await slices.step()
            await self._disk.sync([log.directory for log, _ in written])
        except BaseException:  # cancelled, or the disk is full: the next one must write them all
            for log, _ in written:
                log.epochs.dirty = True
            raise

    def _is_here(self, log: PartitionLog) -> bool:
        """Whether it is not deleted, nor made anew under its name, nor held as corrupt."""
        return self._logs.get(log.key) is log

    async def _write_offsets(
        self,
        files: Sequence[tuple[str, _Offsets, OffsetsOfLogs]],
        generations: OffsetsOfLogs,
    ) -> None:
        """Replace checkpoint files. Between sync and rename nothing runs, so a log that was cut
        or deleted meanwhile is left as its cut has put it."""

        def current(held: _Offsets, offsets: OffsetsOfLogs) -> _Offsets:
            # Corrupt logs keep theirs: they are what proves the corruption.
            kept = {key: offset for key, offset in held.items() if key in self._corrupt}
            for log, offset in offsets.items():
                if not self._is_here(log):
                    continue
                if log.truncation_generation == generations[log]:
                    kept[log.key] = offset
                elif log.key in held:
                    kept[log.key] = held[log.key]
            return kept

        while True:
            wanted = [(name, held, current(held, offsets)) for name, held, offsets in files]
            wanted = [(name, held, new) for name, held, new in wanted if new != held]
            if not wanted:
                break
            paths = [f"{self._path}/{name}" for name, _, _ in wanted]
            for path, (_, _, new) in zip(paths, wanted, strict=True):
                self._write_new(path, encode_offsets(new))
            await self._disk.sync([path + _NEW_SUFFIX for path in paths])
            now = {name: current(held, offsets) for name, held, offsets in files}
            if any(now[name] != new for name, _, new in wanted):
                continue
            self._renamed = True
            for path, (_, held, new) in zip(paths, wanted, strict=True):
                self._disk.rename(path + _NEW_SUFFIX, path)
                held.clear()
                held.update(new)
            break
        if self._renamed:  # also by one that was cancelled before it could sync
            await self._disk.sync([self._path])
            self._renamed = False
            self._durable_starts = dict(self.start_offsets)

    def _write_new(self, path: str, data: bytes) -> None:
        """Write a file that is to replace ``path`` once synced. StorageError: the disk is full."""
        file = self._disk.open(path + _NEW_SUFFIX, create=True)
        try:
            if file.size:
                file.truncate(0)
            file.append([data])
        except OSError as error:
            if is_disk_full(error):
                raise StorageError(f"{path} cannot be written: {error.strerror}") from error
            raise
        finally:
            file.close()
