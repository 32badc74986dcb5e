"""GET /metrics and questions of health: enough HTTP/1.1 for Prometheus and for health checks.

/healthz (also /livez) says whether the process is alive, /readyz whether the node does its work,
/safe-to-restart whether it may go down now; each is 200 or 503, with its reasons as JSON.

It runs over the world's byte connections, so the simulator can scrape a simulated node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import cast

from runtime.metrics import health
from runtime.metrics.registry import CONTENT_TYPE, MetricsRegistry
from stele.addresses import Address
from world.network import Listener, Network

logger = logging.getLogger(__name__)

_MAX_HEAD_BYTES = 8192
_IDLE_TIMEOUT_S = 30.0
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class MetricsServer:
    """Serves one registry and three questions of health."""

    def __init__(
        self,
        registry: MetricsRegistry,
        *,
        live: Callable[[], Sequence[health.Check]],
        ready: Callable[[], Sequence[health.Check]],
        safe_to_restart: Callable[[], Sequence[health.Check]],
    ) -> None:
        self._registry = registry
        self._checks = {
            "/healthz": live,
            "/livez": live,
            "/readyz": ready,
            "/safe-to-restart": safe_to_restart,
        }
        self._listener: Listener | None = None

    async def start(self, network: Network, host: str, port: int) -> int:
        """Listen; return the port (port 0 picks one). Raises OSError."""
        self._listener = await network.listen(Address(host, port), lambda: _HttpConnection(self))
        return self._listener.port

    async def stop(self) -> None:
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """(status, content type, body) of one request."""
        if path != "/metrics" and path not in self._checks:
            return 404, "text/plain", b"try /metrics, /healthz, /readyz or /safe-to-restart\n"
        if method not in ("GET", "HEAD"):
            return 405, "text/plain", b"only GET and HEAD\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._registry.render()
        checks = self._checks[path]()
        status = 200 if health.is_well(checks) else 503
        return status, "application/json", health.render(checks)


class _HttpConnection(asyncio.Protocol):
    """One connection: requests one after the other, kept alive unless the client says close."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._idle: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._arm_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._arm_idle()
        if not self._received[:1].isalpha():
            self._refuse(400)  # a Kafka client, for example, would wait for an answer in vain
            return
        while self._transport is not None and not self._transport.is_closing():
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > _MAX_HEAD_BYTES:
                    self._refuse(431)
                return
            head = bytes(self._received[:end])
            del self._received[: end + 4]
            self._serve(head)

    def _serve(self, head: bytes) -> None:
        request_line, *headers = head.decode("latin-1").split("\r\n")
        parts = request_line.split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            self._refuse(400)
            return
        lowered = [header.lower().replace(" ", "") for header in headers]
        if _has_body(lowered):
            self._refuse(400)  # it would be read as the next request
            return
        method, target, version = parts
        close = "connection:close" in lowered or version == "HTTP/1.0"
        try:
            status, kind, body = self._server.answer(method, target.partition("?")[0])
        except Exception:
            logger.exception("%s %s failed", method, target)
            status, kind, body = 500, "text/plain", b"see the node's log\n"
        self._write(status, kind, body, head_only=method == "HEAD", close=close)

    def _refuse(self, status: int) -> None:
        self._write(status, "text/plain", b"", head_only=False, close=True)

    def _write(self, status: int, kind: str, body: bytes, *, head_only: bool, close: bool) -> None:
        if self._transport is None:
            return
        connection = "close" if close else "keep-alive"
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + (b"" if head_only else body))
        if close:
            self._transport.close()

    def _arm_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_TIMEOUT_S, self._expire)

    def _expire(self) -> None:
        if self._transport is not None:
            self._transport.close()


def _has_body(headers: list[str]) -> bool:
    """Whether a request with these headers (lower case, no spaces) announces a body."""
    return any(
        header.startswith("transfer-encoding:")
        or (header.startswith("content-length:") and header != "content-length:0")
        for header in headers
    )
