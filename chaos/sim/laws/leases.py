"""Leases of brokers that were fenced."""

from __future__ import annotations

from typing import NamedTuple, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from metadata.image import MetadataImage


class _Fencing(NamedTuple):
    """The last time that a registration was fenced."""

    broker_epoch: int
    offset: int  # of the first metadata that were seen to tell it
    seen_at: float


class LeasesBeginWithTheMetadata(Law):
    """A broker that was fenced longer than a session ago has no lease until it knows that.

    It may have been unfenced since. As long as its metadata are older than the fencing, it believes
    that it leads what others lead. The leases of heartbeats that were acknowledged before the
    fencing end within a session.
    """

    name = "leases begin with the metadata"
    cadence = Cadence.NODES
    proof = Proof.CAMPAIGN

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._image: MetadataImage | None = None
        self._fencings: dict[int, _Fencing] = {}
        session_ms = next(iter(scene.cluster.brokers.values())).config.broker_session_timeout_ms
        self._session_s = session_ms / 1000

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene)

    def look(self, cluster: SimCluster, report: Report) -> None:
        now = cluster.simulation.now
        self._see_fencings(now)
        for node in self._scene.ran:
            fencing = self._fencings.get(node.id)
            broker = node.broker
            if fencing is None or broker is None or broker.image.offset >= fencing.offset:
                continue
            is_same = broker.replicas.broker_epoch == fencing.broker_epoch
            if is_same and now - fencing.seen_at > self._session_s:
                self.looked += 1
                if broker.lease_valid:
                    report(
                        f"broker {node.id} with metadata of {broker.image.offset} believes that it "
                        f"has a lease, and it was fenced at {fencing.offset}, {fencing.seen_at:.3f}"
                    )

    def _see_fencings(self, now: float) -> None:
        image = self._scene.image
        if image is None or image is self._image:
            return
        known, self._image = self._image, image
        for registration in image.brokers.values():
            before = None if known is None else known.brokers.get(registration.broker_id)
            was_fenced = (
                before is not None
                and before.broker_epoch == registration.broker_epoch
                and before.fenced
            )
            if registration.fenced and not was_fenced:
                self._fencings[registration.broker_id] = _Fencing(
                    registration.broker_epoch, image.offset, now
                )
