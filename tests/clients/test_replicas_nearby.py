"""Consumers that say where they are read from a follower of a cluster of real processes."""

from __future__ import annotations

import itertools
import urllib.request
from collections.abc import Callable

import pytest

from chaos.process_cluster import ProcessCluster
from stele import Admin, ApiError, Consumer, ErrorCode, Producer

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]
VALUES = [b"%05d" % number * 40 for number in range(1000)]


def write(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for value in VALUES:
            producer.send(topic, value, partition=0)


def leader_and_follower(bootstrap: str, topic: str) -> tuple[int, int]:
    with Admin(bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
    (partition,) = described.partitions
    assert partition.leader is not None
    return partition.leader, next(each for each in partition.isr if each != partition.leader)


def bytes_to_consumers(cluster: ProcessCluster, broker_id: int) -> int:
    url = f"http://127.0.0.1:{cluster.nodes[broker_id].metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = (each for each in lines if each.startswith("stele_bytes_out_total"))
    return int(float(line.split()[-1]))


def test_our_consumer_reads_from_the_follower_in_its_rack(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    write(bootstrap, topic)
    leader, follower = leader_and_follower(bootstrap, topic)
    before = {each: bytes_to_consumers(process_cluster, each) for each in (leader, follower)}
    with Consumer(
        bootstrap, auto_offset_reset="earliest", client_rack=f"rack-{follower}"
    ) as consumer:
        consumer.assign([(topic, 0)])
        read = [record.value for record in itertools.islice(consumer, len(VALUES))]
        assert read == VALUES
        write(bootstrap, topic)  # a follower's readers hear of new records
        assert [record.value for record in itertools.islice(consumer, len(VALUES))] == VALUES
    assert bytes_to_consumers(process_cluster, leader) == before[leader]
    size = 2 * sum(map(len, VALUES))
    assert bytes_to_consumers(process_cluster, follower) >= before[follower] + size


def test_confluent_kafka_reads_from_the_follower_in_its_rack(
    process_cluster: ProcessCluster, bootstrap: str, create_topic: CreateTopic
) -> None:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition
    from confluent_kafka import Consumer as KafkaConsumer

    topic = create_topic()
    write(bootstrap, topic)
    leader, follower = leader_and_follower(bootstrap, topic)
    before = {each: bytes_to_consumers(process_cluster, each) for each in (leader, follower)}
    consumer = KafkaConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nearby",
            "enable.auto.commit": False,
            "client.rack": f"rack-{follower}",
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    read: list[object] = []
    while len(read) < len(VALUES):
        message = consumer.poll(20)
        assert message is not None, f"only {len(read)} records"
        assert message.error() is None, message.error()
        read.append(message.value())
    consumer.close()
    assert read == VALUES
    assert bytes_to_consumers(process_cluster, leader) == before[leader]
    size = sum(map(len, VALUES))
    assert bytes_to_consumers(process_cluster, follower) >= before[follower] + size


def test_batches_that_the_topic_does_not_take_are_sent_in_halves(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(max_message_bytes="2000")
    with Producer(bootstrap) as producer:
        for value in VALUES:
            producer.send(topic, value, partition=0)
        producer.flush()
        producer.send(topic, bytes(3000), partition=0)
        with pytest.raises(ApiError, match=r"max\.message\.bytes is 2000") as caught:
            producer.flush()
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        producer.send(topic, b"end", partition=0)
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        read = [record.value for record in itertools.islice(consumer, len(VALUES) + 1)]
    assert read == [*VALUES, b"end"]
