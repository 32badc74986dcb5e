"""Connections that have a request to take, and their turns."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report


class RequestsGetTheirTurn(Law):
    """A connection with a request that may be taken waits for its turn, and turns go on while a
    connection waits. Else nothing would take the request before the client sends more."""

    name = "requests get their turn"
    cadence = Cadence.SELDOM
    proof = Proof.CAMPAIGN

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.brokers.values():
            if node.broker is None or not node.broker.has_begun:
                continue
            turns = node.broker.turns
            if turns.waiting and not turns.is_going_on:
                report(f"{turns.waiting} connections of {node.host} wait, and no turn comes")
            for connection in node.broker.connections.open:
                self.looked += connection.requests > 0
                if connection.has_request and not connection.awaits_turn:
                    report(
                        f"{node.host} leaves a request of {connection.client_id!r} with its "
                        f"connection, after {connection.requests} others"
                    )
