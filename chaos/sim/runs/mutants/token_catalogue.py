"""Planted bugs of delegation tokens, and of sessions that rest on what is gone."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant
from chaos.sim.work.load import LoadKind


def _bug(name: str, path: str, function: str, old: str, new: str) -> Mutant:
    """These show without a storm. Not every seed draws tokens, so the runs are small."""
    edit = Edit(path, function, old, new)
    return Mutant(name, (edit,), kinds=("kill",), load=LoadKind.LIGHT)


TOKENS = [
    _bug(
        "tokens: renew a token beyond its longest life",
        "controller/delegation_tokens.py",
        "_expire_at",
        "min(expiry_ms, token.max_ms)",
        "expiry_ms",
    ),
    _bug(
        "tokens: let in the holder of a token that has expired",
        "security/sasl/scram.py",
        "ScramDialogue._by_valid_token",
        "token.is_expired(self._tokens.now_ms)",
        "False",
    ),
    _bug(
        "tokens: take the holder of a token for whoever has created it",
        "security/sasl/scram.py",
        "ScramDialogue._by_valid_token",
        "Success(token.owner, told, expires_ms=token.expiry_ms, basis=HeldToken(token_id))",
        "Success(token.requester, told, expires_ms=token.expiry_ms, basis=HeldToken(token_id))",
    ),
    _bug(
        "tokens: give a token to whoever creates it, and not to the owner that it names",
        "controller/delegation_tokens.py",
        "create_delegation_token",
        "request.owner or context.principal",
        "context.principal",
    ),
    _bug(
        "sessions: go on with those whose token was removed",
        "runtime/logins/sessions.py",
        "OpenSessions.apply",
        "return self._look()",
        "return None",
    ),
    _bug(
        "sessions: serve calls of gRPC by a token that was removed",
        "runtime/logins/grpc.py",
        "GrpcLogins._session_of",
        "self._check_basis(found)",
        "",
    ),
    _bug(
        "sessions: do not note what a session rests on",
        "runtime/kafka/authentication.py",
        "Gate._succeeded",
        "sessions.add(self, self._basis)",
        "pass",
    ),
]
