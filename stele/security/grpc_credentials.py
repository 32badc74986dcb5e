"""What gRPC needs of a client's stores. gRPC takes unencrypted keys only, as text."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

import grpc

from stele.errors import ConfigError
from stele.security.client_security import TlsSettings
from stele.security.stores import Naming, of_clients, read_own_keys, read_trust_store


def channel_credentials(
    tls: TlsSettings, named: Naming = of_clients, *, valid_at: datetime.datetime | None = None
) -> grpc.ChannelCredentials:
    """Reads files. Raises StoreError or ConfigError, also if the client's own certificate is not
    valid at ``valid_at``."""
    if not tls.checks_host_name:
        raise ConfigError(
            f"{named('ssl.endpoint.identification.algorithm')} is empty, but gRPC always checks "
            "the host name: add the host to the certificate's names"
        )
    keys = read_own_keys(tls.keystore, named, valid_at)
    return grpc.ssl_channel_credentials(
        root_certificates=_roots(tls, named),
        private_key=None if keys is None else keys.key_pem,
        certificate_chain=None if keys is None else keys.chain_pem,
    )


def _roots(tls: TlsSettings, named: Naming) -> bytes | None:
    """The authorities that are believed; those of the system in place of gRPC's own list."""
    if not tls.truststore.is_empty:
        return read_trust_store(tls.truststore, named).pem
    of_system = ssl.get_default_verify_paths().cafile
    return None if of_system is None else Path(of_system).read_bytes()
