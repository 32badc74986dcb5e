"""Administration of subscriptions to clients' metrics (KIP-714)."""

from __future__ import annotations

from stele.admin.descriptions import CLIENT_METRICS_RESOURCE
from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.errors import ApiError
from stele.wire.v1 import admin_pb2 as pb


class ClientMetricsAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for the metrics that clients push."""

    async def list_client_metrics(self, *, linearizable: bool = True) -> list[str]:
        """The names of all subscriptions to clients' metrics, sorted.

        ``alter_configs`` and ``describe_configs`` change and show them, as
        ``ConfigResource.client_metrics(name)``. Raises ApiError.

        >>> await admin.list_client_metrics()
        """
        answer = await self._requests.ask(
            "ListConfigResources",
            pb.ListConfigResourcesRequest(
                types=[CLIENT_METRICS_RESOURCE],
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            pb.ListConfigResourcesResponse.FromString,
        )
        if answer.error:
            raise ApiError(error_code(answer.error), answer.message)
        return [each.name for each in answer.resources]
