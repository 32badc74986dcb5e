"""The followers that a leader counts on."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report


class FollowersKnowTheEpoch(Law):
    """A leader counts the position of a follower only if the follower knows the present leader
    epoch."""

    name = "followers know the epoch"
    cadence = Cadence.SELDOM

    def look(self, cluster: SimCluster, report: Report) -> None:
        replicas = {(node.id, replica.id): (node, replica) for node, replica in online(cluster)}
        for _, leading in list(replicas.values()):
            machine = leading.machine
            if not machine.is_leader:
                continue
            for broker in machine.state.replicas:
                progress = machine.progress_of(broker)
                found = replicas.get((broker, leading.id))
                if progress is None or progress.end_offset < 0 or found is None:
                    continue
                node, replica = found
                assert node.node is not None
                assert node.node.broker is not None
                if progress.broker_epoch != node.node.broker.replicas.broker_epoch:
                    continue  # the position is of an earlier process
                self.looked += 1
                if replica.machine.leader_epoch < machine.leader_epoch:
                    report(
                        f"{leading!r}: broker {machine.broker_id} leads epoch "
                        f"{machine.leader_epoch} and counts on broker {broker}, which knows of "
                        f"{replica.machine.leader_epoch}"
                    )
