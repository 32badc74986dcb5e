"""What the controller decides about delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import delegation_tokens as tokens
from controller.features import update_features
from controller.machine import Context, ControllerResult
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1 import metadata_pb2
from tests.support.controller import Machine, refusal

DAY_MS = 86_400_000
SETTINGS = {"delegation.token.secret.key": "secret"}
ANN, BOB, RITA = "User:ann", "User:bob", "User:rita"


def asked_by(
    principal: str, decide: Callable[[Context, Any], ControllerResult[Any]], request: Any
) -> Callable[[Context], ControllerResult[Any]]:
    return lambda context: decide(replace(context, principal=principal), request)


def create(machine: Machine, principal: str = ANN, **request: Any) -> pb.DelegationToken:
    asked = pb.CreateDelegationTokenRequest(**request)
    answer = machine.do(asked_by(principal, tokens.create_delegation_token, asked))
    found: pb.DelegationToken = answer.token
    return found


def renew(machine: Machine, token_id: str, principal: str = ANN, period_ms: int = 0) -> int:
    asked = pb.RenewDelegationTokenRequest(token_id=token_id, renew_period_ms=period_ms)
    answer = machine.do(asked_by(principal, tokens.renew_delegation_token, asked))
    return int(answer.expiry_ms)


def expire(machine: Machine, token_id: str, principal: str = ANN, period_ms: int = -1) -> int:
    asked = pb.ExpireDelegationTokenRequest(token_id=token_id, expiry_period_ms=period_ms)
    answer = machine.do(asked_by(principal, tokens.expire_delegation_token, asked))
    return int(answer.expiry_ms)


@pytest.fixture
def machine() -> Machine:
    machine = Machine(SETTINGS)
    machine.now_ms = 1000
    return machine


def test_a_token_is_of_its_maker_and_lives_as_long_as_the_cluster_allows(machine: Machine) -> None:
    token = create(machine, renewers=[RITA])
    assert (token.owner, token.requester, list(token.renewers)) == (ANN, ANN, [RITA])
    assert (token.issue_ms, token.expiry_ms, token.max_ms) == (
        1000,
        1000 + DAY_MS,
        1000 + 7 * DAY_MS,
    )
    assert token.hmac == b"", "the answer is remembered in the metadata log"
    (kept,) = machine.image.delegation_tokens.values()
    assert tokens.message_of(kept) == token
    assert len(token.token_id) == 22
    assert not token.token_id.startswith("-")
    assert create(machine).token_id != token.token_id


def test_a_token_can_be_of_somebody_else(machine: Machine) -> None:
    token = create(machine, "User:tool", owner=BOB)
    assert (token.owner, token.requester) == (BOB, "User:tool")
    with pytest.raises(ApiError, match="User:tool is neither the owner nor a renewer"):
        renew(machine, token.token_id, "User:tool")
    assert renew(machine, token.token_id, BOB)


@pytest.mark.parametrize(
    ("asked_ms", "lives_ms"), [(-1, 500), (0, 500), (1, 1), (300, 300), (500, 500), (501, 500)]
)
def test_a_token_lives_no_longer_than_was_asked_for(asked_ms: int, lives_ms: int) -> None:
    machine = Machine(
        SETTINGS
        | {"delegation.token.max.lifetime.ms": "500", "delegation.token.expiry.time.ms": "300"}
    )
    token = create(machine, max_lifetime_ms=asked_ms)
    assert (token.max_ms, token.expiry_ms) == (lives_ms, min(300, lives_ms))


def test_a_token_that_never_ends_has_a_time_that_can_be_written() -> None:
    longest = str(2**63 - 1)
    machine = Machine(
        SETTINGS
        | {"delegation.token.max.lifetime.ms": longest, "delegation.token.expiry.time.ms": longest}
    )
    machine.now_ms = 1_800_000_000_000
    token = create(machine)
    assert token.max_ms == token.expiry_ms == tokens.END_OF_TIME_MS
    assert renew(machine, token.token_id) == tokens.END_OF_TIME_MS
    assert expire(machine, token.token_id, period_ms=2**63 - 1) == tokens.END_OF_TIME_MS
    assert datetime.fromtimestamp(token.max_ms / 1000, UTC).year == 9999


def test_renewals_go_from_now_on_to_the_longest_life(machine: Machine) -> None:
    token = create(machine, renewers=[RITA])
    machine.now_ms += DAY_MS
    assert renew(machine, token.token_id, RITA) == 1000 + 2 * DAY_MS
    assert renew(machine, token.token_id, ANN, period_ms=5) == 1005 + DAY_MS
    assert renew(machine, token.token_id, ANN, period_ms=9 * DAY_MS) == 1000 + 2 * DAY_MS
    for day in range(2, 8):
        machine.now_ms = 1000 + day * DAY_MS
        assert renew(machine, token.token_id) == min(token.max_ms, machine.now_ms + DAY_MS)
    machine.now_ms = token.max_ms + 1
    error = refusal(lambda: renew(machine, token.token_id))
    assert error.code is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_a_token_expires_now_or_later(machine: Machine) -> None:
    token = create(machine, renewers=[RITA])
    assert expire(machine, token.token_id, RITA, 8 * DAY_MS) == token.max_ms
    assert expire(machine, token.token_id, ANN, 0) == 1000
    assert machine.image.delegation_tokens[token.token_id].expiry_ms == 1000
    assert expire(machine, token.token_id) == 1000, "removed"
    assert not len(machine.image.delegation_tokens)
    error = refusal(lambda: expire(machine, token.token_id))
    assert error.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert token.token_id in error.message


@pytest.mark.parametrize("change", [renew, expire])
def test_only_the_owner_and_the_renewers_change_a_token(
    machine: Machine, change: Callable[[Machine, str, str], int]
) -> None:
    token = create(machine, renewers=[RITA])
    for _ in range(2):
        error = refusal(lambda: change(machine, token.token_id, BOB))
        assert error.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert "User:bob is neither" in error.message
    error = refusal(lambda: change(machine, "another", ANN))
    assert error.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    machine.now_ms = token.expiry_ms + 1
    error = refusal(lambda: change(machine, token.token_id, BOB))
    assert error.code is ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize("owner", ["Group:x", "user:x"])
def test_owners_and_renewers_are_users(machine: Machine, owner: str) -> None:
    for asked in ({"owner": owner}, {"renewers": [RITA, owner]}):
        error = refusal(lambda asked=asked: create(machine, **asked))  # type: ignore[misc]
        assert error.code is ErrorCode.INVALID_PRINCIPAL_TYPE
        assert owner in error.message
    error = refusal(lambda: create(machine, renewers=["rita"]))
    assert error.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("key", [{}, {"delegation.token.secret.key": " "}])
def test_without_a_secret_key_there_are_no_tokens(key: dict[str, str]) -> None:
    machine = Machine(key)
    for ask in (create, lambda _: renew(machine, "x"), lambda _: expire(machine, "x")):
        error = refusal(lambda ask=ask: ask(machine))  # type: ignore[misc]
        assert error.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert "delegation.token.secret.key" in error.message


def test_older_nodes_would_not_know_the_records(machine: Machine) -> None:
    down = pb.UpdateFeaturesRequest()
    down.updates.add(name="metadata.version", level=6, type=pb.UpgradeType.SAFE_DOWNGRADE)
    machine.do(lambda context: update_features(context, down))
    error = refusal(lambda: create(machine))
    assert error.code is ErrorCode.UNSUPPORTED_VERSION
    assert "metadata.version 7" in error.message


def test_nobody_fills_the_metadata_with_tokens(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REQUESTER_TOKENS_MAX", 2)
    monkeypatch.setattr(tokens, "TOKENS_MAX", 3)
    made = [create(machine, owner=owner) for owner in (ANN, BOB)]
    error = refusal(lambda: create(machine))
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert "User:ann has created 2" in error.message
    create(machine, BOB)
    error = refusal(lambda: create(machine, BOB))
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert "there are 3 delegation tokens" in error.message
    expire(machine, made[0].token_id)
    assert create(machine)
    long = [f"User:{number:05}" for number in range(2000)]
    expire(machine, made[1].token_id, BOB)
    error = refusal(lambda: create(machine, renewers=long))
    assert error.code is ErrorCode.POLICY_VIOLATION
    assert "name fewer renewers" in error.message


def test_a_record_may_be_as_long_as_the_bound(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(machine, renewers=[RITA])
    (record,) = machine.last_records
    assert isinstance(record, metadata_pb2.MetadataRecord)
    monkeypatch.setattr(tokens, "RECORD_BYTES_MAX", record.ByteSize())
    assert create(machine, renewers=[RITA])
    error = refusal(lambda: create(machine, renewers=[RITA + "a"]))
    assert error.code is ErrorCode.POLICY_VIOLATION


def test_only_what_has_expired_is_removed(machine: Machine) -> None:
    early, late = (create(machine, max_lifetime_ms=each) for each in (10, 20))
    ids = [early.token_id, "gone", late.token_id]
    machine.now_ms = 1010
    assert machine.do(lambda context: tokens.remove_expired(context, ids)) == 0
    machine.now_ms = 1011
    assert machine.do(lambda context: tokens.remove_expired(context, ids)) == 1
    assert list(machine.image.delegation_tokens) == [late.token_id]


# ------------------------------------------------------------------------- against a twin

EXPIRY_MS, LIFETIME_MS = 10, 25


@dataclass
class Twin:
    """A token as a list of facts, without any record."""

    owner: str
    renewers: list[str]
    expiry_ms: int
    max_ms: int


PEOPLE = st.sampled_from([ANN, BOB, RITA])
PERIODS = st.integers(-1, 30)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), PEOPLE, st.lists(PEOPLE, max_size=2), PERIODS),
        st.tuples(st.sampled_from(["renew", "expire"]), PEOPLE, st.integers(0, 3), PERIODS),
        st.tuples(st.just("wait"), st.integers(1, 12)),
        st.tuples(st.just("sweep")),
    ),
    max_size=12,
)


@settings(max_examples=200)
@given(STEPS)
def test_decisions_agree_with_a_dumb_twin(steps: list[Any]) -> None:
    machine = Machine(
        SETTINGS
        | {
            "delegation.token.max.lifetime.ms": str(LIFETIME_MS),
            "delegation.token.expiry.time.ms": str(EXPIRY_MS),
        }
    )
    twins: dict[str, Twin] = {}
    ids: list[str] = []
    for step in steps:
        now = machine.now_ms
        if step[0] == "wait":
            machine.now_ms += step[1]
        elif step[0] == "sweep":
            machine.do(lambda context: tokens.remove_expired(context, ids))
            twins = {each: twin for each, twin in twins.items() if twin.expiry_ms >= now}
        elif step[0] == "create":
            _, owner, renewers, life_ms = step
            token = create(machine, owner, renewers=renewers, max_lifetime_ms=life_ms)
            ids.append(token.token_id)
            life_ms = LIFETIME_MS if life_ms <= 0 else min(life_ms, LIFETIME_MS)
            expiry_ms = now + min(EXPIRY_MS, life_ms)
            twins[token.token_id] = Twin(owner, renewers, expiry_ms, now + life_ms)
        else:
            kind, principal, which, period_ms = step
            token_id = ids[which] if which < len(ids) else "none"
            change = {"renew": renew, "expire": expire}[kind]
            expected = _twin_answer(twins, kind, token_id, principal, period_ms, now)
            try:
                found: int | ErrorCode = change(machine, token_id, principal, period_ms)
            except ApiError as error:
                found = error.code
            assert found == expected
        kept = {
            each.token_id: Twin(each.owner, list(each.renewers), each.expiry_ms, each.max_ms)
            for each in machine.image.delegation_tokens.values()
        }
        assert kept == twins


def _twin_answer(
    twins: dict[str, Twin], kind: str, token_id: str, principal: str, period_ms: int, now: int
) -> int | ErrorCode:
    twin = twins.get(token_id)
    if twin is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if now > twin.expiry_ms:
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    if principal not in [twin.owner, *twin.renewers]:
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if kind == "expire" and period_ms < 0:
        del twins[token_id]
        return now
    if kind == "renew":
        period_ms = EXPIRY_MS if period_ms <= 0 else min(period_ms, EXPIRY_MS)
    twin.expiry_ms = min(now + period_ms, twin.max_ms)
    return twin.expiry_ms
