"""Says why other nodes of the quorum do not take this one. Without it only their logs would.

A call that fails is otherwise no news: the core makes another one, several times a second.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from runtime.config.addresses import NamedAddress
from stele.errors import SteleError
from stele.security.tls_refusals import grpc_tls_failure
from stele.world import RpcCode, RpcError

_log = logging.getLogger(__name__)

AGAIN_S: Final = 60.0
"""A reason is said again after this time."""

_CLOSED: Final = "Socket closed"
CLOSED_MAX: Final = 20
"""After so many connections in a row that a peer has closed at once, its reason is TLS: it does not
say that it refuses a certificate."""


class RefusalLog:
    """Takes what became of each call."""

    def __init__(self) -> None:
        self._said: dict[int, tuple[float, str]] = {}  # by node: when, in the loop's time, and what
        self._closed: dict[int, int] = {}  # by node: so many connections in a row

    def answered(self, node_id: int) -> None:
        self._said.pop(node_id, None)
        self._closed.pop(node_id, None)

    def failed(self, node_id: int, peer: NamedAddress | None, error: RpcError) -> None:
        if peer is None:
            return
        reason = self._reason(node_id, peer.address.host, error)
        if reason is None:
            return
        now_s = asyncio.get_running_loop().time()
        at_s, said = self._said.get(node_id, (0.0, ""))
        if reason == said and now_s < at_s + AGAIN_S:
            return
        self._said[node_id] = now_s, reason
        _log.warning(
            "node %d at %s: %s. stele doctor --config examines this node's part",
            node_id,
            peer.address,
            reason,
        )

    def _reason(self, node_id: int, host: str, error: RpcError) -> str | None:
        """None: it is down, slow, or not the leader."""
        if error.code is RpcCode.PERMISSION_DENIED:
            return f"it refuses this node: {error.detail}"
        if isinstance(error.__cause__, SteleError):
            return f"this node cannot call it: {error.detail}"  # by its own stores
        failure = grpc_tls_failure(error.detail, host)
        if failure is not None:
            return failure
        if _CLOSED not in error.detail:
            self._closed.pop(node_id, None)
            return None
        self._closed[node_id] = self._closed.get(node_id, 0) + 1
        if self._closed[node_id] < CLOSED_MAX:
            return None
        return (
            "it closes each connection of this node at once: does its trust store have the "
            "authority of this node's certificate, and is it meant to speak TLS?"
        )
