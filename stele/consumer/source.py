"""The broker that a partition is read from: its leader, or a nearer replica (KIP-392)."""

from __future__ import annotations

from stele.cluster.messages import Leader

RETURN_AFTER_S = 5.0
"""How long a partition is read from its leader after a nearer replica has failed."""


class Source:
    """A leader that knows the client's rack names a replica. The consumer uses it for a while, and
    then asks the leader again: there may be a nearer one."""

    __slots__ = ("_asks_at", "_leader", "_max_age_s", "_replica_id", "_until")

    def __init__(self, max_age_s: float) -> None:
        self._max_age_s = max_age_s
        self._replica_id = -1  # -1: the leader
        self._leader: Leader | None = None  # the leader that named the replica
        self._until = 0.0
        self._asks_at = 0.0  # before this time the leader does not get the rack

    def broker(self, leader: Leader, now: float) -> int:
        """The broker to fetch from."""
        if leader != self._leader or now >= self._until:
            self._replica_id = -1
        return self._replica_id if self._replica_id >= 0 else leader.broker_id

    def tells_rack(self, now: float) -> bool:
        """Whether a fetch says where the client is. A follower serves only such fetches."""
        return self._replica_id >= 0 or now >= self._asks_at

    def prefer(self, replica_id: int, leader: Leader, now: float) -> None:
        """The leader has named a replica."""
        self._replica_id, self._leader = replica_id, leader
        self._until = now + self._max_age_s

    def leave(self, now: float) -> None:
        """The replica has failed, or does not have the offset."""
        self._replica_id = -1
        self._asks_at = now + RETURN_AFTER_S
