"""When expired delegation tokens are removed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import token_expiry
from controller.token_expiry import TokenExpiry
from metadata.delegation_tokens import DelegationTokens, token_record
from tests.support.tokens import token


def made(expiry: TokenExpiry, now_s: float, **expiries_ms: int) -> None:
    tokens = [token(name, expiry_ms=at) for name, at in expiries_ms.items()]
    expiry.decided(
        now_s, DelegationTokens({each.token_id: each for each in tokens}), map(token_record, tokens)
    )


def test_without_tokens_nothing_is_due() -> None:
    expiry = TokenExpiry(1000)
    expiry.claimed(5.0, DelegationTokens())
    assert expiry.deadline() is None
    assert expiry.take_due(99.0, 10**9) == ()
    made(expiry, 50.0, a=100)
    assert expiry.deadline() == 51.0, "an interval after there was something to expire"


def test_a_check_takes_what_has_expired() -> None:
    expiry = TokenExpiry(1000)
    tokens = {name: token(name, expiry_ms=at) for name, at in {"a": 10, "b": 20}.items()}
    expiry.claimed(5.0, DelegationTokens(tokens))
    assert expiry.take_due(5.9, 99) == ()
    assert expiry.take_due(6.0, 20) == ("a",)
    assert expiry.deadline() == 7.0
    assert expiry.take_due(7.0, 20) == ()
    assert expiry.take_due(8.0, 21) == ("b",)
    assert expiry.deadline() is None


def test_a_renewed_token_is_due_at_both_times() -> None:
    expiry = TokenExpiry(1000)
    expiry.claimed(0.0, DelegationTokens())
    made(expiry, 0.0, a=10)
    made(expiry, 0.5, a=30)
    assert expiry.take_due(1.0, 11) == ("a",)
    assert expiry.take_due(2.0, 12) == ()
    assert expiry.take_due(3.0, 31) == ("a",)
    assert expiry.deadline() is None


def test_many_renewals_take_no_memory() -> None:
    expiry = TokenExpiry(1000)
    expiry.claimed(0.0, DelegationTokens())
    most = 0
    for number in range(5000):
        made(expiry, 0.0, a=10_000 + number)
        most = max(most, expiry.entries)
    assert most == 1002
    assert expiry.take_due(1.0, 14_999) == ("a",)
    assert expiry.entries > 0, "the last expiry is not forgotten"
    assert expiry.take_due(2.0, 15_000) == ("a",)
    assert expiry.deadline() is None


def test_decisions_about_other_things_are_not_looked_at() -> None:
    expiry = TokenExpiry(1000)
    tokens = DelegationTokens()
    expiry.claimed(0.0, tokens)
    expiry.decided(0.0, tokens, map(token_record, [token()]))
    assert expiry.deadline() is None


def test_many_go_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_expiry, "REMOVED_AT_ONCE", 2)
    expiry = TokenExpiry(1000)
    expiry.claimed(0.0, DelegationTokens())
    made(expiry, 0.0, a=1, b=2, c=3)
    assert expiry.take_due(1.0, 99) == ("a", "b")
    assert expiry.deadline() == 1.0, "the rest is due at once"
    assert expiry.take_due(1.0, 99) == ("c",)
    assert expiry.deadline() is None


def test_what_could_not_be_removed_is_tried_again_after_the_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_expiry, "REMOVED_AT_ONCE", 2)
    expiry = TokenExpiry(1000)
    expiry.claimed(0.0, DelegationTokens())
    made(expiry, 0.0, a=1, b=2, c=3)
    due = expiry.take_due(1.0, 99)
    expiry.put_back(1.0, 99, due)
    assert expiry.deadline() == 2.0
    assert expiry.take_due(2.0, 100) == ("c", "a")


def test_whoever_leads_no_more_removes_nothing() -> None:
    expiry = TokenExpiry(1000)
    expiry.claimed(0.0, DelegationTokens({"a": token("a")}))
    expiry.resigned()
    assert expiry.deadline() is None
    assert expiry.take_due(99.0, 10**9) == ()


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.just("made"), st.sampled_from("abc"), st.integers(0, 20))
        | st.tuples(st.just("time"), st.integers(1, 5)),
        max_size=20,
    )
)
def test_every_token_is_taken_once_it_has_expired(steps: list[Any]) -> None:
    """A twin without a heap: whatever is over and was not taken yet."""
    expiry = TokenExpiry(2000)
    expiry.claimed(0.0, DelegationTokens())
    waiting: list[tuple[int, str]] = []
    now = 0
    for step in steps:
        if step[0] == "made":
            made(expiry, now, **{step[1]: step[2]})
            waiting.append((step[2], step[1]))
            continue
        now += step[1]
        deadline = expiry.deadline()
        taken = expiry.take_due(now, now)
        if deadline is None or now < deadline:
            assert not taken
            continue
        over = {name for at, name in waiting if at < now}
        assert set(taken) == over
        waiting = [each for each in waiting if each[0] >= now]
    assert (expiry.deadline() is None) == (not waiting)
