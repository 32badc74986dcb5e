"""Followers that leaders take for caught up without looking at them."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report, Scene


class RestingFollowersHaveEverything(Law):
    """A follower that rests in its fetch session has all that the leader's log has. Every request
    of the session counts as a sign that it is caught up. So a follower that lacked something would
    stay in the ISR however long it lacks it."""

    name = "resting followers have everything"
    cadence = Cadence.REPLICAS

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node, replica in self._scene.leading:
            machine = replica.machine
            for broker in machine.state.replicas:
                progress = machine.progress_of(broker)
                if progress is None or progress.rests_in is None:
                    continue
                self.looked += 1
                if progress.end_offset != machine.log.end_offset:
                    report(
                        f"{replica!r} on broker {node.id} ends at {machine.log.end_offset}, and "
                        f"lets broker {broker} rest, which has {progress.end_offset}"
                    )
