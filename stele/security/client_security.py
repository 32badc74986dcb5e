"""The protection of a client's connections, as a value that its connector carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stele.addresses import SecurityProtocol
from stele.errors import SteleError

TokenSource = Callable[[], str]
"""Gives a token that is valid now. It is called off the event loop, at each authentication. Raises
TokenUnavailableError where a later call may give one. Any other error is final."""


class TokenUnavailableError(SteleError):
    """There is no token now, and a later attempt may give one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A key with its certificates, or the certificates of authorities: in a file or as text.

    ``type`` is PEM or PKCS12. If it is None, the content tells. At most one of ``location`` and the
    inline texts is set; with neither there is nothing in the store.
    """

    type: str | None = None
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)  # PEM
    certificates: str | None = None  # PEM; of a key, its chain

    @property
    def is_empty(self) -> bool:
        return self.location is None and self.key is None and self.certificates is None


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What one side of a TLS connection is told. Files are named here and read when a context is
    made, so that a later reading finds a renewed certificate."""

    keystore: Store = Store()
    truststore: Store = Store()
    """The authorities that are believed. Empty: those of the system."""
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()  # IANA's names; empty: OpenSSL's own choice
    checks_host_name: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslCredentials:
    """How a client proves who it is. Which fields are needed depends on the mechanism."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token: TokenSource | None = field(default=None, repr=False)  # OAUTHBEARER
    is_delegation_token: bool = False
    """SCRAM with a delegation token: the user is the token's id, the password its HMAC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """What all connections and channels of one connector are protected with."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsSettings = TlsSettings()
    sasl: SaslCredentials | None = None  # given where the protocol has SASL


PLAINTEXT: Final = ClientSecurity()
