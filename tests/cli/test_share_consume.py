"""``stele share consume`` with a consumer that remembers its options."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli import main, share_consume
from stele.ids import TopicPartition
from stele.records import AcknowledgeType, ShareRecord, TimestampType
from tests.cli.test_share import Capture, FakeAdmin


class FakeConsumer:
    """It has two records, of which the second is delivered for the third time."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.polls: list[int | None] = []
        self.acknowledged: list[tuple[int, AcknowledgeType]] = []
        kind = TimestampType.CREATE_TIME
        self._left = [
            ShareRecord("orders", 0, offset, 5, kind, None, value, (), 0, count)
            for offset, value, count in ((7, b"a", 1), (9, b"b", 3))
        ]

    @contextlib.contextmanager
    def opened(self, bootstrap: str, **options: Any) -> Iterator[FakeConsumer]:
        self.options = options
        yield self

    def subscribe(self, topics: list[str]) -> None: ...

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition("orders", 0)]

    def poll(self, limit: int | None, timeout_ms: float) -> list[ShareRecord]:
        self.polls.append(limit)
        taken, self._left = self._left[:limit], self._left[limit or 2 :]
        return taken

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        self.acknowledged.append((record.offset, kind))

    def commit(self) -> dict[TopicPartition, Exception | None]:
        return {}


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    fake = FakeConsumer()
    monkeypatch.setattr(share_consume, "connect", lambda bootstrap, timeout: FakeAdmin())
    monkeypatch.setattr("stele.sync.ShareConsumer", fake.opened)
    return fake


def run(*arguments: str) -> int:
    return main.run(["share", "consume", "g", "--topic", "orders", *arguments])


def test_json_has_the_delivery_count(consumer: FakeConsumer, capsysbinary: Any) -> None:
    assert run("--format", "json", "--max", "2", "--ack", "release") == 0
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [(each["offset"], each["delivery_count"]) for each in lines] == [(7, 1), (9, 3)]
    assert consumer.acknowledged == [(7, AcknowledgeType.RELEASE), (9, AcknowledgeType.RELEASE)]


def test_no_more_records_are_taken_than_are_printed(consumer: FakeConsumer) -> None:
    assert run("--max", "1") == 0
    assert consumer.polls == [1]
    assert consumer.options["max_poll_records"] == 1
    assert consumer.options["share_acquire_mode"] == "record_limit"


def test_properties_come_before_what_the_command_chooses(consumer: FakeConsumer) -> None:
    assert run("--max", "2", "-X", "max.poll.records=7", "-X", "client.rack=r") == 0
    assert consumer.options["max_poll_records"] == 7
    assert consumer.options["client_rack"] == "r"
    assert consumer.options["group_id"] == "g"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("group.id=x", "give GROUP instead"),
        ("share.acknowledgement.mode=implicit", "give --ack instead"),
        ("default.api.timeout.ms=1", "give --timeout instead"),
        ("isolation.level=x", "no property 'isolation.level'"),
    ],
)
def test_a_property_that_does_not_belong_there_is_refused(
    consumer: FakeConsumer, capsys: Capture, given: str, said: str
) -> None:
    assert run("-X", given) != 0
    assert said in capsys.readouterr().err
    assert not consumer.options
