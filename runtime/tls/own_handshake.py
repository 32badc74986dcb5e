"""A node's handshake with itself, in memory, before it starts.

All nodes are configured alike. So a node that would not believe its own certificate is not believed
by the others. Kafka tries the same for the inter-broker listener.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from stele.security.client_security import TlsSettings
from stele.security.contexts import NONE, client_context, server_context
from stele.security.stores import read_key_store, read_trust_store

_TURNS_MAX: Final = 10


class Refused(NamedTuple):
    """Why the handshake fails."""

    by_server: bool  # it refuses what the node shows as a client; False: the other way around
    reason: str


def try_own_handshake(
    tls: TlsSettings, client_auth: str, named: Callable[[str], str]
) -> Refused | None:
    """Connect by the settings to a listener with the same settings. None: they fit.

    Names of hosts are not compared. Reads files. Raises SteleError.
    """
    trust = None
    if client_auth != NONE and not tls.truststore.is_empty:
        trust = read_trust_store(tls.truststore, named)
    keys = read_key_store(tls.keystore, named)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(tls, keys, trust, client_auth, named).wrap_bio(
        to_server, to_client, server_side=True
    )
    client = client_context(replace(tls, checks_host_name=False), named).wrap_bio(
        to_client, to_server
    )
    return _shake(client, server)


def _shake(client: ssl.SSLObject, server: ssl.SSLObject) -> Refused | None:
    open_sides = [client, server]
    for _ in range(_TURNS_MAX):
        for side in list(open_sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return Refused(side is server, error.verify_message)
            except ssl.SSLError as error:
                return Refused(side is server, error.reason or str(error))
            open_sides.remove(side)
        if not open_sides:
            return None
    return Refused(False, "the handshake does not end")
