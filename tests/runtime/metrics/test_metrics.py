"""The metrics registry, its HTTP endpoint and the event loop's lag."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from runtime.metrics.health import Check
from runtime.metrics.http import MetricsServer
from runtime.metrics.registry import Histogram, LoopLagProbe, MetricsRegistry
from stele.addresses import Address
from tests.support.timing import HandClock


class _Listener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.port = int(server.sockets[0].getsockname()[1])

    async def close(self, *, grace_s: float = 0.0) -> None:
        self._server.close()


class _Network:
    """Only ``listen`` of the world's network, with the machine's own sockets."""

    async def listen(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> _Listener:
        return _Listener(
            await asyncio.get_running_loop().create_server(factory, address.host, address.port)
        )


async def _exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def _serve(registry: MetricsRegistry, ready: bool = True) -> tuple[MetricsServer, int]:
    turns = Check("loop", True, "it turns")
    quorum = Check("quorum", ready, "there is a leader" if ready else "no leader")
    server = MetricsServer(
        registry,
        live=lambda: [turns],
        ready=lambda: [turns, quorum],
        safe_to_restart=lambda: [quorum],
    )
    port = await server.start(_Network(), "127.0.0.1", 0)  # type: ignore[arg-type]
    return server, port


def test_counters_gauges_and_histograms_are_rendered() -> None:
    registry = MetricsRegistry()
    registry.counter("stele_bytes_in", "Bytes.").value += 7
    requests = registry.counters("stele_requests", "Requests.", "api")
    requests("Produce").value += 2
    registry.gauge("stele_leader_count", "Leaders.", lambda: 3)
    registry.histograms("stele_request_seconds", "Time.", "api")("Fetch").observe(0.003)

    text = registry.render().decode()

    assert "stele_bytes_in_total 7.0" in text
    assert 'stele_requests_total{api="Produce"} 2.0' in text
    assert "stele_leader_count 3.0" in text
    assert 'stele_request_seconds_bucket{api="Fetch",le="0.002"} 0.0' in text
    assert 'stele_request_seconds_bucket{api="Fetch",le="0.005"} 1.0' in text
    assert 'stele_request_seconds_count{api="Fetch"} 1.0' in text
    assert registry.values()["stele_leader_count"] == 3


def test_a_name_is_declared_once() -> None:
    registry = MetricsRegistry()
    registry.counter("stele_x", "X.")
    with pytest.raises(ValueError, match="stele_x"):
        registry.gauge("stele_x", "X.", lambda: 0)


def test_histogram_counts_a_value_on_a_bound_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert histogram.count == 4
    assert histogram.total == 12.0


async def test_metrics_and_health_over_http() -> None:
    registry = MetricsRegistry()
    registry.counter("stele_x", "X.").value = 1
    server, port = await _serve(registry)

    scraped = await _exchange(port, b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
    health = await _exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    pipelined = await _exchange(
        port,
        b"GET /healthz HTTP/1.1\r\n\r\nHEAD /healthz HTTP/1.1\r\nConnection: close\r\n\r\n",
    )
    await server.stop()

    assert scraped.startswith(b"HTTP/1.1 200 OK")
    assert b"stele_x_total 1.0" in scraped
    assert b'"status": "ok"' in health
    assert b'"reason": "it turns"' in health
    assert pipelined.count(b"HTTP/1.1 200 OK") == 2
    assert pipelined.count(b'"status": "ok"') == 1


async def test_not_ready_is_503() -> None:
    server, port = await _serve(MetricsRegistry(), ready=False)
    answer = await _exchange(port, b"GET /readyz HTTP/1.0\r\n\r\n")
    alive = await _exchange(port, b"GET /livez HTTP/1.0\r\n\r\n")
    await server.stop()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b'"status": "not ok"' in answer
    assert b'"reason": "no leader"' in answer
    assert alive.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /else HTTP/1.0\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.0\r\n\r\n", b"405"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"400"),
        (b"\x00\x01garbage\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x20\x00\x12", b"400"),  # a Kafka client would wait for an answer
        (b"GET /" + b"x" * 9000, b"431"),
    ],
)
async def test_bad_requests(request_bytes: bytes, status: bytes) -> None:
    server, port = await _serve(MetricsRegistry())
    answer = await _exchange(port, request_bytes)
    await server.stop()
    assert answer.split(b" ")[1] == status


async def test_a_gauge_that_fails_is_500_and_the_server_lives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = MetricsRegistry()
    registry.gauge("stele_broken", "Broken.", lambda: 1 / 0)
    server, port = await _serve(registry)
    answer = await _exchange(port, b"GET /metrics HTTP/1.0\r\n\r\n")
    again = await _exchange(port, b"GET /healthz HTTP/1.0\r\n\r\n")
    await server.stop()
    assert answer.startswith(b"HTTP/1.1 500")
    assert again.startswith(b"HTTP/1.1 200")
    assert "GET /metrics failed" in caplog.text


async def test_loop_lag_is_the_lateness_of_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.metrics.registry._LAG_PROBE_INTERVAL_S", 0.0)
    clock = HandClock(0)
    registry = MetricsRegistry()
    probe = LoopLagProbe(clock, registry)
    probe.start()
    clock.now_ms = 250
    await asyncio.sleep(0.01)
    probe.stop()
    assert registry.values()["stele_event_loop_lag_max_seconds"] == 0.25
    assert registry.values()["stele_event_loop_lag_max_seconds"] == 0.0
