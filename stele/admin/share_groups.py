"""Administration of share groups (KIP-932): where they begin in partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from stele.admin.coordinators import Coordinators
from stele.admin.items import all_or_raise
from stele.admin.part import AdminPart
from stele.cluster.messages import error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import groups_pb2 as pb

Place = TypeVar("Place", bound=tuple[str, int])
"""A topic and the number of a partition, also as a TopicPartition."""


class ShareGroupOffset(NamedTuple):
    """Where a share group begins in a partition. All records before are done."""

    start_offset: int | None  # None: no member has fetched from the partition yet
    leader_epoch: int | None  # of the leader that decided it; None: not known
    lag: int | None  # the records that are not done (KIP-1226); None: not known


class ShareGroupAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for share groups.

    If an answer is lost, a change may be carried out twice. That is harmless: the group must have
    no members, so nothing happens between the two.
    """

    async def list_share_group_offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a share group begins in each partition that it has read, in the order of the
        partitions.

        Raises ApiError GROUP_ID_NOT_FOUND.

        >>> for place, offset in (await admin.list_share_group_offsets("letters")).items():
        ...     print(place, offset.start_offset, offset.lag)
        """
        answer = await Coordinators(self._view).ask(
            group,
            "DescribeShareGroupOffsets",
            pb.DescribeShareGroupOffsetsRequest(group=group),
            pb.DescribeShareGroupOffsetsResponse.FromString,
        )
        failed: dict[str, ApiError] = {}
        found: dict[TopicPartition, ShareGroupOffset] = {}
        for each in answer.partitions:
            place = TopicPartition(each.topic, each.partition)
            if each.error:
                failed[str(place)] = _error(each.error, str(place), each.message)
            else:
                told = (each.start_offset, each.leader_epoch, each.lag)
                found[place] = ShareGroupOffset(*(n if n >= 0 else None for n in told))
        all_or_raise(failed, list(found))
        return dict(sorted(found.items()))

    async def alter_share_group_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Let a share group without members begin at these offsets. What its members acknowledged
        above is delivered again, as for the first time.

        Raises ApiError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Raises BulkError.

        >>> await admin.alter_share_group_offsets("letters", {("orders", 0): 0})
        """
        request = pb.AlterShareGroupOffsetsRequest(group=group)
        for (topic, number), offset in offsets.items():
            request.partitions.add(topic=topic, partition=number, start_offset=offset)
        answer = await Coordinators(self._view).ask(
            group,
            "AlterShareGroupOffsets",
            request,
            pb.AlterShareGroupOffsetsResponse.FromString,
        )
        failed: dict[str, ApiError] = {}
        done: list[TopicPartition] = []
        for each in answer.partitions:
            place = TopicPartition(each.topic, each.partition)
            if each.error:
                failed[str(place)] = _error(each.error, str(place), each.message)
            else:
                done.append(place)
        all_or_raise(failed, done)

    async def delete_share_group_offsets(self, group: str, topics: Sequence[str]) -> None:
        """Let a share group without members forget topics. If members subscribe to them again, the
        group begins anew, where its ``share.auto.offset.reset`` says.

        Raises ApiError GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP. Raises BulkError.
        """
        answer = await Coordinators(self._view).ask(
            group,
            "DeleteShareGroupOffsets",
            pb.DeleteShareGroupOffsetsRequest(group=group, topics=topics),
            pb.DeleteShareGroupOffsetsResponse.FromString,
        )
        failed = {
            each.topic: _error(each.error, f"topic {each.topic!r}", each.message)
            for each in answer.topics
            if each.error
        }
        all_or_raise(failed, [each.topic for each in answer.topics if not each.error])


def _error(code: int, what: str, message: str) -> ApiError:
    error: ErrorCode = error_code(code)
    return ApiError(error, f"{what}: {message or explain(error)}")
