"""The small text files of a log directory: which texts are read, and which are refused."""

from __future__ import annotations

import pytest

from stele.ids import TopicPartition
from storage.checkpoints import (
    decode_clean_shutdown,
    decode_offsets,
    encode_clean_shutdown,
    encode_corrupt,
    encode_epochs,
    encode_offsets,
    encode_offsets_in_slices,
    encode_partition_metadata,
    read_corrupt,
    read_epochs,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
)
from storage.errors import CorruptLogError, UnusableDirectoryError
from tests.support.storage import MemoryDisk

FILE = "/d/file"
OFFSETS = {TopicPartition("a", 10): 7, TopicPartition("a", 9): 0, TopicPartition("b", 0): 2**40}
TOPIC_ID = bytes(range(16))


def with_file(data: bytes) -> MemoryDisk:
    disk = MemoryDisk()
    disk.replace_file_now(FILE, data)
    return disk


async def test_offsets_are_in_kafkas_format() -> None:
    data = encode_offsets(OFFSETS)
    assert data == b"0\n3\na 10 7\na 9 0\nb 0 1099511627776\n"
    assert await encode_offsets_in_slices(OFFSETS) == data
    assert read_offsets(with_file(data), FILE) == OFFSETS
    assert read_offsets(with_file(encode_offsets({})), FILE) == {}
    assert read_offsets(MemoryDisk(), FILE) == {}


@pytest.mark.parametrize(
    "text",
    ["", "0", "0\n", "1\n0\n", "0\n1\n", "0\n1\na 0 5\nb 0 5\n", "0\n2\na 0 5\n", "0\nx\n"],
)
def test_a_file_that_is_cut_off_or_of_another_version_is_refused(text: str) -> None:
    with pytest.raises(UnusableDirectoryError, match="/d/file is malformed: version or count"):
        decode_offsets(text, FILE)


@pytest.mark.parametrize("line", ["a 0", "a 0 5 6", "a 0 x", "a x 5", ""])
def test_an_entry_of_another_form_is_refused(line: str) -> None:
    with pytest.raises(UnusableDirectoryError, match="is not <topic> <partition> <offset>"):
        decode_offsets(f"0\n1\n{line}\n", FILE)


def test_epochs_are_in_kafkas_format() -> None:
    data = encode_epochs([(0, 0), (3, 17)])
    assert data == b"0\n2\n0 0\n3 17\n"
    assert read_epochs(with_file(data), FILE) == [(0, 0), (3, 17)]
    assert read_epochs(MemoryDisk(), FILE) == []
    with pytest.raises(UnusableDirectoryError, match="is not <epoch> <start offset>"):
        read_epochs(with_file(b"0\n1\n3\n"), FILE)


def test_a_topic_id_that_was_never_on_disk_as_a_whole_is_none() -> None:
    """A power loss leaves a part of the file, or zeroes in the place of the rest."""
    data = encode_partition_metadata(TOPIC_ID)
    assert read_partition_metadata(with_file(data), FILE) == TOPIC_ID
    assert read_partition_metadata(MemoryDisk(), FILE) is None
    without_end = data.removesuffix(b"\n")
    assert read_partition_metadata(with_file(without_end), FILE) == TOPIC_ID  # as Kafka writes it
    for size in range(len(without_end)):
        for rest in (b"", bytes(len(data) - size)):
            assert read_partition_metadata(with_file(data[:size] + rest), FILE) is None


@pytest.mark.parametrize("line", [b"topic: AAAAAAAAAAAAAAAAAAAAAA", b"topic_id: AAAAAAAAAA!!!!"])
def test_a_whole_file_without_a_topic_id_is_refused(line: bytes) -> None:
    with pytest.raises(UnusableDirectoryError, match="no topic id in it"):
        read_partition_metadata(with_file(b"version: 0\n" + line.ljust(32) + b"\n"), FILE)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(UnusableDirectoryError, match="it is not text"):
        read_epochs(with_file(b"\xff\xfe"), FILE)


def test_the_note_of_a_fault_names_it_as_it_was() -> None:
    error = CorruptLogError("/d/t-0", position=17, offset=5, reason="a bit: flipped")
    found = read_corrupt(with_file(encode_corrupt(error)), FILE)
    assert str(found) == str(error)
    assert read_corrupt(MemoryDisk(), FILE) is None
    with pytest.raises(UnusableDirectoryError, match="does not say what is corrupt"):
        read_corrupt(with_file(b"version: 0\nnothing\n"), FILE)


def test_comments_and_blanks_in_meta_properties_are_no_fields() -> None:
    data = b"#\n# Kafka wrote this\n\n node.id=7 \ncluster.id=a=b\nversion=1\n"
    found = read_meta_properties(with_file(data), FILE)
    assert found is not None
    assert (found.node_id, found.cluster_id, found.directory_id) == (7, "a=b", "")
    assert read_meta_properties(MemoryDisk(), FILE) is None
    with pytest.raises(
        UnusableDirectoryError, match=r"cluster.id and node.id are missing or wrong"
    ):
        read_meta_properties(with_file(b"node.id=one\ncluster.id=a\n"), FILE)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"brokerEpoch": "x"}', b"7"])
def test_a_mark_without_a_broker_epoch_is_still_a_mark(data: bytes) -> None:
    """Kafka's older releases leave an empty one."""
    assert decode_clean_shutdown(data) == -1
    assert decode_clean_shutdown(encode_clean_shutdown(12)) == 12
