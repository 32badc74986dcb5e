"""Configurations altered, as Kafka's two requests for that ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.service.changes import accepted_change, check_named
from broker.service.config_resources import BROKER_LOGGER
from broker.service.context import BrokerContext
from metadata.security_settings import store_key
from runtime.administration.parts import error_code
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.authorizer import refusal as refused
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1.metadata_pb2 import ConfigResourceType
from storage.turns import SLICE_STEPS, Slices

_TIMEOUT_S = 10.0
"""The requests carry no time-out of their own."""


@dataclass(frozen=True, slots=True)
class ConfigOutcome:
    """The outcome of one resource of the request."""

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


_MESSAGE_MAX = 1000
"""Characters: a message may list all that is wrong, and a string has 32,767 bytes at most."""


def check_size(changes: Sequence[int]) -> None:
    """``changes``: their number for each resource. Raises ApiError POLICY_VIOLATION."""
    check_named(len(changes), "resources")
    check_named(sum(changes), "changes")


async def alter(
    context: BrokerContext,
    caller: Caller,
    wishes: Sequence[pb.AlterConfigsRequest.Resource],
    refusals: Sequence[tuple[ErrorCode, str] | None],
    *,
    validate_only: bool,
) -> list[ConfigOutcome]:
    """One outcome per wish, in their order; those with a refusal are not sent."""
    slices = Slices(SLICE_STEPS)
    refused_here: list[tuple[ErrorCode, str] | None] = []
    for wish, why in zip(wishes, refusals, strict=True):
        refused_here.append(why or await _certificate_refusal(context, caller, wish))
        await slices.step()
    asked = [wish for wish, why in zip(wishes, refused_here, strict=True) if why is None]
    request = pb.AlterConfigsRequest(validate_only=validate_only, resources=asked)
    answers: list[tuple[ErrorCode, str]] = []
    if asked:
        try:
            answer = await accepted_change(context, caller, request, timeout_s=_TIMEOUT_S)
            answers = await slices.map(_told, answer.resources)
        except ApiError as error:
            answers = [(error.code, error.message)] * len(asked)
    remaining = iter(answers)  # the controller answers in the order it was asked

    def outcome(
        each: tuple[pb.AlterConfigsRequest.Resource, tuple[ErrorCode, str] | None],
    ) -> ConfigOutcome:
        wish, why = each
        code, message = why or next(remaining)
        message = message[:_MESSAGE_MAX]
        return ConfigOutcome(wish.resource.type, wish.resource.name, code, message or None)

    return await slices.map(outcome, zip(wishes, refused_here, strict=True))


def _told(result: pb.AlterConfigsResponse.Resource) -> tuple[ErrorCode, str]:
    return error_code(result.error), result.message


async def _certificate_refusal(
    context: BrokerContext, caller: Caller, wish: pb.AlterConfigsRequest.Resource
) -> tuple[ErrorCode, str] | None:
    """Try other stores of this broker before they are written. A caller that may not change them
    learns nothing about the broker's files: the controller refuses the change."""
    is_own = wish.resource.type == ConfigResourceType.BROKER and wish.resource.name == str(
        context.broker_id
    )
    changes = {
        change.name: change.value if change.HasField("value") else None
        for change in wish.changes
        if store_key(change.name) is not None
    }
    if not is_own or not changes or context.why_not_certificates is None:
        return None
    if refused(context.authorizer, caller, Operation.ALTER_CONFIGS, CLUSTER) is not None:
        return None
    why = await context.why_not_certificates(changes)
    return None if why is None else (ErrorCode.INVALID_REQUEST, why)
