"""The details of a gRPC status, as gRPC libraries of all languages decode them.

They are the trailer ``grpc-status-details-bin``: a ``google.rpc.Status`` with the code and the
message once more, and details of any type (https://google.aip.dev/193). Our own messages have the
same fields as those of google.rpc, whose Python package nodes do not need.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from stele.wire.v1 import status_pb2 as pb
from stele.world import ErrorInfo

DOMAIN: Final = "stele"


def status_details(code: int, message: str, info: ErrorInfo) -> bytes:
    """The trailer's value for a status with gRPC's number ``code``."""
    status = pb.RpcStatus(code=code, message=message)
    _add(status, pb.ErrorInfo(reason=info.reason, domain=DOMAIN, metadata=dict(info.metadata)))
    if info.retry_after_ms is not None:
        retry = pb.RetryInfo()
        retry.retry_delay.FromMilliseconds(info.retry_after_ms)
        _add(status, retry)
    return status.SerializeToString()


def _add(status: pb.RpcStatus, detail: Message) -> None:
    status.details.add(
        type_url=f"type.googleapis.com/google.rpc.{detail.DESCRIPTOR.name}",
        value=detail.SerializeToString(deterministic=True),
    )
