"""The members that hold records of a share group, and how long their locks last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.sim.cluster.view import replica_of
from chaos.sim.laws.decided_records import WithSharedRecords
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.shared_records import RecordName, Told
from chaos.sim.partition_name import PartitionName
from stele.errors import ErrorCode
from stele.ids import PartitionId


class Tenure(NamedTuple):
    """The time in which one process leads a partition in one epoch with one log. Two equal tenures
    say that nothing else was in between."""

    process: str
    leader_epoch: int
    log: object


@dataclass(slots=True, eq=False)
class Hold:
    """A record that a member has, as far as its client knows."""

    name: RecordName
    told: Told
    session: int
    """The share session in which it came: a number that no other session has."""
    tenure: Tenure | None  # when the fetch was sent; None: the broker did not lead
    lock_s: float  # how long a lock lasts
    until_s: float  # the lock ends then or later
    count: int = 1  # the deliveries of the record, this one included
    is_certain: bool = field(default=True)
    """Nothing has happened that the member does not know the outcome of. It has not said anything
    about the record either."""


class SharedRecordsHaveOneHolder(WithSharedRecords, Law):
    """While a member has a record, no other member gets it from the leader, and the leader takes
    what the member says of it.

    A member certainly has a record if its acknowledgement is answered within the lock, in the same
    share session, by the same leader in the same epoch. It has had the record since the delivery
    was answered.
    """

    name = "a shared record has one holder at a time"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def tenure(self, broker_id: int, place: PartitionName) -> Tenure | None:
        """By the newest committed metadata and by the broker itself."""
        image = self._scene.metadata.newest
        topic = None if image is None else image.topic(place[0])
        node = self._scene.cluster.brokers.get(broker_id)
        if topic is None or node is None:
            return None
        epoch = topic.partitions[place[1]].leader_epoch
        replica = replica_of(node, PartitionId(topic.topic_id, place[1]))
        if replica is None or not replica.machine.is_leader:
            return None
        if replica.machine.leader_epoch != epoch:
            return None
        return Tenure(node.incarnation, epoch, replica.tenure)

    def answered(
        self,
        holds: Sequence[Hold],
        session: int,
        broker_id: int,
        error: ErrorCode,
        *,
        sent_s: float,
        now_s: float,
    ) -> None:
        """What a member said of these records of one partition was answered, in this session.

        The acknowledgement counts for all of them or for none. So a refusal has a reason if the
        member may have lost any of them.
        """
        if not holds or error not in (ErrorCode.NONE, ErrorCode.INVALID_RECORD_STATE):
            return
        certain = self.certain(holds, session, broker_id, now_s)
        self.looked += len(certain)
        for each in certain:
            self._check_others(each, sent_s)
        if error is ErrorCode.INVALID_RECORD_STATE and len(certain) == len(holds):
            first = holds[0]
            self._report(
                first.name,
                f"{first.told.member} has it until {first.until_s:.6f}, and its acknowledgement "
                f"is refused at {now_s:.6f}",
            )

    def certain(
        self, holds: Sequence[Hold], session: int, broker_id: int, now_s: float
    ) -> list[Hold]:
        """The holds that the member certainly had until now, or until the request of this session
        arrived that is answered now."""
        return [
            each
            for each in holds
            if each.is_certain
            and each.session == session
            and each.tenure is not None
            and each.tenure == self.tenure(broker_id, each.name.place)
            and now_s < each.until_s
        ]

    def _check_others(self, hold: Hold, sent_s: float) -> None:
        """Nobody else may have got it between the delivery and the acknowledgement."""
        for other in self._records.of(hold.name).deliveries:
            if other is hold.told or not other.is_of_leader:
                continue
            if hold.told.told_s < other.asked_s and other.told_s < sent_s:
                self._report(
                    hold.name,
                    f"{hold.told.member} has it since {hold.told.told_s:.6f}, and {other.member} "
                    f"gets it at {other.told_s:.6f}",
                )

    def _report(self, name: RecordName, what: str) -> None:
        self._scene.report(f"share group {name.group_id}, {name.place} at {name.offset}: {what}")
