"""An administrator's changes and questions on their way to the active controller.

What the caller may not change is refused here, in its place of the answer, and never sent.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from broker.membership.controller_client import CALL_TIMEOUT_S
from broker.service.context import BrokerContext
from metadata.features import REQUEST_OUTCOMES, metadata_version
from runtime.administration.changes import change_of
from runtime.administration.parts import NAMED_MAX, error_code, in_parts, parts_in_turns, told_as
from runtime.administration.refused import NOTHING_REFUSED, take_refused
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from runtime.authorization.forwarding import ask_for, is_copy
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError

R = TypeVar("R", bound=Any)

_KNOWN_HERE_S = 1.0
"""How long an answer is held back until this broker's own metadata shows the change."""

_NO_WAIT_S = 5.0
"""How long the controller is given by a client that does not want to wait."""


def patience_s(timeout_ms: int) -> float:
    """For how long the active controller is asked on behalf of a client.

    A client that gives no time at all wants the request to be made and not to wait for more: it
    is answered as others are, and not refused for a time in which nobody could have answered.
    """
    return timeout_ms / 1000 if timeout_ms > 0 else _NO_WAIT_S


def check_named(count: int, what: str) -> None:
    """Raises ApiError POLICY_VIOLATION for too much, as the controller would, before anything is
    made of it."""
    if count > NAMED_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} {what} are too many for one request: the maximum is {NAMED_MAX}",
        )


async def change(
    context: BrokerContext, caller: Caller, request: Message, *, timeout_s: float
) -> Any:
    """The answer to a change of ``runtime.administration.changes``, once this broker's own metadata
    has it: a client's next question often comes to this broker. The answer is held back for a
    second at most, and never past the time given.

    Many items are several decisions, one after the other. If a later one fails for a passing
    reason, the outcome of a request with an id is unknown: its sender repeats it, and what was done
    is then known. Otherwise the items that are left get the error.

    A copy of an earlier request (``is_copy``) is never refused here.

    The answer's ``error`` is a refusal: neither NOT_CONTROLLER nor unknown. Raises
    OutcomeUnknownError when the change may have been made, and ApiError NOT_CONTROLLER when it was
    not and never will be: in ``timeout_s`` no controller took it. Raises ApiError POLICY_VIOLATION
    for too many items.
    """
    items = change_of(request).items
    if items is not None:
        check_named(sum(len(getattr(request, field)) for field in items.lists), items.what)
    deadline = context.clock.monotonic() + timeout_s
    parts = await parts_in_turns(request)
    if len(parts) == 1:
        answer = await _decided(context, caller, request, deadline)
    else:
        answer = await in_parts(
            request,
            parts,
            lambda part: _decided(context, caller, part, deadline),
            lambda: deadline - context.clock.monotonic(),
        )
    if answer.error == ErrorCode.NONE:
        await known_here(context, answer.metadata_offset, deadline)
    return answer


async def _decided(context: BrokerContext, caller: Caller, request: Any, deadline: float) -> Any:
    """The active controller's answer to one decision."""
    response_type = change_of(request).response
    left_s = deadline - context.clock.monotonic()
    allowed = type(request)()
    allowed.CopyFrom(request)
    try:
        refused = take_refused(context.authorizer, context.image(), caller, allowed)
        refusal = response_type(leader_id=-1) if refused.is_everything else None
    except ApiError as why:
        refused, refusal = NOTHING_REFUSED, _refused(response_type, why)
    if refusal is None:
        answer = await _forward(context, caller, allowed, response_type, left_s)
    elif is_copy(request):
        # Only the controller can refuse the earlier copies as well.
        return await _forward(context, caller, request, response_type, left_s)
    else:
        answer = refusal
    if answer.error == ErrorCode.NONE:
        refused.place(answer)
    return answer


def _refused(response_type: type[R], why: ApiError) -> R:
    answer: R = response_type(error=why.code, message=why.message, leader_id=-1)
    return answer


async def ask(
    context: BrokerContext,
    caller: Caller,
    operation: Operation,
    request: Any,
    response_type: type[R],
    *,
    timeout_s: float,
    attempt_s: float = CALL_TIMEOUT_S,
) -> R:
    """The active controller's answer to what asks or does something to the cluster as such.

    Raises ApiError REQUEST_TIMED_OUT when no controller answered in time.
    """
    why = refusal(context.authorizer, caller, operation, CLUSTER)
    if why is not None:
        return _refused(response_type, why)
    ask_for(caller, request)
    return await context.controller.call(
        _method(request),
        request,
        response_type,
        timeout_s=timeout_s,
        attempt_s=attempt_s,
    )


# ---------------------------------------------------------------------- the way there and back


def _method(request: Message) -> str:
    return f"/stele.v1.Admin/{type(request).__name__.removesuffix('Request')}"


async def _forward(
    context: BrokerContext, caller: Caller, request: Any, response_type: type[R], timeout_s: float
) -> R:
    """A request without an id gets one here: attempts at several controllers then count as one."""
    ask_for(caller, request)
    if not request.request_id:
        request.request_id = context.new_request_id()
    # Before outcomes are remembered, a second attempt could have an effect of its own.
    once = metadata_version(context.image()) >= REQUEST_OUTCOMES
    try:
        answer = await context.controller.call(
            _method(request),
            request,
            response_type,
            timeout_s=timeout_s,
            repeat_unknown=once,
        )
    except OutcomeUnknownError as error:
        raise OutcomeUnknownError.because(error.cause, request.request_id) from error
    except ApiError as error:
        raise ApiError(ErrorCode.NOT_CONTROLLER, f"{error.message}: nothing was done") from error
    if answer.error == ErrorCode.REQUEST_TIMED_OUT:
        cause = "the active controller lost its leadership before the change was committed"
        raise OutcomeUnknownError.because(cause, request.request_id)
    return answer


async def accepted_change(
    context: BrokerContext, caller: Caller, request: Any, *, timeout_s: float
) -> Any:
    """As ``change``, for Kafka's clients; the answer is no refusal of the whole.

    Raises ApiError: the refusal, or REQUEST_TIMED_OUT.
    """
    try:
        answer = await change(context, caller, request, timeout_s=timeout_s)
    except ApiError as error:
        raise told_as(error) from error
    if answer.error != ErrorCode.NONE:
        message = answer.message or f"the controller refused {change_of(request).name}"
        raise ApiError(error_code(answer.error), message)
    return answer


async def known_here(context: BrokerContext, metadata_offset: int, deadline: float) -> None:
    """Wait until this broker's own metadata has a decision, never past the deadline."""
    patience_s = max(0.0, min(_KNOWN_HERE_S, deadline - context.clock.monotonic()))
    await context.wait_until(lambda image: image.offset >= metadata_offset, patience_s)
