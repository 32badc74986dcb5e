"""The TLS context of a connector, made anew when its files change, and errors that say what to do.

Only clients that use TLS load this module, and ``cryptography`` with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from cryptography import x509

from stele.addresses import Address
from stele.errors import SteleError
from stele.security.client_security import ClientSecurity
from stele.security.contexts import client_context
from stele.security.files import FileStates, look_at
from stele.security.stores import alternative_names
from stele.security.tls_refusals import TlsRefusedError, tls_failure

HANDSHAKE_S: Final = 10.0
FAREWELL_S: Final = 2.0
"""How long a closed connection waits for the peer's farewell."""

_PROBE_S: Final = 2.0
_EXPLAINED_S: Final = 5.0


class ClientTls:
    """Opens the encrypted connections of one connector."""

    def __init__(self, security: ClientSecurity, now: Callable[[], datetime.datetime]) -> None:
        """``now`` is compared with the dates of certificates."""
        self._security = security
        self._now = now
        self._context: ssl.SSLContext | None = None
        self._files: FileStates = {}
        # A client that is refused tries again soon. It looks at the broker's certificate now and
        # then only.
        self._explained: tuple[float, Address, str] | None = None

    async def connect(
        self, address: Address, factory: Callable[[], asyncio.BaseProtocol]
    ) -> asyncio.Transport:
        """Raises OSError, in words for the user: TlsRefusedError if trying again does not help."""
        loop = asyncio.get_running_loop()
        context = await self._current()
        try:
            transport, _ = await loop.create_connection(
                factory,
                address.host,
                address.port,
                ssl=context,
                server_hostname=address.host,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=FAREWELL_S,
            )
        except ssl.SSLCertVerificationError as error:
            raise TlsRefusedError(await self._explain(address, error)) from error
        except ssl.SSLError as error:
            raise tls_failure(error) from error
        except ConnectionError as error:
            if isinstance(error, ConnectionRefusedError):
                raise
            raise OSError(
                "the connection was closed during the TLS handshake: does this port speak TLS, and "
                "does it ask for a certificate (ssl_keystore_location)?"
            ) from error
        return transport

    async def _explain(self, address: Address, error: ssl.SSLCertVerificationError) -> str:
        now_s = asyncio.get_running_loop().time()
        if self._explained is not None:
            at_s, of, said = self._explained
            if of == address and now_s - at_s < _EXPLAINED_S:
                return said
        said = await _explain(address, error)
        self._explained = now_s, address, said
        return said

    async def _current(self) -> ssl.SSLContext:
        """The context of the files as they are now. Reading them happens off the event loop: the
        authorities of the system take many milliseconds."""
        files = look_at(self._security.tls)
        if self._context is None or files != self._files:
            # The first context has even a certificate that has expired: the broker says so.
            valid_at = None if self._context is None else self._now()
            make = partial(client_context, self._security.tls, valid_at=valid_at)
            try:
                self._context = await asyncio.get_running_loop().run_in_executor(None, make)
            except SteleError as error:
                if self._context is None:
                    raise TlsRefusedError(str(error)) from error
                return self._context  # half written, or not valid now; the next one looks again
            self._files = files
        return self._context


async def _explain(address: Address, error: ssl.SSLCertVerificationError) -> str:
    """Why the broker's certificate is not believed, with its names or dates."""
    certificate = await _certificate_at(address)
    if certificate is None:
        return f"the broker's certificate is not accepted: {error.verify_message}"
    subject = certificate.subject.rfc4514_string()
    ends, begins = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    if "expired" in error.verify_message:
        return f"the broker's certificate ({subject}) expired on {ends:%Y-%m-%d %H:%M} UTC"
    if "not yet valid" in error.verify_message:
        return (
            f"the broker's certificate ({subject}) is valid only from {begins:%Y-%m-%d %H:%M} UTC"
        )
    if "match" in error.verify_message.lower():
        names = ", ".join(sorted(alternative_names(certificate))) or "no name at all"
        return (
            f"the broker's certificate ({subject}) is not valid for {address.host!r}; it names "
            f"{names}. Connect by one of its names, or add the name to the certificate"
        )
    issuer = certificate.issuer.rfc4514_string()
    return (
        f"the broker's certificate ({subject}, issued by {issuer}) is not accepted: "
        f"{error.verify_message}; is its authority in ssl_truststore_location?"
    )


async def _certificate_at(address: Address) -> x509.Certificate | None:
    """The certificate that is shown at an address. It is only shown to the user, never believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError, ValueError):
        async with asyncio.timeout(_PROBE_S):
            transport, _ = await loop.create_connection(
                asyncio.Protocol,
                address.host,
                address.port,
                ssl=context,
                server_hostname=address.host,
            )
        shown = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        transport.abort()
        return x509.load_der_x509_certificate(shown)
    return None
