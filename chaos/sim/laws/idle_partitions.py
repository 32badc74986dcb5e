"""What idle partitions cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.replication.replica import Replica
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.cluster.view import replica_of
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from stele.ids import PartitionId

_REQUESTS: Final = 10
"""The most requests of a session that look at a partition after its last change."""

_Key = tuple[str, int, PartitionId]


@dataclass(slots=True)
class _Idle:
    """A partition in which nothing changes, in a session that looks at it."""

    standing: tuple[object, ...]
    last_fetch_ms: float
    requests: int = 0  # seen since, at least


class IdlePartitionsAreLeftAlone(Law):
    """A leader looks at a partition for a follower's session only until the follower has
    everything: it does not cost every request something while nothing changes."""

    name = "idle partitions are left alone"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        self._idle: dict[_Key, _Idle] = {}

    def look(self, cluster: SimCluster, report: Report) -> None:
        found: dict[_Key, _Idle] = {}
        for node in cluster.brokers.values():
            if node.broker is not None and node.broker.has_begun:
                found |= self._look_at(node, report)
        self._idle = found

    def _look_at(self, node: SimNode, report: Report) -> dict[_Key, _Idle]:
        assert node.broker is not None
        found = {}
        for session in node.broker.fetch_sessions:
            fetched_ms = session.attendance.last_fetch_ms
            for partition in session.entries:
                replica = replica_of(node, partition)
                standing = None if replica is None else _standing(replica, session.replica_id)
                if standing is None:
                    continue
                self.looked += 1
                if partition not in session.stirred:
                    continue
                key = node.incarnation, session.session_id, partition
                idle = self._idle.get(key)
                if idle is None or idle.standing != standing:
                    idle = _Idle(standing, fetched_ms)
                elif idle.last_fetch_ms != fetched_ms:
                    idle.requests, idle.last_fetch_ms = idle.requests + 1, fetched_ms
                found[key] = idle
                if idle.requests == _REQUESTS:
                    report(
                        f"{replica!r} on broker {node.id} is idle, and broker "
                        f"{session.replica_id} has everything; its session looks at it all the time"
                    )
        return found


def _standing(replica: Replica, follower: int) -> tuple[object, ...] | None:
    """What must not change meanwhile. None if the follower does not rest."""
    machine = replica.machine
    progress = machine.progress_of(follower) if machine.is_leader else None
    if progress is None or progress.rests_in is None or follower not in machine.state.isr:
        return None
    return machine.state, machine.log, machine.high_watermark, progress.end_offset
