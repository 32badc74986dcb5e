"""The real controller's decisions on the image of a faked broker, committed at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from controller import (
    client_quotas,
    cluster,
    configs,
    delegation_tokens,
    elections,
    partition_counts,
)
from controller.machine import Context, ControllerResult
from stele.errors import ApiError
from stele.wire.v1 import admin_pb2 as pb
from world.network import Peer, UnaryHandler

if TYPE_CHECKING:
    from tests.support.broker_apis import Edges

Decide = Callable[[Context, Any], ControllerResult[Any]]

_DECISIONS: dict[str, tuple[Any, Any, Decide]] = {
    "AlterConfigs": (pb.AlterConfigsRequest, pb.AlterConfigsResponse, configs.alter_configs),
    "CreatePartitions": (
        pb.CreatePartitionsRequest,
        pb.CreatePartitionsResponse,
        partition_counts.create_partitions,
    ),
    "AlterClientQuotas": (
        pb.AlterClientQuotasRequest,
        pb.AlterClientQuotasResponse,
        client_quotas.alter_client_quotas,
    ),
    "ElectLeaders": (pb.ElectLeadersRequest, pb.ElectLeadersResponse, elections.elect_leaders),
    "UnregisterBroker": (
        pb.UnregisterBrokerRequest,
        pb.UnregisterBrokerResponse,
        cluster.unregister,
    ),
    "CreateDelegationToken": (
        pb.CreateDelegationTokenRequest,
        pb.CreateDelegationTokenResponse,
        delegation_tokens.create_delegation_token,
    ),
    "RenewDelegationToken": (
        pb.RenewDelegationTokenRequest,
        pb.RenewDelegationTokenResponse,
        delegation_tokens.renew_delegation_token,
    ),
    "ExpireDelegationToken": (
        pb.ExpireDelegationTokenRequest,
        pb.ExpireDelegationTokenResponse,
        delegation_tokens.expire_delegation_token,
    ),
}


def deciding(edges: Edges) -> dict[str, UnaryHandler]:
    """Handlers of ``stele.v1.Admin``, by their full names."""
    return {f"/stele.v1.Admin/{name}": _handler(edges, *kind) for name, kind in _DECISIONS.items()}


def _handler(edges: Edges, request_type: Any, reply_type: Any, decide: Decide) -> UnaryHandler:
    async def handle(payload: bytes, _: Peer) -> bytes:
        request = request_type.FromString(payload)
        if edges.controller.refuse_with:
            reply = reply_type(error=edges.controller.refuse_with)
            return bytes(reply.SerializeToString())
        image = edges.publisher.image
        context = Context(
            image,
            image.offset + 1,
            edges.config.raw,
            edges.rng,
            "the-cluster",
            now_ms=edges.clock.time_ms(),
            principal=request.on_behalf_of.principal,
        )
        try:
            result = decide(context, request)
        except ApiError as error:
            reply = reply_type(error=error.code, message=error.message)
            return bytes(reply.SerializeToString())
        if result.records:
            edges.commit(*result.records)
        result.reply.metadata_offset = edges.publisher.image.offset
        return bytes(result.reply.SerializeToString())

    return handle
