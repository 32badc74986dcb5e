"""InitializeShareGroupState (83), ReadShareGroupState (84), WriteShareGroupState (85),
DeleteShareGroupState (86) and ReadShareGroupStateSummary (87): brokers keep the states of share
partitions at their coordinators (KIP-932).

Deviations: none known.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, Final

from broker.api.handler import RequestContext, Served
from broker.coordinator.share.types import StateAnswer
from broker.coordinator.state_messages import API_OF, StateApi
from broker.service import share_states
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka import Struct


def _served(state_api: StateApi) -> Served:
    async def handle(
        context: BrokerContext, request_context: RequestContext, message: Any
    ) -> Struct:
        requests = await state_api.requests(message)
        answers = await share_states.ask(context, request_context.caller, requests)
        return await state_api.response(message, answers)

    async def refuse(request_context: RequestContext, message: Any, error: ErrorCode) -> Struct:
        return await state_api.response(message, repeat(StateAnswer(error, error.name)))

    return Served(state_api.api, refuse, handle_async=handle)


SERVED: Final = tuple(map(_served, API_OF.values()))
