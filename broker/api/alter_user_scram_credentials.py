"""AlterUserScramCredentials (51), version 0, forwarded to the active controller (KIP-554).

Deviations: one request may set both mechanisms of a user. Kafka refuses that with
DUPLICATE_RESOURCE since KRaft, which needs two requests. A salted password of another length than
the mechanism's hash, and an empty salt, are refused.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, check_named, error_code
from broker.service.context import BrokerContext
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import alter_user_scram_credentials as messages
from stele.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from stele.wire.v1 import admin_pb2 as pb

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    wishes = pb.AlterUserScramCredentialsRequest(
        deletions=[
            pb.AlterUserScramCredentialsRequest.Deletion(user=each.name, mechanism=each.mechanism)
            for each in request.deletions
        ],
        upsertions=[
            pb.AlterUserScramCredentialsRequest.Upsertion(
                user=each.name,
                mechanism=each.mechanism,
                iterations=each.iterations,
                salt=each.salt,
                salted_password=each.salted_password,
            )
            for each in request.upsertions
        ],
    )
    try:
        check_named(len(request.deletions) + len(request.upsertions), "credentials")
        answer = await accepted_change(
            context, request_context.caller, wishes, timeout_s=_TIMEOUT_S
        )
    except ApiError as error:
        return _refused(request, error)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                each.user,
                error_code(each.error),
                explain(each.error, each.message) if each.error else None,
            )
            for each in answer.users
        ]
    )


def _refused(
    request: AlterUserScramCredentialsRequest, why: ApiError
) -> AlterUserScramCredentialsResponse:
    message = explain(why.code, why.message)
    users = dict.fromkeys(each.name for each in request.deletions)
    users |= dict.fromkeys(each.name for each in request.upsertions)
    return AlterUserScramCredentialsResponse(
        results=[AlterUserScramCredentialsResult(user, why.code, message) for user in users]
    )


def refuse(
    request_context: RequestContext, request: AlterUserScramCredentialsRequest, error: ErrorCode
) -> AlterUserScramCredentialsResponse:
    return _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
