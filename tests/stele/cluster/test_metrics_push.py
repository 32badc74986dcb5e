"""Clients of Stele push their own metrics (KIP-714), to a whole node."""

from __future__ import annotations

import asyncio

from stele.admin.descriptions import ConfigResource
from stele.consumer.consumer import Consumer
from tests.support.consumer_groups import Clients, read, with_clients

with_receiver = with_clients.having(telemetry_receiver="prometheus")
PRODUCER, CONSUMER = "org.apache.kafka.producer.", "org.apache.kafka.consumer."


async def subscribe(clients: Clients, metrics: str = "*", interval_ms: int = 1_000) -> None:
    configs = {"metrics": metrics, "interval.ms": str(interval_ms)}
    async with clients.admin() as admin:
        await admin.alter_configs({ConfigResource.client_metrics("m"): configs})


def shown(clients: Clients, client_id: str) -> dict[str, float]:
    """The values that clients of this id have pushed, by the names of the metrics."""
    families = clients.machine.node.registry.collect()
    (family,) = (each for each in families if each.name == "stele_client_metric")
    return {
        sample.labels["metric"]: sample.value
        for sample in family.samples
        if sample.labels["client_id"] == client_id
    }


def count(clients: Clients, name: str) -> float:
    return clients.machine.node.registry.values()[f"stele_telemetry_{name}"]


@with_receiver
async def test_a_producer_and_a_consumer_push_what_they_measure(clients: Clients) -> None:
    await subscribe(clients)
    await clients.create()
    consumer = clients.consumer(client_id="c")
    consumer.subscribe(["t"])
    async with clients.producer(client_id="p") as producer:
        for number in range(10):
            await producer.send("t", b"%d" % number, partition=0)
        await read(consumer, 10)
        await asyncio.sleep(10.0)
        sent = shown(clients, "p")
        assert sent[f"{PRODUCER}record.send.total"] == 10
        assert sent[f"{PRODUCER}record.error.total"] == 0
        assert sent[f"{PRODUCER}connection.creation.total"] >= 1
        assert sent[f"{PRODUCER}buffer.available.bytes"] == 32 * 1024 * 1024
        assert shown(clients, "c")[f"{CONSUMER}fetch.manager.records.consumed.total"] == 10
        assert shown(clients, "c")[f"{CONSUMER}assigned.partitions"] == 4
        assert shown(clients, "c")[f"{CONSUMER}fetch.manager.records.lag.max"] == 0
        pushes = count(clients, "pushes_total")
        await asyncio.sleep(5.0)
        assert 8 <= count(clients, "pushes_total") - pushes <= 10, "two clients, each second"
    await consumer.close()
    assert count(clients, "throttled_total") == 0
    assert count(clients, "unusable_pushes_total") == 0


@with_receiver
async def test_the_end_of_a_client_pushes_what_came_last(clients: Clients) -> None:
    await subscribe(clients, f"{PRODUCER}record.", 100_000)
    await clients.create()
    async with clients.producer(client_id="p") as producer:
        await (await producer.send("t", b"v"))
        await asyncio.sleep(1.0)
        assert shown(clients, "p") == {}
    assert shown(clients, "p") == {
        f"{PRODUCER}record.send.total": 1,
        f"{PRODUCER}record.error.total": 0,
    }


@with_receiver
async def test_a_changed_subscription_is_heard_of_within_the_interval(clients: Clients) -> None:
    await subscribe(clients, f"{PRODUCER}record.")
    await clients.create()
    async with clients.producer(client_id="p") as producer:
        await (await producer.send("t", b"v"))
        await asyncio.sleep(5.0)
        assert len(shown(clients, "p")) == 2
        await subscribe(clients, PRODUCER)
        await asyncio.sleep(5.0)
        assert len(shown(clients, "p")) == 5
        assert shown(clients, "p")[f"{PRODUCER}record.send.total"] == 1
    assert count(clients, "unknown_subscriptions_total") == 1


@with_receiver
async def test_a_client_that_must_not_push_asks_for_nothing(clients: Clients) -> None:
    await subscribe(clients)
    await clients.create()
    async with clients.producer(client_id="p", enable_metrics_push=False) as producer:
        await (await producer.send("t", b"v"))
        await asyncio.sleep(5.0)
        assert count(clients, "instances") == 0
    assert shown(clients, "p") == {}


@with_receiver
async def test_without_a_subscription_a_client_asks_once_in_the_interval(clients: Clients) -> None:
    await clients.create()
    async with clients.producer(client_id="p") as producer:
        await (await producer.send("t", b"v"))
        await asyncio.sleep(1.0)
        assert count(clients, "instances") == 1
        await asyncio.sleep(900.0)
        assert count(clients, "throttled_total") == 0
        assert count(clients, "pushes_total") == 0


@with_clients
async def test_a_broker_without_a_receiver_is_asked_nothing(clients: Clients) -> None:
    await clients.create()
    consumer: Consumer = clients.consumer()
    consumer.subscribe(["t"])
    await clients.fill(3)
    await read(consumer, 3)
    await consumer.close()
    values = clients.machine.node.registry.values()
    assert not any("telemetry" in name or "GET_TELEMETRY" in name for name in values)
