"""TLS contexts of both sides, made of settings and stores.

A context is made anew for every exchange of certificates: authorities can be added to a context,
but not removed.
"""

from __future__ import annotations

import datetime
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

from stele.errors import ConfigError
from stele.security.client_security import TlsSettings
from stele.security.pem import StoreError
from stele.security.stores import (
    KeyStore,
    Naming,
    TrustStore,
    of_clients,
    read_own_keys,
    read_trust_store,
)

logger = logging.getLogger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_SUITES_OF_1_3: Final = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)

NONE, REQUESTED, REQUIRED = "none", "requested", "required"
"""The values of ssl.client.auth."""

_VERIFY_MODES: Final = {
    NONE: ssl.CERT_NONE,
    REQUESTED: ssl.CERT_OPTIONAL,
    REQUIRED: ssl.CERT_REQUIRED,
}


def client_context(
    tls: TlsSettings, named: Naming = of_clients, *, valid_at: datetime.datetime | None = None
) -> ssl.SSLContext:
    """The context of a client's connections. Raises StoreError or ConfigError, also if the client's
    own certificate is not valid at ``valid_at``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.checks_host_name
    _apply(context, tls, named)
    if tls.truststore.is_empty:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, read_trust_store(tls.truststore, named))
    keys = read_own_keys(tls.keystore, named, valid_at)
    if keys is not None:
        _identify(context, keys)
    return context


def server_context(
    tls: TlsSettings,
    keys: KeyStore,
    trust: TrustStore | None,
    client_auth: str,
    named: Naming,
) -> ssl.SSLContext:
    """The context of a listener's connections. Raises StoreError or ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply(context, tls, named)
    # Kafka's frames have a size, so an end without a farewell cuts nothing off unseen. Without this
    # OpenSSL answers it with an alert, and the peer gets no further answers.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_IGNORE_UNEXPECTED_EOF
    context.verify_mode = _VERIFY_MODES[client_auth]
    if client_auth != NONE:
        if trust is None:
            raise ConfigError(
                f"{named('ssl.client.auth')}={client_auth} needs {named('ssl.truststore.location')}"
                ": the authorities whose certificates prove who a client is"
            )
        # A resumed session would skip the check of the client's certificate.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        _trust(context, trust)
    _identify(context, keys)
    return context


def _apply(context: ssl.SSLContext, tls: TlsSettings, named: Naming) -> None:
    """Versions and cipher suites."""
    suites = tls.cipher_suites
    newer = [each for each in suites if each in _SUITES_OF_1_3]
    older = [each for each in suites if each not in _SUITES_OF_1_3]
    versions = set(tls.enabled_protocols)
    if suites:
        # Suites of TLS 1.3 are not those of 1.2: a version without a suite is off.
        versions -= set() if newer else {"TLSv1.3"}
        versions -= set() if older else {"TLSv1.2"}
    if not versions:
        raise ConfigError(
            f"{named('ssl.enabled.protocols')}={','.join(tls.enabled_protocols)} has no version "
            f"with a suite of {named('ssl.cipher.suites')}={','.join(suites)}"
        )
    context.minimum_version = min(_VERSIONS[each] for each in versions)
    context.maximum_version = max(_VERSIONS[each] for each in versions)
    if older:
        context.set_ciphers(":".join(_openssl_names(older, named)))
    if newer and len(newer) < len(_SUITES_OF_1_3):
        logger.warning(
            "%s chooses among the suites of TLS 1.3, which Python cannot: all three are offered",
            named("ssl.cipher.suites"),
        )
    # Java believes a chain that ends at any trusted certificate, also one that is no root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _openssl_names(suites: Sequence[str], named: Naming) -> list[str]:
    """OpenSSL's names of IANA's: ``ECDHE-RSA-AES128-GCM-SHA256`` is
    ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``. OpenSSL's own are taken as they are."""
    probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    probe.set_ciphers("ALL:@SECLEVEL=0")
    known = {str(each["name"]) for each in probe.get_ciphers()}
    names = [each if each in known else _openssl_name(each) for each in suites]
    for suite, name in zip(suites, names, strict=True):
        if name not in known:
            raise ConfigError(f"{named('ssl.cipher.suites')}: OpenSSL has no suite {suite!r}")
    return names


def _openssl_name(suite: str) -> str:
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    # The exchange by plain RSA has no name in OpenSSL. The block mode CBC has none, either.
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    cipher = cipher.removesuffix("_SHA256") if "CHACHA20" in cipher else cipher
    return prefix + cipher.replace("_CBC", "").replace("_", "-")


def _trust(context: ssl.SSLContext, trust: TrustStore) -> None:
    context.load_verify_locations(cadata=trust.pem.decode())


def _identify(context: ssl.SSLContext, keys: KeyStore) -> None:
    with _readable(keys.chain_pem + keys.key_pem) as path:
        try:
            context.load_cert_chain(path, password=_no_password)
        except ssl.SSLError as error:
            raise StoreError(f"{keys.source}: OpenSSL refuses the certificate: {error}") from None


def _no_password() -> NoReturn:
    """Without this OpenSSL would ask at the terminal."""
    raise StoreError("a private key is encrypted")


@contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path from which the content can be read, as OpenSSL takes keys from files only. On Linux
    the file is in memory and has no name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # readable by its owner only
            file.write(content)
            file.flush()
            yield file.name
