"""Which records of a stopped broker's directories count, and which directories are refused."""

from __future__ import annotations

import fcntl
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import main
from cli.importing.group_offsets import Translation, read_group_offsets
from cli.importing.log_directories import best_logs, find_replicas
from cli.importing.source_log import SourceLog
from cli.output import CommandError
from stele.ids import TopicPartition
from stele.wire.compression import Compression
from tests.support.kafka_directories import (
    KafkaDirectory,
    batch,
    marker,
    record_at,
    resealed,
)

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def kafka(tmp_path: Path) -> KafkaDirectory:
    return KafkaDirectory(tmp_path / "kafka")


def log_of(kafka: KafkaDirectory, partition: TopicPartition = ORDERS) -> SourceLog:
    found = find_replicas([kafka.path])
    return best_logs(partition.topic, found[partition.topic])[partition.partition]


def offsets_of(log: SourceLog) -> list[int]:
    records = [record for some in log.records() for record in some]
    assert len(records) == log.summary.records
    assert records == [record_at(record.offset) for record in records]
    return [record.offset for record in records]


@pytest.mark.parametrize("compression", Compression)
def test_a_plain_log_keeps_its_offsets(kafka: KafkaDirectory, compression: Compression) -> None:
    first = [batch(range(3), compression=compression), batch([3], compression=compression)]
    kafka.segment("orders", 0, 0, first)
    kafka.segment("orders", 0, 4, [batch(range(4, 9), compression=compression)])
    kafka.segment("orders", 0, 9, [])
    for file in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (kafka.path / file).touch()  # as Kafka leaves them in its first minute
    log = log_of(kafka)
    assert offsets_of(log) == list(range(9))
    assert log.summary.keeps_offsets
    assert (log.summary.end_offset, log.summary.newest_ms) == (9, 1_000_008)


def test_only_committed_transactions_count(kafka: KafkaDirectory) -> None:
    """Two producers at the same time, and one whose batches outside of transactions always
    count."""
    kafka.segment(
        "orders",
        0,
        0,
        [
            batch([0, 1], producer_id=7, is_transactional=True),
            batch([2], producer_id=8, is_transactional=True),
            batch([3], producer_id=8),
            marker(4, 7, commit=False),
            batch([5], producer_id=7, is_transactional=True),
            marker(6, 8, commit=True),
        ],
    )
    kafka.segment(
        "orders",
        0,
        7,
        [
            marker(7, 7, commit=True),
            batch([8, 9, 10], producer_id=7, is_transactional=True),
            batch([11]),
        ],
    )
    log = log_of(kafka)
    assert offsets_of(log) == [2, 3, 5, 11]
    assert (log.summary.aborted, log.summary.unfinished) == (2, 3)
    assert not log.summary.keeps_offsets


def test_transactions_that_commit_in_another_order_keep_the_offsets(kafka: KafkaDirectory) -> None:
    batches = [
        batch([0, 1], producer_id=7, is_transactional=True),
        batch([2], producer_id=8, is_transactional=True),
        marker(3, 8, commit=True),
        marker(4, 7, commit=True),
    ]
    kafka.segment("orders", 0, 0, batches)
    log = log_of(kafka)
    assert offsets_of(log) == [0, 1, 2]
    assert log.summary.keeps_offsets


def test_gaps_of_compaction_change_the_offsets(kafka: KafkaDirectory) -> None:
    kafka.segment("orders", 0, 0, [batch([0, 2, 5]), batch([9], last_offset=12)])
    log = log_of(kafka)
    assert offsets_of(log) == [0, 2, 5, 9]
    assert not log.summary.keeps_offsets
    assert log.summary.end_offset == 13


@pytest.mark.parametrize("start", [4, 6, 9, 10])
def test_deleted_records_are_left_out_though_their_bytes_are_there(
    kafka: KafkaDirectory, start: int
) -> None:
    kafka.segment("orders", 0, 0, [batch(range(4)), batch(range(4, 10)), batch([10])])
    kafka.checkpoint("log-start-offset-checkpoint", {ORDERS: start})
    log = log_of(kafka)
    assert offsets_of(log) == list(range(start, 11))
    assert not log.summary.keeps_offsets


@pytest.mark.parametrize("tail", ["half", "wrong", "zeros", "short"])
def test_a_torn_end_of_the_newest_segment_is_told(kafka: KafkaDirectory, tail: str) -> None:
    torn = batch([3])
    wrong = bytearray(torn)
    wrong[-1] ^= 1
    ends: dict[str, bytes | bytearray] = {
        "half": torn[:-5],
        "wrong": wrong,
        "zeros": bytes(200),
        "short": torn[:9],
    }
    kafka.segment("orders", 0, 0, [batch(range(2))])
    kafka.segment("orders", 0, 2, [batch([2]), ends[tail]])
    kafka.checkpoint("recovery-point-offset-checkpoint", {ORDERS: 3})
    log = log_of(kafka)
    assert offsets_of(log) == [0, 1, 2]
    assert log.summary.torn_bytes == len(ends[tail])


@pytest.mark.parametrize("recovery_point", [4, 0])
def test_damage_is_refused(kafka: KafkaDirectory, recovery_point: int) -> None:
    """Below the recovery point, or not in the newest segment."""
    damaged = batch([2, 3])
    damaged[70] ^= 1
    path = kafka.segment("orders", 0, 0, [batch([0, 1]), damaged])
    if recovery_point == 0:
        kafka.segment("orders", 0, 4, [batch([4])])
    kafka.checkpoint("recovery-point-offset-checkpoint", {ORDERS: recovery_point})
    at = len(batch([0, 1]))
    with pytest.raises(CommandError, match=re.escape(f"{path} is damaged at byte {at}: the CRC")):
        log_of(kafka)


def test_a_segment_that_is_cut_before_the_newest_is_damage(kafka: KafkaDirectory) -> None:
    kafka.segment("orders", 0, 0, [batch([0]), batch([1])[:-9]])
    kafka.segment("orders", 0, 2, [batch([2])])
    whole = len(batch([1]))
    with pytest.raises(CommandError, match=f"{whole - 9} bytes of {whole}"):
        log_of(kafka)


def test_offsets_that_go_back_are_damage(kafka: KafkaDirectory) -> None:
    kafka.segment("orders", 0, 0, [batch([0, 1, 2])])
    kafka.segment("orders", 0, 3, [batch([2]), batch([3])])
    kafka.checkpoint("recovery-point-offset-checkpoint", {ORDERS: 4})
    with pytest.raises(CommandError, match="offset 2 follows 2"):
        log_of(kafka)


def test_an_older_format_is_refused_and_not_taken_for_a_torn_end(kafka: KafkaDirectory) -> None:
    old = batch([1])
    old[16] = 1
    resealed(old)
    kafka.segment("orders", 0, 0, [batch([0]), old])
    with pytest.raises(CommandError, match="is damaged at byte"):
        log_of(kafka)


def test_a_segment_that_compaction_was_replacing_is_refused(kafka: KafkaDirectory) -> None:
    path = kafka.segment("orders", 0, 0, [batch([0, 2])])
    path.rename(path.with_name(f"{path.name}.swap"))
    kafka.segment("orders", 0, 5, [batch([5])])
    with pytest.raises(CommandError, match="stop it in good order"):
        log_of(kafka)


# ------------------------------------------------------------------------------- directories


def test_the_replica_with_the_newest_epoch_counts_and_then_the_longest(tmp_path: Path) -> None:
    one, two, three = (KafkaDirectory(tmp_path / str(n), node_id=n) for n in (1, 2, 3))
    one.segment("orders", 0, 0, [batch(range(9), leader_epoch=4)])
    two.segment("orders", 0, 0, [batch(range(3), leader_epoch=4), batch([3], leader_epoch=5)])
    three.segment("orders", 0, 0, [batch(range(3), leader_epoch=4), batch([3, 4], leader_epoch=5)])
    found = find_replicas([one.path, two.path, three.path])
    (log,) = best_logs("orders", found["orders"])
    assert log.summary.directory == three.path / "orders-0"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main.run(["import", "--dry-run", *arguments]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    return told.err


def test_directories_that_do_not_fit_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert "no meta.properties" in refused(capsys, str(tmp_path / "empty"))

    one = KafkaDirectory(tmp_path / "one")
    assert "there are no topics" in refused(capsys, str(one.path))
    one.segment("orders", 1, 0, [batch([0])])
    assert "partition 0 of topic 'orders' is in none" in refused(capsys, str(one.path))
    one.segment("orders", 0, 0, [batch([0])])
    assert "no topic 'order'" in refused(capsys, str(one.path), "--topic", "order")

    strange = KafkaDirectory(tmp_path / "strange", cluster_id="b3RoZXItY2x1c3Rlci0xMQ")
    said = refused(capsys, str(one.path), str(strange.path))
    assert "of the cluster" in said

    stale = KafkaDirectory(tmp_path / "stale", node_id=2)
    stale.partition("orders", 0, topic_id=bytes(range(1, 17)))
    assert "a topic that was deleted" in refused(capsys, str(one.path), str(stale.path))


@pytest.mark.parametrize("lock", ["lockf", "flock"])
def test_a_directory_that_a_broker_uses_is_refused(
    kafka: KafkaDirectory, capsys: pytest.CaptureFixture[str], lock: str
) -> None:
    """Locks of lockf hold against other processes only."""
    kafka.segment("orders", 0, 0, [batch([0])])
    path = kafka.path / ".lock"
    program = f"import fcntl; f = open({str(path)!r}, 'wb'); fcntl.{lock}(f, {fcntl.LOCK_EX}); "
    program += "print(1, flush=True); input()"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        assert f"a broker uses {kafka.path}" in refused(capsys, str(kafka.path))
        broker.communicate(b"\n")
    assert main.run(["import", "--dry-run", str(kafka.path)]) == 0


def test_a_dry_run_shows_what_would_be_imported(
    kafka: KafkaDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.segment("orders", 0, 0, [batch(range(5)), batch([5])[:-1]])
    kafka.commits([("billing", ORDERS, 2), ("billing", TopicPartition("gone", 0), 9)])
    assert main.run(["import", "--dry-run", str(kafka.path)]) == 0
    table = capsys.readouterr().out
    assert "orders   0           5         0         0" in table
    assert "billing   orders   0           2        -" in table
    assert "gone" not in table
    assert main.run(["import", "--dry-run", "--json", str(kafka.path), "--no-groups"]) == 0
    told = json.loads(capsys.readouterr().out)
    (partition,) = told["partitions"]
    assert (partition["records"], partition["same"]) == (5, None)
    assert partition["torn_bytes"] == len(batch([5])) - 1
    assert told["groups"] == []


# ------------------------------------------------------------------------------------ groups


def test_the_last_commit_of_a_group_counts(kafka: KafkaDirectory) -> None:
    other = TopicPartition("orders", 1)
    kafka.commits(
        [("a", ORDERS, 1), ("b", ORDERS, 5), ("a", other, 3), ("a", ORDERS, 2), ("b", ORDERS, None)]
    )
    log = log_of(kafka, TopicPartition("__consumer_offsets", 0))
    assert read_group_offsets([log]) == {"a": {ORDERS: 2, other: 3}}


OFFSETS = st.sets(st.integers(0, 40)).map(sorted)


@given(records=OFFSETS, committed=st.lists(st.integers(0, 45)))
def test_a_committed_offset_becomes_the_number_of_records_before_it(
    records: list[int], committed: list[int]
) -> None:
    translation = Translation(committed)
    for offset in records:
        translation.take(offset)
    for offset in committed:
        assert translation.of(offset) == len([each for each in records if each < offset])
