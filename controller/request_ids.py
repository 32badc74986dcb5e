"""Requests with an id take effect once, however often and wherever they arrive.

The decision and what it was answered stand in one batch, so that both are there or neither; from
then on every image says what was answered. A request that comes again finds that, decides nothing,
and waits like any other until what its answer is based on is committed: so also behind the first
one that is still under way, on another controller, and after a snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from controller.machine import Context, ControllerResult, Decision
from metadata.features import REQUEST_OUTCOMES, metadata_version
from metadata.outcomes import REQUEST_ID_BYTES
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb

Request = TypeVar("Request", bound=Any)
Reply = TypeVar("Reply", bound=Any)


def once(
    context: Context,
    method: str,
    request: Request,
    reply_type: Callable[..., Reply],
    decide: Callable[[Context, Request], ControllerResult[Reply]],
) -> ControllerResult[Reply]:
    """Decide about a request, unless it has been decided before.

    A refusal is an outcome too: else the request could be refused and, sent twice, yet be done.
    What changes nothing by its nature (``validate_only``) is not remembered, and below
    metadata.version 2 nothing is. Raises ApiError INVALID_REQUEST for an id that is none, or that
    another request has used; without an id, whatever ``decide`` raises.
    """
    request_id: bytes = request.request_id
    if not request_id:
        return decide(context, request)
    if len(request_id) != REQUEST_ID_BYTES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"a request id has {REQUEST_ID_BYTES} bytes, this one {len(request_id)}",
        )
    digest = _digest(method, request)
    known = context.image.outcomes.get(request_id)
    if known is not None:
        if known.digest != digest:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"the request id {request_id.hex()} belongs to another request ({known.method}): "
                "make a new id for each request",
            )
        reply = reply_type()
        reply.MergeFromString(known.reply)
        reply.already_done = True
        return ControllerResult((), context.image, reply, repeats=True)
    try:
        result = decide(context, request)
    except ApiError as error:
        refused = reply_type(error=error.code, message=error.message)
        result = ControllerResult((), context.image, refused)
    if getattr(request, "validate_only", False):
        return result
    if metadata_version(result.image) < REQUEST_OUTCOMES:
        return result
    outcome = pb.RequestOutcomeRecord(
        request_id=request_id,
        method=method,
        digest=digest,
        reply=result.reply.SerializeToString(deterministic=True),
    )
    decision = Decision.after(context, result)
    decision.add(pb.MetadataRecord(request_outcome=outcome))
    return decision.result(result.reply)


def _digest(method: str, request: Any) -> bytes:
    """The same for the same request, whatever bytes it came in: maps have no order."""
    content = request.SerializeToString(deterministic=True)
    return hashlib.sha256(method.encode() + b"\0" + content).digest()[:16]
