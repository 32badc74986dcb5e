"""The details of a status, field by field as google.rpc has them."""

from __future__ import annotations

from runtime.real.status_details import status_details
from stele.wire.v1 import status_pb2
from stele.world import ErrorInfo


def test_an_error_without_a_retry() -> None:
    info = ErrorInfo("INVALID_REQUEST", {"topic": "t"})
    status = status_pb2.RpcStatus.FromString(status_details(3, "why", info))
    assert (status.code, status.message) == (3, "why")
    (detail,) = status.details
    assert detail.type_url == "type.googleapis.com/google.rpc.ErrorInfo"
    told = status_pb2.ErrorInfo.FromString(detail.value)
    assert (told.reason, told.domain, dict(told.metadata)) == (
        "INVALID_REQUEST",
        "stele",
        {"topic": "t"},
    )


def test_an_error_with_a_retry() -> None:
    info = ErrorInfo("BROKER_NOT_AVAILABLE", retry_after_ms=1_500)
    status = status_pb2.RpcStatus.FromString(status_details(14, "why", info))
    assert [each.type_url.rpartition(".")[2] for each in status.details] == [
        "ErrorInfo",
        "RetryInfo",
    ]
    retry = status_pb2.RetryInfo.FromString(status.details[1].value)
    assert (retry.retry_delay.seconds, retry.retry_delay.nanos) == (1, 500_000_000)
