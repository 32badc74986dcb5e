"""What a page says of an error: its name, what happened, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from stele.errors import (
    ApiError,
    AuthenticationError,
    BulkError,
    ConfigError,
    ErrorCode,
    OutcomeUnknownError,
    SteleError,
    UnreachableError,
)
from stele.world import RpcError


@dataclass(frozen=True, slots=True)
class Trouble:
    """``name`` is Kafka's where Kafka has one. ``advice`` may be empty."""

    status: int
    name: str
    message: str
    advice: str = ""
    items: tuple[tuple[str, str, str], ...] = ()
    """Each refused thing of a request about several, the name of its error, and why."""


def trouble_of(error: SteleError | RpcError) -> Trouble:
    """What to tell a person of an error. A broker that is asked by name fails with RpcError."""
    if isinstance(error, RpcError):
        return Trouble(
            503,
            "A broker does not answer",
            str(error),
            "Look at the cluster's page: a broker may have ended. Then try again.",
        )
    if isinstance(error, UnreachableError):
        return Trouble(
            503,
            "The cluster cannot be reached",
            str(error),
            "Check that brokers run at these addresses (stele doctor says more). If they are the "
            "wrong ones, start the console with --bootstrap-server.",
        )
    if isinstance(error, AuthenticationError):
        return Trouble(
            502,
            "The cluster and the console do not accept each other",
            str(error),
            "Start the console with --command-config and a file of client properties that this "
            "cluster accepts.",
        )
    if isinstance(error, OutcomeUnknownError):
        return Trouble(
            504,
            error.code.name,
            error.message,
            "Look at the present state before you make the change again.",
        )
    if isinstance(error, BulkError):
        items = tuple(
            (name, each.code.name, each.message or each.code.name)
            for name, each in error.failed.items()
        )
        return Trouble(_status(error.code), error.code.name, error.message, _advice(error), items)
    if isinstance(error, ApiError):
        return Trouble(
            _status(error.code), error.code.name, error.message or error.code.name, _advice(error)
        )
    if isinstance(error, ConfigError):
        return Trouble(400, "This cannot be used", str(error))
    return Trouble(500, type(error).__name__, str(error))


_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_MISSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)
_ADVICE: Final[Mapping[ErrorCode, str]] = MappingProxyType(
    {
        ErrorCode.SECURITY_DISABLED: "Set authorizer.class.name on every node to have access "
        "rules; docs/security.md says how.",
        ErrorCode.NOT_CONTROLLER: "Wait for an election, and look at the controllers on the "
        "cluster's page: a majority of them must run.",
        ErrorCode.REQUEST_TIMED_OUT: "Look at the cluster's page, then try again.",
        ErrorCode.NOT_ENOUGH_REPLICAS: "Look at the topic's page: more replicas must be in sync.",
        ErrorCode.OFFSET_OUT_OF_RANGE: "The topic's page shows the first and the end offset of "
        "each partition. An offset between them may have no record: compaction drops records, "
        "and transactions leave markers.",
        ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or delete that topic first.",
        ErrorCode.NON_EMPTY_GROUP: "Stop the members of the group first.",
        ErrorCode.UNKNOWN_MEMBER_ID: "Stop the members of the group first.",
        ErrorCode.INVALID_REPLICATION_FACTOR: "Choose at most as many replicas as there are "
        "brokers in service.",
        ErrorCode.COORDINATOR_NOT_AVAILABLE: "Try again in a moment. If that does not help, look "
        "at the topic __consumer_offsets or __transaction_state.",
        ErrorCode.LEADER_NOT_AVAILABLE: "Look at the topic's page: a replica that can lead must "
        "run.",
    }
)


def _status(code: ErrorCode) -> int:
    if code in _FORBIDDEN:
        return 403
    if code in _MISSING:
        return 404
    return 503 if code.retriable else 409


def _advice(error: ApiError) -> str:
    if error.code in _FORBIDDEN:
        return "Ask an administrator for a rule (stele acls add), or use another user's properties."
    found = _ADVICE.get(error.code)
    if found is not None:
        return found
    return "Try again in a moment." if error.code.retriable else ""
