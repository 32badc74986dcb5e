"""Partitions reassigned: many of them are several decisions of the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from broker.service.changes import accepted_change, known_here
from broker.service.context import BrokerContext
from runtime.authorization.caller import Caller
from stele.errors import ApiError
from stele.wire.v1 import admin_pb2 as pb

Wish = pb.AlterPartitionReassignmentsRequest.Partition
Answer = pb.AlterPartitionReassignmentsResponse.Partition

_AT_ONCE: Final = 500
"""Partitions of one decision, which takes some 20 ms of the controller's loop."""


async def reassign(
    context: BrokerContext,
    caller: Caller,
    wishes: Sequence[Wish],
    *,
    keep_replication_factor: bool,
    timeout_s: float,
) -> list[Answer]:
    """An answer for each partition, in the order of the wishes.

    Raises ApiError when nothing was decided. What is left when a later decision fails gets its
    error.
    """
    deadline = context.clock.monotonic() + timeout_s
    answers: list[Answer] = []
    metadata_offset = -1
    at_once = _at_once(wishes)
    for first in range(0, max(1, len(wishes)), at_once):
        request = pb.AlterPartitionReassignmentsRequest(
            partitions=wishes[first : first + at_once],
            keep_replication_factor=keep_replication_factor,
        )
        try:
            answer = await accepted_change(
                context,
                caller,
                request,
                pb.AlterPartitionReassignmentsResponse,
                timeout_s=deadline - context.clock.monotonic(),
            )
        except ApiError as error:
            if not answers:
                raise
            answers += [_failed(wish, error) for wish in wishes[first:]]
            break
        answers += answer.partitions
        metadata_offset = answer.metadata_offset
    await known_here(context, metadata_offset, deadline)
    return answers


def _at_once(wishes: Sequence[Wish]) -> int:
    """The controller refuses a partition that is named twice, and has to see it."""
    named = Counter((wish.topic, wish.partition) for wish in wishes)
    return _AT_ONCE if len(named) == len(wishes) else len(wishes)


def _failed(wish: Wish, error: ApiError) -> Answer:
    return Answer(
        topic=wish.topic, partition=wish.partition, error=error.code, message=error.message
    )
