"""Real clients push their metrics, and Prometheus sees them (KIP-714)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from bench.maven import Coordinates, MavenError, fetched
from chaos.process_cluster import ProcessCluster
from stele import Admin, NewTopic
from stele.admin.descriptions import ConfigResource

pytestmark = pytest.mark.processes

PATIENCE_S = 60.0
KAFKA_CLIENTS = Coordinates("org.apache.kafka", "kafka-clients", "4.3.1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    cluster = ProcessCluster(
        tmp_path_factory.mktemp("telemetry"),
        controllers=1,
        brokers=1,
        settings={"telemetry.receiver": "prometheus"},
    )
    asyncio.run(cluster.start())
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.alter_configs(
            {ConfigResource.client_metrics("all"): {"metrics": "*", "interval.ms": "500"}}
        )
        assert admin.list_client_metrics() == ["all"]
    yield cluster
    asyncio.run(cluster.stop())


def series(cluster: ProcessCluster, client_id: str) -> list[str]:
    """Those of ``/metrics`` that a client of this id has pushed."""
    (broker_id,) = cluster.broker_ids
    url = f"http://127.0.0.1:{cluster.nodes[broker_id].metrics_port}/metrics"
    with urllib.request.urlopen(url) as answer:
        lines = answer.read().decode().splitlines()
    return [
        each
        for each in lines
        if each.startswith("stele_client_metric{") and f'client_id="{client_id}"' in each
    ]


JAVA = """
import java.util.*;
import org.apache.kafka.clients.producer.*;

public class Pushes {
    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("client.id", "java-producer");
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>("t", "v")).get();
                Thread.sleep(100);
            }
        }
    }
}
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is installed")
def test_the_client_in_java_pushes(cluster: ProcessCluster, tmp_path: Path) -> None:
    try:
        folder = fetched(f"kafka-clients-{KAFKA_CLIENTS.version}", [KAFKA_CLIENTS])
    except MavenError as error:
        pytest.skip(str(error))
    source = tmp_path / "Pushes.java"
    source.write_text(JAVA)
    process = subprocess.Popen(
        ["java", "-cp", f"{folder}/*", str(source), cluster.bootstrap_servers],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while not found and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.2)
        found = series(cluster, "java-producer")
    _, said = process.communicate(b"stop")
    assert any("org.apache.kafka.producer.record.send.total" in each for each in found), said
    assert all("apache-kafka-java" in each for each in found)


def test_librdkafka_pushes_what_a_producer_and_a_consumer_measure(cluster: ProcessCluster) -> None:
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = Producer({**servers, "client.id": "rd-producer"})
    consumer = Consumer(
        {
            **servers,
            "client.id": "rd-consumer",
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["t"])
    deadline = time.monotonic() + PATIENCE_S
    produced: list[str] = []
    consumed: list[str] = []
    while not (produced and consumed) and time.monotonic() < deadline:
        producer.produce("t", b"v")
        producer.flush()
        consumer.poll(0.2)
        produced = series(cluster, "rd-producer")
        consumed = series(cluster, "rd-consumer")
    consumer.close()
    assert any("org.apache.kafka.producer." in each for each in produced)
    assert any("org.apache.kafka.consumer." in each for each in consumed)
    for each in produced + consumed:
        assert 'user="ANONYMOUS"' in each
        assert "rdkafka" in each
