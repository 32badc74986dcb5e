"""A disk that counts calls and bytes: it shows without a stopwatch what grows with size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stele.world import Buffer
from tests.support.storage import Inode, MemoryDisk, MemoryFile


@dataclass
class Work:
    """The work of one turn of the event loop, or of all."""

    calls: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    bytes_written: int = 0

    def add(self, call: str, *, read: int = 0, written: int = 0) -> None:
        self.calls[call] += 1
        self.bytes_read += read
        self.bytes_written += written

    @property
    def total_calls(self) -> int:
        return self.calls.total()

    def __str__(self) -> str:
        return f"{dict(self.calls)}, {self.bytes_read} bytes read, {self.bytes_written} written"


class CountingDisk(MemoryDisk):
    """Counts the calls for which a process would wait, and the bytes that it would copy.

    Each call of a helper process (``sync``, ``warm``, ``remove_files``…) counts as one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.work = Work()

    def fresh(self) -> Work:
        """Begin to count again."""
        self.work = Work()
        return self.work

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.work.add("open")
        file = super().open(path, create=create)
        return CountingFile(self, path, file.inode)

    def exists(self, path: str) -> bool:
        self.work.add("exists")
        return super().exists(path)

    def list(self, path: str) -> list[str]:
        self.work.add("list")
        return super().list(path)

    def rename(self, source: str, target: str) -> None:
        self.work.add("rename")
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.work.add("remove")
        super().remove(path)

    def read_file(self, path: str) -> bytes:
        data = bytes(super().open(path).inode.data)
        self.work.add("read_file", read=len(data))
        return data

    def replace_file_now(self, path: str, data: bytes) -> None:
        self.work.add("replace_file_now", written=len(data))
        super().replace_file_now(path, data)

    def _capture(self, path: str) -> Callable[[], None]:
        self.work.add("sync of one path")
        return super()._capture(path)


class CountingFile(MemoryFile):
    """An open file of a ``CountingDisk``."""

    disk: CountingDisk

    def __init__(self, disk: CountingDisk, path: str, inode: Inode) -> None:
        super().__init__(disk, path, inode)

    def append(self, buffers: Sequence[Buffer]) -> int:
        self.disk.work.add("append", written=sum(len(buffer) for buffer in buffers))
        return super().append(buffers)

    def read_now(self, position: int, size: int) -> bytes:
        data = super().read_now(position, size)
        self.disk.work.add("read", read=len(data))
        return data
