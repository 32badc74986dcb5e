"""Members that leaders leave out of an ISR."""

from __future__ import annotations

from typing import Final, Self

from broker.partition.effects import Proposed
from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import hosted_by
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene

SEEN_WITHIN_MS: Final = 20.0
"""A proposal is seen so soon: looks come every 10 ms, if the broker runs."""


class IsrLosesOnlyWhoLags(Law):
    """A leader proposes an ISR without a member only if the member lags: by its fetches it has not
    had all that the leader had for ``replica.lag.time.max.ms``."""

    name = "an ISR loses only who lags"
    cadence = Cadence.NODES
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._judged: dict[Replica, Proposed] = {}  # the last proposal of each

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in self._scene.ran:
            for replica in hosted_by(node):
                proposal = replica.machine.proposal
                if proposal is None or self._judged.get(replica) is proposal:
                    continue
                self._judged[replica] = proposal
                if proposal.partition_epoch == replica.machine.state.partition_epoch:
                    self._look_at(node, replica, proposal, report)

    def _look_at(self, node: SimNode, leading: Replica, proposal: Proposed, report: Report) -> None:
        process, machine = node.process, leading.machine
        assert process is not None  # it has run
        now_ms = process.world.clock.monotonic() * 1000
        proposed = {member.broker_id for member in proposal.isr}
        for broker_id in sorted(set(machine.state.isr) - proposed):
            progress = machine.progress_of(broker_id)
            if progress is None:
                continue
            self.looked += 1
            # A fetch may have come between the proposal and this look.
            since_ms = now_ms - progress.caught_up_ms
            rests = progress.end_offset == machine.log.end_offset
            fetched_ms = now_ms - progress.last_fetch_ms
            if (rests and fetched_ms > SEEN_WITHIN_MS) or (
                SEEN_WITHIN_MS < since_ms <= machine.lag_max_ms - SEEN_WITHIN_MS
            ):
                report(
                    f"{leading!r} on broker {node.id} leaves {broker_id} out of the ISR, which had "
                    f"everything {since_ms:.0f} ms ago"
                )
