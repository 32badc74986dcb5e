"""What a client that opens connections without end gets, and what it takes from others."""

from __future__ import annotations

from collections import Counter
from typing import Final, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene

ADDRESS: Final = "10.0.0.7"
"""The address of the client that opens connections without end. No other has a limit or a quota."""

BURST_S: Final = 12.0
"""11 s worth of connections may come at once, and the clocks of two machines differ."""

_SLACK: Final = 1.1


class CrowdsStayWithinTheirLimits(Law):
    """An address has no more connections at a broker than its limit, and no more new ones than its
    quota. Nobody else is refused for it."""

    name = "a crowd has its connections, and nobody else is refused"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self, report: Report) -> None:
        self._report = report
        self._most: int | None = None
        self._admitted: Counter[bytes] = Counter()  # by the broker's incarnation
        self._since_s: dict[bytes, float] = {}

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.report)

    def limited(self, most: int) -> None:
        """The crowd may have so many connections at each broker."""
        self._most = most

    def tried(self, incarnation: bytes, now_s: float) -> None:
        """The crowd opens a connection to a broker."""
        self._since_s.setdefault(incarnation, now_s)

    def admitted(self, incarnation: bytes, rate: float, now_s: float) -> None:
        """A broker has answered on a new connection of the crowd, which has this quota there."""
        self.looked += 1
        self._admitted[incarnation] += 1
        since_s = now_s - self._since_s[incarnation]
        if self._admitted[incarnation] > rate * (since_s + BURST_S) * _SLACK:
            self._report(
                f"a broker admitted {self._admitted[incarnation]} connections of a crowd in "
                f"{since_s:.1f} s, whose quota is {rate:g} per second"
            )

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.brokers.values():
            if node.broker is None or not node.broker.has_begun:
                continue
            connections = node.broker.connections
            for address in connections.refused_addresses:
                self.looked += 1
                if address != ADDRESS:
                    report(f"{node.host} has refused connections of {address}")
            present = connections.by_address.get(ADDRESS, 0)
            if self._most is not None and present > self._most:
                report(f"{node.host} has {present} connections of a crowd, not {self._most}")
