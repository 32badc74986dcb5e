from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import get_type_hints

import pytest

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
