"""Who may call the methods of a gRPC listener with SASL: whoever has proven who it is."""

from __future__ import annotations

from typing import Final

from stele.world import RpcCode, RpcError, Stream
from world.network import ANONYMOUS, Peer, Service, StreamHandler, UnaryHandler

_NO_LOGIN: Final = "listener {} has SASL: the call needs a login"


def only_logged_in(service: Service, listener: str) -> Service:
    """The service for those who have logged in. Its methods raise RpcError UNAUTHENTICATED for
    everybody else, before they look at the request."""

    def check(peer: Peer) -> None:
        if peer.principal == ANONYMOUS:
            raise RpcError(RpcCode.UNAUTHENTICATED, _NO_LOGIN.format(listener))

    def unary(handler: UnaryHandler) -> UnaryHandler:
        async def handle(payload: bytes, peer: Peer) -> bytes:
            check(peer)
            return await handler(payload, peer)

        return handle

    def stream(handler: StreamHandler) -> StreamHandler:
        async def handle(stream: Stream, peer: Peer) -> None:
            check(peer)
            await handler(stream, peer)

        return handle

    return Service(
        unary={name: unary(handler) for name, handler in service.unary.items()},
        streams={name: stream(handler) for name, handler in service.streams.items()},
    )
