"""Unmodified Kafka clients and our own over TLS, with and without certificates of their own."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from stele.admin.descriptions import NewTopic
from stele.aio import Admin, Consumer, Producer
from tests.support.secure_cluster import SecureCluster, secure_cluster

RECORDS = [(b"k%d" % (n % 5), b"value %d" % n) for n in range(200)]


async def create(cluster: SecureCluster, topic: str, replicas: int = 1) -> None:
    async with Admin(
        cluster.bootstrap,
        security_protocol="SSL",
        ssl_truststore_location=cluster.ca_file,
        ssl_keystore_location=cluster.client_file("admin"),
    ) as admin:
        await admin.create_topics([NewTopic(topic, 1, replicas)])


@pytest.mark.parametrize("client_auth", ["none", "required"])
async def test_our_clients(tmp_path: Path, client_auth: str) -> None:
    async with secure_cluster(tmp_path, count=3, client_auth=client_auth) as cluster:
        await create(cluster, "orders", replicas=3)
        options = {"security_protocol": "SSL", "ssl_truststore_location": cluster.ca_file}
        if client_auth == "required":
            options["ssl_keystore_location"] = cluster.client_file("app")
        async with Producer(cluster.bootstrap, **options) as producer:  # type: ignore[arg-type]
            await asyncio.gather(
                *(producer.send("orders", value, key=key) for key, value in RECORDS)
            )
        async with Consumer(
            cluster.bootstrap,
            auto_offset_reset="earliest",
            group_id="g",
            **options,  # type: ignore[arg-type]
        ) as consumer:
            consumer.subscribe(["orders"])
            read = list[tuple[bytes | None, bytes | None]]()
            while len(read) < len(RECORDS):
                read += [(each.key, each.value) for each in await consumer.poll(timeout_ms=5000)]
        assert read == RECORDS


async def test_kafka_python(tmp_path: Path) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    async with secure_cluster(tmp_path) as cluster:
        await create(cluster, "orders")
        options = {
            "bootstrap_servers": cluster.bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": cluster.ca_file,
            "ssl_certfile": cluster.client_file("app"),
            "ssl_keyfile": cluster.client_file("app"),
        }

        def run() -> list[tuple[bytes, bytes]]:
            producer = KafkaProducer(acks="all", **options)
            for key, value in RECORDS:
                producer.send("orders", key=key, value=value)
            producer.flush(30)
            producer.close()
            consumer = KafkaConsumer(
                "orders",
                auto_offset_reset="earliest",
                group_id="g",
                consumer_timeout_ms=20_000,
                **options,
            )
            read = [(each.key, each.value) for _, each in zip(RECORDS, consumer, strict=False)]
            consumer.close()
            return read

        assert await asyncio.to_thread(run) == RECORDS


async def test_confluent_kafka(tmp_path: Path) -> None:
    from confluent_kafka import Consumer as LibrdkafkaConsumer
    from confluent_kafka import Producer as LibrdkafkaProducer

    async with secure_cluster(tmp_path) as cluster:
        await create(cluster, "orders")
        own = cluster.client_file("app")
        options = {
            "bootstrap.servers": cluster.bootstrap,
            "security.protocol": "SSL",
            "ssl.ca.location": cluster.ca_file,
            "ssl.certificate.location": own,
            "ssl.key.location": own,
            # librdkafka compares no addresses of a certificate, only names.
            "ssl.endpoint.identification.algorithm": "none",
        }

        def run() -> list[tuple[bytes | None, bytes | None]]:
            producer = LibrdkafkaProducer({**options, "enable.idempotence": True})
            for key, value in RECORDS:
                producer.produce("orders", value, key)
            assert producer.flush(30) == 0
            consumer = LibrdkafkaConsumer(
                {**options, "group.id": "g", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe(["orders"])
            read = list[tuple[bytes | None, bytes | None]]()
            while len(read) < len(RECORDS):
                for message in consumer.consume(len(RECORDS), timeout=1):
                    assert message.error() is None, message.error()
                    read.append((message.key(), message.value()))
            consumer.close()
            return read

        assert await asyncio.to_thread(run) == RECORDS


async def test_aiokafka(tmp_path: Path) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async with secure_cluster(tmp_path) as cluster:
        await create(cluster, "orders")
        context = ssl.create_default_context(cafile=cluster.ca_file)
        context.load_cert_chain(cluster.client_file("app"))
        options = {
            "bootstrap_servers": cluster.bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with AIOKafkaProducer(**options) as producer:
            for key, value in RECORDS:
                await producer.send("orders", value, key)
            await producer.flush()
        async with AIOKafkaConsumer(
            "orders",
            auto_offset_reset="earliest",
            group_id="g",
            consumer_timeout_ms=20_000,
            **options,
        ) as consumer:
            read = [(each.key, each.value) for each in [await consumer.getone() for _ in RECORDS]]
        assert read == RECORDS


async def test_a_login_over_tls_gives_the_principal(tmp_path: Path) -> None:
    """The certificate does not: on a listener of SASL_SSL clients say who they are."""
    from kafka import KafkaProducer

    settings = {
        "listeners": "SSL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "grpc.listeners": "SSL://127.0.0.1:0,CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "CONTROLLER:SSL,CLIENTS:SASL_SSL",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'user_ann="her secret";'
        ),
    }
    async with secure_cluster(tmp_path, settings=settings) as cluster:
        await create(cluster, "orders")
        at = f"127.0.0.1:{cluster.nodes[0].ports.kafka['CLIENTS']}"
        ours = {
            "security_protocol": "SASL_SSL",
            "ssl_truststore_location": cluster.ca_file,
            "sasl_mechanism": "PLAIN",
            "sasl_username": "ann",
            "sasl_password": "her secret",
        }
        async with Producer(at, **ours) as producer:  # type: ignore[arg-type]
            await producer.send("orders", b"by ours")

        def run() -> int:
            producer = KafkaProducer(
                bootstrap_servers=at,
                security_protocol="SASL_SSL",
                ssl_cafile=cluster.ca_file,
                sasl_mechanism="PLAIN",
                sasl_plain_username="ann",
                sasl_plain_password="her secret",
                max_block_ms=5000,
            )
            try:
                offset: int = producer.send("orders", b"by kafka-python").get(10).offset
                return offset
            finally:
                producer.close()

        assert await asyncio.to_thread(run) == 1
