"""Answers to linearizable reads."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import newest_image
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene


class ReadsAreLinearizable(Law):
    """A linearizable answer is never older than what was known to be committed when the question
    was sent."""

    name = "reads are linearizable"
    cadence = Cadence.METADATA
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._committed = -1  # the committed metadata offset; never goes back

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is not None:
            self._committed = max(self._committed, image.offset)

    def asked(self) -> int:
        """The metadata offset that the answer to a question sent now has to reach. A node may also
        refuse to answer."""
        self.looked += 1
        self.look(self._cluster, self._report)
        return self._committed

    def answered(self, who: str, needed: int, offset: int) -> None:
        """``needed`` is what ``asked`` returned when the question was sent."""
        if offset < needed:
            self._report(
                f"{who} answers a linearizable read with the metadata of {offset}, "
                f"and {needed} was committed before it was asked"
            )
