"""AlterUserScramCredentials (51), version 0, forwarded to the active controller (KIP-554).

Deviations: one request may set both mechanisms of a user. Kafka refuses that with
DUPLICATE_RESOURCE since KRaft, which needs two requests. A salted password of another length than
the mechanism's hash, and an empty salt, are refused.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, check_named
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import alter_user_scram_credentials as messages
from stele.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    try:
        check_named(len(request.deletions) + len(request.upsertions), "credentials")
        wishes = pb.AlterUserScramCredentialsRequest(
            deletions=await in_slices(_deletion, request.deletions),
            upsertions=await in_slices(_upsertion, request.upsertions),
        )
        answer = await accepted_change(
            context, request_context.caller, wishes, timeout_s=_TIMEOUT_S
        )
    except ApiError as error:
        return await _refused(request, error)
    return AlterUserScramCredentialsResponse(results=await in_slices(_result, answer.users))


def _deletion(
    credential: ScramCredentialDeletion,
) -> pb.AlterUserScramCredentialsRequest.Deletion:
    return pb.AlterUserScramCredentialsRequest.Deletion(
        user=credential.name, mechanism=credential.mechanism
    )


def _upsertion(
    credential: ScramCredentialUpsertion,
) -> pb.AlterUserScramCredentialsRequest.Upsertion:
    return pb.AlterUserScramCredentialsRequest.Upsertion(
        user=credential.name,
        mechanism=credential.mechanism,
        iterations=credential.iterations,
        salt=credential.salt,
        salted_password=credential.salted_password,
    )


def _result(
    told: pb.AlterUserScramCredentialsResponse.User,
) -> AlterUserScramCredentialsResult:
    message = explain(told.error, told.message) if told.error else None
    return AlterUserScramCredentialsResult(told.user, error_code(told.error), message)


async def _refused(
    request: AlterUserScramCredentialsRequest, why: ApiError
) -> AlterUserScramCredentialsResponse:
    message = explain(why.code, why.message)
    users = dict.fromkeys(each.name for each in request.deletions)
    users |= dict.fromkeys(each.name for each in request.upsertions)
    refused = await in_slices(
        lambda user: AlterUserScramCredentialsResult(user, why.code, message), users
    )
    return AlterUserScramCredentialsResponse(results=refused)


async def refuse(
    request_context: RequestContext, request: AlterUserScramCredentialsRequest, error: ErrorCode
) -> AlterUserScramCredentialsResponse:
    return await _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
