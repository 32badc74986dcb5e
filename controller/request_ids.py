"""A request with an id takes effect once, however often and at whichever controllers it arrives.

A decision and its answer are in one batch, so both are in the log or neither is. From then on every
image holds the answer. A copy of the request finds the answer, decides nothing, and waits like any
other request until the records of the decision are committed. This also holds while the first copy
is under way, on another controller, and after a snapshot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

from controller.machine import Context, ControllerResult, Decision
from metadata.features import REQUEST_OUTCOMES, metadata_version
from metadata.outcomes import REQUEST_ID_BYTES, Outcome
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
    """Decide about a request, unless it was decided before.

    A refusal is an outcome as well: otherwise the first copy of a request could be refused and the
    second one accepted. Requests with ``validate_only`` are not remembered, and below
    metadata.version 2 no request is. Raises ApiError INVALID_REQUEST for an invalid id or one that
    another request has used. Without an id, it raises what ``decide`` raises.
    """
    request_id: bytes = request.request_id
    if not request_id:
        return decide(context, request)
    digest = _digest(method, request.SerializeToString(deterministic=True))
    known = _known(context, request_id, digest)
    if known is not None:
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


def begin(
    context: Context, method: str, request_id: bytes, content: bytes
) -> ControllerResult[bool]:
    """Whether a request may begin now whose effect is no metadata record (a change of voters).

    A digest of the request's bytes, ``content``, is written down before the request takes effect.
    So it begins at most once, and a late copy does nothing. Raises ApiError as ``once`` does for
    the id.
    """
    digest = _digest(method, content)
    if _known(context, request_id, digest) is not None:
        return ControllerResult((), context.image, False, repeats=True)
    decision = Decision(context)
    if metadata_version(context.image) >= REQUEST_OUTCOMES:
        outcome = pb.RequestOutcomeRecord(request_id=request_id, method=method, digest=digest)
        decision.add(pb.MetadataRecord(request_outcome=outcome))
    return decision.result(True)


def _known(context: Context, request_id: bytes, digest: bytes) -> Outcome | None:
    """The recorded outcome of the request, None if there is none. Raises ApiError INVALID_REQUEST
    for an invalid id or one that another request has used."""
    if len(request_id) != REQUEST_ID_BYTES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"a request id has {REQUEST_ID_BYTES} bytes, this one {len(request_id)}",
        )
    known = context.image.outcomes.get(request_id)
    if known is not None and known.digest != digest:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the request id {request_id.hex()} belongs to another request ({known.method}): "
            "make a new id for each request",
        )
    return known


def _digest(method: str, content: bytes) -> bytes:
    """A digest that is equal for equal requests. ``content`` is serialized deterministically, with
    maps in the order of their keys."""
    return hashlib.sha256(method.encode() + b"\0" + content).digest()[:16]
