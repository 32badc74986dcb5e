"""Metrics of clients, passed on to a collector of OpenTelemetry."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from broker.telemetry.series import ClientLabels
from runtime.config.node import NodeConfig
from runtime.grpc.protobuf_fields import TooManyFieldsError, fields
from runtime.metrics.registry import MetricsRegistry
from stele.addresses import Address, SecurityProtocol
from stele.security.client_security import PLAINTEXT, ClientSecurity, Store, TlsSettings
from stele.wire.otlp import resource_metrics
from stele.world import Connector, RpcError

logger = logging.getLogger(__name__)

METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
QUEUE_BYTES_MAX: Final = 4 * 1024 * 1024
_RESOURCES_MAX: Final = 1_000
_TIMEOUT_S: Final = 10.0


def security_of(config: NodeConfig) -> ClientSecurity:
    """What the channel to the collector is protected with."""
    if config.telemetry_otlp_security_protocol == SecurityProtocol.PLAINTEXT.value:
        return PLAINTEXT
    truststore = Store(location=config.telemetry_otlp_ssl_truststore_location or None)
    return ClientSecurity(protocol=SecurityProtocol.SSL, tls=TlsSettings(truststore=truststore))


class OtlpExport:
    """Sends one push after the other. What comes while too much waits is dropped, and nothing is
    sent twice: the next push of the client has newer values."""

    def __init__(self, connector: Connector, address: Address, registry: MetricsRegistry) -> None:
        self._channel = connector.channel(address)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._exported = registry.counter(
            "stele_telemetry_exports", "Pushes that the collector of OpenTelemetry has taken."
        )
        self._dropped = registry.counter(
            "stele_telemetry_exports_dropped",
            "Pushes that the collector of OpenTelemetry was too slow for, or has not taken.",
        )

    def take(self, metrics: bytes, client: ClientLabels) -> None:
        """Pass on what a client has pushed, which was read without an error."""
        request = _with_client(metrics, client)
        if request is None or self._waiting_bytes + len(request) > QUEUE_BYTES_MAX:
            self._dropped.value += 1
            return
        self._waiting.append(request)
        self._waiting_bytes += len(request)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._waiting:
                request = self._waiting.popleft()
                self._waiting_bytes -= len(request)
                try:
                    await self._channel.call(METHOD, request, timeout_s=_TIMEOUT_S)
                    self._exported.value += 1
                except RpcError as error:
                    self._dropped.value += 1
                    logger.info(
                        "the collector (telemetry.otlp.endpoint) took no metrics: %s", error
                    )
        finally:
            self._task = None

    async def close(self) -> None:
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._channel.close()


def _with_client(metrics: bytes, client: ClientLabels) -> bytes | None:
    """The request of the collector's service, which has the form of what clients push, with the
    client's names among the attributes of each resource. None: it has too many resources.

    A second resource in a message is merged with the first one, as protobuf does with every field
    that is one message.
    """
    try:
        found = fields(metrics, _RESOURCES_MAX)
    except TooManyFieldsError:
        return None
    return b"".join(
        resource_metrics(metrics[each.content : each.end], client._asdict())
        for each in found
        if each.number == 1
    )
