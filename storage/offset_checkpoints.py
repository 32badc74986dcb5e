"""The offset checkpoints of a log directory: where recovery begins, what was committed, and where
the logs start."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Mapping, Sequence
from typing import Final

from stele.world import Disk
from storage.checkpoints import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    TopicPartition,
    encode_offsets,
    read_offsets,
)
from storage.errors import StorageError, is_disk_full
from storage.log import PartitionLog

_NEW_SUFFIX: Final = ".new"  # of a checkpoint file on its way

_Offsets = dict[TopicPartition, int]


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

    def _clamp(self, name: str, held: _Offsets, key: TopicPartition, offset: int) -> None:
        if held.get(key, 0) > offset:
            lowered = {**held, key: offset}
            self._disk.replace_file_now(f"{self._path}/{name}", encode_offsets(lowered))
            held[key] = offset

    # ----------------------------------------------------------------------------- writing

    async def write(
        self,
        recovery_points: Mapping[TopicPartition, int],
        high_watermarks: Mapping[TopicPartition, int],
    ) -> None:
        """Replace what has changed of the three files, and of the logs' leader epochs before.

        Raises StorageError when the disk is full, OSError when it failed.
        """
        generations = {key: log.truncation_generation for key, log in self._logs.items()}
        starts = {key: log.start_offset for key, log in self._logs.items() if log.start_offset}
        async with self._writing:
            # A recovery point may be on disk only when the epochs below it are.
            await self._write_epochs()
            await self._write_offsets(
                (
                    (LOG_START_FILE, self.start_offsets, starts),
                    (HIGH_WATERMARK_FILE, self.high_watermarks, high_watermarks),
                    (RECOVERY_POINT_FILE, self.recovery_points, recovery_points),
                ),
                generations,
            )

    async def _write_epochs(self) -> None:
        written: list[tuple[TopicPartition, str]] = []
        for key, log in self._logs.items():
            changed = log.checkpoint_epochs()
            if changed is None:
                continue
            path, data = changed
            try:
                self._write_new(path, data)
            except StorageError:
                log.epochs.dirty = True
                raise
            written.append((key, path))
        if not written:
            return
        try:
            await self._disk.sync([path + _NEW_SUFFIX for _, path in written])
            for key, path in written:
                if key in self._logs:
                    self._disk.rename(path + _NEW_SUFFIX, path)
            await self._disk.sync([f"{self._path}/{key}" for key, _ in written])
        except BaseException:  # cancelled, most likely: the next checkpoint must write them
            for key, _ in written:
                if key in self._logs:
                    self._logs[key].epochs.dirty = True
            raise

    async def _write_offsets(
        self,
        files: Sequence[tuple[str, _Offsets, Mapping[TopicPartition, int]]],
        generations: Mapping[TopicPartition, int],
    ) -> None:
        """Replace checkpoint files. Between sync and rename nothing runs, so a log that was cut
        or deleted meanwhile is left as its cut has put it."""

        def current(held: _Offsets, offsets: Mapping[TopicPartition, int]) -> _Offsets:
            # Corrupt logs keep theirs: they are what proves the corruption.
            kept = {key: offset for key, offset in held.items() if key in self._corrupt}
            for key, offset in offsets.items():
                log = self._logs.get(key)
                if log is None:
                    continue
                if log.truncation_generation == generations[key]:
                    kept[key] = offset
                elif key in held:
                    kept[key] = held[key]
            return kept

        while True:
            wanted = [(name, held, current(held, offsets)) for name, held, offsets in files]
            wanted = [(name, held, new) for name, held, new in wanted if new != held]
            if not wanted:
                return
            paths = [f"{self._path}/{name}" for name, _, _ in wanted]
            for path, (_, _, new) in zip(paths, wanted, strict=True):
                self._write_new(path, encode_offsets(new))
            await self._disk.sync([path + _NEW_SUFFIX for path in paths])
            now = {name: current(held, offsets) for name, held, offsets in files}
            if any(now[name] != new for name, _, new in wanted):
                continue
            for path, (_, held, new) in zip(paths, wanted, strict=True):
                self._disk.rename(path + _NEW_SUFFIX, path)
                held.clear()
                held.update(new)
            await self._disk.sync([self._path])
            return

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
