"""The addresses by which the gateway's own clients reach the brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.gateway.gateway import bootstrap_servers
from stele.addresses import Address
from stele.world import RpcError


def context(broker_id: int, *brokers: tuple[int, str | None]) -> Any:
    """A broker in a cluster of brokers with these hosts; None: no such listener."""

    def registered(number: int, host: str | None) -> Any:
        address = Address(host, 9092) if host else None
        return SimpleNamespace(broker_id=number, endpoint={"PLAIN": address}.get)

    image = SimpleNamespace(sorted_brokers=lambda: [registered(*each) for each in brokers])
    config = SimpleNamespace(inter_broker_listener_name="PLAIN")
    return cast(Any, SimpleNamespace(broker_id=broker_id, image=lambda: image, config=config))


def test_a_broker_asks_itself_first() -> None:
    """It answers whatever has become of the others."""
    brokers = ((1, "a"), (2, "b"), (3, None), (4, "d"))
    assert bootstrap_servers(context(2, *brokers)) == "b:9092,a:9092,d:9092"
    assert bootstrap_servers(context(3, *brokers)) == "a:9092,b:9092,d:9092"


def test_without_an_address_the_listener_is_named() -> None:
    with pytest.raises(RpcError, match="no broker has an address on 'PLAIN'"):
        bootstrap_servers(context(1, (1, None)))
