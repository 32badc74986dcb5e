"""Metrics of clients, passed on to a collector of OpenTelemetry."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker.telemetry.series import ClientLabels
from runtime.config.node import NodeConfig
from runtime.grpc.protobuf_fields import Field, fields
from runtime.metrics.registry import MetricsRegistry
from stele.addresses import Address, SecurityProtocol
from stele.security.client_security import PLAINTEXT, ClientSecurity, Store, TlsSettings
from stele.wire.otlp import length_delimited, resource_metrics
from stele.world import Connector, RpcError

logger = logging.getLogger(__name__)

METHOD: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
QUEUE_BYTES_MAX: Final = 4 * 1024 * 1024
_FIELDS_MAX: Final = 2_000
"""The most fields of one push besides the fields of its metrics. One turn of the event loop looks
at all of them."""

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
    client's names among the attributes of each resource. None: it has too many fields, or is no
    such message.

    A client's own attributes of these names are left out. With two of one name, collectors differ
    in which one counts, and a client could pass for another user.
    """
    try:
        return _Renaming(client).request(metrics)
    except ValueError:
        return None


class _Renaming:
    """One push that gets the client's names. All fields that it looks at are counted."""

    def __init__(self, client: ClientLabels) -> None:
        self._names = client._asdict()
        self._keys = {name.encode() for name in self._names}
        self._left = _FIELDS_MAX

    def request(self, metrics: bytes) -> bytes:
        """Raises ValueError."""
        return b"".join(
            self._resource_metrics(metrics[each.content : each.end])
            for each in self._fields(metrics)
            if each.number == 1
        )

    def _resource_metrics(self, content: bytes) -> bytes:
        """A second resource in the message is merged with the first one, as protobuf does with
        every field that is one message."""
        others = b"".join(
            _replaced(content, each, self._resource) if each.number == 1 else _whole(content, each)
            for each in self._fields(content)
        )
        return resource_metrics(others, self._names)

    def _resource(self, content: bytes) -> bytes:
        return b"".join(
            _whole(content, each)
            for each in self._fields(content)
            if each.number != 1 or self._key(content[each.content : each.end]) not in self._keys
        )

    def _key(self, attribute: bytes) -> bytes:
        """As protobuf reads it: the last one counts."""
        found = [each for each in self._fields(attribute) if each.number == 1]
        return attribute[found[-1].content : found[-1].end] if found else b""

    def _fields(self, message: bytes) -> list[Field]:
        found = fields(message, self._left)
        self._left -= len(found)
        return found


def _whole(message: bytes, field: Field) -> bytes:
    return message[field.start : field.end]


def _replaced(message: bytes, field: Field, made: Callable[[bytes], bytes]) -> bytes:
    return length_delimited(field.number, made(message[field.content : field.end]))
