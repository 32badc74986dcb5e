"""A request with an id takes effect once, however often and at whichever controllers it arrives.

A decision and its answer are in one batch, so both are in the log or neither is. From then on every
image holds the answer. A copy of the request finds the answer, decides nothing, and waits like any
other request until the records of the decision are committed. This also holds while the first copy
is under way, on another controller, and after a snapshot.

A refused request usually writes nothing: it would cost a client nothing to fill the log, and the
memory of all nodes. The active controller remembers refusals as long as it leads.

The refusal of a copy (``repeats``) is written as an outcome. Otherwise an earlier copy, which is
still on its way, could be accepted by the next active controller after the client was told of the
refusal. Refusals may fill only a part of the memory. If that is full, or if the failure is no
decision, the answer to a copy is that the outcome is unknown.

An image remembers a bounded number of outcomes. The controller takes no request whose outcome would
push out one that may still be repeated.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from controller.machine import Context, ControllerResult, Decision
from metadata.features import OUTCOME_TIMES, REQUEST_OUTCOMES, metadata_version
from metadata.outcomes import (
    LIMITS,
    NO_OUTCOMES,
    REPEAT_MS,
    REPLY_BYTES_MAX,
    REQUEST_ID_BYTES,
    RequestOutcome,
)
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError
from stele.wire.v1 import metadata_pb2 as pb

Request = TypeVar("Request", bound=Any)
Reply = TypeVar("Reply", bound=Any)

REFUSED_SHARE: Final = 8
"""Refusals may take one eighth of the memory of outcomes in ``REPEAT_MS``. Refused requests cannot
keep changes out."""


def once(
    context: Context,
    method: str,
    request: Request,
    reply_type: Callable[..., Reply],
    decide: Callable[[Context, Request], ControllerResult[Reply]],
    refusals: Refusals,
    *,
    repeats: bool = False,
) -> ControllerResult[Reply]:
    """Decide about a request, unless it was decided before.

    ``repeats``: an earlier copy was sent, and may still arrive at any controller.

    Requests with ``validate_only`` are not remembered, and below metadata.version 2 no request is.
    Raises ApiError INVALID_REQUEST for an invalid id or one that another request has used, and
    THROTTLING_QUOTA_EXCEEDED if the outcome cannot be remembered now. Raises OutcomeUnknownError if
    the refusal of a copy cannot be written down. Without an id, it raises what ``decide`` raises.
    """
    request_id: bytes = request.request_id
    if not request_id:
        return decide(context, request)
    digest = _digest(method, request.SerializeToString(deterministic=True))
    known = _known(context, request_id, digest, refusals)
    if known is not None:
        reply = reply_type()
        reply.MergeFromString(known.reply)
        reply.already_done = True
        if repeats and context.image.outcomes.get(request_id) is None:
            # Only this controller knows the refusal, and other copies may be on their way.
            return _written_refusal(context, known, reply, refusals)
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
    reply = result.reply.SerializeToString(deterministic=True)
    if not result.records and _is_refusal(result.reply):
        refusal = RequestOutcome(request_id, method, digest, reply)
        if repeats:
            return _written_refusal(context, refusal, result.reply, refusals)
        refusals.remember(refusal)
        return result
    decision = Decision.after(context, result)
    decision.add(_outcome(context, request_id, method, digest, reply))
    return decision.result(result.reply)


def _written_refusal(
    context: Context, refusal: RequestOutcome, reply: Reply, refusals: Refusals
) -> ControllerResult[Reply]:
    """The refusal, and the record that refuses every other copy of the request. Raises
    OutcomeUnknownError if it cannot be remembered now."""
    if not refusals.may_write(len(refusal.reply), context.now_ms):
        raise OutcomeUnknownError.because(
            "this copy of the request is refused, but too many refusals are remembered to refuse"
            " the others as well",
            refusal.request_id,
        )
    record = _outcome(context, refusal.request_id, refusal.method, refusal.digest, refusal.reply)
    refusals.written(len(refusal.reply), context.now_ms)
    decision = Decision(context)
    decision.add(record)
    return decision.result(reply)


def begin(
    context: Context, method: str, request_id: bytes, content: bytes
) -> ControllerResult[bool]:
    """Whether a request may begin now whose effect is no metadata record (a change of voters).

    A digest of the request's bytes, ``content``, is written down before the request takes effect.
    So it begins at most once, and a late copy does nothing. Raises ApiError as ``once`` does for
    the id and the memory.
    """
    digest = _digest(method, content)
    if _known(context, request_id, digest) is not None:
        return ControllerResult((), context.image, False, repeats=True)
    decision = Decision(context)
    if metadata_version(context.image) >= REQUEST_OUTCOMES:
        decision.add(_outcome(context, request_id, method, digest, b""))
    return decision.result(True)


class Refusals:
    """What the active controller has refused since it leads, the newest, and how much of that it
    has written into the log lately."""

    def __init__(self) -> None:
        self._outcomes = NO_OUTCOMES  # in no log
        # The time and the bytes of each refusal written in the last REPEAT_MS, oldest first.
        self._written: deque[tuple[int, int]] = deque()
        self._written_bytes = 0  # the sum over `_written`

    def get(self, request_id: bytes) -> RequestOutcome | None:
        return self._outcomes.get(request_id)

    def remember(self, refusal: RequestOutcome) -> None:
        self._outcomes = self._outcomes.with_(refusal)

    def may_write(self, reply_bytes: int, now_ms: int) -> bool:
        """Whether the log may take a refusal with such a reply now."""
        while self._written and abs(now_ms - self._written[0][0]) >= REPEAT_MS:
            self._written_bytes -= self._written.popleft()[1]
        return (
            len(self._written) < LIMITS.outcomes // REFUSED_SHARE
            and self._written_bytes + reply_bytes <= LIMITS.reply_bytes // REFUSED_SHARE
        )

    def written(self, reply_bytes: int, now_ms: int) -> None:
        self._written.append((now_ms, reply_bytes))
        self._written_bytes += reply_bytes

    def forget(self) -> None:
        self._outcomes = NO_OUTCOMES
        self._written.clear()
        self._written_bytes = 0


def _is_refusal(reply: Any) -> bool:
    """Whether the whole request is refused, or everything that it asked for."""
    if reply.error:
        return True
    items = [
        value
        for field, value in reply.ListFields()
        if field.is_repeated and "error" in field.message_type.fields_by_name
    ]
    return bool(items) and all(item.error for item in items[0])


def _outcome(
    context: Context, request_id: bytes, method: str, digest: bytes, reply: bytes
) -> pb.MetadataRecord:
    """The record of an outcome. Raises ApiError if it cannot be remembered now."""
    outcome = pb.RequestOutcomeRecord(
        request_id=request_id, method=method, digest=digest, reply=reply
    )
    if metadata_version(context.image) >= OUTCOME_TIMES:
        _check_memory(context, reply)
        outcome.decided_ms = context.now_ms
    return pb.MetadataRecord(request_outcome=outcome)


def _check_memory(context: Context, reply: bytes) -> None:
    if len(reply) > REPLY_BYTES_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the answer would have {len(reply)} bytes, {REPLY_BYTES_MAX} are the most: ask for"
            " less at once",
        )
    pushed_out = context.image.outcomes.pushed_out_by(len(reply), LIMITS)
    if pushed_out is None:
        return
    age_ms = context.now_ms - pushed_out.decided_ms
    # The clocks of controllers differ. A time far in the future says nothing.
    if abs(age_ms) < REPEAT_MS:
        raise ApiError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"too many changes are remembered, in case they are repeated:"
            f" try again in {(REPEAT_MS - age_ms) // 1000 + 1} s",
        )


def _known(
    context: Context, request_id: bytes, digest: bytes, refusals: Refusals | None = None
) -> RequestOutcome | None:
    """The recorded outcome of the request, or None. Raises ApiError INVALID_REQUEST for an invalid
    id or one that another request has used."""
    if len(request_id) != REQUEST_ID_BYTES:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"a request id has {REQUEST_ID_BYTES} bytes, this one {len(request_id)}",
        )
    known = context.image.outcomes.get(request_id)
    if known is None and refusals is not None:
        known = refusals.get(request_id)
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
