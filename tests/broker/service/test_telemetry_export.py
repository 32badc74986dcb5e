"""The collector of OpenTelemetry over TLS, with a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.service.telemetry_export import METHOD, OtlpExport, security_of
from broker.telemetry.otlp import Point, points
from broker.telemetry.series import ClientLabels
from runtime.config.node import ConfigError
from runtime.grpc.protobuf_fields import fields
from runtime.metrics.registry import MetricsRegistry
from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.security.client_security import PLAINTEXT
from stele.wire.otlp import Metric, length_delimited, metrics_data, resource_metrics
from tests.support.broker_apis import Edges
from tests.support.broker_edges import FakeNetwork
from tests.support.timing import until
from tests.support.tls import AUTHORITY, Authority, in_files, listener
from world.network import Peer, Service

CLIENT = ClientLabels("ann", "c", "i", "java 4")
METRICS = metrics_data([Metric("m", 1.0)], resource={}, since_ns=1, now_ns=2)


@pytest.mark.parametrize(
    ("trusted", "expected"), [(AUTHORITY, "exports"), (Authority("other"), "exports_dropped")]
)
async def test_a_collector_must_prove_its_name(
    trusted: Authority, expected: str, tmp_path: Path
) -> None:
    network, taken = RealNetwork(), list[bytes]()

    async def export(payload: bytes, _: Peer) -> bytes:
        taken.append(payload)
        return b""

    tls = network.server_tls(listener())
    bound = await network.serve(Address("127.0.0.1", 0), Service({METHOD: export}), tls=tls)
    store = in_files(tmp_path, trusted.trust_store)
    edges = Edges(
        telemetry_otlp_endpoint=f"127.0.0.1:{bound.port}",
        telemetry_otlp_security_protocol="SSL",
        telemetry_otlp_ssl_truststore_location=store.location or "",
    )
    registry = MetricsRegistry()
    address = edges.config.telemetry_otlp_endpoint
    assert address is not None
    outgoing = OtlpExport(network.secured(security_of(edges.config)), address, registry)
    outgoing.take(METRICS, CLIENT)
    try:
        name = f"stele_telemetry_{expected}_total"
        await until(lambda: registry.values()[name] == 1)
    finally:
        await outgoing.close()
        await bound.close()
        await network.stop_serving()
    assert len(taken) == (expected == "exports")


class Collector:
    """Takes what is exported to it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.registry = MetricsRegistry()
        network = FakeNetwork()
        network.services["c", 1] = Service({METHOD: self._export})
        self.outgoing = OtlpExport(network, Address("c", 1), self.registry)

    async def _export(self, payload: bytes, _: Peer) -> bytes:
        self.taken.append(payload)
        return b""

    async def dropped(self) -> float:
        await self.outgoing.close()
        return self.registry.values()["stele_telemetry_exports_dropped_total"]


def text(number: int, said: str) -> bytes:
    return length_delimited(number, said.encode())


async def test_a_client_passes_for_nobody_else() -> None:
    """Its own attributes of the names that the broker gives are left out, wherever they are."""
    own = metrics_data([Metric("m", 1.0)], resource={"rack": "r1"}, since_ns=1, now_ns=2)
    (field,) = fields(own, 1)
    content = own[field.content : field.end]
    last_key_counts = text(1, "harmless") + text(1, "client_id") + length_delimited(2, text(1, "x"))
    second_resource = length_delimited(1, length_delimited(1, last_key_counts))
    forged = resource_metrics(content, {"user": "admin", "software": "s"})
    forged += length_delimited(1, content + second_resource)
    collector = Collector()
    collector.outgoing.take(forged, CLIENT)
    await until(lambda: bool(collector.taken))
    assert await collector.dropped() == 0
    (taken,) = collector.taken
    attributes = tuple(sorted([*CLIENT._asdict().items(), ("rack", "r1")]))
    assert list(points(taken)) == [Point("m", attributes, 1.0, False)] * 2
    for forgery in (b"admin", b"harmless"):
        assert forgery not in taken


async def test_what_cannot_be_looked_at_is_dropped() -> None:
    collector = Collector()
    many = length_delimited(1, length_delimited(1, length_delimited(1, b"") * 3_000))
    no_resource = length_delimited(1, length_delimited(1, b"\x0f"))
    for push in (many, no_resource):
        collector.outgoing.take(push, CLIENT)
    assert await collector.dropped() == 2
    assert collector.taken == []


async def test_without_tls_the_channel_is_plain() -> None:
    assert security_of(Edges(telemetry_otlp_endpoint="c:1").config) is PLAINTEXT


async def test_no_other_protocol_is_taken() -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.otlp\.security\.protocol"):
        Edges(telemetry_otlp_security_protocol="SASL_SSL")
