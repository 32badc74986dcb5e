"""The options by which every client says how its connections are protected."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict, cast

from stele.addresses import SecurityProtocol
from stele.errors import ConfigError
from stele.security.client_security import (
    ClientSecurity,
    SaslCredentials,
    Store,
    TlsSettings,
    TokenSource,
)
from stele.security.jaas import parse_jaas

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Endpoint = Literal["https", ""]

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


class SecurityOptions(TypedDict, total=False):
    """Keyword arguments of every client. :class:`SecurityConfig` has their meanings and
    defaults."""

    security_protocol: Protocol
    ssl_truststore_type: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_keystore_type: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_key_password: str | None
    ssl_endpoint_identification_algorithm: Endpoint
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str]
    sasl_mechanism: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_jaas_config: str | None
    sasl_oauthbearer_token: str | Callable[[], str] | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_scope: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """How the connections of a client are protected. Without these options they are plaintext."""

    security_protocol: Protocol = "PLAINTEXT"
    """``SSL`` and ``SASL_SSL`` encrypt. With ``SASL_SSL`` and ``SASL_PLAINTEXT`` the client
    proves its identity by ``sasl_mechanism``."""
    ssl_truststore_type: str | None = None
    """``PEM`` or ``PKCS12``; None: the content tells. Kafka's default, JKS, cannot be read."""
    ssl_truststore_location: str | None = None
    """The file with the certificates of the authorities that are believed. None: those of the
    system."""
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_certificates: str | None = None
    """The same certificates as PEM text, in place of a file."""
    ssl_keystore_type: str | None = None
    ssl_keystore_location: str | None = None
    """The file with the client's own key and certificates, where brokers ask for one."""
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    """The client's own key as PEM text, in place of a file."""
    ssl_keystore_certificate_chain: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_endpoint_identification_algorithm: Endpoint = "https"
    """``https``: the certificate must name the host to which the client connects. Empty: it need
    not."""
    ssl_enabled_protocols: str | Sequence[str] = TLS_VERSIONS
    ssl_cipher_suites: str | Sequence[str] = ()
    """IANA's names. Empty: all that OpenSSL thinks safe."""
    sasl_mechanism: str | None = None
    """``PLAIN``, ``SCRAM-SHA-256``, ``SCRAM-SHA-512`` or ``OAUTHBEARER``. Kafka's default, GSSAPI,
    is not built."""
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_jaas_config: str | None = field(default=None, repr=False)
    """Kafka's text with ``username`` and ``password``, in place of the two options."""
    sasl_oauthbearer_token: str | Callable[[], str] | None = field(default=None, repr=False)
    """A token, or a function that gives one that is valid now. It is called in a thread."""
    sasl_oauthbearer_token_endpoint_url: str | None = None
    """In place of a token, where the client has its tokens from: the https URL of an issuer, or the
    URL of a file. The two options after this one, or ``clientId`` and ``clientSecret`` in
    ``sasl_jaas_config``, are what the issuer knows the client by."""
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    """What the client asks the issuer for. None: what the issuer gives without being asked."""

    def client_security(self) -> ClientSecurity:
        """The options as one value. Raises ConfigError if they contradict one another."""
        try:
            protocol = SecurityProtocol(self.security_protocol)
        except ValueError:
            names = ", ".join(each.value for each in SecurityProtocol)
            raise ConfigError(
                f"security_protocol={self.security_protocol!r} must be one of: {names}"
            ) from None
        self._check_used(protocol)
        return ClientSecurity(
            protocol=protocol,
            tls=self._tls() if protocol.has_tls else TlsSettings(),
            sasl=self._sasl() if protocol.has_sasl else None,
        )

    def _check_used(self, protocol: SecurityProtocol) -> None:
        """Options without effect are a mistake that would be found out too late."""
        for prefix, is_used, other in (
            ("ssl_", protocol.has_tls, "SSL or SASL_SSL"),
            ("sasl_", protocol.has_sasl, "SASL_SSL or SASL_PLAINTEXT"),
        ):
            for name, default in _DEFAULTS.items():
                if not is_used and name.startswith(prefix) and getattr(self, name) != default:
                    raise ConfigError(
                        f"{name} has no effect with security_protocol={protocol.value}: "
                        f"set security_protocol to {other}"
                    )

    def _tls(self) -> TlsSettings:
        endpoint = self.ssl_endpoint_identification_algorithm
        if endpoint not in ("https", ""):
            raise ConfigError(
                f"ssl_endpoint_identification_algorithm={endpoint!r} must be 'https' or ''"
            )
        versions = _items(self.ssl_enabled_protocols)
        for version in versions:
            if version not in TLS_VERSIONS:
                raise ConfigError(
                    f"ssl_enabled_protocols: {version!r} must be one of: {', '.join(TLS_VERSIONS)}"
                )
        has_key, has_chain = bool(self.ssl_keystore_key), bool(self.ssl_keystore_certificate_chain)
        if has_key != has_chain:
            raise ConfigError(
                "ssl_keystore_key and ssl_keystore_certificate_chain: set both or none"
            )
        for place, inline in (
            ("ssl_keystore_location", "ssl_keystore_key"),
            ("ssl_truststore_location", "ssl_truststore_certificates"),
        ):
            if getattr(self, place) and getattr(self, inline):
                raise ConfigError(f"{place} and {inline}: set only one of them")
        return TlsSettings(
            keystore=Store(
                type=self.ssl_keystore_type,
                location=self.ssl_keystore_location,
                password=self.ssl_keystore_password,
                key_password=self.ssl_key_password,
                key=self.ssl_keystore_key,
                certificates=self.ssl_keystore_certificate_chain,
            ),
            truststore=Store(
                type=self.ssl_truststore_type,
                location=self.ssl_truststore_location,
                password=self.ssl_truststore_password,
                certificates=self.ssl_truststore_certificates,
            ),
            enabled_protocols=versions,
            cipher_suites=_items(self.ssl_cipher_suites),
            checks_host_name=endpoint == "https",
        )

    def _sasl(self) -> SaslCredentials:
        mechanism = self.sasl_mechanism
        if mechanism not in MECHANISMS:
            why = "GSSAPI is not built; " if mechanism == "GSSAPI" else ""
            raise ConfigError(
                f"sasl_mechanism={mechanism!r}: {why}it must be one of: {', '.join(MECHANISMS)}"
            )
        jaas = {}
        if self.sasl_jaas_config is not None:
            jaas = parse_jaas(self.sasl_jaas_config, "sasl_jaas_config")
        if mechanism == "OAUTHBEARER":
            return SaslCredentials(mechanism=mechanism, token=self._token_source(jaas))
        for name, given in (("username", self.sasl_username), ("password", self.sasl_password)):
            if given is not None and jaas.get(name, given) != given:
                raise ConfigError(
                    f"sasl_{name} and sasl_jaas_config say two different things: set only one"
                )
        username = self.sasl_username or jaas.get("username")
        password = self.sasl_password or jaas.get("password")
        if not username or password is None:
            missing = "sasl_username" if not username else "sasl_password"
            raise ConfigError(f"sasl_mechanism={mechanism} needs {missing} (or sasl_jaas_config)")
        return SaslCredentials(
            mechanism=mechanism,
            username=username,
            password=password,
            is_delegation_token=jaas.get("tokenauth", "false").lower() == "true",
        )

    def _token_source(self, jaas: Mapping[str, str]) -> TokenSource:
        token, url = self.sasl_oauthbearer_token, self.sasl_oauthbearer_token_endpoint_url
        if url:
            if token is not None:
                raise ConfigError(
                    "sasl_oauthbearer_token and sasl_oauthbearer_token_endpoint_url: set only one"
                )
            from stele.security import token_endpoint as issuer  # it brings urllib

            settings = {
                issuer.CLIENT_ID: self.sasl_oauthbearer_client_credentials_client_id or "",
                issuer.CLIENT_SECRET: self.sasl_oauthbearer_client_credentials_client_secret or "",
                issuer.SCOPE: self.sasl_oauthbearer_scope or "",
            }
            return issuer.source_of(url, settings, jaas, lambda key: key.replace(".", "_"))
        if token is None:
            raise ConfigError(
                "sasl_mechanism=OAUTHBEARER needs sasl_oauthbearer_token or "
                "sasl_oauthbearer_token_endpoint_url"
            )
        if isinstance(token, str):
            return _Constant(token)
        return token


@dataclass(frozen=True, slots=True)
class _Constant:
    """A token that was given as text."""

    token: str = field(repr=False)

    def __call__(self) -> str:
        return self.token


def security_among(options: Mapping[str, Any]) -> SecurityOptions:
    """The options about security among those of a client."""
    found = {name: options[name] for name in SecurityOptions.__annotations__ if name in options}
    return cast(SecurityOptions, found)


def _items(given: str | Sequence[str]) -> tuple[str, ...]:
    names = given.split(",") if isinstance(given, str) else given
    return tuple(each.strip() for each in names if each.strip())


_DEFAULTS: Final[dict[str, Any]] = {
    name: getattr(SecurityConfig(), name) for name in SecurityOptions.__annotations__
}
