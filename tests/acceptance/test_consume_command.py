"""``stele consume`` on a real cluster: where it begins, what it prints, when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from stele import Consumer, Producer
from tests.acceptance.test_command_line import one_line, stele

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]


def consumed(bootstrap: str, *arguments: str) -> list[str]:
    done = stele("consume", *arguments, bootstrap=bootstrap)
    assert (done.returncode, done.stderr) == (0, b""), done
    return done.stdout.decode().splitlines()


def fill(bootstrap: str, topic: str) -> int:
    """Ten records over the partitions, an hour apart, the last one now. Returns its time."""
    now_ms = time.time_ns() // 1_000_000
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(
                topic,
                None if number == 4 else b"v%d" % number,
                b"even" if number % 2 == 0 else b"odd",
                headers=[("n", b"%d" % number)],
                timestamp_ms=now_ms - (9 - number) * 3_600_000,
            )
    return now_ms


def test_reading_begins_at_a_time_or_before_the_end(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=3)
    now_ms = fill(bootstrap, topic)
    shown = ("--format", "%v")
    assert sorted(consumed(bootstrap, topic, "--from-time", "150m", *shown)) == ["v7", "v8", "v9"]
    assert consumed(bootstrap, topic, "--from-time", str(now_ms), *shown) == ["v9"]
    assert consumed(bootstrap, topic, "--from-time", str(now_ms + 1)) == []
    assert consumed(bootstrap, topic, "--last", "4", *shown) == ["v6", "v7", "v8", "v9"]
    assert consumed(bootstrap, topic, "--last", "3", "--key", "odd") == ["v5", "v7", "v9"]
    assert consumed(bootstrap, topic, "--header", "n=4", "--format", "%k:%S") == ["even:-1"]


def test_several_topics_and_patterns_are_read(bootstrap: str, create_topic: CreateTopic) -> None:
    one, other = create_topic(), create_topic()
    for topic in (one, other):
        stele("produce", topic, bootstrap=bootstrap, stdin=b"x\n")
    both = [f"{one} x", f"{other} x"]
    assert sorted(consumed(bootstrap, one, other, "--format", "%t %v")) == sorted(both)
    pattern = f"{one}|{other}|{one}-longer"
    assert len(consumed(bootstrap, "--pattern", pattern)) == 2
    none = stele("consume", "--pattern", f"{one}.", bootstrap=bootstrap)
    assert "no topic matches --pattern" in one_line(none)


def test_a_member_of_a_group_stops_at_the_end(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=3)
    fill(bootstrap, topic)
    member = (topic, "--group", f"of-{topic}", "--until-end")
    assert len(consumed(bootstrap, *member)) == 10
    assert consumed(bootstrap, *member) == []
    stele("produce", topic, bootstrap=bootstrap, stdin=b"more\n")
    assert consumed(bootstrap, *member) == ["more"]


def test_a_group_that_cannot_be_joined_is_given_up_in_time(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    group = f"of-{topic}"
    with Consumer(bootstrap, group_id=group) as member:  # the group waits for its next poll
        member.subscribe([topic])
        while not member.assignment():
            member.poll(timeout_ms=100)
        done = stele("consume", topic, "--group", group, "--timeout", "2", bootstrap=bootstrap)
    assert f"could not join the group {group!r} within 2 s" in done.stderr.decode()
    assert done.returncode == 1
