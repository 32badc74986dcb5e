"""The keys of ``server.properties`` by which connections are protected.

The keys of ``LISTENER_KEYS`` may have the prefix ``listener.name.<name>.`` for one listener alone,
those of SASL also ``listener.name.<name>.<mechanism>.``, all in lower case. The longest prefix
wins, as in Kafka.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from metadata.config_key import ConfigKey, Scope, Type

NO_KERBEROS: Final = (
    "Kerberos is not built: use SCRAM-SHA-512, or OAUTHBEARER with tokens of an identity provider"
)  # fmt: skip

_TLS: Final = (
    ConfigKey(
        "ssl.keystore.type", Type.STRING, "",
        "PEM or PKCS12. If empty, the content tells (Kafka: JKS, which cannot be read).",
        allowed=("", "PEM", "PKCS12"),
        not_built=(("JKS", "convert the store to PKCS12, or to PEM"),),
    ),
    ConfigKey(
        "ssl.keystore.location", Type.STRING, "",
        "The file with the node's key and its certificates.",
    ),
    ConfigKey(
        "ssl.keystore.password", Type.PASSWORD, "",
        "The password of a PKCS12 file.",
    ),
    ConfigKey(
        "ssl.keystore.key", Type.PASSWORD, "",
        "The node's key as PEM text, in place of a file. With ssl.keystore.certificate.chain.",
    ),
    ConfigKey(
        "ssl.keystore.certificate.chain", Type.PASSWORD, "",
        "The certificates of ssl.keystore.key as PEM text, the node's own first.",
    ),
    ConfigKey(
        "ssl.key.password", Type.PASSWORD, "",
        "The password of an encrypted key.",
    ),
    ConfigKey(
        "ssl.truststore.type", Type.STRING, "",
        "PEM or PKCS12. If empty, the content tells (Kafka: JKS, which cannot be read).",
        allowed=("", "PEM", "PKCS12"),
        not_built=(("JKS", "convert the store to PKCS12, or to PEM"),),
    ),
    ConfigKey(
        "ssl.truststore.location", Type.STRING, "",
        "The file with the certificates of the authorities that are believed. If there are none, "
        "those of the system.",
    ),
    ConfigKey(
        "ssl.truststore.password", Type.PASSWORD, "",
        "The password of a PKCS12 file.",
    ),
    ConfigKey(
        "ssl.truststore.certificates", Type.PASSWORD, "",
        "The certificates of the authorities as PEM text, in place of a file.",
    ),
    ConfigKey(
        "ssl.client.auth", Type.STRING, "none",
        "Whether clients show a certificate: required, requested (they may) or none.",
        allowed=("required", "requested", "none"),
    ),
    ConfigKey(
        "ssl.enabled.protocols", Type.LIST, "TLSv1.2,TLSv1.3",
        "The versions of TLS that are spoken.", allowed=("TLSv1.2", "TLSv1.3"),
    ),
    ConfigKey(
        "ssl.cipher.suites", Type.LIST, "",
        "The cipher suites that are allowed, with IANA's names. If empty, OpenSSL's own choice.",
    ),
    ConfigKey(
        "ssl.endpoint.identification.algorithm", Type.STRING, "https",
        "https: a node to which this one connects must be named in its certificate. Empty: it need "
        "not.", allowed=("https", ""),
    ),
    ConfigKey(
        "ssl.principal.mapping.rules", Type.STRING, "DEFAULT",
        "How a certificate's distinguished name becomes a principal: rules of the form "
        "RULE:pattern/replacement/[LU], separated by commas. The first whose pattern matches the "
        "whole name counts. DEFAULT is the name itself.",
    ),
    ConfigKey(
        "ssl.allow.dn.changes", Type.BOOLEAN, "false",
        "Whether a renewed certificate may have another distinguished name.",
    ),
    ConfigKey(
        "ssl.allow.san.changes", Type.BOOLEAN, "false",
        "Whether a renewed certificate may lack host names that the old one has.",
    ),
)  # fmt: skip

_SASL: Final = (
    ConfigKey(
        "sasl.enabled.mechanisms", Type.LIST, "",
        "The mechanisms of a SASL listener (Kafka: GSSAPI, which is not built).",
        allowed=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        not_built=(("GSSAPI", NO_KERBEROS),),
    ),
    ConfigKey(
        "sasl.jaas.config", Type.PASSWORD, "",
        "Kafka's text of a login module. Of PLAIN it has the users, as user_NAME=\"PASSWORD\"; "
        "username and password are the node's own when it connects to other nodes.",
    ),
    ConfigKey(
        "sasl.plain.scram.enable", Type.BOOLEAN, "false",
        "Whether the mechanism PLAIN also lets in users who have a SCRAM credential. Kafka has no "
        "such key.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.url", Type.STRING, "",
        "Where the keys of OAUTHBEARER's issuer are: an https or file URL of a JSON Web Key Set.",
    ),
    ConfigKey(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", Type.LONG, "3600000",
        "How often these keys are fetched again. A token with an unknown key makes it happen, too.",
        minimum=1,
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.audience", Type.LIST, "",
        "A token must be for one of these audiences. If empty, for anybody.",
    ),
    ConfigKey(
        "sasl.oauthbearer.expected.issuer", Type.STRING, "",
        "A token must be issued by this issuer. If empty, by anybody with one of the keys.",
    ),
    ConfigKey(
        "sasl.oauthbearer.clock.skew.seconds", Type.INT, "30",
        "How much the clocks of the node and of the issuer may differ.", minimum=0,
    ),
    ConfigKey(
        "sasl.oauthbearer.sub.claim.name", Type.STRING, "sub",
        "The claim of a token that names the user.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope.claim.name", Type.STRING, "scope",
        "The claim of a token with its scope: a text or a list.",
    ),
    ConfigKey(
        "sasl.oauthbearer.unsecured.enable", Type.BOOLEAN, "false",
        "Whether unsigned tokens are believed, which anybody can make. For development only, in "
        "place of sasl.oauthbearer.jwks.endpoint.url. Kafka does so wherever no keys are set.",
    ),
    ConfigKey(
        "sasl.oauthbearer.token.endpoint.url", Type.STRING, "",
        "Where the node has the token of OAUTHBEARER from, by which it logs in at other nodes: the "
        "https URL of an issuer's token endpoint, or a file URL. The file is read at each login.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.id", Type.STRING, "",
        "The id by which an issuer knows the node. If empty, clientId in sasl.jaas.config counts.",
    ),
    ConfigKey(
        "sasl.oauthbearer.client.credentials.client.secret", Type.PASSWORD, "",
        "The node's secret at the issuer. If empty, clientSecret in sasl.jaas.config counts.",
    ),
    ConfigKey(
        "sasl.oauthbearer.scope", Type.STRING, "",
        "The scope that the node asks the issuer for. If empty, scope in sasl.jaas.config counts.",
    ),
    ConfigKey(
        "connections.max.reauth.ms", Type.LONG, "0",
        "How long an authentication lasts before the client must repeat it. 0: as long as the "
        "connection.", minimum=0,
    ),
)  # fmt: skip

LISTENER_KEYS: Final = (*_TLS, *_SASL)
"""The keys that one listener can have of its own."""

FAILURE_DELAY: Final = ConfigKey(
    "connection.failed.authentication.delay.ms", Type.INT, "100",
    "How long after a failed authentication the connection is closed. It slows down guessing.",
    minimum=0,
)  # fmt: skip

TOKEN_SECRET: Final = ConfigKey(
    "delegation.token.secret.key", Type.PASSWORD, "",
    "The secret from which the secrets of delegation tokens follow: the same on every node. If it "
    "is empty, there are no delegation tokens. With another secret all tokens become invalid.",
)  # fmt: skip

STORE_KEYS: Final = tuple(
    key
    for key in _TLS
    if key.name.startswith(("ssl.keystore.", "ssl.truststore.", "ssl.key.password"))
)
"""The keys of a listener that one broker can be given while it runs (with the prefix only)."""

_LISTENER_PREFIX: Final = "listener.name."
_STORE_KEYS: Final = {key.name: key for key in STORE_KEYS}


class StoreKey(NamedTuple):
    """A key of a listener's stores."""

    listener: str  # in lower case
    name: str  # without the prefix
    key: ConfigKey  # with the full name


def store_key(name: str) -> StoreKey | None:
    """The parts of ``listener.name.external.ssl.keystore.location``; None for any other key."""
    if not name.startswith(_LISTENER_PREFIX):
        return None
    listener, dot, bare = name.removeprefix(_LISTENER_PREFIX).partition(".ssl.")
    key = _STORE_KEYS.get(f"ssl.{bare}")
    if not dot or not listener or key is None:
        return None
    return StoreKey(listener.lower(), key.name, replace(key, name=name, scope=Scope.CLUSTER))


NODE_SECURITY_KEYS: Final = (
    *LISTENER_KEYS,
    ConfigKey(
        "security.inter.broker.protocol", Type.STRING, "",
        "The security protocol of the listener for other brokers, where "
        "inter.broker.listener.name is not set: the first listener of this protocol. If both are "
        "empty, the first listener (Kafka: PLAINTEXT).",
        allowed=("", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    ConfigKey(
        "sasl.mechanism.inter.broker.protocol", Type.STRING, "",
        "The mechanism by which a broker tells other brokers who it is. Must be set if their "
        "listener has SASL (Kafka: GSSAPI).",
        allowed=("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        not_built=(("GSSAPI", NO_KERBEROS),),
    ),
    FAILURE_DELAY,
    TOKEN_SECRET,
    ConfigKey(
        "controller.listener.names", Type.LIST, "CONTROLLER",
        "The names of the controllers' listeners. Controllers serve all of them. A node connects "
        "by the first one that a controller has; the addresses in controller.quorum.voters and "
        "controller.quorum.bootstrap.servers are of the first. listener.security.protocol.map "
        "gives the security protocol, PLAINTEXT or SSL (mTLS); listener.name.<name>.ssl.* are its "
        "keys.",
    ),
)  # fmt: skip
