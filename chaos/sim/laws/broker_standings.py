"""What brokers believe of their standing with the controller."""

from __future__ import annotations

from broker.membership.identity import NO_EPOCH
from broker.membership.lifecycle import BrokerState
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.laws.law import Cadence, Law
from chaos.sim.laws.scene import Report

_REGISTERED = (BrokerState.RECOVERY, BrokerState.RUNNING)
_MAY_LEASE = (BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN)


class BrokersKnowTheirStanding(Law):
    """A broker that calls itself registered has a broker epoch. Only a broker that is registered
    and not fenced, as far as the controller has told it, believes in its lease."""

    name = "brokers know their standing"
    cadence = Cadence.SELDOM

    def look(self, cluster: SimCluster, report: Report) -> None:
        for node in cluster.brokers.values():
            broker = node.broker
            if broker is None or not broker.has_begun:
                continue
            self.looked += 1
            state = broker.state
            if state in _REGISTERED and broker.replicas.broker_epoch == NO_EPOCH:
                report(f"broker {node.id} is {state.value}, and was never registered")
            if state not in _MAY_LEASE and broker.lease_valid:
                report(f"broker {node.id} is {state.value}, and believes that it has a lease")
