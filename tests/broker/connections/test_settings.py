"""The limits of connections in server.properties, and those that are set while the broker runs."""

from __future__ import annotations

import pytest

from metadata.connection_settings import listener_limit, read_overrides
from runtime.config.node import ConfigError
from stele.errors import ApiError
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


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("listener.name.External.max.connections", ("external", "max.connections")),
        ("listener.name.a.b.max.connections", ("a.b", "max.connections")),
        (
            "listener.name.x.max.connection.creation.rate",
            ("x", "max.connection.creation.rate"),
        ),
        ("listener.name..max.connections", None),
        ("listener.name.max.connections", None),
        ("listener.name.x.max.connections.per.ip", None),
        ("listener.name.x", None),
        ("max.connections", None),
        ("x.max.connections", None),
    ],
)
def test_keys_of_one_listener(name: str, found: tuple[str, str] | None) -> None:
    limit = listener_limit(name)
    assert (None if limit is None else (limit.listener, limit.base.name)) == found
    if limit is not None:
        assert limit.key.name == f"listener.name.{limit.listener}.{limit.base.name}"


def test_an_address_has_one_form_however_it_is_written() -> None:
    """A listener of both protocols shows clients of IPv4 as addresses of IPv6."""
    given = ["::ffff:10.0.0.1:3", "[2001:DB8:0::1]:4", "10.0.0.2:0"]
    assert read_overrides(given) == {"10.0.0.1": 3, "2001:db8::1": 4, "10.0.0.2": 0}


@pytest.mark.parametrize(
    "item", ["10.0.0.1:\u0663", "10.0.0.1:+3", "10.0.0.1:\u00b2", ":3", "[]:3"]
)
def test_a_count_is_of_plain_digits_and_an_address_is_one(item: str) -> None:
    with pytest.raises(ApiError, match="is not of the form ADDRESS:COUNT"):
        read_overrides([item])
