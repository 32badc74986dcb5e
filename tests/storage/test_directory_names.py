"""The names to which directories of logs are set aside."""

from __future__ import annotations

from stele.ids import TopicPartition
from storage.directory_names import unused_path
from tests.support.storage import MemoryDisk

TOPIC_ID = bytes(range(16))


def test_a_log_is_set_aside_under_a_name_that_is_free() -> None:
    disk = MemoryDisk()
    key = TopicPartition("t", 0)
    for number in ("", "1", "2"):
        path = unused_path(disk, "/d", key, TOPIC_ID, "-delete")
        assert path == f"/d/t-0.{TOPIC_ID.hex()}{number}-delete"
        disk.make_directory(path)
