"""Which brokers are nearer to a consumer than this one (KIP-392)."""

from __future__ import annotations

from typing import Final

from broker.service.context import BrokerContext
from runtime.authorization.caller import Caller

_NONE: Final[frozenset[int]] = frozenset()


def nearby_brokers(context: BrokerContext, caller: Caller, rack: str) -> frozenset[int]:
    """The live brokers with the caller's rack that it can reach on its listener. Empty if it names
    no rack, if it is this broker's, or if ``replica.selector.class`` does not ask for it."""
    if not rack or not context.config.selects_replicas_by_rack or rack == context.config.rack:
        return _NONE
    return frozenset(
        registration.broker_id
        for registration in context.image().sorted_brokers()
        if registration.rack == rack
        and not registration.fenced
        and registration.endpoint(caller.listener, caller.plane) is not None
    )
