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


def peers_over(connector: Silent) -> Peers:
    endpoint = Address("b1", 9092)
    registration = SimpleNamespace(endpoint=lambda name: endpoint, inter_broker_listener="L")
    image = SimpleNamespace(broker=lambda broker_id: registration)
    config = SimpleNamespace(inter_broker_listener_name="L")
    context = cast(Any, SimpleNamespace(image=lambda: image, config=config, broker_id=0))
    return Peers(context, cast(Connector, connector), "gateway")


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
