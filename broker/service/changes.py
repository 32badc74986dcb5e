"""An administrator's changes and questions on their way to the active controller.

What the caller may not change is refused here, in its place of the answer, and never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import Message

from broker.membership.controller_client import CALL_TIMEOUT_S
from broker.service.context import BrokerContext
from metadata.features import REQUEST_OUTCOMES, metadata_version
from runtime.authorization.authorizer import (
    ANY_TOPIC,
    CLUSTER,
    Operation,
    config_resource,
    refusal,
    topic_resource,
)
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError
from stele.wire.v1 import admin_pb2 as pb

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


# ---------------------------------------------------------------------- who may


class _Items(NamedTuple):
    """How a change of many things names them: each may be refused to the caller by itself."""

    lists: tuple[str, ...]  # fields of the request; the answer has a result for each item, in order
    results: str  # the answer's field
    refusal: Callable[[BrokerContext, Caller, Any], ApiError | None]
    named: Callable[[Any], dict[str, Any]]  # what tells an item, in its result


def _creation(context: BrokerContext, caller: Caller, topic: pb.NewTopic) -> ApiError | None:
    """Who may make topics in the cluster may make any; others those that they are given."""
    if context.authorizer.allows(caller, Operation.CREATE, CLUSTER):
        return None
    return refusal(context.authorizer, caller, Operation.CREATE, topic_resource(topic.name))


def _deletion(context: BrokerContext, caller: Caller, asked: str | bytes) -> ApiError | None:
    """Of a name or an id. Who knows only an id is not told the name."""
    if isinstance(asked, str):
        return refusal(context.authorizer, caller, Operation.DELETE, topic_resource(asked))
    topic = context.image().topic_by_id(asked)
    if topic is None:
        # The controller may know it by now. What it is called matters to whom some are forbidden.
        if context.authorizer.allows(caller, Operation.DELETE, ANY_TOPIC):
            return None
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic of this id is known here yet")
    if _deletion(context, caller, topic.name) is None:
        return None
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ApiError(error, f"{caller.principal} may not DELETE the topic of this id")


def _growth(
    context: BrokerContext, caller: Caller, topic: pb.CreatePartitionsRequest.Topic
) -> ApiError | None:
    return refusal(context.authorizer, caller, Operation.ALTER, topic_resource(topic.name))


def _alteration(
    context: BrokerContext, caller: Caller, altered: pb.AlterConfigsRequest.Resource
) -> ApiError | None:
    return refusal(
        context.authorizer,
        caller,
        Operation.ALTER_CONFIGS,
        config_resource(altered.resource.type, altered.resource.name),
    )


_BY_ITEM: Mapping[type[Message], _Items] = {
    pb.CreateTopicsRequest: _Items(
        ("topics",), "topics", _creation, lambda topic: {"name": topic.name}
    ),
    pb.DeleteTopicsRequest: _Items(
        ("names", "topic_ids"),
        "topics",
        _deletion,
        lambda asked: {"name": asked} if isinstance(asked, str) else {"topic_id": asked},
    ),
    pb.CreatePartitionsRequest: _Items(
        ("topics",), "topics", _growth, lambda topic: {"name": topic.name}
    ),
    pb.AlterConfigsRequest: _Items(
        ("resources",), "resources", _alteration, lambda altered: {"resource": altered.resource}
    ),
}
"""All other changes are of the cluster."""


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
    items = _BY_ITEM.get(type(request))
    answer: R
    if items is None:
        why = refusal(context.authorizer, caller, Operation.ALTER, CLUSTER)
        if why is not None:
            answer = response_type(error=why.code, message=why.message, leader_id=-1)
            return answer
        return await _forward(context, request, response_type, timeout_s)
    results = _refuse_items(context, caller, items, request)
    if not any(results):
        return await _forward(context, request, response_type, timeout_s)
    if all(results):
        answer = response_type(leader_id=-1)
    else:
        answer = await _forward(context, request, response_type, timeout_s)
        if answer.error != ErrorCode.NONE:
            return answer
    _place(getattr(answer, items.results), results)
    return answer


def _refuse_items(
    context: BrokerContext, caller: Caller, items: _Items, request: Any
) -> list[dict[str, Any] | None]:
    """The results of those items that the caller may not change, which leave the request; None in
    the places of the others."""
    results: list[dict[str, Any] | None] = []
    for name in items.lists:
        asked = getattr(request, name)
        refusals = [items.refusal(context, caller, item) for item in asked]
        results += [
            None
            if why is None
            else {**items.named(item), "error": why.code, "message": why.message}
            for item, why in zip(asked, refusals, strict=True)
        ]
        for index in reversed([i for i, why in enumerate(refusals) if why is not None]):
            del asked[index]
    return results


def _place(told: Any, results: Sequence[dict[str, Any] | None]) -> None:
    """Put the results of refused items between those that the controller gave."""
    decided = iter(list(told))
    del told[:]
    for result in results:
        if result is not None:
            told.add(**result)
        else:
            told.append(next(decided))


async def ask(
    context: BrokerContext,
    caller: Caller,
    operation: Operation,
    request: Message,
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
        refused: R = response_type(error=why.code, message=why.message, leader_id=-1)
        return refused
    return await context.controller.call(
        _method(request), request, response_type, timeout_s=timeout_s, attempt_s=attempt_s
    )


# ---------------------------------------------------------------------- the way there and back


def _method(request: Message) -> str:
    return f"/stele.v1.Admin/{type(request).__name__.removesuffix('Request')}"


async def _forward(
    context: BrokerContext, request: Any, response_type: type[R], timeout_s: float
) -> R:
    """A request without an id gets one here: attempts at several controllers then count as one."""
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
