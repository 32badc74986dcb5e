"""Fetch sessions and timers skip partitions. A skipped partition must not need attention."""

from __future__ import annotations

from collections.abc import Iterator

from broker.replication.fetch_session import FetchSession, FetchSessions
from broker.replication.leader_throttle import is_held_back
from broker.replication.replica import ReplicaState
from broker.replication.replicas import Replicas
from broker.replication.types import FetchEntry
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report


class NothingGoesUnnoticed(Law):
    """A follower hears of every change. Every leader that may have to act at some time is told the
    time."""

    name = "nothing goes unnoticed"
    cadence = Cadence.SELDOM

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.nodes.values():
            broker = node.node.broker if node.alive and node.node is not None else None
            if broker is None or not broker.serving:
                continue
            self.looked += sum(len(session.entries) for session in broker.fetch_sessions)
            for fault in unnoticed(broker.replicas.hosted, broker.fetch_sessions):
                report(f"broker {node.id}: {fault}")


def unnoticed(replicas: Replicas, sessions: FetchSessions) -> Iterator[str]:
    """What a broker overlooks."""
    for replica in replicas:
        is_leading = replica.state is ReplicaState.ONLINE and replica.machine.is_leader
        if is_leading and not replica.machine.is_settled and replica.id not in replicas.unsettled:
            yield f"{replica!r} is not settled, and nobody tells it the time"
    for session in sessions:
        for entry in session.entries.values():
            if entry.id in session.held:
                yield from _held_in_vain(replicas, session, entry)
            elif entry.id not in session.stirred:
                yield from _unseen(replicas, session, entry)


def _held_in_vain(replicas: Replicas, session: FetchSession, entry: FetchEntry) -> Iterator[str]:
    """Partitions that wait for quota without need: only a throttled follower that is not in sync
    waits for it."""
    replica = replicas.by_id.get(entry.id)
    if (
        replica is None
        or replica.state is not ReplicaState.ONLINE
        or entry.current_leader_epoch != replica.machine.leader_epoch
        or not is_held_back(replica, session.replica_id)
    ):
        yield f"the session of broker {session.replica_id} waits for quota of {entry.id} in vain"


def _unseen(replicas: Replicas, session: FetchSession, entry: FetchEntry) -> Iterator[str]:
    """What a session that skips this partition overlooks in it."""
    replica = replicas.by_id.get(entry.id)
    who = f"the session of broker {session.replica_id}"
    if replica is None or replica.state is not ReplicaState.ONLINE:
        yield f"{who} was not told that {entry.id} is gone"
        return
    machine = replica.machine
    if entry.current_leader_epoch != machine.leader_epoch or not machine.is_leader:
        yield f"{who} was not told of another leader of {replica!r}"
    elif entry.fetch_offset != replica.log.end_offset:
        yield (
            f"{who} rests at {entry.fetch_offset} of {replica!r}, which ends at "
            f"{replica.log.end_offset}"
        )
    elif (
        entry.id not in session.advanced
        and session.sent[entry.id].high_watermark != machine.high_watermark
    ):
        yield f"{who} was not told of the high watermark of {replica!r}"
    elif not machine.rests(session.replica_id, session.attendance):
        yield f"{who} counts on the rest of {replica!r}, whose leader does not"
