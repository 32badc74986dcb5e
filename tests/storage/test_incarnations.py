"""Which processes a log directory knows to have used it."""

from __future__ import annotations

import errno

import pytest

from storage.errors import LogDirectoryError
from storage.incarnations import INCARNATIONS_FILE, Incarnations
from tests.support.storage import MemoryDisk

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def on_disk(disk: MemoryDisk) -> Incarnations:
    found = Incarnations(disk, "/d")
    found.read()
    return found


async def test_a_process_that_registered_is_the_only_one_known() -> None:
    disk = MemoryDisk()
    assert on_disk(disk).earlier == ()
    for process in (A, B):
        assert await on_disk(disk).begin(process)
        await on_disk(disk).registered(process)
    assert on_disk(disk).earlier == (B,)


async def test_an_incarnation_that_may_have_registered_is_known_beside_earlier_ones() -> None:
    disk = MemoryDisk()
    await on_disk(disk).begin(A)
    await on_disk(disk).registered(A)
    await on_disk(disk).begin(B)
    disk.power_loss()
    await on_disk(disk).begin(C)
    disk.power_loss()
    assert on_disk(disk).earlier == (A, B, C)


async def test_a_process_that_cannot_write_its_id_says_so() -> None:
    disk = MemoryDisk()
    await on_disk(disk).begin(A)
    disk.open_error = errno.EMFILE
    assert not await Incarnations(disk, "/d").begin(B)
    disk.open_error = None
    assert on_disk(disk).earlier == (A,)


async def test_a_disk_that_fails_is_reported() -> None:
    disk = MemoryDisk()
    disk.sync_error = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        await Incarnations(disk, "/d").begin(A)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"incarnations": ["x"]}', b"[1]", b"\xff"])
def test_a_malformed_file_is_refused_with_its_name(content: bytes) -> None:
    disk = MemoryDisk()
    disk.replace_file_now(f"/d/{INCARNATIONS_FILE}", content)
    with pytest.raises(LogDirectoryError, match=r"/d/\.incarnations is malformed"):
        on_disk(disk)
