"""Virtual disks: what a machine keeps, what a power loss takes, and how disks fail.

:class:`VirtualDisk` belongs to a machine and outlives its processes. ``disk_view.SimDisk`` is one
process's handle on it, and dies with the process. Every file and directory has two states: the one
that processes see (the page cache) and the durable one. A process crash loses neither. A power loss
leaves the durable state and a random part of what was written since.
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from chaos.sim.world.write_errors import WriteErrorHandle, WriteErrors
from stele.world import Buffer
from world.disk import ReadFailedError, SyncFailedError

PAGE_BYTES = 4096
SECTOR_BYTES = 512  # a device writes a sector whole or not at all
NAME_MAX_BYTES = 255  # the longest part of a path
METADATA_LOG = "__cluster_metadata-0"


class ProcessDeadError(BaseException):
    """A dead process has called the world. Not an ``Exception``: no code may handle it."""


class Owner(Protocol):
    """The process that holds a handle."""

    @property
    def dead(self) -> bool: ...

    async def sleep(self, delay_s: float) -> None:
        """Wait in virtual time. A paused process goes on only after its pause."""
        ...


@dataclass(slots=True)
class DiskFaults:
    """The faults of a disk. The defaults are a perfect disk with slow syncs."""

    sync_s: tuple[float, float] = (0.000_3, 0.002)  # the shortest and the longest sync
    extra_sync_s: float = 0.0  # added to every sync
    cold_read: float = 0.0  # how likely a read is not in memory
    quota_bytes: int | None = None  # writes beyond it fail with ENOSPC
    failing_sync: bool = False  # every sync fails, and what it covered is never written
    failing_read: bool = False
    failing_write: bool = False
    # The next bytes that are appended to a log below this path are not written to the device in the
    # background, and the system takes them for written.
    failing_write_back: str = ""
    failing_during: str = ""  # only while syncs are under way, all of paths below this one
    # What is below one of these paths is not below another one that contains it.
    owned: tuple[str, ...] = ()
    dead: str = ""  # a directory with a device of its own, which is gone with what is on it
    # How likely a call that needs a file handle fails (EMFILE). Calls for the metadata log never
    # do: a voter without handles would end, as it should.
    no_handle: float = 0.0
    # How likely a power loss leaves some or all sectors of an unsynced page unwritten, though later
    # pages were written. Zero: a file keeps a prefix of its unsynced bytes, as on ext4 in ordered
    # mode.
    torn_page: float = 0.0


class _Write(NamedTuple):
    """Bytes written at a position, or (data None) a truncation to that size."""

    number: int  # counts all writes of a disk: a sync covers writes up to a number
    position: int
    data: bytes | None


@dataclass(slots=True, eq=False)
class Inode:
    """A file: what processes see of it, and what a power loss would leave."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    # Changes since the durable state, in order.
    pending: list[_Write] = field(default_factory=list)
    # What failed syncs covered. The system takes these writes for done. They reach the device only
    # with a later write to the same page.
    lost: list[_Write] = field(default_factory=list)
    modified_ms: int = 0  # by the machine's wall clock
    warm_until: float = -1.0
    bad_sectors: set[int] = field(default_factory=set)  # numbers of sectors that cannot be read
    failed_reads: int = 0  # reads that failed because of bad sectors
    write_errors: WriteErrors = field(default_factory=WriteErrors)

    def persist(self, write: _Write, data: bytes | None) -> None:
        """Write the change to the device, with ``data`` of it. The device writes whole pages, so
        lost bytes before it in its page are written, too."""
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

DiskImage = dict[str, "bytes | DiskImage"]
"""The files and directories of a tree, by name."""


@dataclass(slots=True, eq=False)
class _Change:
    """One atomic change of directory entries. A rename has two parts."""

    parts: list[tuple[Directory, str, _Node | None]]

    def commit(self) -> None:
        for directory, name, node in self.parts:
            if node is None:
                directory.durable.pop(name, None)
            else:
                directory.durable[name] = node


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
        self.time_ms: Callable[[], int] = lambda: 0  # set by the machine, which has the clock
        self.syncs = 0
        self.locks: dict[str, Owner] = {}  # the lock of a dead owner is free
        self.on_cut: Callable[[str, int], None] | None = None  # called before a file is truncated
        self.destroyed: dict[str, bytes] = {}  # durable bytes before damage, by path
        self.has_failed = False  # a write or a sync has failed since the last power loss
        self.failures = 0  # how many ever failed
        self.spoiled = 0  # how many sectors ever went bad
        self.write_errors = WriteErrors()  # of all files
        self._writes = 0
        self._died: set[str] = set()
        self._syncing: list[str] = []  # the first path of each sync under way
        self._root = Directory()
        self._changes: list[_Change] = []  # changes of entries that are not durable, in order
        # What `files` found, until an entry changes: laws ask at every look.
        self._found: dict[tuple[str, str], list[tuple[str, Inode]]] = {}
        # What `durable_files` found, until a change of entries becomes durable.
        self._kept: dict[tuple[str, str], list[Inode]] = {}

    # --------------------------------------------------------------------------------- faults

    def power_loss(self) -> None:
        """Fall back to the durable state and a random part of what was not synced."""
        kept = self.rng.randint(0, len(self._changes))
        for change in self._changes[:kept]:
            change.commit()
        self._changes.clear()
        self._found.clear()
        self._kept.clear()
        self.has_failed = False
        self._died.clear()
        self._syncing.clear()
        self.write_errors = WriteErrors()
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
        """Keep a random prefix of the unsynced changes. Some of its pages may be torn."""
        kept = self.rng.randint(0, len(inode.pending))
        solid = len(inode.durable)  # bytes before this offset were synced and not changed since
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
        inode.write_errors = WriteErrors()
        inode.data = bytearray(inode.durable)

    def _tear(self, content: bytearray, solid: int) -> None:
        """Tear pages behind the synced bytes. Sectors that were not written read as zeroes."""
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
        """Flip a bit silently, in the durable state as well."""
        inode = self.file(path)
        self.destroyed[path] = bytes(inode.durable)
        for content in (inode.data, inode.durable):
            if position < len(content):
                content[position] ^= 1 << bit
        self.note("bit-flip", f"{path}:{position}")

    def spoil(self, path: str, position: int) -> None:
        """Make the sector at this position unreadable."""
        inode = self.file(path)
        self.destroyed[path] = bytes(inode.durable)
        inode.bad_sectors.add(position // SECTOR_BYTES)
        self.spoiled += 1
        self.note("bad-sector", f"{path}:{position}")

    def lose(self, path: str) -> None:
        """Delete a file or a tree, in the durable state as well."""
        parent = self.directory(posixpath.dirname(path))
        name = posixpath.basename(path)
        self._remember(path, parent.durable.pop(name, None))
        parent.entries.pop(name, None)
        self._found.clear()
        self._kept.clear()
        for change in self._changes:
            change.parts = [part for part in change.parts if part[:2] != (parent, name)]
        self.note("lost", path)

    def image(self, path: str) -> DiskImage:
        """A copy of the durable state of a tree, as a snapshot of the machine would have it."""
        return _image_of(self.directory(path))

    def restore(self, path: str, image: DiskImage) -> None:
        """Put an earlier state in the place of a tree, in the durable state as well."""
        self.lose(path)
        parent, name = self.directory(posixpath.dirname(path)), posixpath.basename(path)
        parent.entries[name] = parent.durable[name] = _made_from(image)
        self.note("restored", path)

    def _remember(self, path: str, lost: _Node | None) -> None:
        if isinstance(lost, Inode):
            self.destroyed[path] = bytes(lost.durable)
        elif lost is not None:
            for name, node in lost.durable.items():
                self._remember(f"{path}/{name}", node)

    def has_died(self, path: str) -> bool:
        """Whether the device of this directory was ever gone since the last power loss."""
        return self.is_dead(path) or path in self._died

    def is_dead(self, path: str) -> bool:
        """Whether the device below this path is gone."""
        dead = self.faults.dead
        return bool(dead) and (path == dead or path.startswith(f"{dead}/"))

    def need_device(self, *paths: str, kind: type[OSError] = OSError) -> None:
        """Raises OSError if the device below one of these paths is gone."""
        for path in paths:
            if self.is_dead(path):
                self._died.add(self.faults.dead)
                raise os_error(errno.EIO, path, kind)

    # ------------------------------------------------------------------------------ the tree

    def names(self, path: str) -> list[str]:
        """The sorted names in a directory; none if there is no such directory."""
        node = self.find(path)
        return sorted(node.entries) if isinstance(node, Directory) else []

    def files(self, path: str, suffix: str) -> list[tuple[str, Inode]]:
        """The files of a directory whose names end in ``suffix``, by name."""
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

    def exists_durably(self, path: str) -> bool:
        """Whether a loss of power would leave the entry of a file in its directory."""
        directory = self.find(posixpath.dirname(path))
        return isinstance(directory, Directory) and posixpath.basename(path) in directory.durable

    def durable_file(self, path: str) -> bytes:
        """The bytes that a file surely has after a power loss; none if the file may be missing."""
        node: _Node | None = self._root
        for name in parts(path):
            node = node.durable.get(name) if isinstance(node, Directory) else None
        return bytes(node.durable) if isinstance(node, Inode) else b""

    def durable_files(self, path: str, suffix: str) -> list[Inode]:
        """The files of a directory that surely survive a power loss, the newest entries first."""
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
        """Change entries. Processes see it at once. A sync of one of the directories makes it
        durable."""
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
        self.need_device(path)
        if self.faults.failing_write:
            self.has_failed = True
            self.failures += 1
            raise os_error(errno.EIO, path)
        data = b"".join(bytes(buffer) for buffer in buffers)
        position = len(inode.data)
        quota = self.faults.quota_bytes
        if quota is not None and (room := quota - self.used_bytes()) < len(data):
            self._write(inode, position, data[: max(0, room)])
            raise os_error(errno.ENOSPC, path)
        self._write(inode, position, data)
        if self.faults.failing_write_back and self._is_failing(path):
            self.faults.failing_write_back = ""
            self._fail_write_back(inode, path)
        return position

    def _is_failing(self, path: str) -> bool:
        faults = self.faults
        if not (path.endswith(".log") and self._is_below(path, faults.failing_write_back)):
            return False
        if not faults.failing_during:
            return True
        syncing = self._syncing
        return bool(syncing) and all(
            self._is_below(f"{each}/", faults.failing_during) for each in syncing
        )

    def _is_below(self, path: str, parent: str) -> bool:
        if not path.startswith(parent):
            return False
        return not any(
            path.startswith(each) for each in self.faults.owned if len(each) > len(parent)
        )

    def _fail_write_back(self, inode: Inode, path: str) -> None:
        """The unsynced bytes of a file cannot be written now. Later syncs get the error."""
        inode.lost += inode.pending
        inode.pending.clear()
        inode.write_errors.add()
        self.write_errors.add()
        self.has_failed = True
        self.failures += 1
        self.note("failed-write-back", path)

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
        # The device replaces a bad sector when it is written anew.
        inode.bad_sectors = {bad for bad in inode.bad_sectors if bad * SECTOR_BYTES < size}
        self._note_write(inode, size, None)

    def _note_write(self, inode: Inode, position: int, data: bytes | None) -> None:
        self._writes += 1
        inode.modified_ms = self.time_ms()
        inode.pending.append(_Write(self._writes, position, data))

    # -------------------------------------------------------------------------------- syncing

    def _changes_of(self, directories: Iterable[Directory]) -> list[_Change]:
        """By one look at each change: a group may sync a thousand directories."""
        found: dict[Directory, list[_Change]] = {each: [] for each in directories}
        for change in self._changes:
            for directory in dict.fromkeys(part[0] for part in change.parts):
                if directory in found:
                    found[directory].append(change)
        return list(itertools.chain.from_iterable(found.values()))

    def begin_sync(
        self, paths: Sequence[str], whole: WriteErrorHandle | None = None
    ) -> Callable[[], None]:
        """Note the state that a sync of these paths covers. The returned function makes exactly
        that durable.

        A path that has been removed is skipped. ``whole``: the whole file system is synced by this
        handle, which gets the errors. Otherwise each file is synced by a new handle.
        """
        covered: list[Inode] = []
        last_write = self._writes
        directories: list[Directory] = []
        for path in paths:
            node = self.find(path)
            if isinstance(node, Directory):
                directories.append(node)
            elif node is not None:
                covered.append(node)
        changes = self._changes_of(directories)
        failing = self.faults.failing_sync or any(self.is_dead(path) for path in paths)
        self._syncing.append(paths[0])

        def finish() -> None:
            self.syncs += 1
            if paths[0] in self._syncing:  # else the power was lost meanwhile
                self._syncing.remove(paths[0])
            for inode in covered:
                self._settle(inode, last_write, written=not failing)
            for change in changes:
                if change in self._changes:
                    self._changes.remove(change)
                    if not failing:
                        change.commit()
                        self._kept.clear()
            handles = (
                [whole] if whole else [WriteErrorHandle(each.write_errors) for each in covered]
            )
            if not self.faults.failing_sync:
                self.need_device(*paths, kind=SyncFailedError)
            told = [handle for handle in handles if handle.tell()]  # all are told
            if told or failing:
                self.has_failed = True
                self.failures += 1
                raise os_error(errno.EIO, paths[0], SyncFailedError)

        return finish

    def _settle(self, inode: Inode, last_write: int, *, written: bool) -> None:
        """The changes up to that write are no longer pending.

        After a failed sync the system marks the pages clean, written or not: a second sync would
        succeed without them. That is why a failed sync must never be tried again.
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
        """Raises ReadFailedError if the device cannot read these bytes."""
        self.need_device(path, kind=ReadFailedError)
        if self.is_bad(inode, position, size):
            inode.failed_reads += bool(inode.bad_sectors)
            raise os_error(errno.EIO, path, ReadFailedError)

    def need_handle(self, path: str) -> None:
        """Raises OSError if no file handle is free now."""
        likely = self.faults.no_handle
        if likely and METADATA_LOG not in path and self.rng.random() < likely:
            self.note("no-handle", path)
            raise os_error(errno.EMFILE, path)

    def sync_delay_s(self) -> float:
        return self.rng.uniform(*self.faults.sync_s) + self.faults.extra_sync_s


def _image_of(directory: Directory) -> DiskImage:
    return {
        name: bytes(node.durable) if isinstance(node, Inode) else _image_of(node)
        for name, node in sorted(directory.durable.items())
    }


def _made_from(image: DiskImage) -> Directory:
    entries: dict[str, _Node] = {
        name: Inode(bytearray(content), bytearray(content))
        if isinstance(content, bytes)
        else _made_from(content)
        for name, content in image.items()
    }
    return Directory(entries, dict(entries))


def _apply(content: bytearray, position: int, data: bytes | None) -> None:
    """Apply one change. A gap before it is filled with zeroes."""
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
