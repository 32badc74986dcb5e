"""Offsets: by time, and where leader epochs end. Both are asked for by the names of topics."""

from __future__ import annotations

from collections.abc import Sequence

from broker.replication.types import EpochQuery, OffsetQuery, OffsetResult
from broker.service.context import BrokerContext
from broker.service.items import merge
from broker.service.topics import Topics, error_by_name
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.authorization.caller import Caller


def topics(context: BrokerContext, caller: Caller) -> Topics:
    """The partitions whose offsets and leader epochs the caller may know: a node all of them,
    others what they may DESCRIBE."""
    if context.authorizer.allows(caller, Operation.CLUSTER_ACTION, CLUSTER):
        return Topics(context, caller, Operation.CLUSTER_ACTION, CLUSTER)
    return Topics(context, caller, Operation.DESCRIBE)


async def list_offsets(
    context: BrokerContext, items: Sequence[OffsetQuery | OffsetResult], *, read_committed: bool
) -> list[OffsetResult]:
    """Offsets by time; a result for each item, in order."""
    queries = [item for item in items if isinstance(item, OffsetQuery)]
    results = await context.replicas.offsets.list_offsets(queries, read_committed=read_committed)
    return merge(items, OffsetQuery, _by_name(results))


def epoch_ends(
    context: BrokerContext, items: Sequence[EpochQuery | OffsetResult]
) -> list[OffsetResult]:
    """Ends of leader epochs; a result for each item, in order."""
    queries = [item for item in items if isinstance(item, EpochQuery)]
    return merge(
        items, EpochQuery, _by_name(context.replicas.offsets.end_offset_for_epoch(queries))
    )


def _by_name(results: list[OffsetResult]) -> list[OffsetResult]:
    for each in results:
        each.error = error_by_name(each.error)
    return results
