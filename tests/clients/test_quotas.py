"""Quotas through our admin client, and clients that are slowed down by them, on real processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from chaos.process_cluster import ProcessCluster
from stele import Admin, NewTopic, QuotaAlteration, QuotaComponent
from stele.admin.client_quotas import ClientQuotas
from stele.errors import BulkError

pytestmark = pytest.mark.processes

RATE = 100_000
VALUE = bytes(10_000)
COUNT = 200  # 2 MB: 2 s worth at once, and 18 s worth at the rate
LEAST_S = 16.5
"""The last request, of a second's worth at most, is not waited for."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = ProcessCluster(tmp_path_factory.mktemp("quotas"), controllers=1, brokers=1)
    asyncio.run(cluster.start())
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 1, 1)])
    yield cluster.bootstrap_servers
    asyncio.run(cluster.stop())


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(servers) as admin:
        yield admin


def test_quotas_are_set_described_and_removed(admin: Admin) -> None:
    ann: dict[str, str | None] = {"user": "ann", "client-id": None}
    admin.alter_client_quotas([QuotaAlteration(ann, {"request_percentage": 12.5})])
    described = [ClientQuotas(ann, {"request_percentage": 12.5})]
    assert admin.describe_client_quotas([QuotaComponent("user", "ann")]) == described
    ((usage,),) = admin.explain_client_quotas("ann", "c").values()
    assert (usage.entity, usage.value, usage.throttles) == (ann, 12.5, 0)
    assert usage.shared_by == ("user", "client-id")
    with pytest.raises(BulkError, match="must be a number above 0"):
        admin.alter_client_quotas([QuotaAlteration(ann, {"request_percentage": 0})])
    admin.alter_client_quotas([QuotaAlteration(ann, {"request_percentage": None})])
    assert admin.describe_client_quotas() == []


def test_librdkafka_is_slowed_down_and_nothing_fails(servers: str, admin: Admin) -> None:
    entity = {"client-id": "greedy"}
    rates = {"producer_byte_rate": RATE, "consumer_byte_rate": RATE}
    admin.alter_client_quotas([QuotaAlteration(entity, rates)])
    failures: list[Any] = []
    throttles: list[float] = []
    client = {
        "bootstrap.servers": servers,
        "client.id": "greedy",
        "throttle_cb": lambda event: throttles.append(event.throttle_time),
        "error_cb": failures.append,
    }
    delivered: list[int] = []

    def on_delivery(error: Any, message: Any) -> None:
        if error is None:
            delivered.append(message.offset())
        else:
            failures.append(error)

    began = time.monotonic()
    producer = Producer(client | {"batch.size": 20_000, "linger.ms": 5})
    for _ in range(COUNT):
        producer.produce("t", VALUE, on_delivery=on_delivery)
    assert producer.flush(120) == 0
    assert time.monotonic() - began > LEAST_S
    assert sorted(delivered) == list(range(COUNT))
    assert throttles
    throttles.clear()
    del producer
    consumer = Consumer(client | {"group.id": "g", "fetch.message.max.bytes": 50_000})
    consumer.assign([TopicPartition("t", 0, 0)])
    offsets: list[int | None] = []
    began = time.monotonic()
    while len(offsets) < COUNT and time.monotonic() - began < 120:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None
            offsets.append(message.offset())
    assert time.monotonic() - began > LEAST_S
    assert offsets == list(range(COUNT))
    assert throttles
    consumer.close()
    assert failures == []
    ((consumed, produced),) = admin.explain_client_quotas("ANONYMOUS", "greedy").values()
    assert (consumed.key, produced.key) == ("consumer_byte_rate", "producer_byte_rate")
    assert consumed.throttles > 0
    assert produced.throttled_s > 0
