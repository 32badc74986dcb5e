"""The collector of OpenTelemetry over TLS, with a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.service.telemetry_export import METHOD, OtlpExport, security_of
from broker.telemetry.series import ClientLabels
from runtime.config.node import ConfigError
from runtime.metrics.registry import MetricsRegistry
from runtime.real.network import RealNetwork
from stele.addresses import Address
from stele.security.client_security import PLAINTEXT
from stele.wire.otlp import Metric, metrics_data
from tests.support.broker_apis import Edges
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


async def test_without_tls_the_channel_is_plain() -> None:
    assert security_of(Edges(telemetry_otlp_endpoint="c:1").config) is PLAINTEXT


async def test_no_other_protocol_is_taken() -> None:
    with pytest.raises(ConfigError, match=r"telemetry\.otlp\.security\.protocol"):
        Edges(telemetry_otlp_security_protocol="SASL_SSL")
