"""The certificates of a node's listeners: read at the start, watched, and exchanged.

Nobody tells a node that a tool such as cert-manager has renewed a file, so the files are looked at
now and then. A certificate that ends soon is logged once a day, because an expiry is otherwise
noticed by the outage.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from runtime.config.security import ListenerSecurity
from runtime.metrics.registry import MetricsRegistry
from security.distinguished_name import MalformedNameError, subject_of
from security.principal import MappingRules, NoRuleMatchesError, PrincipalError, user
from stele.addresses import SecurityProtocol
from stele.errors import ConfigError
from stele.security.client_security import TlsSettings
from stele.world import Clock
from world.network import ANONYMOUS, IdentityError, Network, ServerTls, ServerTlsSettings

logger = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often the files of the stores are looked at."""

WARN_DAYS: Final = 30
"""From so many days before its end on, a certificate's end is logged once a day."""

_DAY_MS: Final = 24 * 3600 * 1000


class TlsListeners:
    """What the listeners of each name need of TLS. The Kafka and the gRPC listener of one name
    share a certificate."""

    def __init__(self, network: Network, clock: Clock, registry: MetricsRegistry) -> None:
        self._network = network
        self._clock = clock
        self._by_name: dict[str, ServerTls] = {}
        self._warned_days: dict[str, int] = {}  # as the log said last, by listener
        self._watch: asyncio.Task[None] | None = None
        registry.gauges(
            "stele_tls_certificate_days_left",
            "Days until the certificate of a listener ends.",
            "listener",
            lambda: {name: self._days_left(tls) for name, tls in self._by_name.items()},
        )
        registry.gauges(
            "stele_tls_exchange_refused",
            "1 if a listener goes on with its old certificate because the new one was refused.",
            "listener",
            lambda: {name: float(tls.refusal is not None) for name, tls in self._by_name.items()},
        )
        registry.totals(
            "stele_tls_handshakes",
            "Completed TLS handshakes of Kafka's protocol (successful-authentication-total).",
            "listener",
            lambda: {name: float(tls.handshakes) for name, tls in self._by_name.items()},
        )
        registry.totals(
            "stele_tls_failures",
            "Connections of Kafka's protocol that TLS failed on, by not_tls, timeout, left, tls, "
            "certificate or identity (failed-authentication-total).",
            "reason",
            self._failures,
        )

    def add(
        self,
        security: ListenerSecurity,
        advertised: Iterable[str],
        *,
        is_shown_to_nodes: bool = False,
    ) -> None:
        """Read the stores of a listener, if it has TLS. ``advertised``: the hosts to which clients
        connect. ``is_shown_to_nodes``: nodes reach one another by it. Raises SteleError in one
        line."""
        if not security.protocol.has_tls:
            return
        tls = self._network.server_tls(_settings(security, is_shown_to_nodes))
        self._by_name[security.name] = tls
        for host in dict.fromkeys(advertised):
            if not tls.names_host(host):
                logger.warning(
                    "listener %s is advertised at %s, which its certificate does not name: clients "
                    "that check the host name will not connect; add the name to the certificate",
                    security.name,
                    host,
                )

    @property
    def by_name(self) -> Mapping[str, ServerTls]:
        """The encrypted listeners."""
        return self._by_name

    def of(self, name: str) -> ServerTls | None:
        """The TLS of the listener of that name; None if it is not encrypted."""
        return self._by_name.get(name)

    def start(self) -> None:
        """Begin to watch the files."""
        if self._by_name and self._watch is None:
            self._warn()
            self._watch = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None

    async def exchange(self, name: str, tls: TlsSettings) -> str | None:
        """Serve new connections of a listener by other stores; or why not."""
        found = self._by_name.get(name)
        return f"listener {name} has no TLS" if found is None else await found.exchange(tls)

    async def why_not(self, name: str, tls: TlsSettings) -> str | None:
        """Why other stores of a listener would be refused."""
        found = self._by_name.get(name)
        return f"listener {name} has no TLS" if found is None else await found.why_not(tls)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for name, tls in self._by_name.items():
                try:
                    await tls.refresh()
                except Exception:  # the others are looked at all the same
                    logger.exception("looking at the certificate of listener %s failed", name)
            self._warn()

    def _days_left(self, tls: ServerTls) -> float:
        return (tls.valid_until_ms - self._clock.time_ms()) / _DAY_MS

    def _warn(self) -> None:
        """Log the certificates that end soon, each once a day."""
        for name, tls in self._by_name.items():
            days = int(self._days_left(tls) // 1)
            if days >= WARN_DAYS:
                self._warned_days.pop(name, None)
            elif self._warned_days.get(name) != days:
                self._warned_days[name] = days
                said = f"ends in {days} days" if days >= 0 else "has expired: clients refuse it"
                logger.warning("the certificate of listener %s %s", name, said)

    def _failures(self) -> Mapping[str, float]:
        counted: Counter[str] = Counter()
        for tls in self._by_name.values():
            counted.update(tls.failures)
        return {reason: float(count) for reason, count in counted.items()}


def setting_names(listener: str) -> Callable[[str], str]:
    """The names of a listener's settings: those that count for it alone."""
    return lambda setting: f"listener.name.{listener.lower()}.{setting}"


def _settings(security: ListenerSecurity, is_shown_to_nodes: bool) -> ServerTlsSettings:
    """Raises ConfigError."""
    try:
        rules = MappingRules(security.text("ssl.principal.mapping.rules"))
    except PrincipalError as error:
        raise ConfigError(f"listener {security.name}: {error}") from None
    gives_principal = security.protocol is SecurityProtocol.SSL

    def principal_of(certificate: bytes | None) -> str:
        """With SASL it is the dialogue that gives the principal, as in Kafka."""
        if certificate is None or not gives_principal:
            return ANONYMOUS
        try:
            return user(rules.name_of(subject_of(certificate)))
        except (MalformedNameError, NoRuleMatchesError) as error:
            raise IdentityError(str(error)) from None

    return ServerTlsSettings(
        listener=security.name,
        protocol=security.protocol,
        tls=security.tls,
        client_auth=security.client_auth,
        principal_of=principal_of,
        named=setting_names(security.name),
        is_shown_to_nodes=is_shown_to_nodes,
        allows_dn_changes=security.flag("ssl.allow.dn.changes"),
        allows_san_changes=security.flag("ssl.allow.san.changes"),
    )
