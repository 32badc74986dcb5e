"""The segments of one log in order: created, deleted, opened and closed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from storage.cuts import cut_path, encode_cut
from storage.errors import is_disk_full
from storage.segment import Segment, SegmentRead
from storage.segment_names import CLEANED_SUFFIX, segment_paths, txn_index_path
from storage.swaps import settle_swap
from world.disk import Disk

_CURSORS: Final = 32  # readers whose next position is remembered
_LOADED_SEALED: Final = 4  # sealed segments that stay open for reading


class Segments:
    """The segments are adjacent: each ends where the next one begins. The last, ``active``, is
    written to.

    The list is empty only while a log is being reset.
    """

    __slots__ = (
        "_cursors",
        "_directory",
        "_disk",
        "_items",
        "_loaded",
        "active",
        "bases",
        "replacements",
    )

    def __init__(self, disk: Disk, directory: str, segments: list[Segment]) -> None:
        self._disk = disk
        self._directory = directory
        self._items = segments
        self.bases = [segment.base_offset for segment in segments]  # parallel to the segments
        self.active = segments[-1]
        self.replacements = 0
        """How often segments were replaced by a compacted one. A search that goes from segment to
        segment begins again if this changes."""
        # next offset of a reader → its segment and position
        self._cursors: dict[int, tuple[Segment, int]] = {}
        self._loaded: list[Segment] = []  # open sealed segments, the least recently used first

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def sealed(self) -> list[Segment]:
        return self._items[:-1]

    def all(self) -> list[Segment]:
        return list(self._items)

    def index_of(self, offset: int) -> int:
        """The index of the segment that holds ``offset``; -1 for an offset below the first."""
        return bisect_right(self.bases, offset) - 1

    def at(self, index: int) -> Segment:
        return self._items[index]

    # ----------------------------------------------------------------------------- reading

    def place_of(self, offset: int) -> tuple[Segment, int | None]:
        """The segment that holds ``offset``, and the position in it if a reader has just stopped
        there."""
        cursor = self._cursors.get(offset)
        if cursor is not None:
            if cursor[0] is not self.active:
                self._use(cursor[0])
            return cursor
        if offset >= self.active.base_offset:
            return self.active, None
        segment = self._items[self.index_of(offset)]
        self._use(segment)
        return segment, None

    def remember(self, segment: Segment, found: SegmentRead) -> None:
        """Remember where a reader stopped, since it will ask for the next records."""
        offset = found.next_offset
        if offset in self._cursors or (offset >= segment.end_offset and segment is not self.active):
            return
        if len(self._cursors) >= _CURSORS:
            del self._cursors[next(iter(self._cursors))]
        self._cursors[offset] = (segment, found.next_position)

    def _use(self, segment: Segment) -> None:
        """Note the use of a sealed segment, and close the least recently used one if too many are
        open."""
        if segment in self._loaded:
            self._loaded.remove(segment)
        self._loaded.append(segment)
        if len(self._loaded) > _LOADED_SEALED:
            self._loaded.pop(0).unload()

    # ----------------------------------------------------------------------------- changing

    def begin(self, base_offset: int, *, created_ms: int) -> None:
        """Begin a segment after the last one. It becomes the active one. Raises OSError."""
        segment = Segment(self._disk, self._directory, base_offset, created_ms=created_ms)
        self._cursors.clear()
        if self._items:
            self._use(self._items[-1])
        self._items.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def announce_cut(self, keep: int) -> bool:
        """Note on disk that all segments but the first ``keep`` will be removed, so that a crash in
        between leaves no gap. False if the note is not needed, or the disk is full. Raises OSError:
        then nothing has changed."""
        settle_swap(self._disk, self._directory)
        if len(self._items) - keep < 2:
            return False
        note = encode_cut(self._items[keep].base_offset)
        try:
            self._disk.replace_file_now(cut_path(self._directory), note)
        except OSError as error:
            if not is_disk_full(error):
                raise
            return False
        return True

    def drop_last(self, keep: int, *, is_announced: bool) -> list[str]:
        """Remove all segments but the first ``keep``. Returns the new paths of their renamed files.
        The removal is on disk when this returns: after two syncs if it was announced, otherwise
        after one for each segment. Raises OSError: recovery completes an announced removal."""
        aside: list[str] = []
        while len(self._items) > keep:
            segment = self._items.pop()
            self.bases.pop()
            self._forget(segment)
            if self._items:
                self.active = self._items[-1]
                if self.active in self._loaded:
                    self._loaded.remove(self.active)
            aside += segment.set_aside()
            if not is_announced:
                self._disk.sync_now(self._directory)
        if is_announced:
            self._disk.sync_now(self._directory)
            self._disk.remove(cut_path(self._directory))
            self._disk.sync_now(self._directory)
        return aside

    def drop_below(self, offset: int, *, in_order: bool) -> int:
        """Delete segments that end at or below ``offset``, but never the active one. Returns how
        many. ``in_order``: each removal is on disk before the next. Raises OSError: then it may be
        called again."""
        dead = [segment for segment in self.sealed() if segment.end_offset <= offset]
        for segment in dead:
            if in_order:
                self._disk.sync_now(self._directory)
            self._forget(segment)
            segment.delete()
            del self._items[0], self.bases[0]
        if dead and in_order:
            self._disk.sync_now(self._directory)
        return len(dead)

    def first_base_above(self, offset: int) -> int:
        """The first segment's base offset once segments that end at or below ``offset`` go."""
        return next(
            segment.base_offset
            for segment in self._items
            if segment is self.active or segment.end_offset > offset
        )

    def set_aside_first(self, offset: int) -> list[str]:
        """Remove the first segment if it ends at or below ``offset`` and is not the active one.
        Returns the new paths of its renamed files. Raises OSError: then it may be called again."""
        first = self._items[0]
        if first is self.active or first.end_offset > offset:
            return []
        self._forget(first)
        paths = first.set_aside()
        del self._items[0], self.bases[0]
        return paths

    def replace(self, base_offset: int, end_offset: int) -> list[str]:
        """Put the compacted segment ``base_offset`` into the place of the sealed segments from
        there to ``end_offset``. Returns the new paths of their renamed files. Nothing is synced.
        Raises OSError: recovery completes it, as it was announced (``storage.swaps``)."""
        first = self.index_of(base_offset)
        following = self.index_of(end_offset)
        old = self._items[first:following]
        aside: list[str] = []
        for segment in old:
            self._forget(segment)
            aside += segment.set_aside()
        cleaned = segment_paths(self._directory, base_offset, CLEANED_SUFFIX)
        paths = segment_paths(self._directory, base_offset)
        for source, target in zip(cleaned, paths, strict=True):
            self._disk.rename(source, target)
        cleaned_index = txn_index_path(self._directory, base_offset, CLEANED_SUFFIX)
        has_index = self._disk.exists(cleaned_index)
        if has_index:
            self._disk.rename(cleaned_index, txn_index_path(self._directory, base_offset))
        created_ms = min(segment.created_ms for segment in old)
        segment = Segment(self._disk, self._directory, base_offset, created_ms=created_ms)
        segment.mark_unloaded(end_offset)
        segment.txn_index.is_present = has_index
        segment.unseen_bytes = 0  # the compaction made its batches from checked ones
        self._items[first:following] = [segment]
        self.bases[first:following] = [base_offset]
        self.replacements += 1
        return aside

    def _forget(self, segment: Segment) -> None:
        self._cursors.clear()
        if segment in self._loaded:
            self._loaded.remove(segment)

    def forget_places(self) -> None:
        """Forget the places of readers: a truncation has changed positions."""
        self._cursors.clear()

    def close(self) -> None:
        self._cursors.clear()
        for segment in self._items:
            segment.close()
