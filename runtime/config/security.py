"""How the listeners of a node are protected, and its own connections to other nodes.

Of each key, ``listener.name.<listener>.<mechanism>.<key>`` wins over
``listener.name.<listener>.<key>``, and this over the bare key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from metadata.config_key import ConfigKey
from metadata.security_settings import FAILURE_DELAY as _FAILURE_DELAY
from metadata.security_settings import LISTENER_KEYS, TOKEN_SECRET
from stele.addresses import SecurityProtocol
from stele.errors import ApiError, ConfigError
from stele.security.client_security import (
    ClientSecurity,
    SaslCredentials,
    Store,
    TlsSettings,
    TokenSource,
)
from stele.security.jaas import parse_jaas
from stele.security.options import MECHANISMS
from stele.security.scram import MECHANISMS as SCRAM_MECHANISMS
from stele.security.token_endpoint import CLIENT_ID, CLIENT_SECRET, SCOPE, source_of
from stele.security.token_endpoint import URL as _TOKEN_URL

_OF_CONTROLLERS: Final = (SecurityProtocol.PLAINTEXT, SecurityProtocol.SSL)
"""What is built of the controllers' listener: nodes come in there by certificates."""

_PREFIX: Final = "listener.name."
_USER: Final = "user_"  # before the names of PLAIN's users in JAAS text
_SECURE_WORDS: Final = ("SSL", "TLS", "SASL")
_KEYS: Final[Mapping[str, ConfigKey]] = {key.name: key for key in LISTENER_KEYS}


class ListenerKey(NamedTuple):
    """A key with the prefix of one listener."""

    listener: str  # in lower case
    mechanism: str  # in lower case; "" if the key is for all of them
    key: ConfigKey


def listener_key(name: str) -> ListenerKey | None:
    """The parts of ``listener.name.internal.plain.sasl.jaas.config``; None for any other key."""
    if not name.startswith(_PREFIX):
        return None
    rest = name.removeprefix(_PREFIX)
    for bare, key in _KEYS.items():
        if rest.endswith("." + bare):
            owner = rest.removesuffix("." + bare)
            for mechanism in MECHANISMS:
                listener, dot, last = owner.rpartition(".")
                if dot and last == mechanism.lower():
                    return ListenerKey(listener.lower(), last, key)
            return ListenerKey(owner.lower(), "", key)
    return None


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The protection of one listener."""

    name: str
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    _values: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """By mechanism in lower case (or "") and key."""

    def text(self, key: str, mechanism: str = "") -> str:
        """The value of a key here, by its bare name; its default if it is not set."""
        for owner in dict.fromkeys((mechanism.lower(), "")):
            if (owner, key) in self._values:
                return self._values[owner, key]
        return _KEYS[key].default or ""

    def with_values(self, values: Mapping[str, str]) -> ListenerSecurity:
        """The same, with values by their bare keys in place of its own."""
        changed = {("", key): value for key, value in values.items()}
        return replace(self, _values={**self._values, **changed})

    def items(self, key: str) -> tuple[str, ...]:
        """The value of a list."""
        return tuple(each.strip() for each in self.text(key).split(",") if each.strip())

    def flag(self, key: str, mechanism: str = "") -> bool:
        return self.text(key, mechanism).lower() == "true"

    def number(self, key: str, mechanism: str = "") -> int:
        return int(self.text(key, mechanism))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The enabled SASL mechanisms; none without SASL."""
        return self.items("sasl.enabled.mechanisms") if self.protocol.has_sasl else ()

    @property
    def client_auth(self) -> str:
        """``none``, ``requested`` or ``required``."""
        return self.text("ssl.client.auth")

    @property
    def tls(self) -> TlsSettings:
        """What a server, and a node that connects to one, is told about TLS."""
        return TlsSettings(
            keystore=Store(
                type=self.text("ssl.keystore.type") or None,
                location=self.text("ssl.keystore.location") or None,
                password=self.text("ssl.keystore.password") or None,
                key_password=self.text("ssl.key.password") or None,
                key=self.text("ssl.keystore.key") or None,
                certificates=self.text("ssl.keystore.certificate.chain") or None,
            ),
            truststore=Store(
                type=self.text("ssl.truststore.type") or None,
                location=self.text("ssl.truststore.location") or None,
                password=self.text("ssl.truststore.password") or None,
                certificates=self.text("ssl.truststore.certificates") or None,
            ),
            enabled_protocols=self.items("ssl.enabled.protocols"),
            cipher_suites=self.items("ssl.cipher.suites"),
            checks_host_name=self.text("ssl.endpoint.identification.algorithm") == "https",
        )

    def jaas(self, mechanism: str) -> dict[str, str]:
        """The options of the login module. Raises ConfigError."""
        text = self.text("sasl.jaas.config", mechanism)
        if not text:
            return {}
        name = f"{_PREFIX}{self.name.lower()}.{mechanism.lower()}.sasl.jaas.config"
        return parse_jaas(text, name)

    @property
    def plain_users(self) -> dict[str, str]:
        """The passwords of PLAIN's users, by name. Raises ConfigError."""
        options = self.jaas("PLAIN")
        return {
            name.removeprefix(_USER): password
            for name, password in options.items()
            if name.startswith(_USER)
        }

    def as_client(self, mechanism: str = "") -> ClientSecurity:
        """How this node connects to other nodes' listeners of this name. Raises ConfigError."""
        sasl = None
        if self.protocol.has_sasl:
            options = self.jaas(mechanism)
            if mechanism == "OAUTHBEARER":
                sasl = SaslCredentials(mechanism=mechanism, token=self._token_source(options))
            else:
                sasl = SaslCredentials(
                    mechanism=mechanism,
                    username=options.get("username", ""),
                    password=options.get("password", ""),
                )
        tls = self.tls if self.protocol.has_tls else TlsSettings()
        return ClientSecurity(protocol=self.protocol, tls=tls, sasl=sasl)

    def _token_source(self, jaas: Mapping[str, str]) -> TokenSource:
        """Where this node has the token from by which it logs in at others. Raises ConfigError."""
        mechanism = "OAUTHBEARER"
        settings = {key: self.text(key, mechanism) for key in (CLIENT_ID, CLIENT_SECRET, SCOPE)}
        return source_of(self.text(_TOKEN_URL, mechanism), settings, jaas, str)


@dataclass(frozen=True, slots=True)
class NodeSecurity:
    """The protection of all listeners of a node, and of its connections to other nodes."""

    listeners: Mapping[str, ListenerSecurity]  # the brokers' ones, by name; gRPC's have the same
    controllers: Mapping[str, ListenerSecurity]
    """By name, in the order of controller.listener.names."""
    to_brokers: ClientSecurity
    to_controllers: Mapping[str, ClientSecurity]
    """By the name of the controllers' listener, in the same order."""
    failed_authentication_delay_ms: int = 100
    token_secret: bytes = field(default=b"", repr=False)
    """delegation.token.secret.key. Empty: there are no delegation tokens."""


class SecurityReader:
    """Reads a node's security and collects its faults."""

    def __init__(self, faults: list[str], settings: Mapping[str, str]) -> None:
        """``settings``: all of the node's, by key, with and without a prefix."""
        self._faults = faults
        self._settings = settings

    def read(
        self, names: Sequence[str], controllers: Sequence[str], inter_broker: str
    ) -> NodeSecurity:
        """``names``: of the brokers' listeners. ``inter_broker``: one of them, or ""."""
        protocols = self._protocols()
        listeners = {name: self._listener(name, protocols) for name in dict.fromkeys(names)}
        own = {name: self._listener(name, protocols, _OF_CONTROLLERS) for name in controllers}
        for name in sorted(own.keys() & listeners.keys()):
            self._faults.append(
                f"{name} is in listeners and in controller.listener.names: give the controllers' "
                "listener a name of its own"
            )
        known = {**own, **listeners}
        to_brokers = ClientSecurity()
        if inter_broker:  # a controller has no listener of its own with this name
            if inter_broker not in known:
                known[inter_broker] = self._listener(
                    inter_broker, protocols, tuple(SecurityProtocol)
                )
            mechanism = self._settings.get("sasl.mechanism.inter.broker.protocol", "").strip()
            to_brokers = self._client(known[inter_broker], mechanism)
        self._check_prefixes(list(known))
        self._check_used(list(known.values()))
        secret = self._settings.get(TOKEN_SECRET.name, "").strip()
        if secret:
            self._check_token_logins(list(listeners.values()))
        delay_ms = self._settings.get(_FAILURE_DELAY.name, _FAILURE_DELAY.default or "")
        return NodeSecurity(
            listeners,
            own,
            to_brokers,
            {name: self._client(each, "") for name, each in own.items()},
            int(delay_ms) if delay_ms.isdecimal() else 0,
            secret.encode(),
        )

    def first_of_protocol(self, names: Sequence[str]) -> str | None:
        """The listener that security.inter.broker.protocol means; None if it is not set."""
        wanted = self._settings.get("security.inter.broker.protocol", "").strip()
        if not wanted or not names:
            return None
        if self._settings.get("inter.broker.listener.name", "").strip():
            self._faults.append(
                "security.inter.broker.protocol and inter.broker.listener.name: set only one"
            )
        protocols = self._protocols(tells=False)
        for name in names:
            if self._protocol_of(name, protocols) == wanted:
                return name
        self._faults.append(
            f"security.inter.broker.protocol={wanted}: no listener has this security protocol"
        )
        return None

    def _protocols(self, *, tells: bool = True) -> dict[str, str]:
        """The protocol of each name in capitals, of listener.security.protocol.map."""
        key, protocols = "listener.security.protocol.map", {}
        for item in self._settings.get(key, "").split(","):
            name, colon, protocol = item.strip().partition(":")
            if not item.strip():
                continue
            if not colon or not name or protocol.upper() not in SecurityProtocol.__members__:
                if tells:
                    self._faults.append(
                        f"{key}: {item.strip()!r} is not NAME:PROTOCOL; the protocols are "
                        + ", ".join(SecurityProtocol.__members__)
                    )
                continue
            protocols[name.upper()] = protocol.upper()
        return protocols

    def _protocol_of(self, name: str, protocols: Mapping[str, str]) -> str | None:
        """None: the name promises security, and nothing says which."""
        protocol = protocols.get(name.upper())
        if protocol is not None:
            return protocol
        if name.upper() in SecurityProtocol.__members__:
            return name.upper()
        return None if any(word in name.upper() for word in _SECURE_WORDS) else "PLAINTEXT"

    def _listener(
        self,
        name: str,
        protocols: Mapping[str, str],
        built: Sequence[SecurityProtocol] = tuple(SecurityProtocol),
    ) -> ListenerSecurity:
        told = self._protocol_of(name, protocols)
        if told is None:
            self._faults.append(
                f"listener {name} promises security by its name: name its protocol in "
                f"listener.security.protocol.map, for example {name}:SSL"
            )
        protocol = SecurityProtocol[told or "PLAINTEXT"]
        if protocol not in built:
            self._faults.append(
                f"listener {name} is {protocol.value}, but controllers cannot let anybody log in: "
                "the credentials are in the metadata, which they have only once they have formed a "
                f"quorum. Let nodes come in by certificates: {name}:SSL in "
                "listener.security.protocol.map, "
                f"{_PREFIX}{name.lower()}.ssl.client.auth=required, and the "
                "principals of the certificates in super.users (stele certs makes some)"
            )
        values: dict[tuple[str, str], str] = {}
        for key, text in self._settings.items():
            parts = listener_key(key)
            if parts is not None and parts.listener == name.lower():
                values[parts.mechanism, parts.key.name] = text.strip()
        for key in _KEYS:
            if key in self._settings and ("", key) not in values:
                values["", key] = self._settings[key].strip()
        listener = ListenerSecurity(name, protocol, values)
        self._check(listener)
        return listener

    def _check(self, listener: ListenerSecurity) -> None:
        if listener.protocol.has_tls and listener.tls.keystore.is_empty:
            self._faults.append(
                f"listener {listener.name} is {listener.protocol.value} without a certificate: "
                f"set {_PREFIX}{listener.name.lower()}.ssl.keystore.location"
            )
        if listener.protocol.has_sasl and not listener.mechanisms:
            self._faults.append(
                f"listener {listener.name} is {listener.protocol.value}: set "
                "sasl.enabled.mechanisms to the ways in which clients say who they are: "
                + ", ".join(MECHANISMS)
            )
        if "OAUTHBEARER" in listener.mechanisms:
            self._check_tokens(listener)
        if "PLAIN" in listener.mechanisms:
            self._check_plain(listener)

    def _check_tokens(self, listener: ListenerSecurity) -> None:
        key, unsecured = "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.unsecured.enable"
        url = listener.text(key, "OAUTHBEARER")
        if bool(url) == listener.flag(unsecured, "OAUTHBEARER"):
            self._faults.append(
                f"listener {listener.name} has the mechanism OAUTHBEARER: set {key} to the keys of "
                f"its issuer, or {unsecured}=true to believe whatever a token says, not both"
            )
        elif url and not url.startswith(("https://", "file:/")):
            self._faults.append(f"{key}={url}: it must be an https or a file URL")

    def _check_plain(self, listener: ListenerSecurity) -> None:
        try:
            users = listener.plain_users
        except ConfigError as error:
            self._faults.append(str(error))
            return
        if not users and not listener.flag("sasl.plain.scram.enable", "PLAIN"):
            self._faults.append(
                f"listener {listener.name} has the mechanism PLAIN and no user: name users as "
                f'user_NAME="PASSWORD" in {_PREFIX}{listener.name.lower()}.plain.sasl.jaas.config, '
                "or set sasl.plain.scram.enable=true"
            )

    def _check_token_logins(self, listeners: Sequence[ListenerSecurity]) -> None:
        if listeners and not any(SCRAM_MECHANISMS.keys() & each.mechanisms for each in listeners):
            self._faults.append(
                f"{TOKEN_SECRET.name} is set, and nobody could log in by a delegation token: add "
                "SCRAM-SHA-512 or SCRAM-SHA-256 to sasl.enabled.mechanisms of a SASL listener, or "
                "remove the key"
            )

    def _check_used(self, listeners: Sequence[ListenerSecurity]) -> None:
        """A key whose protection nobody gets is a mistake that no user would notice."""
        for prefix, is_used, wanted in (
            ("ssl.", any(each.protocol.has_tls for each in listeners), "SSL or SASL_SSL"),
            ("sasl.", any(each.protocol.has_sasl for each in listeners), "SASL_SSL"),
        ):
            for name, text in self._settings.items():
                parts = listener_key(name)
                key = _KEYS.get(name) if parts is None else parts.key
                if key is None or not key.name.startswith(prefix) or is_used:
                    continue
                if text.strip() != (key.default or ""):
                    self._faults.append(
                        f"{name} protects nothing: no listener is {wanted}; name its protocol in "
                        "listener.security.protocol.map, or remove the key"
                    )

    def _check_prefixes(self, names: Sequence[str]) -> None:
        """Check values behind a prefix as those without one, and that the listener exists."""
        known = {name.lower() for name in names}
        for name, text in self._settings.items():
            parts = listener_key(name)
            if parts is None:
                continue
            if parts.listener not in known:
                there = ", ".join(sorted(known))
                self._faults.append(f"{name}: there is no such listener; there are: {there}")
            try:
                parts.key.parse(text)
            except ApiError as error:
                self._faults.append(error.message.replace(parts.key.name, name, 1))

    def _client(self, listener: ListenerSecurity, mechanism: str) -> ClientSecurity:
        asks = listener.protocol.has_sasl and mechanism == "OAUTHBEARER"
        if asks and not listener.text(_TOKEN_URL, mechanism):
            self._faults.append(
                f"{_TOKEN_URL}: it is not set, and brokers log in at one another by OAUTHBEARER: "
                f"set it to the https URL of an issuer that gives tokens for {CLIENT_ID} and "
                f"{CLIENT_SECRET}, or to the URL of a file in which something keeps a valid token "
                "of the node, file:/PATH; or set sasl.mechanism.inter.broker.protocol to PLAIN or "
                "SCRAM"
            )
            return ClientSecurity()
        if listener.protocol.has_sasl and not mechanism:
            self._faults.append(
                f"brokers connect to {listener.name}, which is {listener.protocol.value}: "
                "set sasl.mechanism.inter.broker.protocol"
            )
            return ClientSecurity()
        try:
            return listener.as_client(mechanism)
        except ConfigError as error:
            self._faults.append(str(error))
            return ClientSecurity()


def security_table(security: NodeSecurity, is_broker: bool, is_controller: bool) -> Iterator[str]:
    """What a node's log says at its start: one line for each listener."""
    shown = [*security.listeners.values()] * is_broker
    shown += [*security.controllers.values()] * is_controller
    for each in shown:
        told = [each.protocol.value]
        if each.protocol.has_tls:
            told.append(f"client certificates {each.client_auth}")
        if each.mechanisms:
            told.append("mechanisms " + ", ".join(each.mechanisms))
        yield f"listener {each.name}: " + "; ".join(told)
