"""Configurations altered: of many resources in several decisions of the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from broker.service.changes import accepted_change, check_named, error_code, known_here
from broker.service.config_resources import BROKER_LOGGER, CLIENT_METRICS
from broker.service.context import BrokerContext
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb

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
    if resource_type == CLIENT_METRICS:
        return ErrorCode.INVALID_REQUEST, "telemetry of clients (KIP-714) is not built"
    if nulls:
        return ErrorCode.INVALID_REQUEST, f"null is no value: {', '.join(nulls)}"
    return None


_MESSAGE_MAX = 1000
"""Characters: a message may list all that is wrong, and a string has 32,767 bytes at most."""

_AT_ONCE = 256
"""Resources and changes of one decision."""


def check_size(changes: Sequence[int]) -> None:
    """Of each resource the number of its changes. Raises ApiError POLICY_VIOLATION."""
    check_named(len(changes), "resources")
    check_named(sum(changes), "changes")


async def alter(
    context: BrokerContext,
    caller: Caller,
    wishes: Sequence[pb.AlterConfigsRequest.Resource],
    refusals: Sequence[tuple[ErrorCode, str] | None],
    *,
    validate_only: bool,
) -> list[Outcome]:
    """One outcome per wish, in their order; those with a refusal are not sent."""
    deadline = context.clock.monotonic() + _TIMEOUT_S
    asked = [wish for wish, why in zip(wishes, refusals, strict=True) if why is None]
    answers: list[tuple[ErrorCode, str]] = []
    metadata_offset = -1
    for part in _decisions(asked):
        request = pb.AlterConfigsRequest(validate_only=validate_only, resources=part)
        left_s = deadline - context.clock.monotonic()
        try:
            response = await accepted_change(
                context, caller, request, pb.AlterConfigsResponse, timeout_s=left_s
            )
        except ApiError as error:
            answers += [(error.code, error.message)] * (len(asked) - len(answers))
            break
        answers += [(error_code(each.error), each.message) for each in response.resources]
        metadata_offset = response.metadata_offset
    if metadata_offset >= 0:
        await known_here(context, metadata_offset, deadline)
    remaining = iter(answers)  # the controller answers in the order it was asked
    outcomes = []
    for wish, why in zip(wishes, refusals, strict=True):
        code, message = why or next(remaining)
        message = message[:_MESSAGE_MAX]
        outcomes.append(Outcome(wish.resource.type, wish.resource.name, code, message or None))
    return outcomes


def _decisions(
    wishes: Sequence[pb.AlterConfigsRequest.Resource],
) -> Iterator[list[pb.AlterConfigsRequest.Resource]]:
    """Resources are changed each by itself, so many of them may be several decisions.

    Not those that are named more than once: the controller refuses them, and has to see it.
    """
    times = Counter((wish.resource.type, wish.resource.name) for wish in wishes)
    if times.total() > len(times):
        yield list(wishes)
        return
    part: list[pb.AlterConfigsRequest.Resource] = []
    size = 0
    for wish in wishes:
        more = 1 + len(wish.changes)
        if part and size + more > _AT_ONCE:
            yield part
            part, size = [], 0
        part.append(wish)
        size += more
    if part:
        yield part
