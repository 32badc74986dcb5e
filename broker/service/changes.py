"""An administrator's change on its way to the active controller, from whichever plane."""

from __future__ import annotations

from typing import Any, TypeVar

from broker.service.context import BrokerContext
from metadata.features import REQUEST_OUTCOMES, metadata_version
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError

R = TypeVar("R", bound=Any)


async def forward_change(
    context: BrokerContext, name: str, request: Any, response_type: type[R], *, timeout_s: float
) -> R:
    """The active controller's answer; its ``error`` is neither NOT_CONTROLLER nor unknown.

    A request without an id gets one here: attempts at several controllers then count as one.
    Raises OutcomeUnknownError when the change may have been made, and ApiError NOT_CONTROLLER when
    it was not and never will be: in ``timeout_s`` no controller took it.
    """
    if not request.request_id:
        request.request_id = context.new_request_id()
    # Before outcomes are remembered, a second attempt could have an effect of its own.
    once = metadata_version(context.image()) >= REQUEST_OUTCOMES
    try:
        answer = await context.controller.call(
            f"/stele.v1.Admin/{name}",
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
