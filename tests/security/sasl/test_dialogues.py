"""The clients' dialogues against the servers': which clients are let in, and what others hear."""

from collections.abc import Mapping

import pytest
import scramp
from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.scram_credentials import ScramUser
from security.sasl.dialogue import (
    CREDENTIALS_UNKNOWN,
    Challenge,
    CheckPassword,
    Dialogue,
    Failure,
    Step,
    Success,
)
from security.sasl.plain import PlainDialogue
from security.sasl.scram import ScramDialogue
from stele.security import dialogues, scram
from stele.security.client_security import SaslCredentials
from stele.security.dialogues import ClientDialogue, LoginRefusedError
from stele.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential, ScramMechanism

MECHANISMS = st.sampled_from([SCRAM_SHA_256, SCRAM_SHA_512])
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
SALT = b"sixteen bytes..."
STAND_IN = ScramCredential(b"stand-in", bytes(32), bytes(32), 4096)


class Store:
    """Credentials of users by name and mechanism, made of their passwords."""

    is_loaded = True

    def __init__(self, passwords: Mapping[str, str], mechanisms: str = "SCRAM-SHA-256") -> None:
        self.credentials = {
            (name, each): ScramCredential.of_password(scram.MECHANISMS[each], password, SALT, 4096)
            for name, password in passwords.items()
            for each in mechanisms.split()
        }

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self.credentials.get((user, mechanism.name))

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        return STAND_IN

    @property
    def strongest(self) -> int:
        """The number of the strongest mechanism that somebody has a credential of."""
        return max(scram.MECHANISMS[name].number for _, name in self.credentials)


def work_done(dialogue: Dialogue, step: Step) -> Step:
    if isinstance(step, CheckPassword):
        credential = step.credential
        salted = scram.salted_password(
            step.mechanism, step.password, credential.salt, credential.iterations
        )
        return dialogue.resume(credential.accepts_salted(step.mechanism, salted))
    return step


def talk(client: ClientDialogue, server: Dialogue) -> Success | Failure:
    """The dialogue to its end; the client must be content with a success."""
    token = client.first()
    while True:
        step = work_done(server, server.step(token))
        if isinstance(step, Failure):
            return step
        assert isinstance(step, Challenge | Success)
        answer = client.answer(step.token)
        if isinstance(step, Success):
            assert answer is None
            return step
        assert answer is not None
        token = answer


@settings(max_examples=40)
@given(MECHANISMS, NAMES, st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_scram_lets_in_a_user_that_knows_the_password(
    mechanism: ScramMechanism, user: str, password: str, is_right: bool
) -> None:
    store = Store({user: password}, mechanism.name)
    told = password if is_right else password + "x"
    client = dialogues.ScramDialogue(mechanism, user, told, "abc")
    found = talk(client, ScramDialogue(mechanism, store, "xyz"))
    if is_right:
        assert isinstance(found, Success)
        assert found.principal == f"User:{user}"
    else:
        assert isinstance(found, Failure)
        assert "wrong password" in found.private
        # The peer hears nothing that depends on the user.
        assert found.public == (
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {mechanism.name}"
        )


def test_scram_does_not_tell_who_exists() -> None:
    store = Store({"alice": "secret"})
    found = []
    for user in ("alice", "bob"):
        client = dialogues.ScramDialogue(SCRAM_SHA_256, user, "guess", "abc")
        server = ScramDialogue(SCRAM_SHA_256, store, "xyz")
        challenge = server.step(client.first())
        assert isinstance(challenge, Challenge)
        proof = client.answer(challenge.token)
        assert proof is not None
        failure = server.step(proof)
        assert isinstance(failure, Failure)
        found.append(failure)
    assert found[0].public == found[1].public
    assert found[0].private == "wrong password of user 'alice'"
    assert found[1].private == "user 'bob' has no SCRAM-SHA-256 credential"


@pytest.mark.parametrize("user", ["alice", "bob"])
def test_before_the_credentials_are_known_a_login_fails_for_now(user: str) -> None:
    class Empty(Store):
        is_loaded = False

    store = Empty({})
    scram_client = dialogues.ScramDialogue(SCRAM_SHA_256, user, "secret", "abc")
    for client, server in (
        (scram_client, ScramDialogue(SCRAM_SHA_256, store, "xyz")),
        (dialogues.PlainDialogue(user, "secret"), PlainDialogue({}, store)),
    ):
        assert talk(client, server) == CREDENTIALS_UNKNOWN
    assert CREDENTIALS_UNKNOWN.is_retriable


def test_a_configured_user_needs_no_credentials_of_the_metadata() -> None:
    class Empty(Store):
        is_loaded = False

    server = PlainDialogue({"alice": "secret"}, Empty({}))
    found = talk(dialogues.PlainDialogue("alice", "secret"), server)
    assert isinstance(found, Success)


def test_even_a_stand_in_that_could_be_proven_lets_nobody_in() -> None:
    class Careless(Store):
        def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
            return ScramCredential.of_password(mechanism, "guess", SALT, 4096)

    client = dialogues.ScramDialogue(SCRAM_SHA_256, "bob", "guess", "abc")
    found = talk(client, ScramDialogue(SCRAM_SHA_256, Careless({}), "xyz"))
    assert isinstance(found, Failure)


@given(st.lists(st.binary() | st.text().map(str.encode), min_size=1, max_size=3))
def test_random_bytes_let_nobody_in(tokens: list[bytes]) -> None:
    store = Store({})
    servers: list[Dialogue] = [
        ScramDialogue(SCRAM_SHA_256, store, "xyz"),
        PlainDialogue({"a": "b"}, None),
    ]
    for server in servers:
        for token in tokens:
            step = server.step(token)
            assert not isinstance(step, Success) or token == b"\0a\0b"
            if isinstance(step, Success | Failure):
                break


def _scram_steps(first: bytes, change: bytes | None = None, final: bytes | None = None) -> Step:
    server = ScramDialogue(SCRAM_SHA_256, Store({"alice": "secret"}), "xyz")
    step = server.step(first)
    if final is None:
        return step
    assert isinstance(step, Challenge)
    return server.step(final)


PROOF = b"A" * 43 + b"="


@pytest.mark.parametrize(
    ("first", "final", "reason"),
    [
        (b"n,,n=,r=abc", None, "the user's name is empty"),
        (b"n,a=bob,n=alice,r=abc", None, "asks to act as 'bob'"),
        (b"n,,n=alice,r=abc,tokenauth=true", None, "delegation token"),
        (b"nonsense", None, "malformed"),
        (b"n,,n=alice,r=abc", b"c=biws,r=abc,p=" + PROOF, "repeat the server's nonce"),
        (b"n,,n=alice,r=abc", b"c=eSws,r=abcxyz,p=" + PROOF, "repeat the header"),
        (b"n,,n=alice,r=abc", b"c=biws,r=abcxyz,p=" + PROOF, "wrong password of user 'alice'"),
        (b"n,,n=alice,r=abc", b"c=biws,r=abcxyz,p=AAAA", "wrong password of user 'alice'"),
        (b"n,,n=alice,r=abc", b"c=biws,r=abcxyz,p=%", "malformed"),
    ],
)
def test_scram_refuses(first: bytes, final: bytes | None, reason: str) -> None:
    failure = _scram_steps(first, final=final)
    assert isinstance(failure, Failure)
    assert reason in failure.private
    assert failure.public == (
        "Authentication failed during authentication due to invalid credentials with SASL "
        "mechanism SCRAM-SHA-256"
    )
    assert not failure.is_retriable


def test_scram_accepts_the_users_own_authorization_identity() -> None:
    assert isinstance(_scram_steps(b"n,a=alice,n=alice,r=abc"), Challenge)


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_another_client_is_let_in(mechanism: ScramMechanism) -> None:
    client = scramp.ScramClient([mechanism.name], "alice", "secret", c_nonce="abcdefgh")
    server = ScramDialogue(mechanism, Store({"alice": "secret"}, mechanism.name), "xyz")
    challenge = server.step(client.get_client_first().encode())
    assert isinstance(challenge, Challenge)
    client.set_server_first(challenge.token.decode())
    success = server.step(client.get_client_final().encode())
    assert isinstance(success, Success)
    client.set_server_final(success.token.decode())


def test_the_client_refuses_a_server_that_does_not_know_the_credential() -> None:
    client = dialogues.ScramDialogue(SCRAM_SHA_256, "alice", "secret", "abc")
    client.first()
    assert client.answer(b"r=abcxyz,s=c2FsdA==,i=4096") is not None
    with pytest.raises(LoginRefusedError, match="does not know"):
        client.answer(scram.server_final(bytes(32)))


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=abc,s=c2FsdA==,i=4096", "does not continue"),
        (b"r=xyzabc,s=c2FsdA==,i=4096", "does not continue"),
        (b"r=abcxyz,s=c2FsdA==,i=4095", "demands 4095 iterations"),
        (b"r=abcxyz,s=c2FsdA==,i=1000001", "demands 1000001 iterations"),
        (b"e=other-error", "malformed"),
    ],
)
def test_the_client_refuses_a_challenge(challenge: bytes, reason: str) -> None:
    client = dialogues.ScramDialogue(SCRAM_SHA_256, "alice", "secret", "abc")
    client.first()
    with pytest.raises(LoginRefusedError, match=reason):
        client.answer(challenge)


@given(st.dictionaries(NAMES, NAMES, max_size=3), NAMES, NAMES)
def test_plain_lets_in_every_listed_user(users: dict[str, str], user: str, password: str) -> None:
    for each, told in [*users.items(), (user, password)]:
        found = talk(dialogues.PlainDialogue(each, told), PlainDialogue(users, None))
        assert isinstance(found, Success) == (users.get(each) == told)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (b"", "has 1 parts"),
        (b"\0alice", "has 2 parts"),
        (b"\0alice\0secret\0", "has 4 parts"),
        (b"\0\0secret", "name is empty"),
        (b"\0alice\0", "password of user 'alice' is empty"),
        (b"bob\0alice\0secret", "asks to act as 'bob'"),
        (b"\0alice\0guess", "wrong password of user 'alice'"),
        (b"\0bob\0secret", "unknown user 'bob'"),
        (b"\0\xff\0secret", "not UTF-8"),
    ],
)
def test_plain_refuses(token: bytes, reason: str) -> None:
    failure = PlainDialogue({"alice": "secret"}, None).step(token)
    assert isinstance(failure, Failure)
    assert reason in failure.private
    assert failure.public == "Authentication failed: Invalid username or password"


def test_plain_accepts_the_users_own_authorization_identity() -> None:
    found = PlainDialogue({"alice": "secret"}, None).step(b"alice\0alice\0secret")
    assert found == Success("User:alice")


@pytest.mark.parametrize(
    "mechanisms", ["SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-256 SCRAM-SHA-512"]
)
def test_plain_asks_the_scram_credentials(mechanisms: str) -> None:
    store = Store({"alice": "secret"}, mechanisms)
    for user, password, reason in (
        ("alice", "secret", None),
        ("alice", "guess", "wrong password of user 'alice'"),
        ("bob", "secret", "unknown user 'bob'"),
        ("listed", "secret", "wrong password of user 'listed'"),
        ("listed", "own", None),
    ):
        server = PlainDialogue({"listed": "own"}, store)
        found = talk(dialogues.PlainDialogue(user, password), server)
        basis = ScramUser("alice", store.strongest) if user == "alice" else None
        assert found == Success(f"User:{user}", basis=basis) or (
            isinstance(found, Failure) and found.private == reason
        )


def test_plain_works_for_an_unknown_user_as_long_as_for_a_known_one() -> None:
    store = Store({"alice": "secret"})
    asked = [PlainDialogue({}, store).step(f"\0{user}\0x".encode()) for user in ("alice", "bob")]
    assert all(isinstance(each, CheckPassword) for each in asked)
    assert PlainDialogue({}, store).resume(True) == Failure(
        "Authentication failed: Invalid username or password", "unknown user ''"
    )


def test_the_client_of_oauthbearer_takes_the_refusal_and_says_so() -> None:
    client = dialogues.OauthBearerDialogue("abc.def.", {"logicalCluster": "lkc"})
    assert client.first() == b"n,,\x01auth=Bearer abc.def.\x01logicalCluster=lkc\x01\x01"
    assert client.answer(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginRefusedError, match="invalid_token"):
        client.answer(b"")
    assert dialogues.OauthBearerDialogue("t").answer(b"") is None


@pytest.mark.parametrize("iterations", [4096, 1_000_000])
def test_the_client_does_as_many_iterations_as_may_be_demanded(iterations: int) -> None:
    client = dialogues.ScramDialogue(SCRAM_SHA_256, "alice", "secret", "abc")
    client.first()
    assert client.answer(f"r=abcxyz,s=c2FsdA==,i={iterations}".encode()) is not None


def test_the_dialogue_belongs_to_the_mechanism() -> None:
    def first(mechanism: str, *, is_delegation_token: bool = False) -> bytes:
        credentials = SaslCredentials(
            mechanism=mechanism,
            username="alice",
            password="secret",
            is_delegation_token=is_delegation_token,
        )
        return dialogues.dialogue_of(credentials, "abc", "a.b.c").first()

    assert first("PLAIN") == b"\0alice\0secret"
    assert first("OAUTHBEARER") == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert first("SCRAM-SHA-256") == first("SCRAM-SHA-512") == b"n,,n=alice,r=abc"
    assert first("SCRAM-SHA-512", is_delegation_token=True) == b"n,,n=alice,r=abc,tokenauth=true"


def test_secrets_are_not_printed() -> None:
    asked = PlainDialogue({}, Store({"alice": "hidden"})).step(b"\0alice\0hidden")
    assert "hidden" not in repr(asked)
