"""Requests to partition leaders for offsets: the earliest, the latest, the first at or after a
time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stele.cluster.leader_questions import LeaderQuestions, OffsetAnswer
from stele.cluster.messages import Leader, OffsetQuestion
from stele.cluster.view import ClusterView
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp


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
    ) -> list[OffsetAnswer]:
        question = self._view.plane.list_offsets(
            [OffsetQuestion(name, leader.epoch, wanted[name]) for name, leader in names],
            is_committed=self._is_committed,
        )
        found = await self._view.ask(broker_id, question, timeout_s=self._view.attempt_s)
        return [
            OffsetAnswer(name, code, OffsetAndTimestamp(offset, timestamp_ms, leader_epoch))
            for name, code, offset, timestamp_ms, leader_epoch in found
        ]
