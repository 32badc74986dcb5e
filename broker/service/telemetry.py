"""The metrics that clients push (KIP-714): what they are asked for, and where the values go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Hashable, Iterator, Mapping
from typing import Final, Protocol

from broker.service.telemetry_export import OtlpExport
from broker.telemetry.instances import ClientInstances, Instance, Push, check_instance_id
from broker.telemetry.otlp import Point, points
from broker.telemetry.series import ClientLabels, Figures, Series, SeriesStore, figures_of
from broker.telemetry.subscriptions import Wanted, wanted_of
from metadata.client_metrics import Subscription, subscription_of
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from runtime.authorization.caller import Caller
from runtime.config.node import NodeConfig
from runtime.metrics.registry import MetricsRegistry, Samples
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid
from stele.wire.compression import (
    Compression,
    CompressionError,
    DecompressedSizeError,
    decompressed,
)
from stele.wire.kafka import ZERO_UUID
from stele.wire.v1.metadata_pb2 import ConfigResourceType
from stele.world import Buffer, Clock, Connector, Rng

logger = logging.getLogger(__name__)

ACCEPTED: Final = (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)
"""What clients may compress with, the best first."""

_LIVES_INTERVALS: Final = 3
_LIVES_S: Final = 60.0
"""A client's series are shown for so long after its last push, at least."""

_CHUNK_BYTES: Final = 64 * 1024
"""What is decompressed in one turn."""

_SHOWN: Final = ("topic", "partition")
"""Attributes with a label of their own. The others are one label together."""


class ClientConnection(Hashable, Protocol):
    """The connection of a client."""

    @property
    def peer(self) -> str:
        """Address and port, with a colon between them."""
        ...

    @property
    def software_name(self) -> str: ...

    @property
    def software_version(self) -> str: ...


class ClientTelemetry:
    """A ``broker.membership.publisher.MetadataSubscriber``."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        rng: Rng,
        registry: MetricsRegistry,
        export: OtlpExport | None,
    ) -> None:
        self.max_bytes: Final = config.telemetry_max_bytes
        self._instances: Final = ClientInstances(max_bytes=self.max_bytes)
        self._series: Final = SeriesStore(config.telemetry_series_max)
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 1  # of the subscriptions
        self._now_s: Final = clock.monotonic
        self._rng = rng
        self._export: Final = export
        self._shows: Final = "prometheus" in config.telemetry_receiver
        self._declare(registry)

    @classmethod
    def of(
        cls,
        config: NodeConfig,
        clock: Clock,
        rng: Rng,
        registry: MetricsRegistry,
        connector: Connector,
    ) -> ClientTelemetry | None:
        """None: there is no receiver for metrics. ``connector``: to a collector."""
        endpoint = config.telemetry_otlp_endpoint
        if not config.telemetry_receiver and endpoint is None:
            return None
        export = None if endpoint is None else OtlpExport(connector, endpoint, registry)
        return cls(config, clock, rng, registry, export)

    async def close(self) -> None:
        """Pass nothing on any more."""
        if self._export is not None:
            await self._export.close()

    def _declare(self, registry: MetricsRegistry) -> None:
        registry.gauge(
            "stele_telemetry_instances",
            "Clients that ask for subscriptions or push metrics (instance-count).",
            lambda: self._instances.count(self._now_s()),
        )
        registry.total(
            "stele_telemetry_throttled",
            "Requests of clients that came before their interval was over (throttle).",
            lambda: self._instances.throttled,
        )
        registry.total(
            "stele_telemetry_unknown_subscriptions",
            "Pushes for a subscription that had changed (unknown-subscription-request).",
            lambda: self._instances.unknown_subscriptions,
        )
        self._pushes = registry.counter(
            "stele_telemetry_pushes", "Pushes that were taken (plugin-export)."
        )
        self._unusable = registry.counter(
            "stele_telemetry_unusable_pushes", "Pushes that could not be read (plugin-error)."
        )
        registry.total(
            "stele_telemetry_points_left_out",
            "Values that were pushed and not kept: telemetry.series.max is too low for them.",
            lambda: self._series.left_out,
        )
        registry.samples(
            "stele_client_metric",
            "What clients push (KIP-714). Values of counters that clients push as differences are "
            "added up.",
            (
                "metric",
                "user",
                "client_id",
                "client_instance_id",
                "software",
                *_SHOWN,
                "attributes",
            ),
            self._samples,
        )

    def _samples(self) -> Samples:
        for each in self._series.all(self._now_s()):
            yield (each.name, *each.client, *_attribute_labels(each)), each.value

    def figures(self) -> dict[tuple[str, str], Figures]:
        """What clients have pushed about themselves, by user and client id."""
        return figures_of(self._series.all(self._now_s()))

    # ------------------------------------------------------------------ subscriptions

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None] | None:
        changed = [
            each for each in delta.changed_configs if each.type == ConfigResourceType.CLIENT_METRICS
        ]
        for resource in changed:
            configs = image.config(resource)
            self._subscriptions.pop(resource.name, None)
            if configs:
                self._subscribe(resource.name, configs)
        if changed:
            self._version += 1
        return None

    def _subscribe(self, name: str, configs: Mapping[str, str]) -> None:
        try:
            self._subscriptions[name] = subscription_of(configs)
        except ApiError as error:
            logger.error("no client is asked for the metrics of %r: %s", name, error.message)

    # ------------------------------------------------------------------ requests

    async def ask(
        self, caller: Caller, connection: ClientConnection, instance_id: bytes
    ) -> Instance:
        """A client asks what to push. ``instance_id``: all zeros if it has none yet.

        Raises ApiError THROTTLING_QUOTA_EXCEEDED.
        """
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        await self._see(caller, connection, instance_id)
        return self._instances.ask(instance_id, self._now_s())

    async def push(
        self, caller: Caller, connection: ClientConnection, push: Push, metrics: Buffer
    ) -> None:
        """A client pushes metrics.

        Raises ApiError as ``ClientInstances.push``, INVALID_RECORD for what cannot be read and
        TELEMETRY_TOO_LARGE for what grows past ``telemetry.max.bytes``.
        """
        check_instance_id(push.instance_id)
        await self._see(caller, connection, push.instance_id)
        instance = self._instances.push(push, self._now_s())
        client = ClientLabels(
            caller.principal.partition(":")[2],
            caller.client_id or "",
            encode_uuid(push.instance_id),
            f"{connection.software_name} {connection.software_version}".strip(),
        )
        lives_s = max(_LIVES_S, _LIVES_INTERVALS * instance.interval_s)
        if push.is_terminating:
            lives_s = _LIVES_S
        self._series.begin(client, self._now_s(), lives_s)
        try:
            await self._take(client, push.compression, metrics)
        except ApiError as error:
            self._instances.failed(push.instance_id, error.code)
            self._unusable.value += 1
            logger.info("metrics of client %s: %s", client, error.message)
            raise
        self._pushes.value += 1

    async def _take(self, client: ClientLabels, compression: int, metrics: Buffer) -> None:
        data = b"".join([part async for part in self._decompressed(compression, metrics)])
        for point in points(data):
            if not isinstance(point, Point):
                await asyncio.sleep(0)
            elif self._shows:
                self._series.take(client.client_instance_id, point)
        if self._export is not None:
            self._export.take(data, client)

    async def _decompressed(self, compression: int, metrics: Buffer) -> AsyncIterator[bytes]:
        try:
            for part in decompressed(
                Compression(compression), metrics, self.max_bytes, chunk_bytes=_CHUNK_BYTES
            ):
                yield part
                await asyncio.sleep(0)
        except DecompressedSizeError as error:
            raise ApiError(
                ErrorCode.TELEMETRY_TOO_LARGE, f"{error.message} (telemetry.max.bytes)"
            ) from error
        except CompressionError as error:
            raise ApiError(ErrorCode.INVALID_RECORD, error.message) from error

    def _new_id(self) -> bytes:
        while True:
            instance_id = self._rng.randbytes(16)
            # Kafka's ids do not begin with a dash, which commands would take for an option.
            if instance_id not in self._instances and not encode_uuid(instance_id).startswith("-"):
                return instance_id

    async def _see(self, caller: Caller, connection: ClientConnection, instance_id: bytes) -> None:
        """The metadata may change while subscriptions are tried on the client: then once more."""
        while not self._instances.knows(instance_id, self._version, self._now_s()):
            version = self._version
            wanted = await _finished(
                wanted_of(
                    list(self._subscriptions.values()), _criteria(caller, connection, instance_id)
                )
            )
            if version == self._version:
                self._instances.seen(instance_id, connection, self._now_s(), wanted, version)
                return
        self._instances.seen(instance_id, connection, self._now_s())

    def disconnected(self, connection: ClientConnection) -> None:
        """The connection is lost. Its clients' series are shown until they expire."""
        self._instances.disconnected(connection)


def _criteria(caller: Caller, connection: ClientConnection, instance_id: bytes) -> dict[str, str]:
    return {
        "client_id": caller.client_id or "",
        "client_instance_id": encode_uuid(instance_id),
        "client_software_name": connection.software_name,
        "client_software_version": connection.software_version,
        "client_source_address": caller.address,
        "client_source_port": connection.peer.rpartition(":")[2],
    }


async def _finished(work: Generator[None, None, Wanted]) -> Wanted:
    while True:
        try:
            next(work)
        except StopIteration as end:
            wanted: Wanted = end.value
            return wanted
        await asyncio.sleep(0)


def _attribute_labels(series: Series) -> tuple[str, ...]:
    attributes = dict(series.attributes)
    shown = [attributes.pop(name, "") for name in _SHOWN]
    return *shown, ",".join(f"{name}={value}" for name, value in attributes.items())
