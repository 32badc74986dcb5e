"""Requests to partition leaders for offsets: the earliest, the latest, the first at or after a
time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stele.cluster.leader_questions import Answer, LeaderQuestions
from stele.cluster.view import ClusterView, Leader, error_code
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.wire.v1 import data_pb2


class OffsetLookup(LeaderQuestions):
    """Finds offsets by timestamp: in milliseconds, or EARLIEST or LATEST.

    ``is_committed``: only below the last stable offset, which is LATEST then.
    """

    doing = "looking up offsets"

    def __init__(self, view: ClusterView, *, is_committed: bool = False) -> None:
        super().__init__(view)
        self._is_committed = is_committed

    async def ask_leader(
        self,
        broker_id: int,
        names: Sequence[tuple[TopicPartition, Leader]],
        wanted: Mapping[TopicPartition, int],
    ) -> list[Answer]:
        request = data_pb2.ListOffsetsRequest(isolation_level=int(self._is_committed))
        for name, leader in names:
            request.partitions.add(
                topic=name.topic,
                partition=name.partition,
                current_leader_epoch=leader.epoch,
                timestamp_ms=wanted[name],
            )
        response = await self._view.ask(
            broker_id,
            "/stele.v1.Data/ListOffsets",
            request,
            data_pb2.ListOffsetsResponse.FromString,
            timeout_s=self._view.attempt_s,
        )
        return [
            Answer(
                TopicPartition(part.topic, part.partition),
                error_code(part.error),
                OffsetAndTimestamp(part.offset, part.timestamp_ms, part.leader_epoch),
            )
            for part in response.partitions
        ]
