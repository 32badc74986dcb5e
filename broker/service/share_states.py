"""The states of share partitions: what their coordinators are asked by brokers."""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.asking import ask_coordinator
from broker.coordinator.share.types import StateAnswer, StateRequest
from broker.service.context import BrokerContext
from broker.service.coordinators import SHARES, coordinated_by
from broker.service.transactions import check_node
from runtime.authorization.caller import Caller
from stele.errors import ApiError
from storage.turns import gather_in_slices


async def ask(
    context: BrokerContext, caller: Caller, requests: Sequence[StateRequest]
) -> list[StateAnswer]:
    """What the coordinators that are here answer, in order. Raises ApiError
    CLUSTER_AUTHORIZATION_FAILED: only nodes may ask."""
    check_node(context, caller)

    async def one(request: StateRequest) -> StateAnswer:
        try:
            number = coordinated_by(context, SHARES, request.key.coordinator_key)
            return await ask_coordinator(context.sharing.coordinators, number, request)
        except ApiError as refused:
            return StateAnswer(refused.code, refused.message or refused.code.name)

    return await gather_in_slices(one, requests)
