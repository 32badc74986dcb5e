"""``stele group`` and the metrics of a group whose member is librdkafka's."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from stele import Producer
from tests.support.timing import until

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
WITHIN_S = 60.0


def stele(bootstrap: str, *arguments: str, code: int = 0) -> Any:
    """The JSON that a command prints, or the line of its error."""
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "group", *arguments, *(() if code else ("--json",))],
        capture_output=True,
        timeout=WITHIN_S,
        env={**os.environ, "STELE_BOOTSTRAP_SERVER": bootstrap},
    )
    assert done.returncode == code, done
    return done.stderr.decode() if code else json.loads(done.stdout)


def check_described(bootstrap: str, group: str, topic: str, protocol: str) -> None:
    """The group has one member, which has read 10 records of each of two partitions."""
    described = stele(bootstrap, "describe", group)
    assert described[0]["state"] == "Stable"
    (listed,) = (each for each in stele(bootstrap, "list") if each["group_id"] == group)
    assert (listed["type"], listed["protocol_type"]) == (protocol, "consumer")
    for number, each in enumerate(described[0]["partitions"]):
        assert (each["topic"], each["partition"]) == (topic, number)
        assert (each["current_offset"], each["log_end_offset"], each["lag"]) == (10, 10, 0)
        assert each["client_id"] == "reader"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_described_reset_and_deleted(
    bootstrap: str, create_topic: CreateTopic, protocol: str
) -> None:
    from confluent_kafka import Consumer

    group = f"group-of-the-command-{protocol}"
    topic = create_topic(partitions=2)
    with Producer(bootstrap) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=number % 2)
        producer.flush()
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "client.id": "reader",
        "group.protocol": protocol,
    }

    target = ("reset-offsets", group, "--topic", f"{topic}:1", "--to-offset", "4")

    def read(count: int) -> list[bytes]:
        """Join, read, commit, and leave."""
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        values: list[bytes] = []
        deadline = time.monotonic() + WITHIN_S
        try:
            while len(values) < count:
                assert time.monotonic() < deadline, f"{len(values)} of {count} records"
                message = consumer.poll(0.1)
                if message is not None:
                    assert message.error() is None, message.error()
                    values.append(message.value() or b"")
            consumer.commit(asynchronous=False)
            check_described(bootstrap, group, topic, protocol)
            assert "has members" in stele(bootstrap, *target, "--execute", code=1)
            return values
        finally:
            consumer.close()

    assert len(read(20)) == 20
    # If a member's farewell meets a coordinator that moves, its session has to time out.
    asyncio.run(
        until(
            lambda: (
                group in (each["group_id"] for each in stele(bootstrap, "list", "--state", "empty"))
            ),
            "the group without members is not listed as empty",
            within_s=WITHIN_S,
        )
    )
    assert stele(bootstrap, *target)["executed"] is False
    assert stele(bootstrap, *target, "--execute")["offsets"] == [
        {"group": group, "topic": topic, "partition": 1, "current_offset": 10, "new_offset": 4}
    ]
    # What comes again is what is behind the offset.
    assert sorted(map(int, read(6))) == [9, 11, 13, 15, 17, 19]
    stele(bootstrap, "delete-offsets", group, "--topic", f"{topic}:0")
    (described,) = stele(bootstrap, "describe", group)
    assert [each["partition"] for each in described["partitions"]] == [1]
    stele(bootstrap, "delete", group)
    assert "there is no group" in stele(bootstrap, "describe", group, code=1)
