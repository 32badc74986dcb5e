"""The cluster: the brokers that a client gets, with their addresses for it."""

from __future__ import annotations

from collections.abc import Iterable

from broker.replication.types import LeaderHint
from broker.service.context import BrokerContext
from metadata.brokers import BrokerRegistration, Endpoint
from runtime.authorization.authorizer import CLUSTER, Operation, allowed_operations
from runtime.authorization.caller import Caller, Plane


def endpoints(
    context: BrokerContext, caller: Caller, plane: Plane, *, with_fenced: bool = False
) -> list[tuple[BrokerRegistration, Endpoint]]:
    """Every broker that speaks this on a listener of the caller's name, by id."""
    found = []
    for registration in context.image().sorted_brokers():
        endpoint = registration.endpoint(caller.listener, plane)
        if endpoint is not None and (with_fenced or not registration.fenced):
            found.append((registration, endpoint))
    return found


def leader_endpoints(
    context: BrokerContext, caller: Caller, hints: Iterable[LeaderHint]
) -> list[tuple[BrokerRegistration, Endpoint]]:
    """Where the leaders are that an answer's hints name, each once, by id."""
    found = []
    for broker_id in sorted({hint.leader_id for hint in hints if hint.leader_id >= 0}):
        registration = context.image().broker(broker_id)
        if registration is None:
            continue
        endpoint = registration.endpoint(caller.listener, caller.plane)
        if endpoint is not None:
            found.append((registration, endpoint))
    return found


def any_live_broker(context: BrokerContext) -> int:
    """The id given to Kafka's clients as the controller's; -1 when no broker is live.

    In KRaft mode clients never reach the controllers: a broker forwards what is meant for them.
    A live broker names itself. Any other one names a live broker, the same one while they stay.
    """
    live = [b.broker_id for b in context.image().sorted_brokers() if not b.fenced]
    if not live or context.broker_id in live:
        return context.broker_id if live else -1
    return live[context.broker_id % len(live)]


def active_controller(context: BrokerContext) -> int:
    """The controller's id for clients of gRPC; -1: none is known."""
    controller_id = context.controller.active_controller
    return -1 if controller_id is None else controller_id


def cluster_operations(context: BrokerContext, caller: Caller) -> int:
    """What the caller may do to the cluster, as bits (KIP-430); 0 if it may not even know."""
    if not context.authorizer.allows(caller, Operation.DESCRIBE, CLUSTER):
        return 0
    return allowed_operations(context.authorizer, caller, CLUSTER)
