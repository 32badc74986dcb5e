"""The clients by which a console asks the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from console.settings import ConsoleSettings
from stele.aio import Admin, Consumer, Producer
from stele.config import ClientWorld
from stele.real import RealClock
from stele.world import Clock

Isolation = Literal["read_uncommitted", "read_committed"]

CLIENT_ID = "stele-console"
FETCHED_BYTES = 4 * 1024 * 1024
"""What one reader holds at most, besides the batches that it shows."""


class ConsoleClients:
    """One Admin for all pages; a Consumer or Producer for each request that reads or writes."""

    def __init__(self, settings: ConsoleSettings, world: ClientWorld | None = None) -> None:
        """``world``: where the cluster is; None: outside of this process."""
        self._settings = settings
        self._world = world
        self._admin: Admin | None = None

    @property
    def clock(self) -> Clock:
        return RealClock() if self._world is None else self._world.clock

    @property
    def admin(self) -> Admin:
        """Made by the first page, within the server's event loop."""
        if self._admin is None:
            self._admin = Admin(
                self._settings.bootstrap_servers,
                world=self._world,
                client_id=CLIENT_ID,
                default_api_timeout_ms=self._settings.timeout_ms,
                request_timeout_ms=self._settings.timeout_ms,
                on_wait=_quietly,
                **self._settings.security,
            )
        return self._admin

    @asynccontextmanager
    async def consumer(self, isolation: Isolation) -> AsyncIterator[Consumer]:
        consumer = Consumer(
            self._settings.bootstrap_servers,
            world=self._world,
            client_id=CLIENT_ID,
            default_api_timeout_ms=self._settings.timeout_ms,
            request_timeout_ms=self._settings.timeout_ms,
            auto_offset_reset="earliest",
            isolation_level=isolation,
            max_partition_fetch_bytes=FETCHED_BYTES // 4,
            prefetch_bytes=FETCHED_BYTES,
            enable_metrics_push=False,
            on_wait=_quietly,
            **self._settings.security,
        )
        async with consumer:
            yield consumer

    @asynccontextmanager
    async def producer(self) -> AsyncIterator[Producer]:
        producer = Producer(
            self._settings.bootstrap_servers,
            world=self._world,
            client_id=CLIENT_ID,
            linger_ms=0,
            max_block_ms=self._settings.timeout_ms,
            default_api_timeout_ms=self._settings.timeout_ms,
            request_timeout_ms=self._settings.timeout_ms,
            delivery_timeout_ms=self._settings.timeout_ms,
            enable_metrics_push=False,
            on_wait=_quietly,
            **self._settings.security,
        )
        async with producer:
            yield producer

    async def close(self) -> None:
        if self._admin is not None:
            await self._admin.close()
            self._admin = None


def _quietly(_reason: str) -> None:
    """The page says in the end why there was no answer."""
