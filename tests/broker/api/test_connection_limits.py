"""Limits of connections: of the broker, of a listener, of an address."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api import KafkaApis
from broker.api.connection_limits import ConnectionLimits
from broker.api.server import KafkaServer
from runtime.config.node import ConfigError, NodeConfig, from_settings
from runtime.metrics.registry import MetricsRegistry
from runtime.real.network import RealNetwork
from runtime.tls.listeners import TlsListeners
from stele.real import RealClock
from tests.support.timing import until

LISTENERS = ("CLIENTS", "BROKERS")
ADDRESSES = ("10.0.0.1", "10.0.0.2", "::1")


def limits(**changes: object) -> ConnectionLimits:
    options: dict[str, object] = {
        "max_connections": 3,
        "max_per_address": 2,
        "address_overrides": {"10.0.0.2": 1},
        "listener_max": {},
        "protected_listener": None,
    }
    return ConnectionLimits(**{**options, **changes})  # type: ignore[arg-type]


def test_an_address_has_its_limit_or_one_of_its_own() -> None:
    counted = limits()
    assert counted.admit("CLIENTS", "10.0.0.2") is None
    assert "10.0.0.2" in str(counted.admit("CLIENTS", "10.0.0.2"))
    for _ in range(2):
        assert counted.admit("CLIENTS", "10.0.0.1") is None
    assert "per.ip" in str(counted.admit("CLIENTS", "10.0.0.1"))
    assert "max.connections: 3" in str(counted.admit("CLIENTS", "10.0.0.3"))
    counted.release("CLIENTS", "10.0.0.2")
    assert counted.admit("CLIENTS", "10.0.0.2") is None


def test_the_brokers_listener_goes_beyond_the_limit_of_the_broker_and_has_its_own() -> None:
    counted = limits(listener_max={"BROKERS": 1}, protected_listener="BROKERS")
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.3"):
        assert counted.admit("CLIENTS", address) is None
    before = counted.exceeded
    assert counted.admit("BROKERS", "10.0.0.4") is None
    assert (before, counted.exceeded) == (False, True)
    assert "listener.name.brokers.max.connections" in str(counted.admit("BROKERS", "10.0.0.5"))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(LISTENERS), st.sampled_from(ADDRESSES)),
            st.integers(0, 20),
        ),
        max_size=60,
    ),
    st.integers(0, 5),
    st.integers(0, 3),
    st.booleans(),
)
def test_as_a_twin_that_keeps_the_list_of_all_connections(
    events: list[tuple[str, str] | int], most: int, per_address: int, protects: bool
) -> None:
    protected = "BROKERS" if protects else None
    counted = limits(
        max_connections=most,
        max_per_address=per_address,
        listener_max={"CLIENTS": 2},
        protected_listener=protected,
    )
    present: list[tuple[str, str]] = []
    for event in events:
        if isinstance(event, int):
            if event < len(present):
                counted.release(*present.pop(event))
            continue
        by_listener = Counter(listener for listener, _ in present)
        by_address = Counter(address for _, address in present)
        fits = (
            by_address[event[1]] < {"10.0.0.2": 1}.get(event[1], per_address)
            and (event[0] != "CLIENTS" or by_listener["CLIENTS"] < 2)
            and (len(present) < most or event[0] == protected)
        )
        assert (counted.admit(*event) is None) is fits
        if fits:
            present.append(event)
        assert counted.exceeded is (len(present) > most)


def config(**settings: str) -> NodeConfig:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return from_settings(
        {
            "node.id": "1",
            "process.roles": "broker",
            "controller.quorum.voters": "9@localhost:9093",
            "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
            "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
            "grpc.listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
            "inter.broker.listener.name": "BROKERS",
            "log.dirs": "/data",
            **named,
        }
    )


def test_limits_in_the_configuration() -> None:
    given = config(
        max_connections="100",
        max_connections_per_ip="10",
        max_connections_per_ip_overrides="127.0.0.1:20,[::1]:30",
        listener_name_clients_max_connections="50",
    )
    assert (given.max_connections, given.max_connections_per_ip) == (100, 10)
    assert given.max_connections_per_ip_overrides == {"127.0.0.1": 20, "::1": 30}
    assert given.listener_max_connections == {"CLIENTS": 50}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("max_connections_per_ip_overrides", "somewhere:10", "ADDRESS:COUNT"),
        ("max_connections_per_ip_overrides", "127.0.0.1", "ADDRESS:COUNT"),
        ("max_connections_per_ip_overrides", "127.0.0.1:-1", "ADDRESS:COUNT"),
        ("listener_name_others_max_connections", "10", "no such listener"),
        ("listener_name_clients_max_connections", "many", "whole number"),
    ],
)
def test_limits_that_are_refused(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        config(**{key: value})


class _NoApis:
    """Accepts no requests."""

    turn_clock = None

    def forget(self, connection: object) -> None:
        pass


def no_tls(network: RealNetwork, registry: MetricsRegistry) -> TlsListeners:
    return TlsListeners(network, RealClock(), registry)


async def test_a_refused_connection_is_closed_at_once_counted_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry, network = MetricsRegistry(), RealNetwork()
    server = KafkaServer(
        config(max_connections_per_ip="2"), network, registry, no_tls(network, registry)
    )
    await server.bind(cast(KafkaApis, _NoApis()))
    port = server.ports["CLIENTS"]
    admitted = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
    assert b"stele_connections_refused_total 20" in registry.render()
    assert 1 <= len(caplog.messages) < 20
    assert "max.connections.per.ip" in caplog.messages[0]
    admitted[0][1].close()
    await until(lambda: b"stele_connection_count 1" in registry.render())
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    await until(lambda: b"stele_connection_count 2" in registry.render())
    assert b'stele_listener_connections{listener="CLIENTS"} 2' in registry.render()
    assert b'stele_listener_connections{listener="BROKERS"} 0' in registry.render()
    writer.close()
    admitted[1][1].close()
    await server.close()


async def test_a_broker_takes_the_place_of_the_client_that_was_silent_for_longest() -> None:
    registry, network = MetricsRegistry(), RealNetwork()
    server = KafkaServer(config(max_connections="2"), network, registry, no_tls(network, registry))
    await server.bind(cast(KafkaApis, _NoApis()))
    clients = [await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"])]
    await asyncio.sleep(0.01)  # the loop's clock goes on
    clients.append(await asyncio.open_connection("127.0.0.1", server.ports["CLIENTS"]))
    _, broker = await asyncio.open_connection("127.0.0.1", server.ports["BROKERS"])
    assert await asyncio.wait_for(clients[0][0].read(), 5) == b""
    assert b"stele_connection_count 2" in registry.render()
    for writer in (clients[0][1], clients[1][1], broker):
        writer.close()
    await server.close()
