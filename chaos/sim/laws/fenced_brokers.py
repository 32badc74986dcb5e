"""Acknowledgements by brokers without a lease."""

from __future__ import annotations

from typing import Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import newest_image
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene


class FencedBrokersAcknowledgeNothing(Law):
    """A broker that has been fenced for longer than its session has no lease. It acknowledges no
    acks=all write that was sent to it after that."""

    name = "fenced brokers acknowledge nothing"
    cadence = Cadence.METADATA
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        self._since: dict[int, float] = {}  # by broker: when it was first seen fenced
        self._offset = -1
        session_ms = next(iter(cluster.brokers.values())).config.broker_session_timeout_ms
        self._session_s = session_ms / 1000

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is None or image.offset < self._offset:
            return  # restarted controllers do not know yet what is committed
        self._offset = image.offset
        for registration in image.brokers.values():
            if registration.fenced:
                self._since.setdefault(registration.broker_id, cluster.simulation.now)
            else:
                self._since.pop(registration.broker_id, None)

    def acknowledged(self, broker: int, waited_s: float) -> None:
        """``broker`` has acknowledged a write that was sent to it ``waited_s`` ago."""
        self.looked += 1
        self.look(self._cluster, self._report)  # it may have been unfenced since the last look
        sent_at = self._cluster.simulation.now - waited_s
        since = self._since.get(broker)
        if since is not None and since + self._session_s < sent_at:
            self._report(
                f"broker {broker}, fenced since {since:.3f}, acknowledged a write of {sent_at:.3f}"
            )
