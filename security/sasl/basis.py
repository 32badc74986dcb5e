"""Whether a login still stands: its SCRAM credential or its delegation token may be gone. Pure.

A password that was changed ends no session, so that passwords can be changed while clients work.
To shut a client out, the credential is removed.
"""

from __future__ import annotations

from metadata.scram_credentials import ScramUser
from security.sasl.dialogue import Basis, CredentialStore, TokenStore
from stele.security.scram import MECHANISMS_BY_NUMBER


def why_gone(basis: Basis, credentials: CredentialStore, tokens: TokenStore | None) -> str | None:
    """Why nobody could log in by this any more, in the newest metadata; None: it stands."""
    if isinstance(basis, ScramUser):
        mechanism = MECHANISMS_BY_NUMBER[basis.mechanism]
        if not credentials.is_loaded or credentials.find(mechanism, basis.name) is not None:
            return None
        return f"the {mechanism.name} credential of user {basis.name!r} was removed"
    if tokens is None or not tokens.is_loaded:
        return None
    token = tokens.find(basis.token_id)
    if token is None:
        return f"the delegation token {basis.token_id!r} was removed"
    if token.is_expired(tokens.now_ms):
        return f"the delegation token {basis.token_id!r} of {token.owner} has expired"
    return None
