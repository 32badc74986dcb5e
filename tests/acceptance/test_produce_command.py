"""``stele produce`` on a real cluster: every part of a record arrives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.test_command_line import stele

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]


def read(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    done = stele("consume", topic, "--format", "json", bootstrap=bootstrap)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(bootstrap: str, topic: str, *options: str, stdin: bytes = b"") -> None:
    done = stele("produce", topic, *options, bootstrap=bootstrap, stdin=stdin)
    assert done.returncode == 0, done


def test_records_have_headers_and_tombstones(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic()
    options = ("--key-separator", ":", "--null-marker", "NULL", "-H", "a=1", "-H", "a==2")
    write(bootstrap, topic, *options, "-X", "linger.ms=0", stdin=b"k:v\nk:NULL\n")
    found = [(each["key"], each["value"], each["headers"]) for each in read(bootstrap, topic)]
    headers = [["a", "1"], ["a", "=2"]]
    assert found == [("k", "v", headers), ("k", None, headers)]


def test_a_topic_is_copied_with_all_fields(bootstrap: str, create_topic: CreateTopic) -> None:
    topic, copy = create_topic(partitions=3), create_topic(partitions=3)
    lines = [
        {"value": {"base64": "/w=="}, "key": "k", "headers": {"h": None}, "timestamp_ms": 1000},
        {"value": None, "key": {"base64": "/g=="}, "partition": 2},
        {"value": "v", "partition": 1, "timestamp_ms": 5},
    ]
    given = "".join(json.dumps(each) + "\n" for each in lines).encode()
    write(bootstrap, topic, "--format", "json", stdin=given)
    printed = stele("consume", topic, "--format", "json", bootstrap=bootstrap).stdout
    write(bootstrap, copy, "--format", "json", stdin=printed)
    records = read(bootstrap, topic)
    assert len(records) == 3
    by_place = sorted((each | {"topic": copy} for each in records), key=str)
    assert sorted(read(bootstrap, copy), key=str) == by_place


def test_each_file_is_a_record(bootstrap: str, create_topic: CreateTopic, tmp_path: Path) -> None:
    topic = create_topic()
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(f"{name}\nlines\n".encode())
    write(bootstrap, topic, str(tmp_path / "one"), str(tmp_path / "two"), "--key", "k")
    assert [(each["key"], each["value"]) for each in read(bootstrap, topic)] == [
        ("k", "one\nlines\n"),
        ("k", "two\nlines\n"),
    ]
