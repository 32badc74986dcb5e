"""The names to which directories of logs are set aside."""

from __future__ import annotations

import pytest

from stele.ids import TopicPartition
from storage.directory_names import parse_partition_directory, unused_path
from tests.support.storage import MemoryDisk

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(("length", "known"), [(249, True), (250, False)])
def test_a_directory_with_a_name_that_no_topic_has_is_no_partition(
    length: int, known: bool
) -> None:
    assert (parse_partition_directory(f"{'t' * length}-0") is not None) is known


def test_a_log_is_set_aside_under_a_name_that_is_free() -> None:
    disk = MemoryDisk()
    key = TopicPartition("t", 0)
    for number in ("", "1", "2"):
        path = unused_path(disk, "/d", key, TOPIC_ID, "-delete")
        assert path == f"/d/t-0.{TOPIC_ID.hex()}{number}-delete"
        disk.make_directory(path)
