"""Exchanges the certificates of this broker's listeners when its dynamic configuration says so.

Kafka's way to renew a certificate without a restart is IncrementalAlterConfigs on the broker, with
keys such as ``listener.name.external.ssl.keystore.location``. Setting a key to the value that it
has reads the file again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Final

from metadata.configs import ConfigResource
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from metadata.security_settings import store_key
from runtime.config.security import ListenerSecurity, NodeSecurity
from runtime.tls.listeners import TlsListeners


class CertificateChanges:
    """A ``MetadataSubscriber``. The stores of a listener are those of ``server.properties``, with
    the values that are set dynamically in their place."""

    def __init__(self, broker_id: int, security: NodeSecurity, tls: TlsListeners) -> None:
        self._resource: Final = ConfigResource.broker(broker_id)
        self._security = security
        self._tls = tls
        self._set: Mapping[str, Mapping[str, str]] = {}  # by listener in lower case
        self._in_force: dict[str, Mapping[str, str]] = {}  # by listener, what was set dynamically
        self._exchanging: asyncio.Task[None] | None = None

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None] | None:
        if self._resource not in delta.changed_configs:
            return None
        found: dict[str, dict[str, str]] = {}
        for name, value in image.config(self._resource).items():
            key = store_key(name)
            if key is not None:
                found.setdefault(key.listener, {})[key.name] = value
        self._set = found
        before, self._exchanging = self._exchanging, None
        if found or self._in_force:
            self._exchanging = asyncio.get_running_loop().create_task(self._exchange(found, before))
        return None

    async def why_not(self, changes: Mapping[str, str | None]) -> str | None:
        """Why this broker would not serve by a changed configuration, by the keys of its stores.
        None: it would."""
        found = {name: dict(values) for name, values in self._set.items()}
        for name, value in changes.items():
            key = store_key(name)
            if key is None:
                continue
            of_listener = found.setdefault(key.listener, {})
            if value is None:
                of_listener.pop(key.name, None)
            else:
                of_listener[key.name] = value
        changed = {key.listener for name in changes if (key := store_key(name)) is not None}
        for name in sorted(changed):
            security = self._listener(name)
            if security is None:
                return f"there is no listener {name}"
            why = await self._tls.why_not(security.name, security.with_values(found[name]).tls)
            if why is not None:
                return why
        return None

    def _listener(self, name: str) -> ListenerSecurity | None:
        """By its name in lower case."""
        return next(
            (each for each in self._security.listeners.values() if each.name.lower() == name), None
        )

    async def stop(self) -> None:
        if self._exchanging is not None:
            self._exchanging.cancel()
            await asyncio.gather(self._exchanging, return_exceptions=True)

    async def _exchange(
        self, found: Mapping[str, Mapping[str, str]], before: asyncio.Task[None] | None
    ) -> None:
        """One after the other: the last change is in force in the end. A refusal is logged and
        shown by the listener's metric."""
        if before is not None:
            await asyncio.gather(before, return_exceptions=True)
        for name, security in self._security.listeners.items():
            changed = found.get(name.lower(), {})
            if changed or self._in_force.get(name):
                self._in_force[name] = changed
                await self._tls.exchange(name, security.with_values(changed).tls)
