"""An administrator's changes and questions on their way to the active controller.

What the caller may not change is refused here, in its place of the answer, and never sent.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from broker.membership.controller_client import CALL_TIMEOUT_S
from broker.service.context import BrokerContext
from metadata.features import REQUEST_OUTCOMES, metadata_version
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from runtime.authorization.changes import take_refused
from runtime.authorization.forwarding import ask_for
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError

R = TypeVar("R", bound=Any)

NAMED_MAX: Final = 10_000
"""What one administrative request may name, and how much it may make, as at the controller."""

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


def error_code(number: int) -> ErrorCode:
    """An error of the wire; one that this version does not know is a server's error."""
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def check_named(count: int, what: str) -> None:
    """Raises ApiError POLICY_VIOLATION for too much, as the controller would, before anything is
    made of it."""
    if count > NAMED_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{count} {what} are too many for one request, {NAMED_MAX} are the most",
        )


async def change(
    context: BrokerContext,
    caller: Caller,
    request: Any,
    response_type: type[R],
    *,
    timeout_s: float,
) -> R:
    """The active controller's answer to a request of ``stele.v1.Admin`` that changes something.

    Its ``error`` is a refusal: neither NOT_CONTROLLER nor unknown. Raises OutcomeUnknownError when
    the change may have been made, and ApiError NOT_CONTROLLER when it was not and never will be: in
    ``timeout_s`` no controller took it.
    """
    try:
        refused = take_refused(context.authorizer, context.image(), caller, request)
    except ApiError as why:
        return _refused(response_type, why)
    answer: R
    if refused.is_everything:
        answer = response_type(leader_id=-1)
    else:
        answer = await _forward(context, caller, request, response_type, timeout_s)
        if answer.error != ErrorCode.NONE:
            return answer
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
        _method(request), request, response_type, timeout_s=timeout_s, attempt_s=attempt_s
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
    context: BrokerContext,
    caller: Caller,
    request: Any,
    response_type: type[R],
    *,
    timeout_s: float,
) -> R:
    """As ``change``; the answer is no refusal of the whole.

    Raises ApiError: the refusal, or REQUEST_TIMED_OUT for whatever Kafka's clients know by that.
    """
    try:
        answer = await change(context, caller, request, response_type, timeout_s=timeout_s)
    except ApiError as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, error.message) from error
    if answer.error != ErrorCode.NONE:
        message = answer.message or f"the controller refused {_method(request)}"
        raise ApiError(error_code(answer.error), message)
    return answer


async def settled_change(
    context: BrokerContext,
    caller: Caller,
    request: Any,
    response_type: type[R],
    *,
    timeout_s: float,
) -> R:
    """As ``accepted_change``, once this broker's own metadata has the decision: a client's next
    question often comes to it. Held back for a second at most, and never past the time given."""
    deadline = context.clock.monotonic() + timeout_s
    answer = await accepted_change(context, caller, request, response_type, timeout_s=timeout_s)
    await known_here(context, answer.metadata_offset, deadline)
    return answer


def known_here_s(context: BrokerContext, deadline: float) -> float:
    """How long to wait until this broker knows the change, too: never past the deadline."""
    return max(0.0, min(_KNOWN_HERE_S, deadline - context.clock.monotonic()))


async def known_here(context: BrokerContext, metadata_offset: int, deadline: float) -> None:
    """Wait until this broker's own metadata has a decision, never past the deadline."""
    await context.wait_until(
        lambda image: image.offset >= metadata_offset, known_here_s(context, deadline)
    )
