"""Administration of partitions: their leaders, and the brokers of their replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stele.admin.items import all_or_raise, item_error
from stele.admin.part import AdminPart
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


class PartitionAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for leaders and reassignments."""

    async def elect_leaders(
        self,
        partitions: Sequence[tuple[str, int]] = (),
        *,
        unclean: bool = False,
        request_id: bytes | None = None,
    ) -> list[TopicPartition]:
        """Elect the preferred leader of each partition: the first of its replicas.

        Without ``partitions``: of all partitions. With ``unclean=True`` instead any live replica of
        each partition without a leader, which may lose records. Returns the partitions for which a
        leader was elected; a partition that needed no election is left out.

        Raises BulkError, for example PREFERRED_LEADER_NOT_AVAILABLE or
        ELIGIBLE_LEADERS_NOT_AVAILABLE.
        """
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

    async def alter_partition_reassignments(
        self,
        targets: Mapping[tuple[str, int], Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        request_id: bytes | None = None,
    ) -> None:
        """Move partitions to other brokers (KIP-455). ``targets``: the brokers of each partition,
        the preferred leader first. None cancels a move that is under way.

        Returns once the decision is committed. ``list_partition_reassignments`` shows the moves
        that are under way. The same target again changes nothing; another target replaces the first
        one. With ``allow_replication_factor_change=False`` a target with more or fewer replicas is
        refused.

        Raises BulkError, for example INVALID_REPLICA_ASSIGNMENT (an unknown broker),
        INVALID_REPLICATION_FACTOR, or NO_REASSIGNMENT_IN_PROGRESS for None.

        >>> await admin.alter_partition_reassignments({("orders", 0): [4, 5, 6]})
        """
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

    async def list_partition_reassignments(
        self, partitions: Sequence[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are under way, of these partitions or (None) of all. Raises
        ApiError.
        """
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
