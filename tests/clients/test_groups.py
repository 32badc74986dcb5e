"""Consumer groups of unmodified clients: members share, leave, die, and go on where they were.

Members end with commits, so that what one has read no other reads again.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stele import Admin, Consumer, Producer

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
PARTITIONS = 6
WITHIN_S = 60.0
SESSION_MS = 6000
_numbers = itertools.count()


def fill(bootstrap: str, topic: str, count: int, *, first: int = 0) -> list[bytes]:
    """Records 0, 1, … spread over the partitions."""
    values = [b"%d" % (first + number) for number in range(count)]
    with Producer(bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % PARTITIONS)
        producer.flush()
    return values


def new_group() -> str:
    return f"group-{next(_numbers)}"


@contextlib.contextmanager
def confluent_member(bootstrap: str, group: str, topic: str, **settings: Any) -> Iterator[Any]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 500,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


@contextlib.contextmanager
def consumer_protocol_member(bootstrap: str, group: str, topic: str) -> Iterator[Any]:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()


def poll(consumer: Any) -> bytes | None:
    message = consumer.poll(0.05)
    if message is None:
        return None
    assert message.error() is None, message.error()
    value: bytes = message.value()
    return value


def read(members: list[Callable[[], list[bytes]]], count: int) -> list[list[bytes]]:
    """Poll members in turn until they have ``count`` records together."""
    found: list[list[bytes]] = [[] for _ in members]
    deadline = time.monotonic() + WITHIN_S
    while sum(map(len, found)) < count:
        assert time.monotonic() < deadline, f"{[len(each) for each in found]} of {count} records"
        for values, polled in zip(found, members, strict=True):
            values += polled()
    return found


def polling(consumer: Any) -> Callable[[], list[bytes]]:
    def polled() -> list[bytes]:
        value = poll(consumer)
        return [] if value is None else [value]

    return polled


def polling_ours(consumer: Consumer) -> Callable[[], list[bytes]]:
    return lambda: [record.value or b"" for record in consumer.poll(timeout_ms=50)]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_the_partitions_and_each_record_comes_once(
    bootstrap: str, create_topic: CreateTopic, strategy: str
) -> None:
    topic, group = create_topic(partitions=PARTITIONS), new_group()
    settings = {"partition_assignment_strategy": strategy}
    with (
        confluent_member(bootstrap, group, topic, **settings) as first,
        confluent_member(bootstrap, group, topic, **settings) as second,
    ):
        members = [polling(first), polling(second)]
        deadline = time.monotonic() + WITHIN_S
        while sorted(len(each.assignment()) for each in (first, second)) != [3, 3]:
            assert time.monotonic() < deadline, "the partitions were not shared"
            for polled in members:
                assert polled() == []
        values = fill(bootstrap, topic, 120)
        found = read(members, len(values))
        assert sorted(itertools.chain(*found)) == sorted(values)
        assert [len(each) for each in found] == [60, 60]


def test_a_group_goes_on_where_it_has_committed(bootstrap: str, create_topic: CreateTopic) -> None:
    from confluent_kafka import TopicPartition

    topic, group = create_topic(partitions=PARTITIONS), new_group()
    before = fill(bootstrap, topic, 60)
    with confluent_member(bootstrap, group, topic) as member:
        (found,) = read([polling(member)], len(before))
        assert sorted(found) == sorted(before)
        committed = member.commit(asynchronous=False)
        assert {each.offset for each in committed} == {10}
    after = fill(bootstrap, topic, 60, first=60)
    with confluent_member(bootstrap, group, topic) as member:
        (found,) = read([polling(member)], len(after))
        assert sorted(found) == sorted(after)
        wanted = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        assert {each.offset for each in member.committed(wanted, timeout=WITHIN_S)} == {10}


def test_a_dead_members_partitions_are_read_by_others(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    """It does not leave: it is silent, and its session ends."""
    topic, group = create_topic(partitions=PARTITIONS), new_group()
    with confluent_member(bootstrap, group, topic) as alive:
        script = (
            "import sys\n"
            "from confluent_kafka import Consumer\n"
            f"c = Consumer({{'bootstrap.servers': {bootstrap!r}, 'group.id': {group!r},"
            f" 'session.timeout.ms': {SESSION_MS}, 'auto.offset.reset': 'earliest'}})\n"
            f"c.subscribe([{topic!r}])\n"
            "while not c.assignment():\n"
            "    c.poll(0.1)\n"
            "print('assigned', flush=True)\n"
            "while True:\n"
            "    c.poll(0.1)\n"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as dying:
            try:
                assert dying.stdout is not None
                while len(alive.assignment()) != 3:
                    poll(alive)
                assert dying.stdout.readline() == b"assigned\n"
            finally:
                dying.kill()
        values = fill(bootstrap, topic, 60)
        found: Counter[bytes] = Counter()
        deadline = time.monotonic() + WITHIN_S
        while set(found) != set(values):
            assert time.monotonic() < deadline, f"{len(found)} of {len(values)} records"
            found.update(polling(alive)())
        assert len(alive.assignment()) == PARTITIONS


async def test_a_mixed_group_reads_every_record_once(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    """A member of each client: librdkafka, kafka-python, aiokafka and ours."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka import KafkaConsumer

    topic, group = create_topic(partitions=PARTITIONS), new_group()
    settings: Any = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": SESSION_MS,
        "heartbeat_interval_ms": 500,
    }
    async with contextlib.AsyncExitStack() as stack:
        ours = stack.enter_context(Consumer(**settings))
        ours.subscribe([topic])
        confluent = stack.enter_context(
            confluent_member(
                bootstrap, group, topic, partition_assignment_strategy="range,roundrobin"
            )
        )
        kafka_python = KafkaConsumer(topic, **settings)
        stack.callback(kafka_python.close)
        aio = AIOKafkaConsumer(
            topic, partition_assignment_strategy=[RangePartitionAssignor], **settings
        )
        stack.push_async_callback(aio.stop)
        await aio.start()
        found: list[list[bytes]] = [[], [], [], []]

        async def turn() -> None:
            """A poll of one blocks the others for a moment."""
            found[0] += [each.value or b"" for each in ours.poll(timeout_ms=50)]
            found[1] += polling(confluent)()
            for records in kafka_python.poll(timeout_ms=50).values():
                found[2] += [each.value for each in records]
            for records in (await aio.getmany(timeout_ms=50)).values():
                found[3] += [each.value for each in records]

        async with asyncio.timeout(WITHIN_S):
            members = (ours, confluent, kafka_python, aio)
            while sorted(len(each.assignment()) for each in members) != [1, 1, 2, 2]:
                await turn()
            assert found == [[], [], [], []]
            values = fill(bootstrap, topic, 60)
            while sum(map(len, found)) < len(values):
                await turn()
        assert sorted(itertools.chain(*found)) == sorted(values)
        assert sorted(map(len, found)) == [10, 10, 20, 20]


async def test_aiokafka_reads_in_a_group_and_goes_on(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    from aiokafka import AIOKafkaConsumer

    topic, group = create_topic(partitions=PARTITIONS), new_group()
    seen: list[bytes] = []
    expected: list[bytes] = []
    for run in range(2):
        expected += fill(bootstrap, topic, 30, first=30 * run)
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
        )
        await consumer.start()
        try:
            while len(seen) < len(expected):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    seen += [record.value for record in records]
            await consumer.commit()
        finally:
            await consumer.stop()
    assert sorted(seen) == sorted(expected)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_in_a_group(bootstrap: str, create_topic: CreateTopic) -> None:
    topic, group = create_topic(partitions=PARTITIONS), new_group()
    values = fill(bootstrap, topic, 30)
    command = ["kcat", "-b", bootstrap, "-G", group, "-o", "beginning", "-c", "30", "-q", topic]
    done = subprocess.run(command, capture_output=True, timeout=WITHIN_S, check=True)
    assert sorted(done.stdout.split()) == sorted(values)


def test_groups_are_listed_described_and_deleted_by_an_admin(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    from confluent_kafka import ConsumerGroupState
    from confluent_kafka.admin import AdminClient

    topic, group = create_topic(partitions=PARTITIONS), new_group()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    values = fill(bootstrap, topic, 12)
    with confluent_member(bootstrap, group, topic) as member:
        read([polling(member)], len(values))
        member.commit(asynchronous=False)
        described = admin.describe_consumer_groups([group])[group].result(WITHIN_S)
        assert described.state == ConsumerGroupState.STABLE
        (only,) = described.members
        assert len(only.assignment.topic_partitions) == PARTITIONS
        assert group in {each.group_id for each in admin.list_consumer_groups().result().valid}
    admin.delete_consumer_groups([group])[group].result(WITHIN_S)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result().valid}


def test_the_topic_of_groups_is_internal(bootstrap: str, create_topic: CreateTopic) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka import Producer as ConfluentProducer

    topic, group = create_topic(partitions=PARTITIONS), new_group()
    with confluent_member(bootstrap, group, topic) as member:
        while not member.assignment():
            poll(member)
    with Admin(bootstrap) as admin:
        (internal,) = admin.describe_topics(["__consumer_offsets"])
    assert len(internal.partitions) == 50
    refused: list[Any] = []
    producer = ConfluentProducer({"bootstrap.servers": bootstrap})
    producer.produce(
        "__consumer_offsets", b"value", b"key", on_delivery=lambda error, _: refused.append(error)
    )
    assert producer.flush(WITHIN_S) == 0
    (error,) = refused
    assert error.code() == KafkaError.TOPIC_EXCEPTION, KafkaException(error)


def test_members_of_the_consumer_protocol_share_come_and_go(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    """The coordinator assigns the partitions (KIP-848) to members of librdkafka and to one of
    ours."""
    topic, group = create_topic(partitions=PARTITIONS), new_group()
    with consumer_protocol_member(bootstrap, group, topic) as first:
        before = fill(bootstrap, topic, 60)
        (found,) = read([polling(first)], len(before))
        assert sorted(found) == sorted(before)
        first.commit(asynchronous=False)
        with (
            consumer_protocol_member(bootstrap, group, topic) as second,
            Consumer(
                bootstrap,
                group_id=group,
                group_protocol="consumer",
                auto_offset_reset="earliest",
            ) as ours,
        ):
            ours.subscribe([topic])
            members = [polling(first), polling(second), polling_ours(ours)]
            deadline = time.monotonic() + WITHIN_S
            while {len(each.assignment()) for each in (first, second, ours)} != {2}:
                assert time.monotonic() < deadline, "the partitions were not shared"
                for polled in members:
                    assert polled() == []
            values = fill(bootstrap, topic, 120, first=60)
            found = list(itertools.chain(*read(members, len(values))))
            assert sorted(found) == sorted(values)
            second.commit(asynchronous=False)
        first.commit(asynchronous=False)
        last = fill(bootstrap, topic, 60, first=180)
        (found,) = read([polling(first)], len(last))
        assert sorted(found) == sorted(last)


def test_a_member_of_the_consumer_protocol_subscribes_by_a_regular_expression(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    """The coordinator finds the topics."""
    topic, group = create_topic(partitions=PARTITIONS), new_group()
    values = fill(bootstrap, topic, 60)
    with consumer_protocol_member(bootstrap, group, f"^{topic[:-1]}[{topic[-1]}]$") as member:
        (found,) = read([polling(member)], len(values))
        assert sorted(found) == sorted(values)
