"""Why a caller may not make a change of one item. A change without items is one of the cluster, and
asks for ALTER."""

from __future__ import annotations

from typing import Any, NamedTuple

from metadata.image import MetadataImage
from runtime.authorization.authorizer import (
    ANY_TOPIC,
    CLUSTER,
    Authorizer,
    Operation,
    config_resource,
    refusal,
    topic_resource,
    user_resource,
)
from runtime.authorization.caller import ANONYMOUS, Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb


class Asked(NamedTuple):
    """The authorizer that is asked, the caller that it is asked about, and the metadata that names
    are looked up in."""

    authorizer: Authorizer
    caller: Caller
    image: MetadataImage


def creation(asked: Asked, topic: pb.NewTopic) -> ApiError | None:
    """A caller that may CREATE in the cluster may make any topic, other callers only topics that
    they may CREATE by name."""
    if asked.authorizer.allows(asked.caller, Operation.CREATE, CLUSTER):
        return None
    return refusal(asked.authorizer, asked.caller, Operation.CREATE, topic_resource(topic.name))


def deletion(asked: Asked, item: str | bytes) -> ApiError | None:
    """Why a name or an id may not be deleted. A caller that may DELETE in the cluster may delete
    any topic. A caller that knows only the id is not told the name."""
    if asked.authorizer.allows(asked.caller, Operation.DELETE, CLUSTER):
        return None
    if isinstance(item, str):
        return refusal(asked.authorizer, asked.caller, Operation.DELETE, topic_resource(item))
    topic = asked.image.topic_by_id(item)
    if topic is None:
        # The controller may know the topic by now. Its name matters if some names are forbidden.
        if asked.authorizer.allows(asked.caller, Operation.DELETE, ANY_TOPIC):
            return None
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic of this id is known here yet")
    if deletion(asked, topic.name) is None:
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ApiError(error, f"{asked.caller.principal} may not DELETE the topic of this id")


def growth(asked: Asked, topic: pb.CreatePartitionsRequest.Topic) -> ApiError | None:
    return refusal(asked.authorizer, asked.caller, Operation.ALTER, topic_resource(topic.name))


def alteration(asked: Asked, altered: pb.AlterConfigsRequest.Resource) -> ApiError | None:
    return refusal(
        asked.authorizer,
        asked.caller,
        Operation.ALTER_CONFIGS,
        config_resource(altered.resource.type, altered.resource.name),
    )


def of_cluster(asked: Asked, _: Any = None) -> ApiError | None:
    return refusal(asked.authorizer, asked.caller, Operation.ALTER, CLUSTER)


def of_quotas(asked: Asked, _: Any = None) -> ApiError | None:
    return refusal(asked.authorizer, asked.caller, Operation.ALTER_CONFIGS, CLUSTER)


def of_acls(asked: Asked, _: Any = None) -> ApiError | None:
    """Why ACLs cannot be changed by this caller, or not at all."""
    return of_cluster(asked) or without_acls(asked.authorizer)


def without_acls(authorizer: Authorizer) -> ApiError | None:
    """Why there are no ACLs; None: there may be some."""
    if authorizer.has_acls:
        return None
    return ApiError(
        ErrorCode.SECURITY_DISABLED,
        "there are no ACLs, and every client may do everything: authorizer.class.name is not set",
    )


def of_tokens(asked: Asked, _: Any = None) -> ApiError | None:
    """Why the caller may not use delegation tokens. A holder of a token could otherwise make itself
    another one that lives longer, and whoever has proven nothing would own tokens of everybody."""
    caller = asked.caller
    if caller.by_delegation_token:
        why = f"{caller.principal} has logged in by a delegation token: log in without one"
    elif caller.principal == ANONYMOUS:
        why = (
            f"nobody has logged in on the listener {caller.listener}: use one with SASL, or a "
            "client certificate"
        )
    else:
        return None
    return ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, why)


def token_creation(asked: Asked, request: pb.CreateDelegationTokenRequest) -> ApiError | None:
    """A token of somebody else needs CREATE_TOKENS on this user."""
    if (why := of_tokens(asked)) is not None:
        return why
    if request.owner in ("", asked.caller.principal):
        return None
    return refusal(
        asked.authorizer, asked.caller, Operation.CREATE_TOKENS, user_resource(request.owner)
    )
