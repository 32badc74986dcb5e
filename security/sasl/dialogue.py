"""What every SASL dialogue of a server is: tokens in, steps out. Pure.

Work that takes longer than a turn of the event loop may (a password's hash, the keys of a token's
issuer) is a step, too: the driver does it and resumes the dialogue with the result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from metadata.delegation_tokens import DelegationToken
from metadata.scram_credentials import ScramUser
from stele.security.scram import ScramCredential, ScramMechanism


@dataclass(frozen=True, slots=True)
class Challenge:
    """The client has to answer this token."""

    token: bytes = field(repr=False)


class HeldToken(NamedTuple):
    """The delegation token by which a client has logged in."""

    token_id: str


Basis = ScramUser | HeldToken
"""What a login rests on in the metadata. A session ends when it is gone."""


@dataclass(frozen=True, slots=True)
class Success:
    """The client is who it says."""

    principal: str  # with its type
    token: bytes = field(default=b"", repr=False)  # the last one for the client
    expires_ms: int | None = None  # since the Unix epoch; None: the login itself has no end
    basis: Basis | None = None
    """None: nothing in the metadata, but for example the configuration of the listener."""

    @property
    def by_delegation_token(self) -> bool:
        return isinstance(self.basis, HeldToken)


@dataclass(frozen=True, slots=True)
class Failure:
    """The client has not proven who it is.

    What it is told is the same for all reasons that would tell apart who exists. The log has the
    true cause.
    """

    public: str
    private: str
    is_retriable: bool = False
    """Whether the same login may succeed later. The client is not told that it failed then, because
    clients do not try again after that: the connection just ends."""


@dataclass(frozen=True, slots=True)
class CheckPassword:
    """Work: hash the password and compare it with the credential. Resume with a bool."""

    mechanism: ScramMechanism
    password: str = field(repr=False)
    credential: ScramCredential


@dataclass(frozen=True, slots=True)
class CheckToken:
    """Work: verify a token of OAUTHBEARER. Resume with a ``Success`` or a ``Failure``."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DeriveKeys:
    """Work: the stored key and the server key of a password. Resume with this pair of bytes."""

    mechanism: ScramMechanism
    password: str = field(repr=False)
    salt: bytes
    iterations: int


Work = CheckPassword | CheckToken | DeriveKeys
Step = Challenge | Success | Failure | CheckPassword | CheckToken | DeriveKeys


class Dialogue(Protocol):
    """One login of one client. After a success or a failure nothing is called any more."""

    def step(self, token: bytes) -> Step:
        """Take the client's next token."""
        ...

    def resume(self, result: object) -> Step:
        """Take the result of the work that the last step asked for."""
        ...


CREDENTIALS_UNKNOWN: Final = Failure(
    "", "comes before this node knows credentials and tokens", is_retriable=True
)
"""Before that every user would look like one who does not exist, and fail for good."""


class CredentialStore(Protocol):
    """The SCRAM credentials of the newest metadata."""

    @property
    def is_loaded(self) -> bool:
        """Whether the credentials are known. A dialogue asks before it looks for a user."""
        ...

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """The user's credential; None: there is none."""
        ...

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """A credential that nobody can prove, in the place of one that does not exist.

        It is the same each time and on every node, so that nobody can tell who exists.
        """
        ...


class TokenStore(Protocol):
    """The delegation tokens of the newest metadata."""

    @property
    def is_loaded(self) -> bool:
        """Whether the tokens are known. A dialogue asks before it looks for one."""
        ...

    @property
    def now_ms(self) -> int:
        """The time, since the Unix epoch."""
        ...

    def hmac_of(self, token_id: str) -> bytes:
        """The HMAC of the token with this id. Every id has one, also if there is no such token."""
        ...

    def find(self, token_id: str) -> DelegationToken | None:
        """The token; None: there is none."""
        ...


def user_principal(name: str) -> str:
    """The principal of a user."""
    return f"User:{name}"
