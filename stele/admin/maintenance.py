"""Administration of existing topics and brokers: more partitions, a broker that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.errors import ApiError, BulkError
from stele.wire.v1 import admin_pb2 as pb


class MaintenanceAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for existing topics and brokers."""

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        *,
        validate_only: bool = False,
        request_id: bytes | None = None,
    ) -> None:
        """Add partitions to topics. ``counts``: how many partitions each topic will have in all.

        ``assignments``: by topic the replicas of each new partition. The cluster places the
        partitions of other topics by itself. Afterwards keys may go to other partitions than
        before. A topic cannot lose partitions.

        Raises BulkError, for example INVALID_PARTITIONS if a topic has that many already.

        >>> await admin.create_partitions({"orders": 12})
        """
        request = pb.CreatePartitionsRequest(validate_only=validate_only)
        for name, count in counts.items():
            wish = request.topics.add(name=name, count=count)
            if assignments is not None and name in assignments:
                wish.assignments.SetInParent()
                for replicas in assignments[name]:
                    wish.assignments.partitions.add(ids=replicas)
        response = await self._requests.change(
            "CreatePartitions", request, pb.CreatePartitionsResponse.FromString, request_id
        )
        failed: dict[str, ApiError] = {
            each.name: ApiError(error_code(each.error), each.message)
            for each in response.topics
            if each.error
        }
        if failed:
            raise BulkError(failed, [each.name for each in response.topics if not each.error])

    async def unregister_broker(self, broker_id: int, *, request_id: bytes | None = None) -> None:
        """Forget a broker that is gone for good. It must be fenced, and it must not be the only one
        with every record of some partition.

        Partitions stay assigned to it until they are reassigned. Raises ApiError, for example
        BROKER_ID_NOT_REGISTERED.
        """
        await self._requests.change(
            "UnregisterBroker",
            pb.UnregisterBrokerRequest(broker_id=broker_id),
            pb.UnregisterBrokerResponse.FromString,
            request_id,
        )
