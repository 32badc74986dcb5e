"""AlterClientQuotas (49), versions 0-1, forwarded to the active controller (KIP-546).

Deviations: an ip is an address: names of hosts are refused, for nobody could say which of a name's
addresses is meant. Values that are not above 0 are refused, also fractions below 1 of what is a
whole number.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, check_named
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import alter_client_quotas as messages
from stele.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    EntityData,
    EntryData,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    try:
        check_named(
            sum(1 + len(each.entity) + len(each.ops) for each in request.entries),
            "entities and quotas",
        )
        wishes = pb.AlterClientQuotasRequest(
            entries=await in_slices(_wish, request.entries), validate_only=request.validate_only
        )
        answer = await accepted_change(
            context, request_context.caller, wishes, timeout_s=_TIMEOUT_S
        )
    except ApiError as error:
        return await _refused(request, error)
    return AlterClientQuotasResponse(
        entries=await in_slices(_told, zip(request.entries, answer.entries, strict=True))
    )


def _told(each: tuple[EntryData, pb.AlterClientQuotasResponse.Entry]) -> AlteredQuota:
    entry, told = each
    message = explain(told.error, told.message) if told.error else None
    return AlteredQuota(error_code(told.error), message, _same(entry))


def _wish(entry: EntryData) -> pb.AlterClientQuotasRequest.Entry:
    return pb.AlterClientQuotasRequest.Entry(
        entity=[
            pb.QuotaEntity(type=part.entity_type, name=part.entity_name) for part in entry.entity
        ],
        ops=[
            pb.AlterClientQuotasRequest.Op(
                key=op.key, value=0.0 if op.remove else op.value, remove=op.remove
            )
            for op in entry.ops
        ],
    )


def _same(entry: EntryData) -> list[EntityData]:
    return [EntityData(part.entity_type, part.entity_name) for part in entry.entity]


async def _refused(request: AlterClientQuotasRequest, why: ApiError) -> AlterClientQuotasResponse:
    message = explain(why.code, why.message)
    refused = await in_slices(
        lambda each: AlteredQuota(why.code, message, _same(each)), request.entries
    )
    return AlterClientQuotasResponse(entries=refused)


async def refuse(
    request_context: RequestContext, request: AlterClientQuotasRequest, error: ErrorCode
) -> AlterClientQuotasResponse:
    return await _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
