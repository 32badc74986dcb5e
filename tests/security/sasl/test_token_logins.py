"""Logins by a delegation token over SCRAM (KIP-48)."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.delegation_tokens import DelegationToken
from security.delegation_tokens import salted_keys, token_hmac, token_password
from security.sasl.dialogue import (
    CREDENTIALS_UNKNOWN,
    Challenge,
    DeriveKeys,
    Dialogue,
    Failure,
    Step,
    Success,
)
from security.sasl.scram import ScramDialogue
from stele.security import dialogues, scram
from stele.security.client_security import SaslCredentials
from stele.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential, ScramMechanism
from tests.support.scram import SALT
from tests.support.tokens import token

MECHANISMS = pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
SECRET = b"the cluster's"
REFUSED = (
    "Authentication failed during authentication due to invalid credentials with SASL "
    "mechanism SCRAM-SHA-256"
)


class NoUsers:
    is_loaded = True

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return None

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        return ScramCredential(b"salt", bytes(32), bytes(32), 4096)


class Tokens:
    def __init__(self, *found: DelegationToken, now_ms: int = 0) -> None:
        self.by_id = {each.token_id: each for each in found}
        self.now_ms = now_ms
        self.is_loaded = True

    def hmac_of(self, token_id: str) -> bytes:
        return token_hmac(SECRET, token_id)

    def find(self, token_id: str) -> DelegationToken | None:
        return self.by_id.get(token_id)


def work_done(dialogue: Dialogue, step: Step) -> Step:
    if isinstance(step, DeriveKeys):
        keys = salted_keys(step.mechanism.name, step.password, step.salt, step.iterations)
        return dialogue.resume(keys)
    return step


def log_in(
    tokens: Tokens | None,
    token_id: str = "id",
    password: str | None = None,
    mechanism: ScramMechanism = SCRAM_SHA_256,
) -> Success | Failure:
    """The dialogue to its end, with our own client."""
    secret = token_password(token_hmac(SECRET, token_id)) if password is None else password
    credentials = SaslCredentials(
        mechanism=mechanism.name, username=token_id, password=secret, is_delegation_token=True
    )
    client = dialogues.dialogue_of(credentials, "abc")
    server = ScramDialogue(mechanism, NoUsers(), "xyz", tokens)
    said = client.first()
    while True:
        step = work_done(server, server.step(said))
        if isinstance(step, Failure):
            return step
        assert isinstance(step, Challenge | Success)
        answer = client.answer(step.token)
        if isinstance(step, Success):
            assert answer is None
            return step
        assert answer is not None
        said = answer


def test_the_secret_of_a_token_is_kafkas() -> None:
    expected = hmac.new(b"key", b"id", hashlib.sha512).digest()
    assert token_hmac(b"key", "id") == expected
    assert token_password(expected) == base64.b64encode(expected).decode()


@MECHANISMS
def test_the_holder_of_a_token_is_its_owner(mechanism: ScramMechanism) -> None:
    found = log_in(Tokens(token("id", "User:ann", expiry_ms=100)), mechanism=mechanism)
    assert isinstance(found, Success)
    assert (found.principal, found.by_delegation_token) == ("User:ann", True)
    assert found.expires_ms == 100, "no session outlives the token"


@settings(max_examples=20)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.booleans())
def test_nobody_else_is_let_in(password: str, exists: bool) -> None:
    found = log_in(Tokens(*[token("id")] * exists), password=password)
    assert isinstance(found, Failure)
    assert (found.public, found.private) == (REFUSED, "wrong HMAC of delegation token 'id'")
    assert not found.is_retriable


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (Tokens(), "there is no delegation token 'id'"),
        (Tokens(token("id", expiry_ms=100), now_ms=101), "token 'id' of User:ann has expired"),
        (None, "delegation.token.secret.key is not set"),
    ],
)
def test_a_token_that_is_gone_is_refused_with_the_reason_in_the_log(
    tokens: Tokens | None, reason: str
) -> None:
    found = log_in(tokens)
    assert isinstance(found, Failure)
    assert found.public == REFUSED
    assert reason in found.private


def test_a_token_is_good_until_its_end() -> None:
    assert isinstance(log_in(Tokens(token("id", expiry_ms=100), now_ms=100)), Success)


def test_a_token_that_is_removed_during_the_login_lets_nobody_in() -> None:
    tokens = Tokens(token("id"))
    password = token_password(token_hmac(SECRET, "id"))
    client = dialogues.ScramDialogue(SCRAM_SHA_256, "id", password, "abc", {"tokenauth": "true"})
    server = ScramDialogue(SCRAM_SHA_256, NoUsers(), "xyz", tokens)
    challenge = work_done(server, server.step(client.first()))
    assert isinstance(challenge, Challenge)
    proof = client.answer(challenge.token)
    assert proof is not None
    tokens.by_id.clear()
    assert isinstance(server.step(proof), Failure)


def test_the_challenge_does_not_tell_which_tokens_exist() -> None:
    """Nor does it differ between the nodes of a cluster."""
    challenges = []
    for tokens in (Tokens(token("id")), Tokens()):
        server = ScramDialogue(SCRAM_SHA_256, NoUsers(), "xyz", tokens)
        step = work_done(server, server.step(b"n,,n=id,r=abc,tokenauth=true"))
        assert isinstance(step, Challenge)
        challenges.append(scram.ServerFirst.parse(step.token))
    assert challenges[0] == challenges[1]
    assert (len(challenges[0].salt), challenges[0].iterations) == (20, 4096)


def test_before_the_tokens_are_known_a_login_fails_for_now() -> None:
    tokens = Tokens(token("id"))
    tokens.is_loaded = False
    assert log_in(tokens) is CREDENTIALS_UNKNOWN


def test_tokens_and_users_have_names_of_their_own() -> None:
    """Without the extension the id of a token is the name of a user, who does not exist."""
    password = token_password(token_hmac(SECRET, "id"))
    client = dialogues.ScramDialogue(SCRAM_SHA_256, "id", password, "abc")
    server = ScramDialogue(SCRAM_SHA_256, NoUsers(), "xyz", Tokens(token("id")))
    challenge = server.step(client.first())
    assert isinstance(challenge, Challenge)
    proof = client.answer(challenge.token)
    assert proof is not None
    found = server.step(proof)
    assert isinstance(found, Failure)
    assert found.private == "user 'id' has no SCRAM-SHA-256 credential"


@MECHANISMS
def test_keys_agree_with_scramp(mechanism: ScramMechanism) -> None:
    stored_key, server_key = salted_keys(mechanism.name, "password", SALT, 4096)
    other = scramp.ScramMechanism(mechanism.name)
    _, stored, server, _ = other.make_auth_info("password", iteration_count=4096, salt=SALT)
    assert (stored_key, server_key) == (stored, server)
