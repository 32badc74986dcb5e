"""The certificate of a listener's name, as it is now, and what happened to handshakes.

The Kafka listener and the gRPC listener of one name share it. Files are looked at now and then. A
changed store is tried first. If it does not fit, the last good one stays, and the reason is logged
and kept until a store fits. Until then each look tries the store again: time alone may make it fit,
such as a certificate that is not valid yet.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import ssl
import time
from collections import Counter
from concurrent.futures import Executor
from functools import lru_cache
from typing import Final

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from runtime.audit_events import audit_certificate, audit_failed_connection
from runtime.real.tls_first_bytes import why_not_tls
from runtime.real.tls_transport import Failure
from runtime.tls.own_handshake import Refused, try_own_handshake
from security.audit import Event
from security.node_identity import named_nodes
from security.renewal import names_host, refusal
from stele.errors import ConfigError, SteleError
from stele.security.client_security import TlsSettings
from stele.security.contexts import NONE, REQUESTED, REQUIRED, server_context
from stele.security.files import FileStates, look_at
from stele.security.stores import KeyStore, TrustStore, read_key_store, read_trust_store
from world.network import Identity, IdentityError, ServerTlsSettings

logger = logging.getLogger(__name__)

_LOG_INTERVAL_S: Final = 1.0
_KNOWN_CERTIFICATES: Final = 1024


class RealServerTls:
    """See ``world.network.ServerTls``."""

    def __init__(self, settings: ServerTlsSettings, executor: Executor) -> None:
        """Read the stores. Raises SteleError in one line."""
        self._settings = settings
        self.executor = executor
        self.failures: Counter[str] = Counter()
        self.handshakes = 0
        self.refusal: str | None = None
        self._wanted = settings.tls  # served unless it is refused
        self._files: FileStates = look_at(settings.tls)  # as they were before they were read
        # A look that began before the settings changed would end by serving the old ones.
        self._exchanging = asyncio.Lock()
        self._made = _Made(settings, settings.tls)
        # A broker that is alone may have a certificate that no node would believe.
        self._is_believed = settings.is_shown_to_nodes and self._handshake(settings.tls) is None
        # By certificate: clients come again and again with the same one.
        self._known = lru_cache(_KNOWN_CERTIFICATES)(self._read_identity)
        self._known_callers = lru_cache(_KNOWN_CERTIFICATES)(self._read_pem)
        self._logged_s = -_LOG_INTERVAL_S
        self._left_out = 0

    # ------------------------------------------------------------------ for connections

    @property
    def context(self) -> ssl.SSLContext:
        return self._made.context

    @property
    def certificate(self) -> x509.Certificate:
        return self._made.keys.certificate

    @property
    def valid_until_ms(self) -> int:
        return int(self.certificate.not_valid_after_utc.timestamp() * 1000)

    def names_host(self, host: str) -> bool:
        return names_host(self.certificate, host)

    def identity_of(self, certificate: bytes | None) -> Identity:
        return self._known(certificate)

    def _read_identity(self, certificate: bytes | None) -> Identity:
        principal = self._settings.principal_of(certificate)
        if certificate is None:
            return Identity(principal)
        try:
            return Identity(principal, named_nodes(x509.load_der_x509_certificate(certificate)))
        except ValueError as error:
            raise IdentityError(f"its certificate cannot be read: {error}") from None

    def succeeded(self) -> None:
        self.handshakes += 1

    def failed(self, failure: Failure, peer: object, first_bytes: bytes, reason: str) -> None:
        """Count it, and log at most one a second: a peer that fails may come again at once."""
        self.failures[failure.value] += 1
        if failure is Failure.LEFT and not first_bytes:
            return  # somebody only looked whether the port is open
        now_s = time.monotonic()
        if now_s - self._logged_s < _LOG_INTERVAL_S:
            self._left_out += 1
            return
        more = f" ({self._left_out} more since the last such line)" if self._left_out else ""
        said = reason or why_not_tls(first_bytes, self._settings.protocol.value)
        where = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) and len(peer) > 1 else str(peer)
        logger.warning("TLS of %s on %s failed: %s%s", where, self._settings.listener, said, more)
        audit_failed_connection(
            Event.TLS_FAILED,
            self._settings.listener,
            str(peer[0]) if isinstance(peer, tuple) and peer else str(peer),
            said,
            time_ms=_now_ms(),
            left_out=self._left_out,
        )
        self._logged_s, self._left_out = now_s, 0

    # -------------------------------------------------------------------------- for gRPC

    def identity_of_caller(self, certificate: bytes | None) -> Identity:
        """The identity of a caller by its certificate in PEM. Raises IdentityError."""
        return self._known_callers(certificate)

    def _read_pem(self, certificate: bytes | None) -> Identity:
        if certificate is None:
            return self.identity_of(None)
        try:
            read = x509.load_pem_x509_certificate(certificate)
        except ValueError as error:
            raise IdentityError(f"its certificate cannot be read: {error}") from None
        return self.identity_of(read.public_bytes(Encoding.DER))

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Credentials that ask for the certificate of the day at every new connection. Raises
        ConfigError."""
        if self._settings.client_auth == REQUESTED:
            raise ConfigError(
                f"{self._settings.named('ssl.client.auth')}=requested: gRPC can only require a "
                "certificate or ask for none; set required or none"
            )
        return grpc.dynamic_ssl_server_credentials(
            self._made.for_grpc,
            lambda: self._made.for_grpc,
            require_client_authentication=self._settings.client_auth == REQUIRED,
        )

    # ------------------------------------------------------------------------- exchanging

    async def refresh(self) -> None:
        """Look at the files; exchange the certificate if one has changed, or if the last exchange
        was refused."""
        async with self._exchanging:
            files = await self._look(self._wanted)
            if files != self._files or self.refusal is not None:
                await self._exchange()
                self._files = files

    async def exchange(self, tls: TlsSettings) -> str | None:
        """Serve new connections by other settings; or why not yet."""
        async with self._exchanging:
            self._wanted = tls
            files = await self._look(tls)
            why = await self._exchange()
            self._files = files
            return why

    async def why_not(self, tls: TlsSettings) -> str | None:
        """Why other settings would be refused; nothing is exchanged."""
        made = await self._tried(tls)
        return made if isinstance(made, str) else None

    async def _look(self, tls: TlsSettings) -> FileStates:
        return await asyncio.get_running_loop().run_in_executor(self.executor, look_at, tls)

    async def _exchange(self) -> str | None:
        name, made = self._settings.listener, await self._tried(self._wanted)
        if isinstance(made, str):
            if made != self.refusal:
                logger.error("listener %s goes on with its old certificate: %s", name, made)
                audit_certificate(Event.CERTIFICATE_REFUSED, name, made, time_ms=_now_ms())
            self.refusal = made
            return made
        self._made, self.refusal = made, None
        ends = self.certificate.not_valid_after_utc
        logger.info("listener %s has a new certificate, valid until %s", name, f"{ends:%Y-%m-%d}")
        told = f"valid until {ends:%Y-%m-%d}"
        audit_certificate(Event.CERTIFICATE_EXCHANGED, name, told, time_ms=_now_ms())
        return None

    async def _tried(self, tls: TlsSettings) -> _Made | str:
        """What would be served by other settings; or why not."""
        loop = asyncio.get_running_loop()
        try:
            made = await loop.run_in_executor(self.executor, _Made, self._settings, tls)
            return self._refusal(made) or await self._refused_by_nodes(tls) or made
        except (SteleError, OSError, ValueError) as error:
            return str(error)

    async def _refused_by_nodes(self, tls: TlsSettings) -> str | None:
        """A certificate that the trust store does not believe, as while the file of another
        authority is still to come, would cut this node off from the others."""
        if not self._is_believed:
            return None
        loop = asyncio.get_running_loop()
        refused = await loop.run_in_executor(self.executor, self._handshake, tls)
        if refused is None:
            return None
        role = "client" if refused.by_server else "server"
        return (
            f"a node with the same trust store would refuse the new certificate as that of a "
            f"{role}: {refused.reason}"
        )

    def _handshake(self, tls: TlsSettings) -> Refused | None:
        return try_own_handshake(tls, self._settings.client_auth, self._settings.named)

    def _refusal(self, made: _Made) -> str | None:
        old, new = self._made, made
        if (old.trust is None) != (new.trust is None):
            return (
                "a trust store can be exchanged, but neither added nor removed, without a restart"
            )
        return refusal(
            old.keys.certificate,
            new.keys.certificate,
            datetime.datetime.now(datetime.UTC),
            allows_dn_changes=self._settings.allows_dn_changes,
            allows_san_changes=self._settings.allows_san_changes,
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Made:
    """Everything that is made of the stores."""

    def __init__(self, settings: ServerTlsSettings, tls: TlsSettings) -> None:
        """Reads files. Raises SteleError."""
        named = settings.named
        self.keys: KeyStore = read_key_store(tls.keystore, named)
        self.trust: TrustStore | None = None
        if settings.client_auth != NONE and not tls.truststore.is_empty:
            self.trust = read_trust_store(tls.truststore, named)
        self.context = server_context(tls, self.keys, self.trust, settings.client_auth, named)
        self.for_grpc = grpc.ssl_server_certificate_configuration(
            [(self.keys.key_pem, self.keys.chain_pem)],
            root_certificates=None if self.trust is None else self.trust.pem,
        )
