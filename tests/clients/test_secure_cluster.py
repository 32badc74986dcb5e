"""A secure cluster as ``stele dev --secure`` makes it, and clients of ordinary users."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer
from confluent_kafka import KafkaError
from confluent_kafka import Producer as LibrdkafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from chaos.cluster_security import ADMIN, APPLICATION
from chaos.process_cluster import ClusterError, ProcessCluster
from cli import main
from stele import (
    AcknowledgeType,
    Acl,
    AclFilter,
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ScramUpsertion,
    ShareConsumer,
)
from stele.admin.descriptions import ConfigResource
from stele.errors import ApiError, BulkError, ErrorCode
from stele.security.options import SecurityOptions

pytestmark = pytest.mark.processes

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """A controller and two brokers. They have every kind of connection of a secure cluster."""
    made = ProcessCluster(
        tmp_path_factory.mktemp("secure"),
        controllers=1,
        brokers=2,
        settings=SETTINGS,
        is_secure=True,
    )
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())


@pytest.fixture
def topic(cluster: ProcessCluster) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    with administrator(cluster) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    return name


def administrator(cluster: ProcessCluster) -> Admin:
    return Admin(cluster.bootstrap_servers, **cluster.security.of_user(ADMIN))


def of_app(cluster: ProcessCluster) -> SecurityOptions:
    return cluster.security.of_user(APPLICATION)


def librdkafka(cluster: ProcessCluster, **more: object) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(cluster.security.certificates.truststore),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": APPLICATION,
        "sasl.password": cluster.security.password_of(APPLICATION),
        **more,
    }


def kafka_python(cluster: ProcessCluster, **more: object) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(cluster.security.certificates.truststore),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": APPLICATION,
        "sasl_plain_password": cluster.security.password_of(APPLICATION),
        **more,
    }


def test_our_clients(cluster: ProcessCluster, topic: str) -> None:
    servers, security = cluster.bootstrap_servers, of_app(cluster)
    with (
        Producer(servers, transactional_id=f"x-{topic}", **security) as producer,
        producer.transaction(),
    ):
        producer.send(topic, b"one")
    with Consumer(servers, group_id=topic, auto_offset_reset="earliest", **security) as consumer:
        consumer.subscribe([topic])
        records: list[Any] = []
        while not records:
            records = list(consumer.poll(timeout_ms=1000))
        assert [each.value for each in records] == [b"one"]


def test_a_rejected_record_of_an_application_has_a_dead_letter(cluster: ProcessCluster) -> None:
    """A broker writes the letter on another broker, as itself: no rule names the application."""
    servers, security = cluster.bootstrap_servers, of_app(cluster)
    one, other = cluster.broker_ids
    takes_letters = {"errors.deadletterqueue.group.enable": "true"}
    with administrator(cluster) as admin:
        admin.create_topics(
            [
                NewTopic("work", assignments={0: [one]}),
                NewTopic("dlq.work", configs=takes_letters, assignments={0: [other]}),
            ]
        )
        group = {
            "share.auto.offset.reset": "earliest",
            "errors.deadletterqueue.topic.name": "dlq.work",
        }
        admin.alter_configs({ConfigResource.group("work"): group})
    with Producer(servers, **security) as producer:
        producer.send("work", b"poison")
    with ShareConsumer(
        servers, group_id="work", share_acknowledgement_mode="explicit", **security
    ) as worker:
        worker.subscribe(["work"])
        records = worker.poll(timeout_ms=20_000)
        assert [each.value for each in records] == [b"poison"]
        worker.acknowledge(records[0], AcknowledgeType.REJECT)
        worker.commit()
    with Consumer(servers, auto_offset_reset="earliest", **security) as consumer:
        consumer.assign([("dlq.work", 0)])
        (letter,) = consumer.poll(timeout_ms=20_000)
    assert letter.value == b"poison"
    assert dict(letter.headers)["__dlq.errors.group"] == b"work"


def test_librdkafka(cluster: ProcessCluster, topic: str) -> None:
    producer = LibrdkafkaProducer(librdkafka(cluster))
    producer.produce(topic, b"two")
    assert producer.flush(20) == 0
    consumer = LibrdkafkaConsumer(
        librdkafka(cluster, **{"group.id": topic, "auto.offset.reset": "earliest"})
    )
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None
    assert message.value() == b"two"


def test_kafka_python(cluster: ProcessCluster, topic: str) -> None:
    producer = KafkaProducer(**kafka_python(cluster))
    producer.send(topic, b"three").get(20)
    producer.close()
    consumer = KafkaConsumer(
        topic, **kafka_python(cluster, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    )
    assert next(iter(consumer)).value == b"three"
    consumer.close()


def test_a_wrong_password_is_reported(cluster: ProcessCluster) -> None:
    security = SecurityOptions(
        **{**of_app(cluster), "sasl_password": "wrong", "sasl_jaas_config": None}
    )
    with (
        Producer(cluster.bootstrap_servers, max_block_ms=10_000, **security) as producer,
        pytest.raises(ApiError) as caught,
    ):
        producer.send("t", b"").result(20)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


def test_what_no_rule_allows_is_refused(cluster: ProcessCluster, topic: str) -> None:
    """The application works with topics. It deletes none, and administrates nothing."""
    with Admin(cluster.bootstrap_servers, **of_app(cluster)) as admin:
        with pytest.raises(BulkError) as caught:
            admin.delete_topics([topic])
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(ApiError) as denied:
            admin.create_acls([Acl("User:app", "ALL", "CLUSTER", "kafka-cluster")])
        assert denied.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(ApiError) as denied:
            admin.alter_user_scram_credentials([ScramUpsertion(ADMIN, "taken over")])
        assert denied.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_rule_that_denies_counts_at_once(cluster: ProcessCluster, topic: str) -> None:
    denied = Acl(f"User:{APPLICATION}", "WRITE", "TOPIC", topic, permission="DENY")
    with administrator(cluster) as admin:
        admin.create_acls([denied])
    try:
        producer = LibrdkafkaProducer(librdkafka(cluster))
        told: list[KafkaError | None] = []
        producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
        producer.flush(20)
        assert [each and each.code() for each in told] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        client = KafkaProducer(**kafka_python(cluster))
        with pytest.raises(TopicAuthorizationFailedError):
            client.send(topic, b"x").get(20)
        client.close()
    finally:
        with administrator(cluster) as admin:
            admin.delete_acls([AclFilter(resource_type="TOPIC", resource_name=topic)])


def test_users_on_the_command_line(
    cluster: ProcessCluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = ["-b", cluster.bootstrap_servers, "--command-config"]
    admin += [str(cluster.security.client_file(ADMIN))]
    secret = tmp_path / "password"
    secret.write_text("of ann")
    assert main.run(["users", "add", "ann", "--password-file", str(secret), *admin]) == 0
    properties = tmp_path / "ann.properties"
    own = cluster.security.client_file(APPLICATION).read_text()
    properties.write_text(
        "".join(
            f"{line}\n"
            for line in own.splitlines()
            if not line.startswith(("sasl.jaas", "sasl.username", "sasl.password"))
        )
        + "sasl.username=ann\nsasl.password=of ann\n"
    )
    ann = ["-b", cluster.bootstrap_servers, "--command-config", str(properties)]
    assert main.run(["topic", "list", *ann]) == 0
    assert topic not in capsys.readouterr().out
    assert main.run(["acls", "add", "User:ann", "READ", f"topic:{topic}", *admin]) == 0
    assert main.run(["topic", "list", *ann]) == 0
    assert topic in capsys.readouterr().out
    assert main.run(["users", "remove", "ann", *admin]) == 0
    assert main.run(["topic", "list", *ann, "--timeout", "5"]) == 1


def test_the_doctor_examines_a_live_cluster(
    cluster: ProcessCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["-b", cluster.bootstrap_servers]
    arguments += ["--command-config", str(cluster.security.client_file(ADMIN))]
    node = next(iter(cluster.nodes.values()))
    assert main.run(["doctor", *arguments, "--config", str(node.config_file)]) == 0
    assert "problem" not in capsys.readouterr().out


def test_a_secure_cluster_is_not_started_insecurely(cluster: ProcessCluster) -> None:
    asyncio.run(cluster.stop())
    insecure = ProcessCluster(cluster.directory, controllers=1, brokers=1)
    with pytest.raises(ClusterError, match="is secure: start it with --secure"):
        asyncio.run(insecure.start())
    asyncio.run(cluster.start())


def test_an_insecure_cluster_is_not_started_securely(tmp_path: Path) -> None:
    (tmp_path / "cluster.id").touch()
    secure = ProcessCluster(tmp_path, controllers=1, brokers=1, is_secure=True)
    with pytest.raises(ClusterError, match="is not secure"):
        asyncio.run(secure.start())
