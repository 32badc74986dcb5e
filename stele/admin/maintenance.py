"""Administration of existing topics and brokers: more partitions, a broker that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stele.admin.requests import AdminRequests
from stele.cluster.messages import error_code
from stele.errors import ApiError, BulkError
from stele.wire.v1 import admin_pb2 as pb


class MaintenanceAdmin:
    """The part of ``stele.admin.admin.Admin`` for existing topics and brokers."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]],
        *,
        validate_only: bool,
        request_id: bytes | None,
    ) -> None:
        request = pb.CreatePartitionsRequest(validate_only=validate_only)
        for name, count in counts.items():
            wish = request.topics.add(name=name, count=count)
            if name in assignments:
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

    async def unregister_broker(self, broker_id: int, *, request_id: bytes | None) -> None:
        await self._requests.change(
            "UnregisterBroker",
            pb.UnregisterBrokerRequest(broker_id=broker_id),
            pb.UnregisterBrokerResponse.FromString,
            request_id,
        )
