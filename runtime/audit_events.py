"""Refusals other than denials, for the audit log.

Failed handshakes and logins are in the node's log in words, too. Only a file of its own for the
audit log has them a second time. A refused certificate concerns the node itself, and is rare.
"""

from __future__ import annotations

import logging
from typing import Final

from runtime.log_format import AUDIT_LOGGER
from security.audit import Event, event_line

CONNECTIONS: Final = f"{AUDIT_LOGGER}.connections"

_node_log = logging.getLogger(AUDIT_LOGGER)
_connection_log = logging.getLogger(CONNECTIONS)
_connection_log.setLevel(logging.WARNING)


def audit_connections() -> None:
    """The audit log has a file of its own."""
    _connection_log.setLevel(logging.INFO)


def audit_failed_connection(
    event: Event, listener: str, host: str, reason: str, *, time_ms: int, left_out: int
) -> None:
    """``host``: the peer's address, without a port. To be called with a bound on how often."""
    if _connection_log.isEnabledFor(logging.INFO):
        told = event_line(event, listener, reason, time_ms=time_ms, host=host, left_out=left_out)
        _connection_log.info("%s", told)


def audit_certificate(event: Event, listener: str, reason: str, *, time_ms: int) -> None:
    _node_log.info("%s", event_line(event, listener, reason, time_ms=time_ms))


def host_of(peer: str) -> str:
    """The host of ``host:port`` and ``[v6]:port``. gRPC gives addresses without a port."""
    if peer.startswith("["):
        return peer[1:].partition("]")[0]
    return peer.partition(":")[0] if peer.count(":") == 1 else peer
