"""Dead letters of share groups on processes: each record that is given up has exactly one letter,
also when brokers are killed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from chaos.process_cluster import ProcessCluster
from stele import AcknowledgeType, Admin, Consumer, NewTopic, Producer, ShareConsumer
from stele.admin.descriptions import ConfigResource
from stele.records import ConsumerRecord

pytestmark = pytest.mark.processes

PATIENCE_S = 120.0
RECORDS = 300
PREFIX = "__dlq.errors."


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    settings = {"errors.deadletterqueue.auto.create.topics.enable": "true", "num.partitions": "2"}
    directory = tmp_path_factory.mktemp("letters")
    cluster = ProcessCluster(directory, controllers=1, brokers=3, settings=settings)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


def filled(cluster: ProcessCluster, topic: str, *, has_letter_topic: bool = True) -> None:
    """A topic with records, a dead letter topic, and a group of the same name."""
    safe = {"min.insync.replicas": "2"}
    takes_letters = {**safe, "errors.deadletterqueue.group.enable": "true"}
    topics = [NewTopic(topic, 3, 3, configs=safe)]
    if has_letter_topic:
        topics.append(NewTopic(f"dlq.{topic}", 2, 3, configs=takes_letters))
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics(topics)
        admin.alter_configs(
            {
                ConfigResource.group(topic): {
                    "share.auto.offset.reset": "earliest",
                    "errors.deadletterqueue.topic.name": f"dlq.{topic}",
                }
            }
        )
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(RECORDS):
            producer.send(
                topic,
                b"%d" % number,
                key=b"key %d" % number,
                headers=[("number", b"%d" % number)],
                partition=number % 3,
            )
        producer.flush()


def is_poison(value: bytes | None) -> bool:
    return int(value or b"1") % 10 == 0


def work(cluster: ProcessCluster, topic: str, kill: int | None = None) -> set[bytes | None]:
    """Accept what is good and reject what is poison, until all is done. A broker is killed after
    the first rejection. Returns what was accepted."""
    accepted: set[bytes | None] = set()
    until_s = time.monotonic() + PATIENCE_S
    with ShareConsumer(
        cluster.bootstrap_servers, group_id=topic, share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe([topic])
        while len(accepted) < RECORDS * 9 // 10 or letter_count(cluster, topic) < RECORDS // 10:
            assert time.monotonic() < until_s, len(accepted)
            for record in consumer.poll(30, timeout_ms=500):
                if is_poison(record.value):
                    consumer.acknowledge(record, AcknowledgeType.REJECT)
                else:
                    consumer.acknowledge(record)
                    accepted.add(record.value)
            consumer.commit()
            if kill is not None and accepted:
                cluster.kill(kill)
                kill = None
    return accepted


def letter_count(cluster: ProcessCluster, topic: str) -> int:
    with Admin(cluster.bootstrap_servers) as admin:
        is_there = any(each.name == f"dlq.{topic}" for each in admin.list_topics())
    return len(letters(cluster, topic)) if is_there else 0


def letters(cluster: ProcessCluster, topic: str) -> list[ConsumerRecord]:
    return committed(cluster, f"dlq.{topic}", 2)


def committed(cluster: ProcessCluster, topic: str, partitions: int) -> list[ConsumerRecord]:
    with Consumer(
        cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        places = [(topic, number) for number in range(partitions)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        found: list[ConsumerRecord] = []
        while any(consumer.position(*each) < end for each, end in ends.items()):
            found += consumer.poll(timeout_ms=1000)
    return found


def check(found: list[ConsumerRecord], topic: str) -> None:
    """Each poison record has one letter, which is whole, and no other record has one."""
    assert Counter(each.value for each in found) == {
        b"%d" % number: 1 for number in range(RECORDS) if is_poison(b"%d" % number)
    }
    for each in found:
        number = int(each.value or b"")
        assert each.key == b"key %d" % number
        headers = dict(each.headers)
        assert headers["number"] == b"%d" % number
        assert headers[f"{PREFIX}topic"] == headers[f"{PREFIX}group"] == topic.encode()
        assert headers[f"{PREFIX}partition"] == b"%d" % (number % 3)
        assert headers[f"{PREFIX}message"] == b"Offset rejected by client."
        assert each.partition == number % 3 % 2


def test_rejected_records_have_one_letter_each(cluster: ProcessCluster) -> None:
    filled(cluster, "work")
    work(cluster, "work")
    check(letters(cluster, "work"), "work")


def test_the_first_letters_make_their_topic(cluster: ProcessCluster) -> None:
    """The records are on three brokers, and each of these may ask for the topic."""
    filled(cluster, "unmade", has_letter_topic=False)
    work(cluster, "unmade")
    check(letters(cluster, "unmade"), "unmade")
    with Admin(cluster.bootstrap_servers) as admin:
        (entries,) = admin.describe_configs([ConfigResource.topic("dlq.unmade")]).values()
    values = {each.name: each.value for each in entries}
    assert values["errors.deadletterqueue.group.enable"] == "true"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_no_letter_is_lost_or_doubled_when_a_broker_is_killed(
    cluster: ProcessCluster, number: int
) -> None:
    topic = f"killed-{number}"
    filled(cluster, topic)
    killed = cluster.broker_ids[number]
    work(cluster, topic, killed)
    asyncio.run(cluster.restart(killed))
    check(letters(cluster, topic), topic)


def test_letters_go_back_once_also_if_their_redrive_is_killed(cluster: ProcessCluster) -> None:
    topic = "sent-back"
    filled(cluster, topic)
    work(cluster, topic)

    def redrive(*options: str) -> subprocess.Popen[bytes]:
        command = (sys.executable, "-m", "cli", "share", "redrive", topic, *options)
        servers = ("--bootstrap-server", cluster.bootstrap_servers)
        return subprocess.Popen((*command, *servers), stdout=subprocess.PIPE)

    def sent_back() -> int:
        return len(committed(cluster, topic, 3)) - RECORDS

    slow = redrive("--execute", "--rate", "2")
    until_s = time.monotonic() + PATIENCE_S
    while not sent_back():
        assert time.monotonic() < until_s
        assert slow.poll() is None
    slow.kill()
    slow.communicate()
    assert 0 < sent_back() < RECORDS // 10
    output, _ = redrive("--execute", "--json").communicate(timeout=PATIENCE_S)
    assert json.loads(output)["complete"]
    values = Counter(int(each.value or b"") for each in committed(cluster, topic, 3))
    assert values == {number: 1 + is_poison(b"%d" % number) for number in range(RECORDS)}
