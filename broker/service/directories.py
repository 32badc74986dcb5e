"""The log directories of this broker, their replicas, and moves between them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.replication.descriptions import DirectoryDescription
from broker.service.context import BrokerContext
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from storage.turns import SLICE_STEPS, Slices


async def describe_directories(
    context: BrokerContext, caller: Caller, wanted: Collection[tuple[str, int]] | None
) -> list[DirectoryDescription]:
    """With the replicas of the ``wanted`` topics' partitions; None: of all.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED.
    """
    why = refusal(context.authorizer, caller, Operation.DESCRIBE, CLUSTER)
    if why is not None:
        raise why
    return await context.replicas.descriptions.directories(wanted)


async def alter_directories(
    context: BrokerContext, caller: Caller, wanted: Mapping[TopicPartition, str]
) -> dict[TopicPartition, ErrorCode]:
    """Let each of these replicas be in the directory of that path (``DirectoryMoves.alter``). A
    replica is there some time after the answer. Without the permission, each has the error."""
    why = refusal(context.authorizer, caller, Operation.ALTER, CLUSTER)
    slices = Slices(SLICE_STEPS)
    errors: dict[TopicPartition, ErrorCode] = {}
    for partition, path in wanted.items():
        if why is None:
            errors[partition] = context.replicas.moves.alter(partition, path)
        else:
            errors[partition] = why.code
        await slices.step()
    return errors
