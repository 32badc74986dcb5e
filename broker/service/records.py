"""DeleteRecords: logs begin later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from broker.replication.deletion import Deletion, DeletionResult
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from broker.service.items import merge
from broker.service.topics import NO_TOPIC_ID, Topics, error_by_name
from runtime.authorization.authorizer import Operation
from runtime.authorization.caller import Caller
from stele.errors import ErrorCode
from storage.turns import in_slices


class Asked(NamedTuple):
    """A partition whose log shall begin at an offset."""

    topic: str
    partition: int
    offset: int


async def delete_records(
    context: BrokerContext, caller: Caller, asked: Sequence[Asked], timeout_ms: int
) -> list[DeletionResult]:
    """A result for each partition, in order. Raises ApiError POLICY_VIOLATION for too many."""
    check_named(len(asked), "partitions")
    topics = Topics(context, caller, Operation.DELETE)
    counts = Counter((each.topic, each.partition) for each in asked)

    def item(each: Asked) -> Deletion | DeletionResult:
        if counts[each.topic, each.partition] > 1:
            return DeletionResult(ErrorCode.INVALID_REQUEST)
        found = topics.partition(each.topic, NO_TOPIC_ID, each.partition)
        if isinstance(found, ErrorCode):
            return DeletionResult(found)
        return Deletion(found, each.offset)

    items = await in_slices(item, asked)
    deletions = [item for item in items if isinstance(item, Deletion)]
    results = await context.replicas.deletion.delete(deletions, timeout_ms)
    told = [each._replace(error=error_by_name(each.error)) for each in results]
    return merge(items, Deletion, told)
