"""DeleteRecords: logs begin later."""

from __future__ import annotations

from collections.abc import Sequence

from broker.replication.deletion import Deletion, DeletionResult
from broker.service.context import BrokerContext
from broker.service.items import merge
from broker.service.topics import Topics, error_by_name
from runtime.authorization.authorizer import Operation
from runtime.authorization.caller import Caller


def topics(context: BrokerContext, caller: Caller) -> Topics:
    """Whose records the caller may delete."""
    return Topics(context, caller, Operation.DELETE)


async def delete_records(
    context: BrokerContext, items: Sequence[Deletion | DeletionResult], timeout_ms: int
) -> list[DeletionResult]:
    """A result for each item, in order. Topics were asked for by their names."""
    deletions = [item for item in items if isinstance(item, Deletion)]
    results = await context.replicas.deletion.delete(deletions, timeout_ms)
    told = [each._replace(error=error_by_name(each.error)) for each in results]
    return merge(items, Deletion, told)
