"""What only nodes of the cluster may ask of one another: Raft, registration, heartbeats and the
like. Kafka asks for CLUSTER_ACTION on the cluster for the same requests.

Such a request is refused with a status and not with an error in its answer, because not all of the
answers have one, and no node expects this error in them.
"""

from __future__ import annotations

from runtime.authorization.authorizer import CLUSTER, Authorizer, Operation, refusal
from runtime.authorization.caller import grpc_caller
from stele.world import ErrorInfo, RpcCode, RpcError, Stream
from world.network import Peer, Service, StreamHandler, UnaryHandler


def for_nodes(service: Service, authorizer: Authorizer, listener: str) -> Service:
    """The service behind the authorizer, on a listener of that name. Its methods raise RpcError
    PERMISSION_DENIED for others than nodes, before they look at the request."""

    def check(peer: Peer) -> None:
        sender = grpc_caller(listener, peer)
        why = refusal(authorizer, sender, Operation.CLUSTER_ACTION, CLUSTER)
        if why is not None:
            reason = ErrorInfo(why.code.name)
            raise RpcError(RpcCode.PERMISSION_DENIED, f"{why.code.name}: {why.message}", reason)

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
