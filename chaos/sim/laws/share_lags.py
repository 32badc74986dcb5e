"""The start offsets and lags that share groups are told (KIP-1226)."""

from __future__ import annotations

from typing import NamedTuple

from chaos.sim.cluster.view import online
from chaos.sim.laws.decided_records import WithSharedRecords
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.partition_name import PartitionName
from stele.ids import PartitionId


class LagQuestion(NamedTuple):
    """What was known when somebody asked for the lag of a share partition."""

    group_id: str
    place: PartitionName
    decided: int  # records whose decision was answered


class LagsCountWhatIsLeft(WithSharedRecords, Law):
    """A record whose decision was answered before the question is not in the lag.

    An example: of ten records the members have accepted seven, and are told so. The lag is three at
    most, also while the first record holds the start offset.
    """

    name = "the lag of a share group counts only records that are left"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def asks(self, group_id: str, place: PartitionName) -> LagQuestion:
        return LagQuestion(group_id, place, self._records.decided_count(group_id, place))

    def answered(self, question: LagQuestion, start_offset: int, lag: int) -> None:
        """Negative numbers: they are not known."""
        if lag < 0:
            return
        self.looked += 1
        end = self._end_of(question.place)
        if lag > end - question.decided:
            self._scene.report(
                f"share group {question.group_id} is told that it begins at {start_offset} of "
                f"{question.place}, which ends at {end}, and that {lag} records are left. "
                f"{question.decided} were decided before"
            )

    def _end_of(self, place: PartitionName) -> int:
        """The highest high watermark of a replica."""
        marks = [
            replica.machine.high_watermark
            for _, replica in online(self._scene.cluster)
            if (replica.topic, replica.id.partition) == place
        ]
        image = self._scene.metadata.newest
        topic = None if image is None else image.topic(place[0])
        if topic is not None:
            partition = PartitionId(topic.topic_id, place[1])
            marks.append(self._scene.high_watermarks.get(partition, 0))
        return max(marks, default=0)
