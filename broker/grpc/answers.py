"""What services of groups and of transactions have in common: refusals, coordinators, commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from broker.coordinator.group.types import NO_GENERATION, OffsetCommitRequest, OffsetToCommit
from broker.coordinator.layout import utf16_units
from broker.service.changes import check_named
from broker.service.coordinators import Coordinators
from broker.service.topics import NO_TOPIC_ID
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.world import RpcCode, RpcError

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
    for each in ids:
        told = add(each)
        told.broker_id = told.grpc_port = -1
        try:
            registration, endpoint = await coordinators.of(each)
        except ApiError as error:
            told.error, told.message = error.code, why(error)
        else:
            told.broker_id = registration.broker_id
            told.grpc_host, told.grpc_port = endpoint.host, endpoint.port


def instance_of(message: Any) -> str | None:
    """The group instance id, which may be absent."""
    return message.group_instance_id if message.HasField("group_instance_id") else None


def commit_of(request: Any) -> OffsetCommitRequest:
    """Who commits to which group. The offsets come by ``offsets_of``."""
    return OffsetCommitRequest(
        group_id=request.group,
        generation=request.generation if request.HasField("generation") else NO_GENERATION,
        member_id=request.member_id,
        group_instance_id=instance_of(request),
        offsets=(),
    )


def offsets_of(request: Any) -> Iterator[OffsetToCommit]:
    return (
        OffsetToCommit(
            each.topic,
            each.partition,
            each.offset,
            each.leader_epoch if each.HasField("leader_epoch") else -1,
            each.metadata,
            each.topic_id or NO_TOPIC_ID,
        )
        for each in request.partitions
    )


def tell_committed(
    request: Any, errors: Sequence[ErrorCode], response: Any, metadata_units_max: int
) -> None:
    """What became of each offset, in their order."""
    for each, error in zip(request.partitions, errors, strict=True):
        message = explain(error)
        if error is ErrorCode.OFFSET_METADATA_TOO_LARGE:
            units = utf16_units(each.metadata)
            message = (
                f"the metadata has {units} UTF-16 units, and offset.metadata.max.bytes is "
                f"{metadata_units_max}"
            )
        response.partitions.add(
            topic=each.topic,
            partition=each.partition,
            error=error,
            topic_id=each.topic_id,
            message=message,
        )
