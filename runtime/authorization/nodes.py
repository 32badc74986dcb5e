"""What only nodes of the cluster may ask of one another: Raft, registration, heartbeats and the
like. Kafka asks for CLUSTER_ACTION on the cluster for the same requests.

Such a request is refused with a status and not with an error in its answer, because not all of the
answers have one, and no node expects this error in them.
"""

from __future__ import annotations

from dataclasses import replace

from runtime.authorization.authorizer import CLUSTER, Authorizer, Operation, refusal
from runtime.authorization.caller import grpc_caller
from runtime.authorization.node_identity import CheckedStream, check_sender
from stele.errors import ApiError
from stele.world import ErrorInfo, RpcCode, RpcError, Stream
from world.network import Peer, Service, StreamHandler, UnaryHandler


def for_nodes(service: Service, authorizer: Authorizer, listener: str = "") -> Service:
    """The service behind the authorizer. Others than nodes are refused with RpcError
    PERMISSION_DENIED before their request is read. ``listener``: where it is served, if the peers
    do not say that."""

    async def admit(peer: Peer) -> Peer:
        sender = grpc_caller(listener or peer.listener, peer)
        why = refusal(authorizer, sender, Operation.CLUSTER_ACTION, CLUSTER)
        if why is not None:
            code = RpcCode.PERMISSION_DENIED if authorizer.is_loaded else RpcCode.UNAVAILABLE
            raise _refused(code, why)
        return peer

    return _in_own_name(service, authorizer, listener).behind(admit)


def _refused(code: RpcCode, why: ApiError) -> RpcError:
    return RpcError(code, f"{why.code.name}: {why.message}", ErrorInfo(why.code.name))


def _in_own_name(service: Service, authorizer: Authorizer, listener: str) -> Service:
    """The service behind the check of node ids (``node_identity``)."""

    def check(method: str, payload: bytes, peer: Peer) -> None:
        try:
            check_sender(authorizer, grpc_caller(listener or peer.listener, peer), method, payload)
        except ApiError as error:
            raise _refused(RpcCode.PERMISSION_DENIED, error) from None

    def unary(method: str, handler: UnaryHandler) -> UnaryHandler:
        async def handle(payload: bytes, peer: Peer) -> bytes:
            check(method, payload, peer)
            return await handler(payload, peer)

        return handle

    def stream(method: str, handler: StreamHandler) -> StreamHandler:
        async def handle(stream: Stream, peer: Peer) -> None:
            if peer.node_ids:
                stream = CheckedStream(stream, lambda said: check(method, said, peer))
            await handler(stream, peer)

        return handle

    return replace(
        service,
        unary={name: unary(name, handler) for name, handler in service.unary.items()},
        streams={name: stream(name, handler) for name, handler in service.streams.items()},
    )


def when_loaded(service: Service, authorizer: Authorizer) -> Service:
    """The service of a node that refuses everything while it does not know its ACLs: with RpcError
    UNAVAILABLE, so that a client asks again or asks another node, and not as a denial."""

    async def admit(peer: Peer) -> Peer:
        if not authorizer.is_loaded:
            raise RpcError(
                RpcCode.UNAVAILABLE, "this node does not know the ACLs of its cluster yet"
            )
        return peer

    return service.behind(admit)
