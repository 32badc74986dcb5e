"""Virtual disks: what a machine keeps, what it would lose with its power, and what it does wrong.

:class:`VirtualDisk` belongs to a machine and outlives its processes; ``disk_view.SimDisk`` is one
process's handle on it, and is dead when the process is. Every file and directory has two states:
the one that processes see (the page cache) and the durable one. A process crash loses nothing of
the first; a power loss leaves the second, plus some of what was written since, in part.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from stele.world import Buffer
from world.disk import ReadFailedError, SyncFailedError

PAGE_BYTES = 4096
SECTOR_BYTES = 512  # a device writes each whole or not at all
NAME_MAX_BYTES = 255  # of one part of a path
METADATA_LOG = "__cluster_metadata-0"


class ProcessDeadError(BaseException):
    """A dead process has reached for the world. Not an ``Exception``: nothing may handle it."""


class Owner(Protocol):
    """The process that holds a handle."""

    @property
    def dead(self) -> bool: ...

    async def sleep(self, delay_s: float) -> None:
        """Wait, as the process."""
        ...


@dataclass(slots=True)
class DiskFaults:
    """What a disk does wrong. All zero: a perfect disk that is only slow."""

    sync_s: tuple[float, float] = (0.000_3, 0.002)  # how long a sync takes, from and to
    extra_sync_s: float = 0.0  # and so much longer
    cold_read: float = 0.0  # how likely a read is not in memory
    quota_bytes: int | None = None  # ENOSPC beyond it
    failing_sync: bool = False  # every sync fails; what it covered is never written
    failing_read: bool = False
    failing_write: bool = False
    # How likely whatever needs a file handle finds none (EMFILE), but for the metadata log: a voter
    # that finds none ends, as it should.
    no_handle: float = 0.0
    # How likely some sectors of an unsynced page, or all, are as they were before after a power
    # loss, whatever follows them. Zero: a file keeps a prefix of its unsynced bytes, as ext4 in
    # ordered mode does.
    torn_page: float = 0.0


class _Write(NamedTuple):
    """Bytes written at a position, or (data None) a cut to that size."""

    number: int  # in the order of all writes of a disk: a sync covers up to one of them
    position: int
    data: bytes | None


@dataclass(slots=True, eq=False)
class Inode:
    """A file: what processes see of it, and what a power loss would leave."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    # Changes since the durable state, in order.
    pending: list[_Write] = field(default_factory=list)
    # What a failed sync covered: taken for written, and written with a later change of its page.
    lost: list[_Write] = field(default_factory=list)
    warm_until: float = -1.0
    bad_sectors: set[int] = field(default_factory=set)  # by number: they cannot be read
    failed_reads: int = 0  # for them

    def persist(self, write: _Write, data: bytes | None) -> None:
        """A change reaches the device, ``data`` of it; a page is written whole."""
        if data is not None:
            page = write.position - write.position % PAGE_BYTES
            for lost in self.lost:
                if lost.data is not None and lost.position < write.position:
                    first = max(page, lost.position)
                    part = lost.data[first - lost.position : write.position - lost.position]
                    if part:
                        _apply(self.durable, first, part)
        _apply(self.durable, write.position, data)


@dataclass(slots=True, eq=False)
class Directory:
    entries: dict[str, Inode | Directory] = field(default_factory=dict)
    durable: dict[str, Inode | Directory] = field(default_factory=dict)


_Node = Inode | Directory


@dataclass(slots=True, eq=False)
class _Change:
    """One atomic change of directory entries; a rename across directories has two parts."""

    parts: list[tuple[Directory, str, _Node | None]]

    def commit(self) -> None:
        for directory, name, node in self.parts:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node

    def touches(self, directory: Directory) -> bool:
        return any(part[0] is directory for part in self.parts)


def os_error(number: int, path: str, kind: type[OSError] = OSError) -> OSError:
    return kind(number, os.strerror(number), path)


class VirtualDisk:
    """The file system of one machine."""

    def __init__(
        self,
        rng: random.Random,
        now: Callable[[], float],
        note: Callable[[str, str], None],
        faults: DiskFaults | None = None,
    ) -> None:
        self.faults = faults or DiskFaults()
        self.rng = rng
        self.now = now
        self.note = note
        self.syncs = 0
        self.locks: dict[str, Owner] = {}  # a dead owner's lock is nobody's
        self.on_cut: Callable[[str, int], None] | None = None  # before a process shortens a file
        self.destroyed: dict[str, bytes] = {}  # of files hurt or lost: what was durable before
        self.has_failed = False  # it refused a write or a sync, since the last loss of power
        self.spoiled = 0  # sectors that ever went bad
        self._writes = 0
        self._root = Directory()
        self._changes: list[_Change] = []  # of directory entries, not durable, in order
        # What `files` found, until an entry changes: laws ask at every look.
        self._found: dict[tuple[str, str], list[tuple[str, Inode]]] = {}
        # Likewise of `durable_files`, until an entry is durable or durably gone.
        self._kept: dict[tuple[str, str], list[Inode]] = {}

    # --------------------------------------------------------------------------------- faults

    def power_loss(self) -> None:
        """Fall back to the durable state, plus a part of what was under way."""
        kept = self.rng.randint(0, len(self._changes))
        for change in self._changes[:kept]:
            change.commit()
        self._changes.clear()
        self._found.clear()
        self._kept.clear()
        self.has_failed = False
        self._fall_back(self._root, set())
        self.note("power-loss", f"kept {kept} directory changes, {self.used_bytes()} bytes")

    def _fall_back(self, directory: Directory, seen: set[int]) -> None:
        directory.entries = dict(directory.durable)
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Directory):
                self._fall_back(node, seen)
            elif id(node) not in seen:
                seen.add(id(node))
                self._lose_pending(node)

    def _lose_pending(self, inode: Inode) -> None:
        """Of the unsynced changes a prefix has reached the device, its pages not all intact."""
        kept = self.rng.randint(0, len(inode.pending))
        solid = len(inode.durable)  # so many of its bytes no change has touched
        for write in inode.pending[:kept]:
            inode.persist(write, write.data)
            if write.data is None:
                solid = min(solid, write.position)
        if kept < len(inode.pending):
            write = inode.pending[kept]
            if write.data:
                inode.persist(write, write.data[: self.rng.randint(0, len(write.data))])
        if self.faults.torn_page:
            self._tear(inode.durable, solid)
        inode.pending.clear()
        inode.lost.clear()
        inode.data = bytearray(inode.durable)

    def _tear(self, content: bytearray, solid: int) -> None:
        """Sectors that were not written read as zeroes: behind the end of a file is nothing."""
        for page in range(solid - solid % PAGE_BYTES, len(content), PAGE_BYTES):
            if self.rng.random() >= self.faults.torn_page:
                continue
            first, last = 0, PAGE_BYTES // SECTOR_BYTES - 1
            if self.rng.random() < 0.5:
                first = self.rng.randint(first, last)
                last = self.rng.randint(first, last)
            start = max(page + first * SECTOR_BYTES, solid)
            end = min(page + (last + 1) * SECTOR_BYTES, len(content))
            if start < end:
                content[start:end] = bytes(end - start)

    def flip_bit(self, path: str, position: int, bit: int = 0) -> None:
        """Silent corruption, of the durable state too."""
        inode = self.file(path)
        self.destroyed[path] = bytes(inode.durable)
        for content in (inode.data, inode.durable):
            if position < len(content):
                content[position] ^= 1 << bit
        self.note("bit-flip", f"{path}:{position}")

    def spoil(self, path: str, position: int) -> None:
        """The sector there cannot be read any more; what stands in it is lost to processes."""
        inode = self.file(path)
        self.destroyed[path] = bytes(inode.durable)
        inode.bad_sectors.add(position // SECTOR_BYTES)
        self.spoiled += 1
        self.note("bad-sector", f"{path}:{position}")

    def lose(self, path: str) -> None:
        """A file or a tree is gone, durably."""
        parent = self.directory(posixpath.dirname(path))
        name = posixpath.basename(path)
        self._remember(path, parent.durable.pop(name, None))
        parent.entries.pop(name, None)
        self._found.clear()
        self._kept.clear()
        for change in self._changes:
            change.parts = [part for part in change.parts if part[:2] != (parent, name)]
        self.note("lost", path)

    def _remember(self, path: str, lost: _Node | None) -> None:
        if isinstance(lost, Inode):
            self.destroyed[path] = bytes(lost.durable)
        elif lost is not None:
            for name, node in lost.durable.items():
                self._remember(f"{path}/{name}", node)

    # ------------------------------------------------------------------------------ the tree

    def names(self, path: str) -> list[str]:
        """Of a directory, sorted; none where there is no directory."""
        node = self.find(path)
        return sorted(node.entries) if isinstance(node, Directory) else []

    def files(self, path: str, suffix: str) -> list[tuple[str, Inode]]:
        """Those of a directory whose names end so, in the order of names."""
        found = self._found.get((path, suffix))
        if found is None:
            node = self.find(path)
            entries = node.entries if isinstance(node, Directory) else {}
            found = self._found[path, suffix] = [
                (name, inode)
                for name, inode in entries.items()
                if name.endswith(suffix) and isinstance(inode, Inode)
            ]
            found.sort(key=lambda entry: entry[0])
        return found

    def find(self, path: str) -> _Node | None:
        node: _Node = self._root
        for name in parts(path):
            if not isinstance(node, Directory) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        return node

    def durable_file(self, path: str) -> bytes:
        """What a power loss would leave of a file in any case; empty if it might not be there."""
        node: _Node | None = self._root
        for name in parts(path):
            node = node.durable.get(name) if isinstance(node, Directory) else None
        return bytes(node.durable) if isinstance(node, Inode) else b""

    def durable_files(self, path: str, suffix: str) -> list[Inode]:
        """Those of a directory that a power loss would leave there, the newest entries first."""
        kept = self._kept.get((path, suffix))
        if kept is None:
            node: _Node | None = self._root
            for name in parts(path):
                node = node.durable.get(name) if isinstance(node, Directory) else None
            entries = node.durable if isinstance(node, Directory) else {}
            kept = self._kept[path, suffix] = [
                inode
                for name, inode in reversed(entries.items())
                if name.endswith(suffix) and isinstance(inode, Inode)
            ]
        return kept

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Inode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def change(self, *parts: tuple[Directory, str, _Node | None]) -> None:
        """Change entries, seen at once and durable after a sync of (one of) their directories."""
        self._found.clear()
        for directory, name, node in parts:
            if node is None:
                directory.entries.pop(name, None)
            else:
                directory.entries[name] = node
        self._changes.append(_Change(list(parts)))

    def used_bytes(self, directory: Directory | None = None) -> int:
        total = 0
        for node in (directory or self._root).entries.values():
            total += self.used_bytes(node) if isinstance(node, Directory) else len(node.data)
        return total

    # -------------------------------------------------------------------------------- writing

    def append(self, inode: Inode, path: str, buffers: Sequence[Buffer]) -> int:
        if self.faults.failing_write:
            self.has_failed = True
            raise os_error(errno.EIO, path)
        data = b"".join(bytes(buffer) for buffer in buffers)
        position = len(inode.data)
        quota = self.faults.quota_bytes
        if quota is not None and (room := quota - self.used_bytes()) < len(data):
            self._write(inode, position, data[: max(0, room)])
            raise os_error(errno.ENOSPC, path)
        self._write(inode, position, data)
        return position

    def _write(self, inode: Inode, position: int, data: bytes) -> None:
        if data:
            inode.data[position:] = data
            self._note_write(inode, position, data)

    def truncate(self, inode: Inode, size: int) -> None:
        if size < len(inode.data):
            del inode.data[size:]
        else:
            inode.data.extend(bytes(size - len(inode.data)))
        inode.lost = [lost for lost in inode.lost if lost.position < size]
        # What is written there next gets a sound sector in the place of the bad one.
        inode.bad_sectors = {bad for bad in inode.bad_sectors if bad * SECTOR_BYTES < size}
        self._note_write(inode, size, None)

    def _note_write(self, inode: Inode, position: int, data: bytes | None) -> None:
        self._writes += 1
        inode.pending.append(_Write(self._writes, position, data))

    # -------------------------------------------------------------------------------- syncing

    def begin_sync(self, paths: Sequence[str]) -> Callable[[], None]:
        """Note what a sync of these covers; the result makes exactly that durable.

        A path that has been removed is skipped.
        """
        covered: list[Inode] = []
        last_write = self._writes
        changes: list[_Change] = []
        for path in paths:
            node = self.find(path)
            if isinstance(node, Directory):
                changes += [change for change in self._changes if change.touches(node)]
            elif node is not None:
                covered.append(node)
        failing = self.faults.failing_sync

        def finish() -> None:
            self.syncs += 1
            for inode in covered:
                self._settle(inode, last_write, written=not failing)
            for change in changes:
                if change in self._changes:
                    self._changes.remove(change)
                    if not failing:
                        change.commit()
                        self._kept.clear()
            if failing:
                self.has_failed = True
                raise os_error(errno.EIO, paths[0], SyncFailedError)

        return finish

    def _settle(self, inode: Inode, last_write: int, *, written: bool) -> None:
        """The changes up to that write are no longer pending.

        After a failed sync the system takes the pages for clean, written or not: a second sync
        would succeed without them. That is why a failed sync must never be tried again.
        """
        count = sum(1 for write in inode.pending if write.number <= last_write)
        done = inode.pending[:count]
        del inode.pending[:count]
        if not written:
            inode.lost += done
            return
        for write in done:
            inode.persist(write, write.data)

    # -------------------------------------------------------------------------------- reading

    def is_bad(self, inode: Inode, position: int, size: int) -> bool:
        """Whether this range cannot be read."""
        if self.faults.failing_read:
            return True
        if not inode.bad_sectors:
            return False
        end = min(position + size, len(inode.data))
        return any(
            position // SECTOR_BYTES <= bad <= (end - 1) // SECTOR_BYTES
            for bad in inode.bad_sectors
        )

    def check_read(self, inode: Inode, path: str, position: int, size: int) -> None:
        """Raises ReadFailedError where the device does not give the bytes."""
        if self.is_bad(inode, position, size):
            inode.failed_reads += bool(inode.bad_sectors)
            raise os_error(errno.EIO, path, ReadFailedError)

    def need_handle(self, path: str) -> None:
        """Raises OSError when there is none for it just now."""
        likely = self.faults.no_handle
        if likely and METADATA_LOG not in path and self.rng.random() < likely:
            self.note("no-handle", path)
            raise os_error(errno.EMFILE, path)

    def sync_delay_s(self) -> float:
        return self.rng.uniform(*self.faults.sync_s) + self.faults.extra_sync_s


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    """Apply one change; a gap before it reads as zeroes."""
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


@lru_cache(maxsize=4096)
def parts(path: str) -> tuple[str, ...]:
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return tuple(part for part in posixpath.normpath(path).split("/") if part)
