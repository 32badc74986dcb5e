"""Decides when producer snapshots of a log are written, so that there is never much to replay."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final

from storage.producer_state import ProducerStates, SnapshotEncoding
from storage.replay import Replayed
from storage.snapshots import snapshot_path, write_snapshot
from world.disk import Disk

REPLAY_BATCHES: Final = 8192
"""Replaying this many headers takes some 20 ms."""
_BYTES_PER_BATCH: Final = 4 << 10
"""Reading and checking this many bytes takes as long as replaying one header."""
_BATCHES_PER_PRODUCER: Final = 8
"""Writing a producer's state takes at most as long as replaying this many headers."""
_KEPT: Final = 2  # snapshots within a segment; those at the beginnings of segments stay


class ProducerFiles:
    """The snapshots of one log within segments, besides those at the beginnings and ends of
    segments.

    After a truncation or a crash the producer state is rebuilt from the newest snapshot below the
    end and all batches since. Without snapshots within a segment that could be a whole segment of
    batches.
    """

    __slots__ = ("_begun", "_directory", "_disk", "_due", "_inner", "_refused", "_to_replay")

    def __init__(self, disk: Disk, directory: str, replayed: Replayed | None = None) -> None:
        """``replayed``: the bytes after the newest snapshot."""
        self._disk = disk
        self._directory = directory
        self._inner: list[int] = []  # offsets of snapshots that were written within a segment
        # Not complete yet, with their offsets, which rise.
        self._begun: deque[tuple[int, SnapshotEncoding]] = deque()
        # Complete and not written, because the disk was full, by offset. Each is the beginning of a
        # segment, and retention needs it.
        self._refused: dict[int, SnapshotEncoding] = {}
        self._to_replay = 0 if replayed is None else _cost(*replayed)
        self._due = REPLAY_BATCHES

    @property
    def is_begun(self) -> bool:
        """Whether a snapshot is not complete yet."""
        return bool(self._begun)

    def is_coming(self, offset: int) -> bool:
        """Whether the snapshot at ``offset`` is not complete yet, or was refused by the disk."""
        return offset in self._refused or any(at == offset for at, _ in self._begun)

    def appended(self, batches: int, size_bytes: int) -> bool:
        """The log has grown by so much. Returns whether to call ``save_if_due``."""
        self._to_replay += _cost(batches, size_bytes)
        return bool(self._begun) or self._to_replay >= self._due

    def save_if_due(self, offset: int, states: ProducerStates, bases: Container[int]) -> str | None:
        """Write the state as of ``offset``, the log's end, if enough was appended since the last
        snapshot, even if there are no producers. Returns the path, which is not synced: the CRC
        reveals a torn file. Raises OSError.

        The state of many producers is encoded in slices, one at each append for each snapshot that
        is begun. So there are never many, however small the segments are."""
        if not self._begun:
            self._due = REPLAY_BATCHES + _BATCHES_PER_PRODUCER * len(states)
            if self._to_replay < self._due:
                return None
            self.begin(offset, states)
        for _ in range(len(self._begun)):
            path = self.go_on(bases)
            if path is not None:
                return path
        return None

    def begin(self, offset: int, states: ProducerStates) -> None:
        """Begin a snapshot as of ``offset``, which ``save_if_due`` completes.

        A snapshot at the beginning of a segment is begun even while an earlier one is not complete:
        once retention has deleted the segments before, nothing else knows the producers of their
        batches.
        """
        self._to_replay = 0  # also if it fails: it must not be tried at every append
        if not self._begun or self._begun[-1][0] != offset:
            self._begun.append((offset, SnapshotEncoding(states)))

    def go_on(self, bases: Container[int]) -> str | None:
        """Do a slice of the first snapshot that is not complete. Returns the path if it is complete
        now. Raises OSError: ``write_refused`` tries again if it is one at the beginning of a
        segment."""
        offset, encoding = self._begun[0]
        if not encoding.go_on():
            return None
        self._begun.popleft()
        try:
            path = write_snapshot(self._disk, self._directory, offset, encoding.data)
        except OSError:
            if offset in bases:
                self._refused[offset] = encoding
            raise
        if offset not in bases:
            self._inner.append(offset)
        while len(self._inner) > _KEPT:
            self._remove(self._inner.pop(0), bases)
        return path

    def write_refused(self, bases: Container[int]) -> list[str]:
        """Write the snapshots that the disk has refused, except for segments that are gone.
        Returns the paths. Raises OSError."""
        paths = []
        for offset in sorted(self._refused):
            if offset in bases:
                data = self._refused[offset].data
                paths.append(write_snapshot(self._disk, self._directory, offset, data))
            del self._refused[offset]
        return paths

    def truncated(self, end_offset: int) -> None:
        """The log was truncated. A snapshot that was begun above its end is of another log."""
        for offset in [each for each in self._refused if each > end_offset]:
            del self._refused[offset]
        while self._begun and self._begun[-1][0] > end_offset:
            self._begun.pop()
        self._inner = [offset for offset in self._inner if offset <= end_offset]

    def rebuilt(self, replayed: Replayed) -> None:
        """The state of a truncated log was rebuilt. ``replayed``: the bytes after the newest
        snapshot."""
        self._to_replay = _cost(*replayed)
        self._due = REPLAY_BATCHES

    def _remove(self, offset: int, bases: Container[int]) -> None:
        path = snapshot_path(self._directory, offset)
        if offset not in bases and self._disk.exists(path):
            self._disk.remove(path)

    def write(self, offset: int, states: ProducerStates) -> str:
        """Write the state as of ``offset`` at once, unsynced. Returns the path. Raises OSError."""
        self._to_replay = 0
        self._begun.clear()
        return write_snapshot(self._disk, self._directory, offset, states.encode())


def _cost(batches: int, size_bytes: int) -> int:
    return batches + size_bytes // _BYTES_PER_BATCH
