"""The limits of connections in server.properties, and those that are set while the broker runs."""

from __future__ import annotations

import pytest

from runtime.config.node import ConfigError
from tests.support.connections import two_listeners


def test_limits_in_the_configuration() -> None:
    given = two_listeners(
        max_connections="100",
        max_connections_per_ip="10",
        max_connections_per_ip_overrides="127.0.0.1:20,[::1]:30",
        listener_name_clients_max_connections="50",
        max_connection_creation_rate="70",
        listener_name_Brokers_max_connection_creation_rate="7",
    ).connections
    assert (given.max_connections, given.max_per_address) == (100, 10)
    assert given.address_overrides == {"127.0.0.1": 20, "::1": 30}
    assert given.listener_max == {"CLIENTS": 50}
    assert (given.creation_rate, given.listener_rates) == (70, {"BROKERS": 7})


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("max_connections_per_ip_overrides", "somewhere:10", "ADDRESS:COUNT"),
        ("max_connections_per_ip_overrides", "127.0.0.1", "ADDRESS:COUNT"),
        ("max_connections_per_ip_overrides", "127.0.0.1:-1", "ADDRESS:COUNT"),
        ("listener_name_others_max_connections", "10", "no such listener"),
        ("listener_name_clients_max_connections", "many", "whole number"),
        ("max_connection_creation_rate", "0", "from 1"),
        ("listener_name_clients_max_connection_creation_rate", "0", "from 1"),
        ("listener_name_others_max_connection_creation_rate", "10", "no such listener"),
    ],
)
def test_limits_that_are_refused(key: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        two_listeners(**{key: value})
