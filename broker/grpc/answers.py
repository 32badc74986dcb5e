"""The refusals and coordinators that the services of groups and transactions answer with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from broker.service.changes import check_named
from broker.service.coordinators import Coordinators
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError
from stele.world import RpcCode, RpcError
from storage.turns import SLICE_STEPS, Slices

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


def refusable(
    response_type: type[R], handle: Callable[[Caller, Q], Awaitable[R]]
) -> Callable[[Caller, Q], Awaitable[R]]:
    """A handler that tells a refusal of everything in the answer."""

    async def handler(caller: Caller, request: Q) -> R:
        try:
            return await handle(caller, request)
        except ApiError as error:
            answer: Any = response_type()
            answer.error, answer.message = error.code, why(error)
            return cast(R, answer)

    return handler


def why(error: ApiError) -> str:
    return error.message or explain(error.code)


def check_count(count: int, what: str) -> None:
    """Raises RpcError INVALID_ARGUMENT: one request names too many."""
    try:
        check_named(count, what)
    except ApiError as error:
        raise RpcError(RpcCode.INVALID_ARGUMENT, error.message) from error


async def tell_coordinators(
    coordinators: Coordinators, ids: Iterable[str], add: Callable[[str], Any]
) -> None:
    """Where the coordinator of each id is, or why it is not known. ``add`` adds the answer for an
    id."""
    slices = Slices(SLICE_STEPS)
    for each in ids:
        await slices.step()
        told = add(each)
        told.broker_id = told.grpc_port = -1
        try:
            registration, endpoint = await coordinators.of(each)
        except ApiError as error:
            told.error, told.message = error.code, why(error)
        else:
            told.broker_id = registration.broker_id
            told.grpc_host, told.grpc_port = endpoint.host, endpoint.port
