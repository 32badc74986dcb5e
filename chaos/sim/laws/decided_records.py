"""Whether records that are done in a share group stay done, and how often they are delivered."""

from __future__ import annotations

from typing import Self

from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Scene
from chaos.sim.laws.shared_records import RecordName, SharedRecords, Told


class DecidedRecordsStayDecided(Law):
    """A record whose ACCEPT or REJECT was answered without an error is never delivered again by a
    leader, to no member, whoever fails meanwhile. No record is delivered more often than the limit
    allows."""

    name = "a record that was accepted or rejected is never delivered again"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self.records = SharedRecords()
        self._scene = scene

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def delivered(self, name: RecordName, told: Told, count: int) -> None:
        """A member has got the record. ``count``: its deliveries, as the leader says."""
        self.looked += 1
        history = self.records.of(name)
        history.deliveries.append(told)
        limit = self.records.delivery_limits[name.group_id]
        if not 1 <= count <= limit:
            self._report(name, f"its delivery {count} of at most {limit} went to {told.member}")
        # A fetch that was sent before the answer may have got the record before the decision.
        if told.is_of_leader and history.decided_s is not None and told.asked_s > history.decided_s:
            self._report(
                name,
                f"it went to {told.member}, whose fetch was sent at {told.asked_s:.6f}, and its "
                f"decision was answered at {history.decided_s:.6f}",
            )

    def decides(self, name: RecordName, *, accepts: bool) -> None:
        """A member sends ACCEPT or REJECT."""
        history = self.records.of(name)
        history.is_decided = True
        if accepts:
            history.is_accepted = True
        else:
            history.is_rejected = True

    def decided(self, name: RecordName, now_s: float) -> None:
        """The answer says that such a decision is persisted, or was needless."""
        self.records.decided(name, now_s)

    def _report(self, name: RecordName, what: str) -> None:
        self._scene.report(f"share group {name.group_id}, {name.place} at {name.offset}: {what}")


class WithSharedRecords:
    """The part that laws have in common which judge by what members were told of shared records."""

    def __init__(self, scene: Scene, records: SharedRecords) -> None:
        self._scene = scene
        self._records = records

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene, scene.law(DecidedRecordsStayDecided).records)
