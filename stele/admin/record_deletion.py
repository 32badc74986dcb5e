"""Requests to partition leaders to delete their oldest records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stele.admin.grpc_calls import call
from stele.cluster.leader_questions import LeaderQuestions, OffsetAnswer
from stele.cluster.messages import Leader, error_code
from stele.ids import TopicPartition
from stele.records import OffsetAndTimestamp
from stele.wire.v1 import admin_pb2

_NO_TIME = -1


class RecordDeletion(LeaderQuestions):
    """Deletes the records below an offset. The answers are the new start offsets.

    A repeated request deletes nothing more, except that -1 means all records committed by then.
    """

    doing = "deleting records"

    async def ask_leader(
        self,
        broker_id: int,
        names: Sequence[tuple[TopicPartition, Leader]],
        wanted: Mapping[TopicPartition, int],
    ) -> list[OffsetAnswer]:
        timeout_s = self._view.attempt_s
        # The leader gives up before this client does, and says why.
        request = admin_pb2.DeleteRecordsRequest(timeout_ms=int(timeout_s * 500))
        for name, _ in names:
            request.partitions.add(topic=name.topic, partition=name.partition, offset=wanted[name])
        response = await self._view.ask(
            broker_id,
            call(
                "/stele.v1.Admin/DeleteRecords",
                request,
                admin_pb2.DeleteRecordsResponse.FromString,
            ),
            timeout_s=timeout_s,
        )
        return [
            OffsetAnswer(
                TopicPartition(part.topic, part.partition),
                error_code(part.error),
                OffsetAndTimestamp(part.low_watermark, _NO_TIME, -1),
                part.message,
            )
            for part in response.partitions
        ]
