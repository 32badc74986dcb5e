"""Changes from one set of voters to the next."""

from __future__ import annotations

from itertools import pairwise
from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.majority import is_held
from chaos.sim.laws.quorum_view import QuorumReplica
from chaos.sim.laws.scene import Report, Scene
from raft.quorum import VoterSet
from raft.ready import Role

_Reign = tuple[str, int]
"""A process in an epoch."""


class VotersChangeOneByOne(Law):
    """Consecutive sets of voters differ by one voter. A leader appends a set only when the set
    before it and a record of its own epoch are committed.

    Otherwise two majorities without a common voter could decide (Ongaro's dissertation, §4.1, and
    raft-dev, July 2015).
    """

    name = "voters change one by one"
    cadence = Cadence.QUORUM
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        # The sets that a leader made: (process and epoch, offset). Each set is judged once, when it
        # is new: later a voter of the set before it may be gone or have lost its disk.
        self._judged: set[tuple[_Reign, int]] = set()
        # The sets that each process had at the last look, in each epoch.
        self._seen: dict[_Reign, list[VoterSet]] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for replica in self._scene.quorum.changed:
            reign = replica.process, replica.epoch
            self._check_neighbours(replica, reign, report)
            if replica.role is Role.LEADER:
                self._check_leader(replica, reign, report)

    def _check_neighbours(self, replica: QuorumReplica, reign: _Reign, report: Report) -> None:
        sets = [voters for _, voters in replica.core.voter_history.recorded]
        if sets == self._seen.get(reign):
            return
        self._seen[reign] = sets
        for before, after in pairwise(sets):
            self.looked += 1
            # A voter with a new disk leaves and joins. A voter whose disk becomes known stays.
            changed = [voter for voter in before.voters if voter.key not in after]
            changed += [voter for voter in after.voters if voter.key not in before]
            if len(changed) > 1:
                report(f"{_named(reign)}: the voters went from {before} to {after} at once")

    def _check_leader(self, replica: QuorumReplica, reign: _Reign, report: Report) -> None:
        start, offset = replica.epoch_start_offset, replica.voters_offset
        if start is None or offset < start:
            return  # an earlier leader made it
        history = replica.core.voter_history
        recorded = history.recorded
        if len(recorded) < 2:
            return  # the first record only repeats the configuration
        before, _ = recorded[-2]
        if (reign, offset) in self._judged:
            return
        self._judged.add((reign, offset))
        self.looked += 1
        # The high watermark never goes back: what is not committed now was not committed when the
        # set was appended. A majority of the set before must have had that set's own record.
        held = is_held(history.previous, self._scene.quorum.durable_ends, before + 1)
        if replica.high_watermark <= max(before, start) or not held:
            report(
                f"{_named(reign)} made {history.latest} the voters at {offset}, "
                f"with those at {before} and its epoch from {start} on committed to "
                f"{replica.high_watermark} only"
            )


def _named(reign: _Reign) -> str:
    process, epoch = reign
    return f"{process} in epoch {epoch}"
