"""What an examination of a node or a cluster starts from, and what it finds."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from cryptography import x509

from runtime.config.addresses import NamedAddress
from runtime.config.node import NodeConfig
from runtime.config.security import ListenerSecurity
from runtime.tls.own_handshake import Refused


class Level(enum.Enum):
    FATAL = "fatal"
    """The node refuses to start: it could never work together with the others."""
    PROBLEM = "problem"
    ADVICE = "advice"


class Finding(NamedTuple):
    """One thing that is not as it should be."""

    level: Level
    where: str
    what: str
    advice: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node as its files describe it."""

    config: NodeConfig
    certificates: Mapping[str, x509.Certificate]  # by listener; those that can be read
    unreadable: Mapping[str, str]  # by listener: why its store cannot be read
    exposed_files: tuple[str, ...]  # with a private key that other users of the machine can read
    now: datetime
    refused: Mapping[str, Refused] = field(default_factory=dict)
    """By listener: why a node would refuse another one with the same stores and settings."""

    @property
    def name(self) -> str:
        return f"node {self.config.node_id}"

    def place_of(self, listener: str) -> str:
        return f"{self.name}, listener {listener}"

    @property
    def listeners(self) -> Iterator[tuple[ListenerSecurity, NamedAddress, NamedAddress]]:
        """Each listener's security, and where it is bound and advertised."""
        config = self.config
        for bound, advertised in zip(config.listeners, config.advertised_listeners, strict=True):
            yield config.security.listeners[bound.name], bound, advertised
        grpc = zip(config.grpc_listeners, config.grpc_advertised_listeners, strict=True)
        for bound, advertised in grpc:
            yield config.security.listeners[bound.name], bound, advertised
        controllers = zip(
            config.controller_listeners, config.controller_advertised_listeners, strict=True
        )
        for bound, advertised in controllers:
            yield config.security.controllers[bound.name], bound, advertised

    @property
    def peer_listeners(self) -> list[ListenerSecurity]:
        """Listeners with TLS whose certificate this node shows to other nodes: the controllers'
        ones, to which every node connects, and the brokers' one between themselves."""
        security = self.config.security
        found = dict(security.controllers)
        own = security.listeners.get(self.config.inter_broker_listener_name)
        if own is not None:
            found[own.name] = own
        return [each for each in found.values() if each.protocol.has_tls]

    def fatal_on(self, listener: str) -> Level:
        """The level of what keeps other nodes from connecting on this listener. Of the brokers' own
        listener it is no more than a problem for a broker that may be the only one: no other node
        connects there."""
        config = self.config
        if listener in config.security.controllers:
            return Level.FATAL
        if listener != config.inter_broker_listener_name:
            return Level.PROBLEM
        may_be_alone = config.is_controller and len(config.voters) <= 1
        return Level.PROBLEM if may_be_alone else Level.FATAL

    def key(self, listener: str, name: str) -> str:
        """The key of a listener as it is set, with or without its prefix."""
        prefixed = f"listener.name.{listener.lower()}.{name}"
        return next((key for key in self.config.raw if key.lower() == prefixed), name)

    def keystore_of(self, listener: str) -> str:
        """Where the certificate of a listener comes from, for messages."""
        for name in ("ssl.keystore.location", "ssl.keystore.certificate.chain"):
            key = self.key(listener, name)
            if key in self.config.raw:
                shown = f"={self.config.raw[key]}" if name.endswith("location") else ""
                return f"{key}{shown}"
        return self.key(listener, "ssl.keystore.location")


Check = Callable[[NodeFacts], Iterator[Finding]]
