"""Brokers must reach one another: each needs the listener that the others use for it."""

from __future__ import annotations

from collections.abc import Sequence

from controller.machine import Context
from metadata.brokers import GRPC, PLAINTEXT, BrokerRegistration, Endpoint
from stele.errors import ApiError, ErrorCode

_KEY = "inter.broker.listener.name"


def check_listeners(
    context: Context, endpoints: Sequence[Endpoint], broker_id: int, listener: str
) -> None:
    """Refuse a broker that others could not reach, or that could not reach others.

    ``listener``: the broker's own inter.broker.listener.name; "" if the registration has none.
    Fenced brokers do not count: they may be gone for good or come back with another configuration,
    and are checked when they are unfenced. Raises ApiError INVALID_REGISTRATION.
    """
    others = [
        each
        for each in context.image.sorted_brokers()
        if each.broker_id != broker_id and not each.fenced
    ]
    wanted = [(listener, f"its own {_KEY}")]
    wanted += [(context.static.get(_KEY, ""), f"the controllers' {_KEY}")]
    wanted += [
        (each.inter_broker_listener, f"the {_KEY} of broker {each.broker_id}") for each in others
    ]
    for name, whose in wanted:
        for protocol, key in ((PLAINTEXT, "listeners"), (GRPC, "grpc.listeners")):
            if name and not _has(endpoints, name, protocol):
                raise ApiError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"broker {broker_id} has no listener {name}, which is {whose}: add it to "
                    f"its {key}",
                )
    lacking = [each for each in others if listener and not _reachable(each, listener)]
    if lacking:
        ids = ", ".join(str(each.broker_id) for each in lacking)
        raise ApiError(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {broker_id} reaches others by listener {listener}, which brokers {ids} do "
            f"not have: set its {_KEY} to one that they have, or add the listener to them first",
        )


def _has(endpoints: Sequence[Endpoint], listener: str, protocol: str) -> bool:
    return any(each.listener == listener and each.protocol == protocol for each in endpoints)


def _reachable(registration: BrokerRegistration, listener: str) -> bool:
    return registration.endpoint(listener) is not None
