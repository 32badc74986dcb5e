"""Failures in the words of thin clients: of one record, and of a whole stream."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, NamedTuple

from stele.error_meanings import explain
from stele.errors import (
    ApiError,
    BufferFullError,
    ClosedError,
    DeliveryTimeoutError,
    ErrorCode,
    SteleError,
    TransactionAbortedError,
    UnreachableError,
)
from stele.producer.sender import REFUSED_BEFORE_APPEND
from stele.world import ErrorInfo, RpcCode, RpcError

logger = logging.getLogger(__name__)

RETRY_AFTER_MS: Final = 200
"""The time that a client is told to wait before it tries again."""

_RPC_CODES: Final = {
    ErrorCode.INVALID_REQUEST: RpcCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_TOPIC_EXCEPTION: RpcCode.INVALID_ARGUMENT,
    ErrorCode.INVALID_REGULAR_EXPRESSION: RpcCode.INVALID_ARGUMENT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: RpcCode.NOT_FOUND,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: RpcCode.PERMISSION_DENIED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: RpcCode.PERMISSION_DENIED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: RpcCode.PERMISSION_DENIED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: RpcCode.PERMISSION_DENIED,
    ErrorCode.OFFSET_OUT_OF_RANGE: RpcCode.OUT_OF_RANGE,
    ErrorCode.POLICY_VIOLATION: RpcCode.RESOURCE_EXHAUSTED,
}


class Refusal(NamedTuple):
    """Why a record was refused, and whether it may be in the log all the same."""

    code: ErrorCode
    message: str
    maybe_written: bool = False


def refusal_of(error: BaseException, *, accepted: bool) -> Refusal:
    """The refusal for an error of a producer. ``accepted``: the producer had taken the record."""
    code, message = _meaning(error)
    if isinstance(error, DeliveryTimeoutError):
        return Refusal(code, message, error.maybe_written)
    if isinstance(error, TransactionAbortedError):
        return Refusal(ErrorCode.TRANSACTION_ABORTABLE, str(error))  # it counts for nothing
    return Refusal(code, message, accepted and code not in REFUSED_BEFORE_APPEND)


def _meaning(error: BaseException) -> tuple[ErrorCode, str]:
    if isinstance(error, ApiError):
        return error.code, explain(error.code, error.message)
    if isinstance(error, BufferFullError):
        return ErrorCode.REQUEST_TIMED_OUT, str(error)
    if isinstance(error, UnreachableError | ClosedError):
        return ErrorCode.BROKER_NOT_AVAILABLE, str(error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, str(error)


def stream_error(
    code: ErrorCode, message: str = "", metadata: Mapping[str, str] | None = None
) -> RpcError:
    """The status with which a stream or a call ends because of one of Kafka's errors."""
    rpc_code = _RPC_CODES.get(code)
    if rpc_code is None:
        rpc_code = RpcCode.UNAVAILABLE if code.retriable else RpcCode.FAILED_PRECONDITION
    may_succeed = code.retriable or rpc_code is RpcCode.RESOURCE_EXHAUSTED
    info = ErrorInfo(code.name, metadata or {}, RETRY_AFTER_MS if may_succeed else None)
    return RpcError(rpc_code, explain(code, message), info)


def stream_failure(error: SteleError, metadata: Mapping[str, str] | None = None) -> RpcError:
    """``stream_error`` for an error of our own client."""
    code, message = _meaning(error)
    return stream_error(code, message, metadata)


def bug(what: str, error: Exception) -> RpcError:
    """Log an unexpected error. Returns the status of the stream that it ends."""
    logger.error("%s failed", what, exc_info=error)
    return RpcError(RpcCode.INTERNAL, "internal error; see the node's log")
