"""Unmodified admin clients against a cluster of real processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions
from kafka.admin import KafkaAdminClient

pytestmark = pytest.mark.processes

CreateTopic = Callable[..., str]


@pytest.fixture(scope="module")
def confluent(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture(scope="module")
def kafka_python(bootstrap: str) -> Iterator[Any]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def topic_resource(name: str, **changes: tuple[AlterConfigOpType, str | None]) -> ConfigResource:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
        for key, (operation, value) in changes.items()
    ]
    return ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)


def described(client: AdminClient, resource: ConfigResource) -> dict[str, Any]:
    (future,) = client.describe_configs([resource]).values()
    found: dict[str, Any] = future.result(30)
    return found


def test_confluent_alters_and_describes_configs(
    confluent: AdminClient, create_topic: CreateTopic
) -> None:
    topic = create_topic()
    change = topic_resource(
        topic,
        retention_ms=(AlterConfigOpType.SET, "5000"),
        cleanup_policy=(AlterConfigOpType.APPEND, "delete"),
    )
    (future,) = confluent.incremental_alter_configs([change]).values()
    future.result(30)
    entry = described(confluent, topic_resource(topic))["retention.ms"]
    assert (entry.value, entry.source, entry.is_read_only) == ("5000", 1, False)
    assert {"retention.ms", "log.retention.ms"} <= {*entry.synonyms}
    back = topic_resource(topic, retention_ms=(AlterConfigOpType.DELETE, None))
    (future,) = confluent.incremental_alter_configs([back]).values()
    future.result(30)
    assert described(confluent, topic_resource(topic))["retention.ms"].is_default
    wrong = topic_resource(topic, retention_ms=(AlterConfigOpType.SET, "soon"))
    (future,) = confluent.incremental_alter_configs([wrong]).values()
    with pytest.raises(KafkaException, match=r"retention\.ms=soon"):
        future.result(30)


def test_confluent_describes_a_broker(confluent: AdminClient) -> None:
    broker = str(min(confluent.list_topics(timeout=30).brokers))
    found = described(confluent, ConfigResource(ResourceType.BROKER, broker))
    assert (found["node.id"].value, found["node.id"].is_read_only) == (broker, True)
    assert not found["log.retention.ms"].is_read_only


def test_confluent_adds_partitions_and_elects(
    confluent: AdminClient, create_topic: CreateTopic
) -> None:
    from confluent_kafka import ElectionType, TopicPartition

    topic = create_topic(partitions=2)
    (future,) = confluent.create_partitions([NewPartitions(topic, 4)]).values()
    future.result(30)
    # Any broker may be asked, and may be slightly behind the one that forwarded.
    until(lambda: len(confluent.list_topics(topic, timeout=30).topics[topic].partitions) == 4)
    (future,) = confluent.create_partitions([NewPartitions(topic, 4)]).values()
    with pytest.raises(KafkaException, match="4 partitions"):
        future.result(30)
    named = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    outcome = confluent.elect_leaders(ElectionType.PREFERRED, named).result(30)
    errors = {each.partition: error.name() for each, error in outcome.items()}
    assert errors == {0: "ELECTION_NOT_NEEDED", 9: "UNKNOWN_TOPIC_OR_PART"}


def test_kafka_python_alters_and_describes_configs(
    kafka_python: Any, create_topic: CreateTopic
) -> None:
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType

    topic = create_topic()
    change = Resource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "7000"})
    described = Resource(ConfigResourceType.TOPIC, topic)
    # The client asks any broker for the configs. A broker that does not know the topic yet has
    # none, as in Kafka.
    deadline = time.monotonic() + 20
    while True:
        try:
            kafka_python.alter_configs([change])
            break
        except ValueError:
            assert time.monotonic() < deadline
    found = kafka_python.describe_configs([described])
    assert "7000" in str(found)


def test_kafka_python_adds_partitions(kafka_python: Any, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=1)
    kafka_python.create_partitions({topic: 3})
    until(lambda: len(kafka_python.describe_topics([topic])[0]["partitions"]) == 3)


def test_kafka_python_describes_directories_quorum_and_producers(
    kafka_python: Any, bootstrap: str, create_topic: CreateTopic
) -> None:
    from kafka import KafkaProducer, TopicPartition

    topic = create_topic(partitions=2)
    with KafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        producer.send(topic, b"value", partition=0).get(30)
    described = str(kafka_python.describe_log_dirs())
    assert topic in described
    (log,) = kafka_python.describe_metadata_quorum()["topics"]
    (partition,) = log["partitions"]
    assert partition["leader_id"] in {each["replica_id"] for each in partition["current_voters"]}
    page = kafka_python.describe_topic_partitions([topic])
    assert topic in str(page)
    assert kafka_python.describe_producers([TopicPartition(topic, 0)])


def test_confluent_and_kafka_python_delete_records(
    confluent: AdminClient, kafka_python: Any, bootstrap: str, create_topic: CreateTopic
) -> None:
    from confluent_kafka import TopicPartition as Deletion
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    topic = create_topic(partitions=1)
    place = TopicPartition(topic, 0)
    with KafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0).get(30)
    (future,) = confluent.delete_records([Deletion(topic, 0, 4)]).values()
    assert future.result(30).low_watermark == 4
    (future,) = confluent.delete_records([Deletion(topic, 0, 11)]).values()
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        future.result(30)
    kafka_python.delete_records({place: 7})
    with KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=10_000) as consumer:
        consumer.assign([place])
        assert consumer.beginning_offsets([place]) == {place: 7}
        consumer.seek_to_beginning(place)
        assert next(consumer).value == b"7"
