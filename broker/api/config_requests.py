"""What the two ways of altering configurations share: the way to the controller, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.api.topic_requests import error_code, forwarded, known_here
from broker.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

BROKER_LOGGER = 8
"""The resource type of a broker's loggers (KIP-412)."""

_TIMEOUT_S = 10.0
"""The requests carry no time-out of their own."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one resource of the request."""

    resource_type: int
    resource_name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def refusal(resource_type: int, nulls: Sequence[str]) -> tuple[ErrorCode, str] | None:
    """What the controller's form of the request cannot say. ``nulls``: set to no value."""
    if resource_type == BROKER_LOGGER:
        return ErrorCode.INVALID_REQUEST, "log levels of a broker cannot be altered"
    if nulls:
        return ErrorCode.INVALID_REQUEST, f"null is no value: {', '.join(nulls)}"
    return None


async def alter(
    context: BrokerContext,
    wishes: Sequence[pb.AlterConfigsRequest.Resource],
    refusals: Sequence[tuple[ErrorCode, str] | None],
    *,
    validate_only: bool,
) -> list[Outcome]:
    """One outcome per wish, in their order; those with a refusal are not sent."""
    deadline = context.clock.monotonic() + _TIMEOUT_S
    request = pb.AlterConfigsRequest(
        validate_only=validate_only,
        resources=[wish for wish, why in zip(wishes, refusals, strict=True) if why is None],
    )
    answers: list[tuple[ErrorCode, str]] = []
    if request.resources:
        count = len(request.resources)
        try:
            response = await forwarded(
                context, "AlterConfigs", request, pb.AlterConfigsResponse, timeout_s=_TIMEOUT_S
            )
        except ApiError as error:
            answers = [(error.code, error.message)] * count
        else:
            answers = [(error_code(each.error), each.message) for each in response.resources]
            await known_here(context, response.metadata_offset, deadline)
    remaining = iter(answers)  # the controller answers in the order it was asked
    outcomes = []
    for wish, why in zip(wishes, refusals, strict=True):
        code, message = why or next(remaining)
        outcomes.append(Outcome(wish.resource.type, wish.resource.name, code, message or None))
    return outcomes
