"""``stele transaction`` while librdkafka has a transaction open."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
WITHIN_S = 60.0
ID = "id-of-the-command"


def stele(bootstrap: str, *arguments: str, code: int = 0) -> Any:
    """The JSON that a command prints, or the line of its error."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cli.main",
            "transaction",
            *arguments,
            *(() if code else ("--json",)),
        ],
        capture_output=True,
        timeout=WITHIN_S,
        env={**os.environ, "STELE_BOOTSTRAP_SERVER": bootstrap},
    )
    assert done.returncode == code, done
    return done.stderr.decode() if code else json.loads(done.stdout)


def test_an_open_transaction_is_shown_and_terminated(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    from confluent_kafka import KafkaException, Producer

    topic = create_topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": ID})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    producer.produce(topic, b"never committed")
    assert producer.flush(WITHIN_S) == 0

    where = ("--topic", topic, "--partition", "0")
    (known,) = stele(bootstrap, "describe-producers", *where)
    assert known["transaction_start_offset"] == 0
    listed = stele(
        bootstrap, "list", "--state", "Ongoing", "--producer-id", str(known["producer_id"])
    )
    assert [each["transactional_id"] for each in listed] == [ID]
    (described,) = stele(bootstrap, "describe", ID)
    assert described["state"] == "Ongoing"
    assert described["partitions"] == [[topic, 0]]
    assert described["producer_id"] == known["producer_id"]

    eager = ("--max-transaction-timeout", "0")
    assert stele(bootstrap, "find-hanging", "--topic", topic, *eager) == []
    refused = stele(bootstrap, "abort", *where, "--start-offset", "0", *eager, code=1)
    assert "does not hang: a coordinator knows it" in refused

    stele(bootstrap, "force-terminate", ID)
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(WITHIN_S)
    assert caught.value.args[0].fatal()
    deadline = time.monotonic() + WITHIN_S
    while stele(bootstrap, "describe-producers", *where)[0]["transaction_start_offset"] is not None:
        assert time.monotonic() < deadline
