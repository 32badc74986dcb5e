"""How clients log in at each SASL listener of a broker, as its configuration says."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from metadata.delegation_tokens import DelegationToken
from metadata.image import MetadataImage
from runtime.config.node import NodeConfig
from runtime.config.security import ListenerSecurity
from runtime.logins.listener import AuthenticationMetrics, Begin, ListenerLogins, VerifyToken
from runtime.logins.sessions import OpenSessions
from runtime.logins.tokens import TokenVerifier, UnsecuredVerifier
from runtime.metrics.registry import MetricsRegistry
from security.delegation_tokens import token_hmac
from security.sasl.dialogue import CredentialStore, TokenStore
from security.sasl.oauthbearer import OauthBearerDialogue
from security.sasl.plain import PlainDialogue
from security.sasl.scram import ScramDialogue
from security.sasl.tokens import TokenRules
from stele.security.dialogues import OAUTHBEARER, PLAIN
from stele.security.scram import MECHANISMS, ScramCredential, ScramMechanism
from stele.world import Clock
from world.world import World

logger = logging.getLogger(__name__)

_FETCH_S: Final = 10.0
"""How long the keys of an issuer may take to come."""


class NewestMetadata(Protocol):
    """A broker's own replica of the metadata."""

    @property
    def image(self) -> MetadataImage: ...


class NewestCredentials:
    """The ``CredentialStore`` of the newest image. The broker's gRPC listeners take logins before
    the broker is registered. Until then it has no image."""

    def __init__(self, metadata: NewestMetadata) -> None:
        self._metadata = metadata

    @property
    def is_loaded(self) -> bool:
        return self._metadata.image.offset >= 0

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._metadata.image.scram_credentials.find(mechanism, user)

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        return self._metadata.image.scram_credentials.stand_in(mechanism, user)


class NewestTokens:
    """The ``TokenStore`` of the newest image."""

    def __init__(self, metadata: NewestMetadata, secret: bytes, clock: Clock) -> None:
        self._metadata = metadata
        self._secret = secret
        self._clock = clock

    @property
    def is_loaded(self) -> bool:
        return self._metadata.image.offset >= 0

    @property
    def now_ms(self) -> int:
        return self._clock.time_ms()

    def hmac_of(self, token_id: str) -> bytes:
        return token_hmac(self._secret, token_id)

    def find(self, token_id: str) -> DelegationToken | None:
        return self._metadata.image.delegation_tokens.get(token_id)


def sessions_of(config: NodeConfig, metadata: NewestMetadata, world: World) -> OpenSessions:
    """The sessions of a broker, which is to give it each new image."""
    return OpenSessions(NewestCredentials(metadata), _tokens(config, metadata, world))


def _tokens(config: NodeConfig, metadata: NewestMetadata, world: World) -> NewestTokens | None:
    secret = config.security.token_secret
    return NewestTokens(metadata, secret, world.clock) if secret else None


def logins_of(
    config: NodeConfig,
    metadata: NewestMetadata,
    world: World,
    registry: MetricsRegistry,
    sessions: OpenSessions,
) -> dict[str, ListenerLogins]:
    """By the name of the listener; none for a listener without SASL."""
    for security in config.security.listeners.values():
        _warn_of_plaintext(security)
    store, tokens = NewestCredentials(metadata), _tokens(config, metadata, world)
    metrics = AuthenticationMetrics(registry)
    return {
        name: ListenerLogins(
            {each: _begin(security, each, store, tokens) for each in security.mechanisms},
            clock=world.clock,
            rng=world.rng,
            compute=world.compute,
            metrics=metrics,
            sessions=sessions,
            failure_delay_ms=config.security.failed_authentication_delay_ms,
            verify_token=_verify_token(security, world),
            session_ms={
                each: security.number("connections.max.reauth.ms", each)
                for each in security.mechanisms
            },
        )
        for name, security in config.security.listeners.items()
        if security.protocol.has_sasl
    }


def _warn_of_plaintext(security: ListenerSecurity) -> None:
    shown = [each for each in (PLAIN, OAUTHBEARER) if each in security.mechanisms]
    if shown and not security.protocol.has_tls:
        logger.warning(
            "listener %s has %s without TLS: whoever is on the way reads passwords and tokens",
            security.name,
            " and ".join(shown),
        )


def _begin(
    security: ListenerSecurity, mechanism: str, store: CredentialStore, tokens: TokenStore | None
) -> Begin:
    if mechanism == PLAIN:
        return _begin_plain(security, store)
    if mechanism == OAUTHBEARER:
        return lambda nonce: OauthBearerDialogue()
    scram = MECHANISMS[mechanism]
    return lambda nonce: ScramDialogue(scram, store, nonce, tokens)


def _begin_plain(security: ListenerSecurity, store: CredentialStore) -> Begin:
    users: Mapping[str, str] = security.plain_users
    asked = store if security.flag("sasl.plain.scram.enable", PLAIN) else None
    return lambda nonce: PlainDialogue(users, asked)


def _verify_token(security: ListenerSecurity, world: World) -> VerifyToken | None:
    if OAUTHBEARER not in security.mechanisms:
        return None

    def text(name: str) -> str:
        return security.text(f"sasl.oauthbearer.{name}", OAUTHBEARER)

    rules = TokenRules(
        audiences=tuple(each.strip() for each in text("expected.audience").split(",") if each),
        issuer=text("expected.issuer"),
        skew_s=int(text("clock.skew.seconds")),
        subject_claim=text("sub.claim.name"),
        scope_claim=text("scope.claim.name"),
    )
    if security.flag("sasl.oauthbearer.unsecured.enable", OAUTHBEARER):
        logger.warning(
            "listener %s believes unsigned tokens: whoever reaches it can be anybody "
            "(sasl.oauthbearer.unsecured.enable)",
            security.name,
        )
        return UnsecuredVerifier(rules, world.clock).verify
    url = text("jwks.endpoint.url")
    return TokenVerifier(
        rules,
        lambda: world.network.fetch(url, timeout_s=_FETCH_S),
        world.clock,
        refresh_ms=int(text("jwks.endpoint.refresh.ms")),
        source=url,
    ).verify
