"""The files of producer snapshots."""

from __future__ import annotations

import pytest

from storage.snapshots import snapshot_path, write_snapshot
from tests.support.storage import MemoryDisk, MemoryFile


def test_a_snapshot_that_is_right_already_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A log without new records has the same one at each end of its process. A power loss could
    tear it while it is written, and no older one knows the producers of deleted segments."""
    disk = MemoryDisk()
    disk.make_directory("/t-0")
    path = write_snapshot(disk, "/t-0", 7, b"state")
    assert path == snapshot_path("/t-0", 7)
    with monkeypatch.context() as patch:
        patch.delattr(MemoryFile, "append")
        assert write_snapshot(disk, "/t-0", 7, b"state") == path
    write_snapshot(disk, "/t-0", 7, b"later")
    assert disk.read_file(path) == b"later"
