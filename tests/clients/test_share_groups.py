"""Share groups of unmodified clients: each record is accepted once, and comes back if it is not."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.maven import Coordinates, MavenError, fetched
from chaos.process_cluster import ProcessCluster
from stele import Admin, NewTopic, Producer
from stele.admin.descriptions import ConfigResource

pytestmark = pytest.mark.processes

PATIENCE_S = 60.0
RECORDS = 600
KAFKA_CLIENTS = Coordinates("org.apache.kafka", "kafka-clients", "4.3.1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    cluster = ProcessCluster(tmp_path_factory.mktemp("shares"), controllers=1, brokers=3)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


def filled(cluster: ProcessCluster, topic: str, group: str) -> list[bytes]:
    """A topic with records, whose first one is the first of the share group, too."""
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, 3, 3)])
        admin.alter_configs({ConfigResource.group(group): {"share.auto.offset.reset": "earliest"}})
    values = [b"%d" % number for number in range(RECORDS)]
    with Producer(cluster.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number % 3)
        producer.flush()
    return values


def share_consumer(cluster: ProcessCluster, group: str, topic: str) -> Any:
    from confluent_kafka import ShareConsumer

    consumer = ShareConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group})
    consumer.subscribe([topic])
    return consumer


def test_two_members_of_librdkafka_share_the_records(cluster: ProcessCluster) -> None:
    pytest.importorskip("confluent_kafka", "2.15")
    values = filled(cluster, "shared", "librdkafka")
    members = [share_consumer(cluster, "librdkafka", "shared") for _ in range(2)]
    found: list[list[bytes]] = [[], []]
    until_s = time.monotonic() + PATIENCE_S
    while sum(map(len, found)) < RECORDS and time.monotonic() < until_s:
        for member, mine in zip(members, found, strict=True):
            for message in member.poll(0.2):
                assert message.error() is None
                mine.append(message.value())
    for member in members:
        member.close()
    assert sorted(found[0] + found[1]) == sorted(values)


def test_a_group_goes_on_with_the_next_leaders_and_coordinators(cluster: ProcessCluster) -> None:
    """A broker dies: it led partitions, and coordinated groups and share partitions."""
    pytest.importorskip("confluent_kafka", "2.15")
    values = filled(cluster, "survived", "survivors")
    member = share_consumer(cluster, "survivors", "survived")
    found: list[bytes] = []
    killed = 0
    until_s = time.monotonic() + 2 * PATIENCE_S
    while (not killed or not set(values) <= set(found)) and time.monotonic() < until_s:
        found += [message.value() for message in member.poll(0.2) if message.error() is None]
        if found and not killed:
            killed = cluster.broker_ids[0]
            cluster.kill(killed)
            late = [b"late %d" % number for number in range(RECORDS)]
            with Producer(cluster.bootstrap_servers) as producer:
                for number, value in enumerate(late):
                    producer.send("survived", value, partition=number % 3)
                producer.flush()
            values += late
    member.close()
    asyncio.run(cluster.restart(killed))
    assert sorted(set(found)) == sorted(values)


JAVA = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Shares {
    public static void main(String[] arguments) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[2]);
        settings.put("share.acknowledgement.mode", "explicit");
        int count = Integer.parseInt(arguments[3]), again = 0;
        Set<String> accepted = new HashSet<>(), released = new HashSet<>();
        long until = System.currentTimeMillis() + 60_000;
        try (var consumer = new KafkaShareConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            while (accepted.size() < count && System.currentTimeMillis() < until) {
                for (var each : consumer.poll(Duration.ofMillis(500))) {
                    if (each.deliveryCount().orElse((short) 0) == 2) again++;
                    if (each.offset() % 10 == 3 && released.add(each.value())) {
                        consumer.acknowledge(each, AcknowledgeType.RELEASE);
                    } else {
                        consumer.acknowledge(each, AcknowledgeType.ACCEPT);
                        if (!accepted.add(each.value())) throw new Error("twice " + each);
                    }
                }
                consumer.commitSync().forEach((partition, error) -> error.ifPresent(each -> {
                    throw each;
                }));
            }
        }
        System.out.println(accepted.size() + " accepted, " + released.size() + " released, "
            + again + " again");
    }
}
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is installed")
def test_the_share_consumer_in_java_gets_again_what_it_releases(
    cluster: ProcessCluster, tmp_path: Path
) -> None:
    try:
        folder = fetched("kafka-clients-4.3.1", [KAFKA_CLIENTS])
    except MavenError as error:
        pytest.skip(str(error))
    filled(cluster, "released", "java")
    source = tmp_path / "Shares.java"
    source.write_text(JAVA)
    done = subprocess.run(
        [
            "java", "-cp", f"{folder}/*", str(source),
            cluster.bootstrap_servers, "released", "java", str(RECORDS),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * PATIENCE_S,
    )  # fmt: skip
    assert f"{RECORDS} accepted, 60 released, 60 again" in done.stdout
