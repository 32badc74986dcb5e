"""Members that leaders leave out of an ISR."""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple, Self

from broker.partition.effects import Proposed
from broker.partition.progress import FollowerProgress
from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import hosted_by
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene

SEEN_WITHIN_MS: Final = 20.0
"""A proposal is seen so soon: looks come every 10 ms, if the broker runs."""


class _Seen(NamedTuple):
    """What a leader knew of a follower at a look."""

    progress: FollowerProgress
    broker_epoch: int
    end_offset: int
    caught_up_ms: float

    @classmethod
    def of(cls, progress: FollowerProgress) -> Self:
        return cls(progress, progress.broker_epoch, progress.end_offset, progress.caught_up_ms)

    def since_ms(self, progress: FollowerProgress, now_ms: float) -> float:
        """How long the follower has not had everything for certain. Endless if it is another
        incarnation now, or one that has lost something: what it had proves nothing then."""
        if (
            progress is not self.progress
            or progress.broker_epoch != self.broker_epoch
            or progress.end_offset < self.end_offset
            or progress.caught_up_ms < self.caught_up_ms
        ):
            return inf
        return now_ms - self.caught_up_ms


class IsrLosesOnlyWhoLags(Law):
    """A leader proposes an ISR without a member only if the member lags: by its fetches it has not
    had all that the leader had for ``replica.lag.time.max.ms``."""

    name = "an ISR loses only who lags"
    cadence = Cadence.NODES
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._judged: dict[Replica, Proposed] = {}  # the last proposal of each
        # What each leader's followers had at the last look, and when they had everything.
        self._seen: dict[tuple[Replica, int], _Seen] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in self._scene.ran:
            for replica in hosted_by(node):
                machine = replica.machine
                if not machine.is_leader:
                    continue
                proposal = machine.proposal
                if proposal is not None and self._judged.get(replica) is not proposal:
                    self._judged[replica] = proposal
                    if proposal.partition_epoch == machine.state.partition_epoch:
                        self._look_at(node, replica, proposal, report)
                for broker_id in machine.state.isr:
                    progress = machine.progress_of(broker_id)
                    if progress is not None:
                        self._seen[replica, broker_id] = _Seen.of(progress)

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
            # A fetch between the proposal and this look may move the time at which the follower is
            # known to have had everything. So the time counts that the look before knew.
            seen = self._seen.get((leading, broker_id))
            since_ms = inf if seen is None else seen.since_ms(progress, now_ms)
            rests = progress.end_offset == machine.log.end_offset
            if (rests and now_ms - progress.last_fetch_ms > SEEN_WITHIN_MS) or (
                since_ms <= machine.lag_max_ms
            ):
                report(
                    f"{leading!r} on broker {node.id} leaves {broker_id} out of the ISR, which "
                    + ("has everything" if rests else f"had everything {since_ms:.0f} ms ago")
                )
