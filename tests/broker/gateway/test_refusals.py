"""What thin clients hear of errors, and whether a refused record may be in the log."""

from __future__ import annotations

import pytest

from broker.gateway.refusals import Refusal, refusal_of, stream_error
from stele.errors import (
    ApiError,
    BufferFullError,
    ClosedError,
    DeliveryTimeoutError,
    ErrorCode,
    TransactionAbortedError,
    UnreachableError,
)
from stele.world import RpcCode


@pytest.mark.parametrize(
    ("error", "accepted", "expected"),
    [
        (ApiError(ErrorCode.MESSAGE_TOO_LARGE, "so"), True, (ErrorCode.MESSAGE_TOO_LARGE, False)),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "so"), True, ("same", True)),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "so"), False, ("same", False)),
        (DeliveryTimeoutError("so", maybe_written=True), False, ("any", True)),
        (DeliveryTimeoutError("so", maybe_written=False), True, ("any", False)),
        (TransactionAbortedError("so"), True, (ErrorCode.TRANSACTION_ABORTABLE, False)),
        (BufferFullError("so"), False, (ErrorCode.REQUEST_TIMED_OUT, False)),
        (UnreachableError("so"), True, (ErrorCode.BROKER_NOT_AVAILABLE, True)),
        (ClosedError("so"), False, (ErrorCode.BROKER_NOT_AVAILABLE, False)),
        (ZeroDivisionError("so"), True, (ErrorCode.UNKNOWN_SERVER_ERROR, True)),
    ],
)
def test_a_refused_record_may_be_written_unless_its_error_says_otherwise(
    error: Exception, accepted: bool, expected: tuple[ErrorCode | str, bool]
) -> None:
    found: Refusal = refusal_of(error, accepted=accepted)
    code, maybe_written = expected
    assert found.maybe_written is maybe_written
    if isinstance(code, ErrorCode):
        assert found.code is code
    if code == "same":
        assert isinstance(error, ApiError)
        assert found.code is error.code


@pytest.mark.parametrize(
    ("code", "rpc_code", "may_succeed"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, RpcCode.OUT_OF_RANGE, False),
        (ErrorCode.POLICY_VIOLATION, RpcCode.RESOURCE_EXHAUSTED, True),
        (ErrorCode.NOT_COORDINATOR, RpcCode.UNAVAILABLE, True),
        (ErrorCode.INVALID_RECORD, RpcCode.FAILED_PRECONDITION, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, RpcCode.NOT_FOUND, True),
    ],
)
def test_a_stream_ends_with_a_status_and_a_time_if_it_may_be_tried_again(
    code: ErrorCode, rpc_code: RpcCode, may_succeed: bool
) -> None:
    error = stream_error(code)
    assert error.code is rpc_code
    assert error.info is not None
    assert error.info.metadata == {}
    assert (error.info.retry_after_ms is not None) is may_succeed
