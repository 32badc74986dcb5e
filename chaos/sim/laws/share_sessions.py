"""Members that hold records of a share group without a share session (KIP-932)."""

from __future__ import annotations

from broker.share.values import RecordState
from broker.sharing.sessions import SessionKey
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.decided_records import WithSharedRecords
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from chaos.sim.laws.shared_records import RecordName


class HoldersHaveSessions(WithSharedRecords, Law):
    """Each member that has a record has a share session with the leader: the end of its session, or
    of its connection, gives back all that it has.

    A record of which the member has said anything is not judged. Its write may have been under way
    when the session ended, and may have failed since. Then the record waits for the end of its
    lock.
    """

    name = "members that have shared records have a share session"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def look(self, cluster: SimCluster, report: Report) -> None:
        if not self._records.delivery_limits:
            return
        image = self._scene.metadata.newest
        for node in cluster.brokers.values():
            if node.broker is None or image is None:
                continue
            sharing = node.broker.sharing
            for led in sharing.partitions:
                topic = image.topic_by_id(led.key.topic_id)
                if led.machine is None or topic is None:
                    continue
                for each in led.machine.ranges():
                    if each.state is not RecordState.ACQUIRED or each.write >= 0:
                        continue
                    self.looked += 1
                    if SessionKey(led.key.group_id, each.holder) in sharing.sessions:
                        continue
                    place = topic.name, led.key.partition
                    for offset in range(each.first, each.last + 1):
                        name = RecordName(led.key.group_id, place, offset)
                        if each.holder not in self._records.of(name).spoke:
                            report(
                                f"{led!r} on broker {node.id}: {each.holder!r} has the record at "
                                f"{offset}, and no share session"
                            )
