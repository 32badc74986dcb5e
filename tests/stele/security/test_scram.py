"""SCRAM's formulas and messages: against the RFCs' examples, another implementation, and bytes."""

import base64
import hashlib
import hmac

import pytest
import scramp
from hypothesis import given
from hypothesis import strategies as st

from stele.security import scram
from stele.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential, ScramError

MECHANISMS = st.sampled_from([SCRAM_SHA_256, SCRAM_SHA_512])
NONCES = st.text(
    st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=","), min_size=1
)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def test_the_example_of_rfc_7677() -> None:
    first = scram.ClientFirst.of("user", "rOprNGfwEbeRWgbNEkqO")
    assert first.encode() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = scram.ServerFirst.parse(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = scram.ClientFinal.of(first.gs2, challenge.nonce)
    salted = scram.salted_password(SCRAM_SHA_256, "pencil", challenge.salt, challenge.iterations)
    message = scram.auth_message(first, challenge, final)
    proof = scram.client_proof(SCRAM_SHA_256, salted, message)
    assert final.encode(proof) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    key = scram.server_key(SCRAM_SHA_256, salted)
    signature = scram.server_signature(SCRAM_SHA_256, key, message)
    assert scram.server_final(signature) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert scram.parse_server_final(scram.server_final(signature)) == signature


def dumb_salted_password(name: str, password: str, salt: bytes, iterations: int) -> bytes:
    """``Hi`` of RFC 5802, word for word."""
    last = hmac.new(password.encode(), salt + b"\0\0\0\1", name).digest()
    total = int.from_bytes(last)
    for _ in range(iterations - 1):
        last = hmac.new(password.encode(), last, name).digest()
        total ^= int.from_bytes(last)
    return total.to_bytes(len(last))


@given(
    MECHANISMS, st.text(st.characters(exclude_categories=["Cs"])), st.binary(), st.integers(1, 9)
)
def test_the_salted_password_agrees_with_the_rfc(
    mechanism: scram.ScramMechanism, password: str, salt: bytes, iterations: int
) -> None:
    expected = dumb_salted_password(mechanism.hash_name, password, salt, iterations)
    assert scram.salted_password(mechanism, password, salt, iterations) == expected


@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_another_implementation_makes_the_same_credential(
    mechanism: scram.ScramMechanism,
) -> None:
    salt = bytes(range(16))
    _, stored, server, iterations = scramp.ScramMechanism(mechanism.name).make_auth_info(
        "pencil", 4096, salt
    )
    own = ScramCredential.of_password(mechanism, "pencil", salt, 4096)
    assert (own.stored_key, own.server_key, own.iterations) == (stored, server, iterations)


@given(NAMES, NONCES)
def test_the_first_message_survives_the_wire(user: str, nonce: str) -> None:
    sent = scram.ClientFirst.of(user, nonce)
    assert scram.ClientFirst.parse(sent.encode()) == sent


@given(NONCES, st.binary(), st.integers(1, 2**31))
def test_the_challenge_survives_the_wire(nonce: str, salt: bytes, iterations: int) -> None:
    sent = scram.ServerFirst.of(nonce, salt, iterations)
    assert scram.ServerFirst.parse(sent.encode()) == sent


@given(NONCES, st.binary())
def test_the_proof_survives_the_wire(nonce: str, proof: bytes) -> None:
    sent = scram.ClientFinal.of("n,,", nonce)
    got = scram.ClientFinal.parse(sent.encode(proof))
    assert (got.bare, got.binding, got.nonce, got.proof) == (sent.bare, b"n,,", nonce, proof)


PARSERS = (
    scram.ClientFirst.parse,
    scram.ServerFirst.parse,
    scram.ClientFinal.parse,
    scram.parse_server_final,
)


@given(st.sampled_from(PARSERS), st.binary() | st.text().map(str.encode))
def test_any_bytes_are_a_message_or_refused(parse: object, message: bytes) -> None:
    assert callable(parse)
    try:
        parse(message)
    except ScramError:
        pass


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"p=tls-unique,,n=a,r=b", "channel binding"),
        (b"n,,n=a=,r=b", "malformed"),
        (b"n,,n=a=2c,r=b", "malformed"),
        (b"n,,n=a,r=", "malformed"),
        (b"n,,m=x,n=a,r=b", "malformed"),
        (b"n,,n=a,r=b,m=x", "not known"),
        (b"n,,n=a,r=b,tokenauth=true,tokenauth=true", "twice"),
        (b"n,,n=a\0,r=b", "malformed"),
        (b"n,,n=\xff,r=b", "not UTF-8"),
        (b"z,,n=a,r=b", "malformed"),
    ],
)
def test_a_first_message_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(ScramError, match=reason):
        scram.ClientFirst.parse(message)


def test_extensions_and_authorization_identity_are_read() -> None:
    got = scram.ClientFirst.parse(b"y,a=b=2Cc=3D,n=u=3D2C,r=n,tokenauth=true,x=")
    assert (got.gs2, got.authzid, got.user) == ("y,a=b=2Cc=3D,", "b,c=", "u=2C")
    assert got.extensions == {"tokenauth": "true", "x": ""}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"r=n,s=QQ==,i=0", "malformed"),
        (b"r=n,s=Q,i=1", "base64"),
        (b"r=n,i=1,s=QQ==", "malformed"),
    ],
)
def test_a_challenge_is_refused(message: bytes, reason: str) -> None:
    with pytest.raises(ScramError, match=reason):
        scram.ServerFirst.parse(message)


def test_a_client_sends_extensions() -> None:
    sent = scram.ClientFirst.of("u", "n", {"tokenauth": "true"})
    assert sent.encode() == b"n,,n=u,r=n,tokenauth=true"
    assert scram.ClientFirst.parse(sent.encode()) == sent


def test_the_servers_error_is_reported() -> None:
    with pytest.raises(ScramError, match="the server refused: invalid-proof"):
        scram.parse_server_final(b"e=invalid-proof")


@given(st.binary(max_size=70))
def test_only_the_proof_of_the_password_is_accepted(proof: bytes) -> None:
    credential = ScramCredential(b"salt", hashlib.sha256(b"k").digest(), b"", 4096)
    assert not credential.accepts_proof(SCRAM_SHA_256, proof, b"message")
    signature = hmac.digest(credential.stored_key, b"message", "sha256")
    right = bytes(a ^ b for a, b in zip(signature, b"k".ljust(32, b"\0"), strict=True))
    assert len(base64.b64encode(right)) == 44
    assert not credential.accepts_proof(SCRAM_SHA_256, right, b"message")  # the key has 1 byte


def test_secrets_are_not_printed() -> None:
    credential = ScramCredential.of_password(SCRAM_SHA_256, "pencil", b"salt", 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"


def test_a_salted_password_is_checked_like_a_proof() -> None:
    credential = ScramCredential.of_password(SCRAM_SHA_512, "pencil", b"salt", 4096)
    salted = scram.salted_password(SCRAM_SHA_512, "pencil", b"salt", 4096)
    assert credential.accepts_salted(SCRAM_SHA_512, salted)
    assert not credential.accepts_salted(SCRAM_SHA_512, salted[:-1] + b"\0")
