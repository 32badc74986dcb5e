"""How clients log in at each SASL listener of a broker, as its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from metadata.image import MetadataImage
from runtime.config.node import NodeConfig
from runtime.config.security import ListenerSecurity
from runtime.logins.listener import AuthenticationMetrics, Begin, ListenerLogins
from runtime.metrics.registry import MetricsRegistry
from security.sasl.dialogue import CredentialStore
from security.sasl.plain import PlainDialogue
from security.sasl.scram import ScramDialogue
from stele.security.dialogues import PLAIN
from stele.security.scram import MECHANISMS, ScramCredential, ScramMechanism
from world.world import World


class NewestMetadata(Protocol):
    """A broker's own replica of the metadata."""

    @property
    def image(self) -> MetadataImage: ...


class NewestCredentials:
    """The ``CredentialStore`` of the newest image."""

    def __init__(self, metadata: NewestMetadata) -> None:
        self._metadata = metadata

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._metadata.image.scram_credentials.find(mechanism, user)

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        return self._metadata.image.scram_credentials.stand_in(mechanism, user)


def logins_of(
    config: NodeConfig,
    metadata: NewestMetadata,
    world: World,
    registry: MetricsRegistry,
) -> dict[str, ListenerLogins]:
    """By the name of the listener; none for a listener without SASL."""
    store = NewestCredentials(metadata)
    metrics = AuthenticationMetrics(registry)
    return {
        name: ListenerLogins(
            {each: _begin(security, each, store) for each in security.mechanisms},
            clock=world.clock,
            rng=world.rng,
            compute=world.compute,
            metrics=metrics,
            failure_delay_ms=config.security.failed_authentication_delay_ms,
            session_ms={
                each: security.number("connections.max.reauth.ms", each)
                for each in security.mechanisms
            },
        )
        for name, security in config.security.listeners.items()
        if security.protocol.has_sasl
    }


def _begin(security: ListenerSecurity, mechanism: str, store: CredentialStore) -> Begin:
    if mechanism == PLAIN:
        return _begin_plain(security, store)
    scram = MECHANISMS[mechanism]
    return lambda nonce: ScramDialogue(scram, store, nonce)


def _begin_plain(security: ListenerSecurity, store: CredentialStore) -> Begin:
    users: Mapping[str, str] = security.plain_users
    asked = store if security.flag("sasl.plain.scram.enable", PLAIN) else None
    return lambda nonce: PlainDialogue(users, asked)
