"""Connections of the gateway to other brokers."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.gateway import peers
from broker.gateway.peers import Peers, UnansweredError
from stele.addresses import Address
from stele.security.client_security import PLAINTEXT
from stele.wire.kafka.messages import produce
from stele.world import Connector
from tests.support.worlds import virtual


class Silent:
    """Accepts connections and never answers."""

    security = PLAINTEXT

    async def connect(self, address: Address, factory: Any) -> asyncio.Transport:
        await asyncio.sleep(3600)
        raise AssertionError("nobody waits so long")

    def channel(self, address: Address, client_id: str | None = None) -> Any:
        raise NotImplementedError


class Refusing(Silent):
    """Refuses connections."""

    async def connect(self, address: Address, factory: Any) -> asyncio.Transport:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


REGISTERED = SimpleNamespace(endpoint=lambda name: Address("b1", 9092), inter_broker_listener="L")


def peers_over(connector: Silent, registration: Any = REGISTERED, listener: str = "L") -> Peers:
    image = SimpleNamespace(broker=lambda broker_id: registration)
    config = SimpleNamespace(inter_broker_listener_name=listener)
    context = cast(Any, SimpleNamespace(image=lambda: image, config=config, broker_id=0))
    return Peers(context, cast(Connector, connector), "gateway")


@pytest.mark.parametrize(
    ("registration", "listener"),
    [
        (None, None),
        (SimpleNamespace(endpoint=lambda name: None, inter_broker_listener="L"), None),
        (SimpleNamespace(endpoint={"L": None}.get, inter_broker_listener=""), "L"),
    ],
)
@virtual
async def test_a_broker_without_an_address_for_brokers_says_so(
    registration: Any, listener: str | None
) -> None:
    """One that is not registered, and ones that have no such listener."""
    asked = peers_over(Silent(), registration, listener or "none")
    with pytest.raises(UnansweredError, match="broker 1: it has no address for brokers") as error:
        await asked.submit(1, produce.API, produce.ProduceRequest(), timeout_s=10.0, lane=0)
    assert not error.value.maybe_taken


@pytest.mark.parametrize(("own", "asked"), [("BROKERS", "BROKERS"), ("", "L")])
@virtual
async def test_a_broker_is_reached_by_the_listener_that_it_has_registered(
    own: str, asked: str
) -> None:
    """One that has registered none is reached by the listener of this broker's configuration."""
    names: list[str] = []

    def endpoint(name: str) -> Address:
        names.append(name)
        return Address("b1", 9092)

    registration = SimpleNamespace(endpoint=endpoint, inter_broker_listener=own)
    with pytest.raises(UnansweredError):
        await peers_over(Refusing(), registration).submit(
            1, produce.API, produce.ProduceRequest(), timeout_s=10.0, lane=0
        )
    assert names == [asked]


@virtual
async def test_a_refused_connection_is_explained() -> None:
    asked = peers_over(Refusing())
    with pytest.raises(UnansweredError, match=r"broker 1: .*Connection refused") as error:
        await asked.submit(1, produce.API, produce.ProduceRequest(), timeout_s=10.0, lane=0)
    assert not error.value.maybe_taken


@virtual
async def test_all_waiters_for_a_hung_broker_give_up_together() -> None:
    """One after the other, the last one would wait for minutes."""
    asked = peers_over(Silent())

    async def ask() -> float:
        with pytest.raises(UnansweredError, match="no answer within"):
            await asked.submit(1, produce.API, produce.ProduceRequest(), timeout_s=10.0, lane=0)
        return asyncio.get_running_loop().time()

    began = asyncio.get_running_loop().time()
    ends = await asyncio.gather(*(ask() for _ in range(5)))
    assert max(ends) - began == pytest.approx(peers._OPEN_S, abs=0.1)  # noqa: SLF001
