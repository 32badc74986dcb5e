"""Descriptions of SCRAM credentials: the mechanisms of users. Nobody can read more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from broker.service.changes import check_named
from broker.service.context import BrokerContext
from metadata.image import MetadataImage
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.security.scram import ScramMechanism

Credentials = list[tuple[ScramMechanism, int]]
"""The mechanisms of a user, with their iterations."""


def describe_users(
    context: BrokerContext, caller: Caller, image: MetadataImage, users: Sequence[str]
) -> dict[str, Credentials | ApiError]:
    """The credentials of each of these users, or why they are not told; without names, of all.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED, and POLICY_VIOLATION for too many names.
    """
    check_named(len(users), "users")
    why = refusal(context.authorizer, caller, Operation.DESCRIBE, CLUSTER)
    if why is not None:
        raise why
    if not users:
        return dict(image.scram_credentials.of_users())
    named = Counter(users)
    return {user: _of_user(image, user, named[user]) for user in named}


def _of_user(image: MetadataImage, user: str, times: int) -> Credentials | ApiError:
    if times > 1:
        return ApiError(
            ErrorCode.DUPLICATE_RESOURCE, f"the request names user {user!r} {times} times"
        )
    found = image.scram_credentials.of_user(user)
    if not found:
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"user {user!r} has no SCRAM credential")
    return found
