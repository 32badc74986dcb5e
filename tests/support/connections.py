"""A broker with two listeners, and its limits of connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from metadata.config_key import INT_MAX
from metadata.connection_settings import ConnectionSettings
from runtime.config.node import NodeConfig, from_settings
from runtime.kafka.connection import KafkaServerProtocol
from runtime.kafka.mute import Mute


def settings(
    *,
    most: int = 3,
    per_address: int = 2,
    listener_max: Mapping[str, int] | None = None,
    rate: int = INT_MAX,
    listener_rates: Mapping[str, int] | None = None,
) -> ConnectionSettings:
    return ConnectionSettings(
        max_connections=most,
        max_per_address=per_address,
        address_overrides={"10.0.0.2": 1},
        creation_rate=rate,
        listener_max=listener_max or {},
        listener_rates=listener_rates or {},
    )


def two_listeners(**settings: str) -> NodeConfig:
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


@dataclass
class Fake:
    """A connection that notes what the broker does with it."""

    name: str
    listener_name: str = "CLIENTS"
    in_flight: int = 0
    last_active_s: float = 0.0
    is_held: bool = False
    is_closed: bool = False
    is_stalled: bool = False
    muted: Mute = field(default_factory=lambda: Mute(lambda: None))
    address: str = "10.0.0.1"
    peer: str = "10.0.0.1:5"
    principal: str = "User:ANONYMOUS"
    done: list[str] = field(default_factory=list)

    def hold(self) -> None:
        self.is_held = True

    def let_in(self) -> None:
        self.is_held = False
        self.done.append("let in")

    def drain(self) -> None:
        self.done.append("drained")

    def close(self) -> None:
        self.is_closed = True
        self.done.append("closed")

    def abort(self) -> None:
        self.is_closed = True
        self.done.append("aborted")

    def __hash__(self) -> int:
        return id(self)


def as_connection(fake: Fake) -> KafkaServerProtocol:
    return cast(KafkaServerProtocol, fake)
