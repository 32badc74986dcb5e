"""The shape of a line of ``kafka_needs``: a request about a topic, and the permissions for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from runtime.authorization.authorizer import (
    group_resource,
    transactional_id_resource,
    user_resource,
)
from runtime.authorization.caller import ANONYMOUS
from stele.errors import ErrorCode
from stele.wire.kafka import ApiKey
from tests.support.authorizer import Need

T29: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
G30: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
C31: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
X53: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
D65: Final = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
D64: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
"""For a caller that has proven nothing, whatever ACLs allow it."""
DENIALS: Final = frozenset((T29, G30, C31, X53, D65))

G: Final = group_resource("g")
X: Final = transactional_id_resource("x")
ANN: Final = "User:ann"
BOB: Final = user_resource("User:bob")

Way = tuple[Need, ...]


class Asked(NamedTuple):
    """A request about a topic, and the ways to be allowed it. All needs of a way are needed."""

    key: ApiKey
    version: int
    request: Callable[[str], Any]
    ways: Callable[[str], tuple[Way, ...]]
    denied: ErrorCode | None
    """The error without permissions; None: there is none, since nothing is needed, or what the
    caller may not see is left out."""
    what: str = ""
    principal: str = ANONYMOUS
    """Who asks."""
