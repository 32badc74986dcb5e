"""Delegation tokens for tests."""

from __future__ import annotations

from hypothesis import strategies as st

from metadata.delegation_tokens import DelegationToken

NAMES = st.sampled_from(["User:ann", "User:bob", "User:carol"])
TIMES = st.integers(0, 99)
TOKENS = st.builds(
    DelegationToken,
    st.text("ab", min_size=1, max_size=2),
    NAMES,
    NAMES,
    st.lists(NAMES, max_size=2).map(tuple),
    TIMES,
    TIMES,
    TIMES,
)


def token(
    token_id: str = "id", owner: str = "User:ann", *, expiry_ms: int = 100
) -> DelegationToken:
    return DelegationToken(token_id, owner, owner, ("User:rita",), 0, expiry_ms, 1000)
