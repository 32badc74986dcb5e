"""The settings of topics in the metadata logs of stopped brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.importing.topic_settings import accepted, read_topic_settings
from cli.output import CommandError
from tests.support.kafka_directories import KafkaDirectory, configured, named, removed

OTHER_ID = b"o" * 16


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaDirectory:
    return KafkaDirectory(tmp_path / "kafka")


def test_the_last_value_of_each_setting_counts(kafka: KafkaDirectory) -> None:
    kafka.metadata(
        [
            named("orders"),
            configured("orders", "retention.ms", "1"),
            configured("orders", "cleanup.policy", "compact"),
            configured("1", "log.retention.ms", "5", kind=4),  # of a broker
            b"\x01\x03\x01 a partition",
            configured("orders", "retention.ms", "2"),
            configured("orders", "cleanup.policy", None),
            configured("mails", "retention.ms", "3"),
        ]
    )
    assert read_topic_settings([kafka.path]) == {
        "orders": {"retention.ms": "2"},
        "mails": {"retention.ms": "3"},
    }


def test_a_topic_that_is_made_anew_begins_without_settings(kafka: KafkaDirectory) -> None:
    kafka.metadata(
        [
            *(named("orders"), configured("orders", "retention.ms", "1")),
            *(named("mails", OTHER_ID), configured("mails", "retention.ms", "2")),
            *(removed(), named("orders", b"n" * 16)),
        ]
    )
    assert read_topic_settings([kafka.path]) == {"mails": {"retention.ms": "2"}}


def test_a_snapshot_and_what_follows_it_count(kafka: KafkaDirectory) -> None:
    """The log still has records before the end of the snapshot."""
    kafka.metadata([configured("old", "retention.ms", "0")], base_offset=2, snapshot=True)
    known = [configured("orders", "retention.ms", "1"), configured("orders", "segment.ms", "7")]
    kafka.metadata(known, base_offset=10, snapshot=True)
    kafka.metadata(
        [
            configured("orders", "segment.ms", "gone"),
            configured("orders", "segment.ms", None),
            configured("orders", "retention.ms", "2"),
        ],
        base_offset=8,
    )
    assert read_topic_settings([kafka.path]) == {"orders": {"retention.ms": "2", "segment.ms": "7"}}


def test_the_newest_of_several_copies_counts(tmp_path: Path) -> None:
    brokers = [KafkaDirectory(tmp_path / each) for each in ("a", "b", "c")]
    brokers[0].metadata([configured("t", "retention.ms", "1")] * 3, leader_epoch=1)
    brokers[1].metadata([configured("t", "retention.ms", "2")], leader_epoch=2)
    brokers[2].metadata([configured("t", "retention.ms", "3")] * 2, leader_epoch=1)
    directories = [each.path for each in brokers]
    assert read_topic_settings(directories) == {"t": {"retention.ms": "2"}}


def test_directories_without_a_metadata_log_tell_nothing(kafka: KafkaDirectory) -> None:
    assert read_topic_settings([kafka.path]) is None


@pytest.mark.parametrize(
    "record",
    [
        b"\x02\x04\x00",
        b"\x01\x04\x00\x02\x07ord",
        b"\x01\x04\x00\x02\x03\xff\xff",
        b"\x01\x02\x00\x02t" + bytes(15),
        b"",
    ],
)
def test_a_record_that_cannot_be_read_is_named(kafka: KafkaDirectory, record: bytes) -> None:
    kafka.metadata([named("orders"), record])
    with pytest.raises(CommandError, match=r"__cluster_metadata-0: the record at offset 1 .*--no-"):
        read_topic_settings([kafka.path])


def test_a_damaged_snapshot_is_refused(kafka: KafkaDirectory) -> None:
    kafka.metadata([named("orders")], base_offset=1, snapshot=True)
    (path,) = (kafka.path / "__cluster_metadata-0").glob("*.checkpoint")
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CommandError, match="is damaged at byte 0"):
        read_topic_settings([kafka.path])


def test_settings_that_mean_nothing_here_are_left_out_and_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = {
        "retention.ms": "1",
        "remote.storage.enable": "true",
        "leader.replication.no.such": "x",
        "segment.bytes": "none",
    }
    assert accepted("orders", settings) == {"retention.ms": "1"}
    said = capsys.readouterr().err.splitlines()
    assert [each.partition(" is left out: ")[0] for each in said] == [
        "stele: topic orders: remote.storage.enable=true",
        "stele: topic orders: leader.replication.no.such=x",
        "stele: topic orders: segment.bytes=none",
    ]
