"""GetTelemetrySubscriptions and PushTelemetry: what clients are asked for, and what is shown."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from broker.service.telemetry_export import METHOD
from broker.telemetry.otlp import Point, points
from metadata.records import METADATA_VERSION, METADATA_VERSION_LEVEL
from stele.errors import ErrorCode
from stele.wire.compression import Compression, compress
from stele.wire.kafka import ZERO_UUID
from stele.wire.kafka.messages import api_versions
from stele.wire.kafka.messages import get_telemetry_subscriptions as getting
from stele.wire.kafka.messages import incremental_alter_configs as incremental
from stele.wire.kafka.messages import push_telemetry as pushing
from stele.wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsResponse
from stele.wire.otlp import Metric, metrics_data
from stele.world import RpcCode, RpcError
from tests.support.broker_apis import Client, Edges
from tests.support.worlds import virtual
from world.network import Peer, Service

ME = b"i" * 16
RATE = "org.apache.kafka.producer.record.send.rate"


def with_receiver(**settings: str) -> Edges:
    edges = Edges(telemetry_receiver="prometheus", **settings)
    edges.finalize(METADATA_VERSION, METADATA_VERSION_LEVEL)
    return edges


async def subscribe(edges: Edges, name: str = "m", **configs: str) -> None:
    changes = [
        incremental.AlterableConfig(key.replace("_", "."), 0, value)
        for key, value in configs.items()
    ]
    request = incremental.IncrementalAlterConfigsRequest(
        [incremental.AlterConfigsResource(16, name, changes)]
    )
    (answer,) = (await edges.client().call(incremental.API, 1, request)).responses
    assert answer.error_code == ErrorCode.NONE


async def ask(client: Client, instance_id: bytes = ME) -> GetTelemetrySubscriptionsResponse:
    request = getting.GetTelemetrySubscriptionsRequest(instance_id)
    return await client.call(getting.API, 0, request)


async def push(
    client: Client,
    metrics: bytes,
    subscription: int,
    *,
    instance_id: bytes = ME,
    compression: int = Compression.NONE,
    terminating: bool = False,
) -> int:
    request = pushing.PushTelemetryRequest(
        instance_id, subscription, terminating, compression, metrics
    )
    return (await client.call(pushing.API, 0, request)).error_code


def payload(*metrics: Metric, **resource: str) -> bytes:
    return metrics_data(metrics, resource=resource, since_ns=1, now_ns=2)


def shown(edges: Edges) -> list[tuple[dict[str, str], float]]:
    families = (each for each in edges.registry.collect() if each.name == "stele_client_metric")
    (family,) = families
    return [(sample.labels, sample.value) for sample in family.samples]


@pytest.mark.parametrize(("receiver", "expected"), [("", set()), ("prometheus", {71, 72})])
@virtual
async def test_only_a_broker_with_a_receiver_serves_it(receiver: str, expected: set[int]) -> None:
    client = Edges(telemetry_receiver=receiver).client()
    request = api_versions.ApiVersionsRequest("s", "1")
    answer = await client.call(api_versions.API, 3, request)
    assert {each.api_key for each in answer.api_keys} & {71, 72} == expected
    client.send(getting.API, 0, getting.GetTelemetrySubscriptionsRequest())
    await asyncio.sleep(0)
    assert client.transport.closed == (not expected)


@virtual
async def test_a_client_is_told_what_the_subscriptions_say() -> None:
    edges = with_receiver(telemetry_max_bytes="5000")
    client = edges.client()
    nothing = await ask(client, ZERO_UUID)
    assert nothing.client_instance_id != ZERO_UUID
    assert (nothing.requested_metrics, nothing.push_interval_ms) == ([], 300_000)
    assert nothing.accepted_compression_types == [4, 3, 1, 2]
    assert (nothing.telemetry_max_bytes, nothing.delta_temporality) == (5000, True)
    await subscribe(edges, "a", metrics="b.,a.", interval_ms="1000", match="client_id=te.*")
    await subscribe(edges, "b", metrics="c.", match="client_id=other")
    told = await ask(client, nothing.client_instance_id)
    assert told.client_instance_id == nothing.client_instance_id
    assert (told.requested_metrics, told.push_interval_ms) == (["a.", "b."], 1000)
    assert told.subscription_id != nothing.subscription_id
    early = await ask(client, nothing.client_instance_id)
    assert early.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    await subscribe(edges, "c", metrics="*")
    assert (await ask(client, nothing.client_instance_id)).requested_metrics == ["*"]
    assert edges.registry.values()["stele_telemetry_instances"] == 1
    assert edges.registry.values()["stele_telemetry_throttled_total"] == 1


@virtual
async def test_clients_are_selected_by_what_the_broker_knows_of_them() -> None:
    edges = with_receiver()
    match = (
        "client_software_name=librdkafka,client_software_version=2[.].*,"
        "client_source_address=10[.]0[.]0[.]9,client_source_port=5555,"
        "client_instance_id=aWlpaWlpaWlpaWlpaWlpaQ"
    )
    await subscribe(edges, metrics="x.", match=match)
    client = edges.client()
    request = api_versions.ApiVersionsRequest("librdkafka", "2.5")
    await client.call(api_versions.API, 3, request)
    assert (await ask(client)).requested_metrics == ["x."]
    assert (await ask(client, b"j" * 16)).requested_metrics == []
    assert (await ask(edges.client(), b"k" * 16)).requested_metrics == []


@pytest.mark.parametrize("codec", list(Compression))
@virtual
async def test_what_is_pushed_is_shown(codec: Compression) -> None:
    edges = with_receiver()
    await subscribe(edges, metrics="*", interval_ms="1000")
    client = edges.client()
    await client.call(api_versions.API, 3, api_versions.ApiVersionsRequest("java", "4.1"))
    told = await ask(client)
    metrics = payload(
        Metric(RATE, 1.5, {"topic": "t", "partition": "3", "node_id": "1"}),
        Metric("total", 2.0, is_delta=True),
        client_rack="r1",
    )
    for _ in range(2):
        pushed = await push(
            client, compress(codec, metrics), told.subscription_id, compression=codec
        )
        assert pushed == ErrorCode.NONE
        await asyncio.sleep(1.0)
    labels = {
        "user": "ANONYMOUS",
        "client_id": "test",
        "client_instance_id": "aWlpaWlpaWlpaWlpaWlpaQ",
        "software": "java 4.1",
    }
    assert shown(edges) == [
        (
            {
                **labels,
                "metric": RATE,
                "topic": "t",
                "partition": "3",
                "attributes": "client_rack=r1,node_id=1",
            },
            1.5,
        ),
        (
            {
                **labels,
                "metric": "total",
                "topic": "",
                "partition": "",
                "attributes": "client_rack=r1",
            },
            4.0,
        ),
    ]
    assert edges.registry.values()["stele_telemetry_pushes_total"] == 2
    client.disconnect()
    assert edges.registry.values()["stele_telemetry_instances"] == 0
    assert len(shown(edges)) == 2, "a client may come back on another connection"
    await asyncio.sleep(60.0)
    assert shown(edges) == []


@virtual
async def test_pushes_are_refused_with_kafkas_errors() -> None:
    edges = with_receiver(telemetry_max_bytes="2000")
    await subscribe(edges, metrics="*", interval_ms="1000")
    client = edges.client()

    async def refused(metrics: bytes, subscription: int | None = None, **more: int | bytes) -> int:
        await asyncio.sleep(1.0)
        told = (await ask(client)).subscription_id
        return await push(
            client,
            metrics,
            told if subscription is None else subscription,
            instance_id=bytes(more.get("instance_id", ME)),
            compression=int(more.get("compression", 0)),
        )

    good = payload(Metric("n", 1.0))
    assert await refused(good) == ErrorCode.NONE
    for reserved in (ZERO_UUID, bytes(15) + b"\x01"):
        assert await refused(good, instance_id=reserved) == ErrorCode.INVALID_REQUEST
    assert await refused(good, 77) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert await refused(good, compression=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert await refused(b"\xff" * 100) == ErrorCode.INVALID_RECORD
    assert await refused(good, compression=Compression.GZIP) == ErrorCode.INVALID_RECORD
    assert await refused(bytes(2001)) == ErrorCode.TELEMETRY_TOO_LARGE
    bomb = gzip.compress(bytes(10_000_000))
    assert len(bomb) > 2000
    bomb = gzip.compress(bytes(100_000))
    assert len(bomb) < 2000
    assert await refused(bomb, compression=Compression.GZIP) == ErrorCode.TELEMETRY_TOO_LARGE
    assert edges.registry.values()["stele_telemetry_unusable_pushes_total"] == 3
    assert edges.registry.values()["stele_telemetry_unknown_subscriptions_total"] == 1
    assert not client.transport.closed


@virtual
async def test_nothing_comes_after_the_last_push() -> None:
    edges = with_receiver()
    await subscribe(edges, metrics="*", interval_ms="1000")
    client = edges.client()
    told = (await ask(client)).subscription_id
    good = payload(Metric("n", 1.0))
    assert await push(client, good, told) == ErrorCode.NONE
    assert await push(client, good, told) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert await push(client, good, told, terminating=True) == ErrorCode.NONE
    assert await push(client, good, told) == ErrorCode.INVALID_REQUEST


@virtual
async def test_a_deleted_subscription_asks_for_nothing() -> None:
    edges = with_receiver()
    await subscribe(edges, metrics="*")
    client = edges.client()
    assert (await ask(client)).requested_metrics == ["*"]
    removal = incremental.AlterConfigsResource(
        16, "m", [incremental.AlterableConfig("metrics", 1, None)]
    )
    request = incremental.IncrementalAlterConfigsRequest([removal])
    await edges.client().call(incremental.API, 1, request)
    assert (await ask(client)).requested_metrics == []


@virtual
async def test_a_large_push_is_read_in_many_turns() -> None:
    """10,000 values: other tasks run every few of them."""
    edges = with_receiver(telemetry_series_max="100000")
    await subscribe(edges, metrics="*")
    client = edges.client()
    told = (await ask(client)).subscription_id
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    metrics = payload(*(Metric(f"n{each}", 1.0) for each in range(10_000)))
    assert await push(client, metrics, told) == ErrorCode.NONE
    counting.cancel()
    assert turns > 50
    assert len(shown(edges)) == 10_000


@virtual
async def test_a_flood_of_clients_keeps_what_is_shown_bounded() -> None:
    edges = with_receiver(telemetry_series_max="100")
    await subscribe(edges, metrics="*", interval_ms="100")
    told: dict[bytes, int] = {}
    for number in range(2, 102):
        client, instance_id = edges.client(), number.to_bytes(16)
        told[instance_id] = (await ask(client, instance_id)).subscription_id
        metrics = payload(*(Metric(f"n{each}", 1.0) for each in range(50)))
        pushed = await push(client, metrics, told[instance_id], instance_id=instance_id)
        assert pushed == ErrorCode.NONE
    assert len(shown(edges)) == 100
    assert edges.registry.values()["stele_telemetry_points_left_out_total"] == 100 * 25


class Collector:
    """Of OpenTelemetry. It takes one push after the other, and answers when it is told to."""

    def __init__(self, edges: Edges) -> None:
        self.taken: list[bytes] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.fails = False
        edges.network.services["collector", 4317] = Service(unary={METHOD: self._export})

    async def _export(self, payload: bytes, _: Peer) -> bytes:
        await self.may_answer.wait()
        if self.fails:
            raise RpcError(RpcCode.UNAVAILABLE, "not now")
        self.taken.append(payload)
        return b""


@virtual
async def test_a_collector_gets_what_is_pushed_with_the_names_of_the_client() -> None:
    edges = with_receiver(telemetry_otlp_endpoint="collector:4317")
    collector = Collector(edges)
    await subscribe(edges, metrics="*", interval_ms="1000")
    client = edges.client()
    told = (await ask(client)).subscription_id
    metrics = payload(Metric(RATE, 1.5, {"topic": "t"}), client_rack="r1")
    assert await push(client, compress(Compression.ZSTD, metrics), told, compression=4) == 0
    await asyncio.sleep(0.5)
    (exported,) = collector.taken
    names = {
        "client_id": "test",
        "client_instance_id": "aWlpaWlpaWlpaWlpaWlpaQ",
        "client_rack": "r1",
        "software": "",
        "user": "ANONYMOUS",
    }
    expected = sorted({**names, "topic": "t"}.items())
    assert list(points(exported)) == [Point(RATE, tuple(expected), 1.5, False)]
    assert len(shown(edges)) == 1, "on /metrics, too"
    assert edges.registry.values()["stele_telemetry_exports_total"] == 1
    assert edges.telemetry is not None
    await edges.telemetry.close()


@virtual
async def test_a_slow_collector_holds_no_client_back_and_takes_bounded_memory() -> None:
    edges = Edges(telemetry_otlp_endpoint="collector:4317")
    edges.finalize(METADATA_VERSION, METADATA_VERSION_LEVEL)
    collector = Collector(edges)
    collector.may_answer.clear()
    await subscribe(edges, metrics="*", interval_ms="100")
    client = edges.client()
    told = (await ask(client)).subscription_id
    metrics = payload(Metric("n" * 900_000, 1.0))
    for _ in range(8):
        assert await push(client, metrics, told) == ErrorCode.NONE
        await asyncio.sleep(0.1)
    dropped = edges.registry.values()["stele_telemetry_exports_dropped_total"]
    assert dropped == 3, "one is being sent, and four wait"
    assert shown(edges) == []
    collector.may_answer.set()
    await asyncio.sleep(1.0)
    assert len(collector.taken) == 5
    collector.fails = True
    assert await push(client, metrics, told) == ErrorCode.NONE
    await asyncio.sleep(1.0)
    assert edges.registry.values()["stele_telemetry_exports_dropped_total"] == 4
    collector.fails = False
    assert await push(client, metrics, told) == ErrorCode.NONE
    await asyncio.sleep(1.0)
    assert len(collector.taken) == 6


@virtual
async def test_what_cannot_be_read_is_not_passed_on() -> None:
    edges = with_receiver(telemetry_otlp_endpoint="collector:4317")
    collector = Collector(edges)
    await subscribe(edges, metrics="*", interval_ms="1000")
    client = edges.client()
    told = (await ask(client)).subscription_id
    assert await push(client, b"\xff" * 10, told) == ErrorCode.INVALID_RECORD
    await asyncio.sleep(1.0)
    assert collector.taken == []
    many = payload() * 1_001
    assert await push(client, many, told) == ErrorCode.NONE
    await asyncio.sleep(1.0)
    assert collector.taken == []
    assert edges.registry.values()["stele_telemetry_exports_dropped_total"] == 1
