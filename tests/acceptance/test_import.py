"""``stele import`` into a cluster: what arrives, what is refused, how it goes on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import main
from cli.importing.topic_settings import WHILE_IMPORTED
from stele import Admin, Consumer, NewTopic, Producer
from stele.ids import TopicPartition
from stele.records import ConsumerRecord
from tests.support.kafka_directories import (
    KafkaDirectory,
    batch,
    configured,
    marker,
    named,
    record_at,
)

pytestmark = pytest.mark.processes

NUMBERS = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"imported-{next(NUMBERS)}"


@pytest.fixture
def kafka(tmp_path: Path, topic: str) -> KafkaDirectory:
    """Partition 0 keeps its offsets. Partition 1 has gaps, an aborted transaction and a group."""
    made = KafkaDirectory(tmp_path / "kafka")
    made.segment(topic, 0, 0, [batch(range(n, n + 50)) for n in range(0, 2_500, 50)])
    made.segment(
        topic,
        1,
        0,
        [
            batch([0, 3, 4]),
            batch([5, 6], producer_id=1, is_transactional=True),
            marker(7, 1, commit=False),
            batch([8, 9], producer_id=1, is_transactional=True),
            marker(10, 1, commit=True),
        ],
    )
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    made.commits([(f"g-{topic}", first, 1_200), (f"g-{topic}", second, 9)])
    return made


@pytest.fixture
def run(bootstrap: str, kafka: KafkaDirectory, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: str) -> tuple[int, Any, str]:
        code = main.run(["import", str(kafka.path), "-b", bootstrap, "--json", *arguments])
        told = capsys.readouterr()
        return code, json.loads(told.out) if told.out else None, told.err

    return run


def records_of(bootstrap: str, topic: str, partition: int) -> Iterator[ConsumerRecord]:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        name = TopicPartition(topic, partition)
        consumer.assign([name])
        end = consumer.end_offsets([name])[name]
        while consumer.position(*name) < end:
            yield from consumer.poll()


def check_arrived(bootstrap: str, topic: str) -> None:
    for partition, offsets in ((0, list(range(2_500))), (1, [0, 3, 4, 8, 9])):
        found = list(records_of(bootstrap, topic, partition))
        assert [each.offset for each in found] == list(range(len(offsets)))
        for record, offset in zip(found, offsets, strict=True):
            _, time_ms, key, value, headers = record_at(offset)
            assert (record.timestamp_ms, record.key, record.value, record.headers) == (
                *(time_ms, key, value),
                headers,
            )


KEPT = ("--config", "retention.ms=-1")


def test_records_and_the_offsets_of_groups_arrive(bootstrap: str, topic: str, run: Any) -> None:
    code, told, _ = run(*KEPT, "--replication-factor", "1")
    assert code == 0
    first, second = told["partitions"]
    assert (first["sent"], first["same"], first["keeps_offsets"]) == (2_500, 2_500, True)
    assert (second["sent"], second["same"], second["keeps_offsets"]) == (5, 5, False)
    assert (second["aborted"], second["deleted"]) == (2, 0)
    check_arrived(bootstrap, topic)
    with Admin(bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
        assert (len(described.partitions), described.replication_factor) == (2, 1)
        assert described.configs == {"retention.ms": "-1"}
        offsets = {
            name.partition: each.offset
            for name, each in admin.list_group_offsets(f"g-{topic}").items()
        }
    assert offsets == {0: 1_200, 1: 4}

    code, _, said = run(*KEPT)
    assert code == 1
    assert f"{topic}-0 has records already, up to offset 2500" in said
    code, told, _ = run("--resume")
    assert code == 0
    assert [each["sent"] for each in told["partitions"]] == [0, 0]


OF_KAFKA = {"cleanup.policy": "compact", "max.message.bytes": "2000000", "retention.bytes": "99"}


@pytest.mark.parametrize("is_resumed", [False, True])
def test_topics_get_their_settings_when_all_is_compared(
    bootstrap: str, topic: str, kafka: KafkaDirectory, run: Any, *, is_resumed: bool
) -> None:
    """An import that was interrupted has made the topic so that nothing is deleted from it."""
    settings = {**OF_KAFKA, "remote.storage.enable": "true"}
    changes = [configured(topic, *each) for each in settings.items()]
    kafka.metadata([named(topic), *changes])
    if is_resumed:
        unsettled = {**OF_KAFKA, **WHILE_IMPORTED}
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(topic, 2, 1, unsettled)])
    resume = ("--resume",) if is_resumed else ()
    code, told, said = run("-r", "1", "--config", "max.message.bytes=3000000", *resume)
    assert code == 0
    assert "remote.storage.enable=true is left out" in said
    expected = {**OF_KAFKA, "max.message.bytes": "3000000"}
    assert told["settings"] == {topic: expected}
    with Admin(bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
    if is_resumed:
        expected["max.message.bytes"] = "2000000"  # as the topic was made
    assert described.configs == expected


def test_settings_can_be_left_out(
    bootstrap: str, topic: str, kafka: KafkaDirectory, run: Any
) -> None:
    kafka.metadata([b"cannot be read"])
    code, told, _ = run("-r", "1", "--no-settings", *KEPT)
    assert (code, told["settings"]) == (0, {topic: {"retention.ms": "-1"}})


def test_an_interrupted_import_goes_on(bootstrap: str, topic: str, run: Any) -> None:
    """The topic holds what an import had sent when it was interrupted."""
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "-1"})])
    with Producer(bootstrap) as producer:
        for offset in range(777):
            _, time_ms, key, value, headers = record_at(offset)
            producer.send(topic, value, key, headers, time_ms, 0)
    code, told, _ = run("--resume")
    assert code == 0
    assert [each["sent"] for each in told["partitions"]] == [2_500 - 777, 5]
    assert [each["same"] for each in told["partitions"]] == [2_500, 5]
    check_arrived(bootstrap, topic)


def test_a_topic_that_holds_other_records_is_refused(bootstrap: str, topic: str, run: Any) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1, {"retention.ms": "-1"})])
    with Producer(bootstrap) as producer:
        _, time_ms, key, value, headers = record_at(0)
        producer.send(topic, value, key, headers, time_ms + 1, 0)
    code, _, said = run("--resume")
    assert code == 1
    assert "the record at offset 0 is not that of offset 0" in said
    assert "timestamp_ms" in said
    assert [each.offset for each in records_of(bootstrap, topic, 0)] == [0]


def test_a_topic_with_other_partitions_is_refused(bootstrap: str, topic: str, run: Any) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 3, 1)])
    code, _, said = run()
    assert code == 1
    assert f"topic {topic!r} has 2 partitions in the directories and 3 in the cluster" in said
