"""Changes of SCRAM credentials (KIP-554)."""

from __future__ import annotations

from collections import Counter

from controller.machine import Context, ControllerResult, Decision, check_size
from metadata.features import require
from metadata.image import MetadataImage
from metadata.scram_credentials import (
    SCRAM_RECORDS,
    SECRET_BYTES,
    ScramUser,
    credential_record,
    removal_record,
    secret_record,
)
from stele.errors import ApiError, ErrorCode
from stele.security.scram import (
    MAX_ITERATIONS,
    MECHANISMS_BY_NUMBER,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)
from stele.wire.v1.admin_pb2 import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

Deletion = AlterUserScramCredentialsRequest.Deletion
Upsertion = AlterUserScramCredentialsRequest.Upsertion


def alter_user_scram_credentials(
    context: Context, request: AlterUserScramCredentialsRequest
) -> ControllerResult[AlterUserScramCredentialsResponse]:
    """Set and remove credentials. If one of a user's changes is refused, all of them are.

    Raises ApiError POLICY_VIOLATION for a request of too many alterations, and UNSUPPORTED_VERSION
    if the level of metadata.version has no credentials.
    """
    alterations: list[Deletion | Upsertion] = [*request.deletions, *request.upsertions]
    check_size(len(alterations), "alterations of credentials")
    require(context.image, SCRAM_RECORDS, "a SCRAM credential")
    named = Counter((each.user, each.mechanism) for each in alterations)
    answers = {
        each.user: AlterUserScramCredentialsResponse.User(user=each.user) for each in alterations
    }
    for each in alterations:
        answer = answers[each.user]
        if not answer.error:
            try:
                _check(context.image, each, is_twice=named[each.user, each.mechanism] > 1)
            except ApiError as error:
                answer.error, answer.message = error.code, error.message
    decision = Decision(context)
    is_first = not context.image.scram_credentials.secret
    if is_first and any(not answers[each.user].error for each in request.upsertions):
        decision.add(secret_record(context.rng.randbytes(SECRET_BYTES)))
    decision.extend_asked(
        [
            removal_record(ScramUser(each.user, each.mechanism))
            for each in request.deletions
            if not answers[each.user].error
        ]
    )
    decision.extend_asked(
        [
            credential_record(ScramUser(each.user, each.mechanism), _credential(each))
            for each in request.upsertions
            if not answers[each.user].error
        ]
    )
    return decision.result(AlterUserScramCredentialsResponse(users=list(answers.values())))


def _check(image: MetadataImage, altered: Deletion | Upsertion, *, is_twice: bool) -> None:
    if not altered.user:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user's name is empty")
    mechanism = MECHANISMS_BY_NUMBER.get(altered.mechanism)
    if mechanism is None:
        raise ApiError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"there is no SCRAM mechanism {altered.mechanism}: 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512",
        )
    if is_twice:
        raise ApiError(
            ErrorCode.DUPLICATE_RESOURCE,
            f"the request alters the {mechanism.name} credential of user {altered.user!r} twice",
        )
    if isinstance(altered, Upsertion):
        _check_credential(mechanism, altered)
    elif image.scram_credentials.find(mechanism, altered.user) is None:
        raise ApiError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"user {altered.user!r} has no {mechanism.name} credential",
        )


def _check_credential(mechanism: ScramMechanism, upsertion: Upsertion) -> None:
    if not MIN_ITERATIONS <= upsertion.iterations <= MAX_ITERATIONS:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{upsertion.iterations} iterations: they must be {MIN_ITERATIONS} to {MAX_ITERATIONS}",
        )
    if not upsertion.salt:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt is empty")
    if len(upsertion.salted_password) != mechanism.hash_bytes:
        raise ApiError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"the salted password has {len(upsertion.salted_password)} bytes: "
            f"{mechanism.name} needs {mechanism.hash_bytes}",
        )


def _credential(upsertion: Upsertion) -> ScramCredential:
    mechanism = MECHANISMS_BY_NUMBER[upsertion.mechanism]
    return ScramCredential.of_salted(
        mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations
    )
