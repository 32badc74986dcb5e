from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import stele
from stele.config import (
    ClientConfig,
    ClientOptions,
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    parse_bootstrap_servers,
)
from stele.errors import ConfigError

GUIDE = Path(__file__).parents[2] / "docs" / "clients.md"


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (ClientConfig, ClientOptions),
        (ProducerConfig, ProducerOptions),
        (ConsumerConfig, ConsumerOptions),
    ],
)
def test_every_option_is_a_keyword_argument_and_documented(config: type, options: type) -> None:
    names = {field.name for field in dataclasses.fields(config)} - {"bootstrap_servers"}
    assert set(get_type_hints(options)) == names
    guide = GUIDE.read_text()
    assert not [name for name in names if f"`{name}`" not in guide]


def test_bootstrap_servers() -> None:
    assert parse_bootstrap_servers("a:1, [::1]:2,10.0.0.1:65535") == [
        ("a", 1),
        ("::1", 2),
        ("10.0.0.1", 65535),
    ]
    for wrong in ("", "a", "a:", ":1", "a:b", "a:0", "a:65536", "a:1,"):
        with pytest.raises(ConfigError, match="host:port"):
            parse_bootstrap_servers(wrong)


def test_relations_between_options() -> None:
    assert ProducerConfig(acks=1).idempotent is False
    assert ProducerConfig(acks="all").idempotent is True
    assert ProducerConfig(acks="-1").acks_number == -1
    assert ProducerConfig(acks=1, max_in_flight=50).max_in_flight == 50
    with pytest.raises(ConfigError, match="buffer_memory"):
        ProducerConfig(batch_size=1000, buffer_memory=999)
    with pytest.raises(ConfigError, match="retry_backoff_max_ms"):
        ClientConfig(retry_backoff_ms=100, retry_backoff_max_ms=99)
    with pytest.raises(ConfigError, match="earliest, latest, none"):
        ConsumerConfig(auto_offset_reset="first")  # type: ignore[arg-type]


CLIENTS = [stele.Producer, stele.Consumer, stele.Admin]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_list_of_servers_and_unknown_options_are_explained(client: Any) -> None:
    with pytest.raises(ConfigError, match="must be one text, with commas between the servers"):
        client(["127.0.0.1:1"])
    with pytest.raises(ConfigError, match="no option clientid: did you mean client_id"):
        client("127.0.0.1:1", clientid="x")
    with pytest.raises(
        ConfigError,
        match=r"no option request\.timeout\.ms: did you mean "
        "request_t",
    ):
        client("127.0.0.1:1", **{"request.timeout.ms": 1})
    with pytest.raises(ConfigError, match="no option qqq; there are: bootstrap_servers, client_id"):
        client("127.0.0.1:1", qqq=1)


@pytest.mark.parametrize(
    ("config", "name", "value", "advice"),
    [
        (ClientConfig, "client_id", 7, "must be text, not int"),
        (ClientConfig, "request_timeout_ms", "5", "must be a whole number, not str"),
        (ClientConfig, "request_timeout_ms", 0.5, "must be a whole number, not float"),
        (ClientConfig, "request_timeout_ms", True, "must be a whole number, not bool"),
        (ClientConfig, "total_timeout_ms", "5", "must be a whole number or None, not str"),
        (ClientConfig, "on_wait", "log", "must be a function, not str"),
        (ProducerConfig, "linger_ms", "5", "must be a number, not str"),
        (ProducerConfig, "enable_idempotence", 1, "must be True or False or None, not int"),
        (ConsumerConfig, "check_crcs", "no", "must be True or False, not str"),
        (ConsumerConfig, "group_id", b"g", "must be text or None, not bytes"),
        (ConsumerConfig, "partition_assignment_strategy", [1], "must be text or a list of text"),
    ],
)
def test_a_value_of_a_wrong_type_is_explained(
    config: type[ClientConfig], name: str, value: object, advice: str
) -> None:
    with pytest.raises(ConfigError, match=f"{name}=.* {advice}"):
        config.of("127.0.0.1:1", {name: value})
