"""Administration of partitions: their leaders, and the brokers of their replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stele.admin.items import all_or_raise, item_error
from stele.admin.requests import AdminRequests
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import admin_pb2 as pb


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A reassignment that is under way."""

    replicas: tuple[int, ...]  # the target's replicas first, in the target's order
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]

    @property
    def target_replicas(self) -> tuple[int, ...]:
        """The brokers that the partition will be on, the preferred leader first."""
        return tuple(each for each in self.replicas if each not in self.removing_replicas)


class PartitionAdmin:
    """The part of ``stele.admin.admin.Admin`` for leaders and reassignments."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def elect_leaders(
        self,
        partitions: Sequence[tuple[str, int]],
        *,
        unclean: bool,
        request_id: bytes | None,
    ) -> list[TopicPartition]:
        request = pb.ElectLeadersRequest(
            partitions=[
                pb.TopicPartitionName(topic=topic, partition=partition)
                for topic, partition in partitions
            ],
            unclean=unclean,
        )
        response = await self._requests.change(
            "ElectLeaders", request, pb.ElectLeadersResponse.FromString, request_id
        )
        failed: dict[str, ApiError] = {}
        elected: list[TopicPartition] = []
        for each in response.partitions:
            name = TopicPartition(each.topic, each.partition)
            if each.error == ErrorCode.NONE:
                elected.append(name)
            elif each.error != ErrorCode.ELECTION_NOT_NEEDED:
                failed[str(name)] = item_error(each.error, f"partition {name}", each.message)
        return all_or_raise(failed, elected)

    async def alter_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool,
        request_id: bytes | None,
    ) -> None:
        request = pb.AlterPartitionReassignmentsRequest(
            keep_replication_factor=not allow_replication_factor_change
        )
        for (topic, partition), replicas in targets.items():
            wish = request.partitions.add(topic=topic, partition=partition)
            if replicas is not None:
                wish.target.SetInParent()
                wish.target.ids.extend(replicas)
        response = await self._requests.change(
            "AlterPartitionReassignments",
            request,
            pb.AlterPartitionReassignmentsResponse.FromString,
            request_id,
        )
        failed: dict[str, ApiError] = {}
        accepted: list[TopicPartition] = []
        for each in response.partitions:
            name = TopicPartition(each.topic, each.partition)
            if each.error == ErrorCode.NONE:
                accepted.append(name)
            else:
                failed[str(name)] = item_error(each.error, f"partition {name}", each.message)
        all_or_raise(failed, accepted)

    async def list_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None
    ) -> dict[TopicPartition, PartitionReassignment]:
        if partitions is not None and not partitions:
            return {}
        response = await self._requests.ask(
            "ListPartitionReassignments",
            pb.ListPartitionReassignmentsRequest(
                partitions=[
                    pb.TopicPartitionName(topic=topic, partition=partition)
                    for topic, partition in partitions or ()
                ]
            ),
            pb.ListPartitionReassignmentsResponse.FromString,
        )
        return {
            TopicPartition(each.topic, each.partition): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for each in response.partitions
        }
