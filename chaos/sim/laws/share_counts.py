"""How often the leaders of share partitions say that a record was delivered."""

from __future__ import annotations

from chaos.sim.laws.decided_records import WithSharedRecords
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.share_holders import Hold
from chaos.sim.laws.shared_records import RecordName, Told


class DeliveriesAreCounted(WithSharedRecords, Law):
    """The delivery count of a record is not above the number of its deliveries. A delivery that its
    member gave back with its session does not count. A delivery whose release was answered counts
    for ever, whoever leads.

    So a count may fall behind: a delivery is persisted only with its outcome. An example: the first
    delivery was released, and the leader died during the second one. The next one is the second
    again, and never the first.
    """

    name = "deliveries of shared records are counted"
    cadence = Cadence.TOLD
    proof = Proof.CAMPAIGN

    def delivered(self, name: RecordName, told: Told, count: int) -> None:
        """A member has got the record, as ``DecidedRecordsStayDecided`` knows already."""
        self.looked += 1
        history = self._records.of(name)
        most = self._records.most_deliveries(name)
        if count > most:
            self._report(name, f"delivery {count} went to {told.member}, of at most {most} so far")
        if (
            told.is_of_leader
            and told.asked_s > history.released_s
            and count <= history.released_count
        ):
            self._report(
                name,
                f"delivery {count} went to {told.member}, and delivery {history.released_count} "
                f"was released at {history.released_s:.6f}",
            )

    def released(self, hold: Hold, now_s: float) -> None:
        """The answer says that the release of a certain delivery is persisted."""
        history = self._records.of(hold.name)
        if hold.count > history.released_count:
            history.released_count, history.released_s = hold.count, now_s

    def given_back(self, hold: Hold) -> None:
        """A session has ended with this record, which its member certainly had."""
        self._records.of(hold.name).given_back += 1

    def _report(self, name: RecordName, what: str) -> None:
        self._scene.report(f"share group {name.group_id}, {name.place} at {name.offset}: {what}")
