"""The reason of a refusal whose answer in Kafka's protocol has room for nothing but a code."""

from __future__ import annotations

from typing import Final

from stele.security.client_security import ClientSecurity

CLIENTS_USER: Final = "the client's user"
"""The subject of a refusal if ``principal_of`` does not know the user."""


def missing_right(security: ClientSecurity, operation: str, kind: str, name: str) -> str:
    """The words of the broker for the same refusal, and the command that mends it. ``operation``
    and ``kind`` of the resource are Kafka's names: ``READ``, ``topic``."""
    user = principal_of(security) or CLIENTS_USER
    command = allowing(security, operation, kind, name)
    return f"{user} may not {operation} the {kind} {name}: allow it ({command})"


def allowing(security: ClientSecurity, operation: str, kind: str, name: str) -> str:
    """The command that gives the client's user this right."""
    return f"stele acls add {principal_of(security) or 'PRINCIPAL'} {operation} {kind}:{name}"


def principal_of(security: ClientSecurity) -> str:
    """The user that the client logs in as. "": only the broker knows to whom the client's
    certificate or token belongs."""
    sasl = security.sasl
    if sasl is None or sasl.is_delegation_token or not sasl.username:
        return ""
    return f"User:{sasl.username}"
