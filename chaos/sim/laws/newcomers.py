"""How many producers brokers and partitions take from a client that begins one after the other."""

from __future__ import annotations

from typing import Final, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import online
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from stele.errors import ErrorCode

TOPIC: Final = "newcomers"

BURST_S: Final = 11.0
"""A client that was silent may bring 10 s worth at once, and the clocks of two machines differ."""

_ONE_MORE: Final = 2
"""The producer that goes beyond the burst, and a request that was begun beside it."""


class NewcomersStayWithinTheirLimits(Law):
    """A partition remembers no more producers than producer.ids.max, and a client brings no more
    new ones than its quota. A producer that a partition knows is never refused for others."""

    name = "new producers come within their limits, and known ones are taken"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, report: Report) -> None:
        self._report = report
        self._most: int | None = None

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.report)

    def limited(self, most: int) -> None:
        """A partition may remember so many producers."""
        self._most = most

    def taken(self, broker: int, rate: float, producers: int, since_s: float) -> None:
        """A broker has taken so many new producers on a connection of this age."""
        self.looked += 1
        if producers > rate * (since_s + BURST_S) + _ONE_MORE:
            self._report(
                f"broker {broker} took {producers} new producers in {since_s:.1f} s from a client "
                f"that may bring {rate:g} per second"
            )

    def known(self, broker: int, error: int) -> None:
        """What a producer is answered whose batch a majority of replicas has. The partition needs
        one in-sync replica only, so that a broker says NOT_ENOUGH_REPLICAS for no other reason."""
        self.looked += 1
        if error == ErrorCode.NOT_ENOUGH_REPLICAS:
            self._report(f"broker {broker} refuses a producer that {TOPIC}-0 knows")

    def look(self, cluster: SimCluster, report: Report) -> None:
        if self._most is None:
            return
        for node, replica in online(cluster):
            if replica.topic != TOPIC:
                continue
            self.looked += 1
            known = len(replica.log.producers)
            if known > self._most:
                report(f"{replica!r} of {node.host} remembers {known} producers, not {self._most}")
