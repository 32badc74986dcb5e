"""Log directories of this broker, and what is in them."""

from __future__ import annotations

from collections.abc import Collection

from broker.replication.descriptions import DirectoryDescription
from broker.service.context import BrokerContext
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller


async def describe_directories(
    context: BrokerContext, caller: Caller, wanted: Collection[tuple[str, int]] | None
) -> list[DirectoryDescription]:
    """With the replicas of the ``wanted`` topics' partitions; None: of all.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED.
    """
    why = refusal(context.authorizer, caller, Operation.DESCRIBE, CLUSTER)
    if why is not None:
        raise why
    return await context.replicas.describe_directories(wanted)
