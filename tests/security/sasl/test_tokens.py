"""Tokens of OAUTHBEARER: which are valid, by which keys, and the dialogue that carries them."""

from __future__ import annotations

import base64
import functools
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given
from hypothesis import strategies as st

from security.sasl.dialogue import Challenge, CheckToken, Failure, Success
from security.sasl.oauthbearer import OauthBearerDialogue
from security.sasl.tokens import Keys, KeysError, TokenRules, UnknownKeyError, parse_keys
from stele.security import dialogues

NOW_S = 1_800_000_000
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 600, "aud": "kafka", "iss": "https://i"}
RULES = TokenRules(audiences=("kafka", "stele"), issuer="https://i")


@functools.cache
def private_key(kind: str) -> Any:
    if kind == "RS256":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    if kind == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(ec.SECP384R1() if kind == "ES384" else ec.SECP256R1())


def public(kind: str, kid: str | None = None, **more: str) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name(kind)
    entry: dict[str, Any] = json.loads(algorithm.to_jwk(private_key(kind).public_key()))
    entry.pop("key_ops", None)
    return entry | ({} if kid is None else {"kid": kid}) | more


def keys(*entries: dict[str, Any]) -> Keys:
    return parse_keys(json.dumps({"keys": entries}).encode())


def signed(kind: str = "RS256", kid: str | None = "1", **claims: Any) -> str:
    told = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    headers = None if kid is None else {"kid": kid}
    return jwt.encode(told, private_key(kind), kind, headers=headers)


def verify(token: str, known: Keys, rules: TokenRules = RULES) -> Success | Failure:
    return rules.verify(token, known, NOW_S * 1000)


@pytest.mark.parametrize("kind", ["RS256", "ES256", "ES384", "EdDSA"])
@pytest.mark.parametrize("has_alg", [True, False])
def test_a_token_of_the_issuer_is_valid(kind: str, has_alg: bool) -> None:
    known = keys(public(kind, "1", **({"alg": kind} if has_alg else {})))
    expected = Success("User:alice", expires_ms=(NOW_S + 600) * 1000)
    assert verify(signed(kind), known) == expected
    assert verify(signed(kind, None), known) == expected  # there is only one key


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_S - 30}, "expired 30 s ago"),
        ({"exp": None}, "no time in its claim 'exp'"),
        ({"exp": "soon"}, "no time in its claim 'exp'"),
        ({"exp": True}, "no time in its claim 'exp'"),
        ({"exp": float("inf")}, "no time in its claim 'exp'"),
        ({"exp": -1}, "no time in its claim 'exp'"),
        ({"exp": 10**11}, "no time in its claim 'exp'"),
        ({"iat": None}, "no time in its claim 'iat'"),
        ({"iat": NOW_S + 31}, "valid in 31 s only (iat)"),
        ({"nbf": NOW_S + 31}, "valid in 31 s only (nbf)"),
        ({"nbf": "x"}, "no time in its claim 'nbf'"),
        ({"sub": None}, "names nobody in its claim 'sub'"),
        ({"sub": " "}, "names nobody in its claim 'sub'"),
        ({"sub": 7}, "names nobody in its claim 'sub'"),
        ({"iss": "https://other"}, "is issued by 'https://other'"),
        ({"iss": None}, "is issued by None"),
        ({"aud": "other"}, "is for 'other'"),
        ({"aud": None}, "is for None"),
        ({"aud": ["other"]}, "is for ['other']"),
        ({"scope": 7}, "no text or list in its claim 'scope'"),
        ({"scope": [7]}, "no text or list in its claim 'scope'"),
    ],
)
def test_a_token_is_refused(claims: dict[str, Any], reason: str) -> None:
    failure = verify(signed(**claims), keys(public("RS256", "1")))
    assert isinstance(failure, Failure)
    assert reason in failure.private
    assert not failure.is_retriable


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 29},
        {"iat": NOW_S + 30},
        {"iat": 0},
        {"exp": 10**11 - 1},
        {"nbf": NOW_S + 30},
        {"nbf": NOW_S - 1},
        {"aud": ["other", "stele"]},
        {"scope": "a b"},
        {"scope": ["a"]},
        {"sub": " alice "},
    ],
)
def test_a_token_is_accepted(claims: dict[str, Any]) -> None:
    found = verify(signed(**claims), keys(public("RS256", "1")))
    assert isinstance(found, Success)
    assert found.principal == "User:alice"


def test_other_claims_can_be_named_and_others_need_not_match() -> None:
    rules = TokenRules(subject_claim="client", scope_claim="scp", skew_s=0)
    token = signed(client="bob", sub=None, aud=None, iss=None, scope=7)
    assert verify(token, keys(public("RS256", "1")), rules) == Success(
        "User:bob", expires_ms=(NOW_S + 600) * 1000
    )
    assert isinstance(
        verify(signed(client="bob", exp=NOW_S), keys(public("RS256", "1")), rules), Failure
    )


def test_the_token_does_not_choose_its_algorithm() -> None:
    """The public key as the secret of HS256 is the classic forgery."""
    known = keys(public("RS256", "1"))
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"1"}').rstrip(b"=").decode()
    body = base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).rstrip(b"=").decode()
    for alg in ("HS256", "none"):
        head = base64.urlsafe_b64encode(json.dumps({"alg": alg, "kid": "1"}).encode())
        for signature in ("", "AAAA"):
            token = f"{head.rstrip(b'=').decode()}.{body}.{signature}"
            assert isinstance(verify(token, known), Failure)
    assert isinstance(verify(f"{header}.{body}.AAAA", known), Failure)
    rs512 = jwt.encode(CLAIMS, private_key("RS256"), "RS512", headers={"kid": "1"})
    assert isinstance(verify(rs512, known), Success)
    assert isinstance(verify(rs512, keys(public("RS256", "1", alg="RS256"))), Failure)


def test_an_unknown_key_is_told_apart() -> None:
    known = keys(public("RS256", "1"), public("ES256", "2"))
    assert isinstance(verify(signed("ES256", "2"), known), Success)
    for kid in ("3", None):
        with pytest.raises(UnknownKeyError):
            verify(signed("RS256", kid), known)
    with pytest.raises(UnknownKeyError):  # though there is only one, which would fit
        verify(signed("RS256", "3"), keys(public("RS256", "1")))
    assert isinstance(verify(signed("ES256", "1"), known), Failure)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_any_text_is_refused(token: str) -> None:
    known = keys(public("RS256", "1"))
    try:
        assert isinstance(verify(token, known), Failure)
    except UnknownKeyError:
        pass
    assert isinstance(RULES.read_unsecured(token, NOW_S * 1000), Failure)


def test_nested_json_is_refused() -> None:
    deep = base64.urlsafe_b64encode(b"[" * 40_000).decode()
    assert isinstance(verify(f"{deep}.{deep}.AAAA", keys(public("RS256", "1"))), Failure)
    for token in (f"{deep}.{deep}.", f"e30.{deep}."):
        assert isinstance(RULES.read_unsecured(token, NOW_S * 1000), Failure)


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"keys":7}', b'{"keys":[7]}', b'{"keys":[]}', b'{"keys":[{"kty":[]}]}',
     b'{"keys":[{"kty":"oct","k":"AAAA"}]}', b'{"keys":[{"kty":"RSA"}]}', b"[" * 40_000],
)  # fmt: skip
def test_what_is_no_key_set(text: bytes) -> None:
    with pytest.raises(KeysError):
        parse_keys(text)


def test_keys_that_cannot_verify_are_left_out() -> None:
    private = json.loads(jwt.get_algorithm_by_name("RS256").to_jwk(private_key("RS256")))
    known = keys(
        private | {"kid": "private"},
        public("RS256", "encrypts", use="enc"),
        public("RS256", "mismatched", alg="ES256"),
        {"kty": "oct", "k": "AAAA", "kid": "secret"},
        public("RS256", "1", use="sig"),
    )
    assert list(known) == ["1"]


def _number(bits: int) -> str:
    return base64.urlsafe_b64encode(((1 << bits) - 1).to_bytes((bits + 7) // 8)).decode()


@pytest.mark.parametrize(
    "entry",
    [
        7, None, "RSA", [],
        {"kty": ["RSA"]},
        {"kty": "RSA", "n": 5, "e": "AQAB"},
        {"kty": "RSA", "n": _number(2048), "e": "Ag"},
        {"kty": "RSA", "n": _number(2048), "e": "AQAB", "alg": "none"},
        {"kty": "RSA", "n": _number(2048), "e": "AQAB", "alg": "HS256"},
        {"kty": "RSA", "n": _number(2048), "e": "AQAB", "alg": 5},
        {"kty": "RSA", "n": _number(1024), "e": "AQAB"},
        {"kty": "RSA", "n": _number(1 << 20), "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": {"name": "P-256"}, "x": "AAAA", "y": "AAAA"},
        {"kty": "OKP", "crv": "X25519", "x": _number(255)},
    ],
    ids=str,
)  # fmt: skip
def test_a_strange_key_does_not_keep_the_others_out(entry: Any) -> None:
    strange = {**entry, "kid": "strange"} if isinstance(entry, dict) else entry
    good = public("ES256", "1")
    assert list(keys(strange, good)) == list(keys(good, strange)) == ["1"]
    with pytest.raises(KeysError, match="no public key that can verify signatures \\("):
        keys(strange)


def test_a_short_key_is_named() -> None:
    short = {"kty": "RSA", "n": _number(1024), "e": "AQAB"}
    with pytest.raises(KeysError, match="an RSA key of 1024 bits, 2048 are the least"):
        keys(short)


@pytest.mark.parametrize("kind", ["ES256", "ES384", "EdDSA"])
def test_a_curve_has_one_algorithm(kind: str) -> None:
    assert keys(public(kind, "1"))["1"].algorithms == (kind,)


# ------------------------------------------------------------------------- unsecured tokens


def unsigned(**claims: Any) -> str:
    return jwt.encode(CLAIMS | claims, "", "none")


def test_an_unsecured_token_is_believed_where_that_is_asked() -> None:
    expected = Success("User:alice", expires_ms=(NOW_S + 600) * 1000)
    assert RULES.read_unsecured(unsigned(), NOW_S * 1000) == expected
    head, body, _ = unsigned().split(".")
    signed_head = base64.urlsafe_b64encode(b'{"alg":"RS256"}').rstrip(b"=").decode()
    assert isinstance(RULES.read_unsecured(f"{signed_head}.{body}.", NOW_S * 1000), Failure)
    assert isinstance(RULES.read_unsecured(f"{head}.W10.", NOW_S * 1000), Failure)  # a list
    for token in (signed(), unsigned(exp=NOW_S - 60), unsigned() + "AAAA", unsigned(aud="other")):
        assert isinstance(RULES.read_unsecured(token, NOW_S * 1000), Failure)


# ------------------------------------------------------------------------------ the dialogue


def test_a_valid_token_logs_in() -> None:
    server = OauthBearerDialogue()
    client = dialogues.OauthBearerDialogue("a.b.c", {"traceId": "7"})
    assert server.step(client.first()) == CheckToken("a.b.c")
    success = Success("User:alice", expires_ms=7)
    assert server.resume(success) == success
    assert client.answer(success.token) is None


def test_an_invalid_token_is_reported_and_then_fails() -> None:
    server = OauthBearerDialogue()
    client = dialogues.OauthBearerDialogue("a.b.c")
    server.step(client.first())
    challenge = server.resume(Failure("", "expired"))
    assert isinstance(challenge, Challenge)
    assert json.loads(challenge.token) == {"status": "invalid_token"}
    last = client.answer(challenge.token)
    assert last == b"\x01"
    failure = server.step(last)
    assert isinstance(failure, Failure)
    assert (failure.private, failure.is_retriable) == ("expired", False)
    assert "invalid token" in failure.public


def test_trouble_with_the_keys_is_no_refusal() -> None:
    server = OauthBearerDialogue()
    server.step(b"n,,\x01auth=Bearer a\x01\x01")
    trouble = Failure("", "no keys", is_retriable=True)
    assert server.resume(trouble) == trouble


@pytest.mark.parametrize(("authzid", "may"), [(b"", True), (b"a=alice", True), (b"a=bob", False)])
def test_the_authorization_identity_is_the_user(authzid: bytes, may: bool) -> None:
    server = OauthBearerDialogue()
    assert isinstance(server.step(b"n,%b,\x01auth=bearer  a\x01\x01" % authzid), CheckToken)
    assert isinstance(server.resume(Success("User:alice")), Success) == may


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01x=y\x01\x01",
    ],
)
def test_a_malformed_message_fails(message: bytes) -> None:
    assert isinstance(OauthBearerDialogue().step(message), Failure)


@given(st.binary())
def test_random_bytes_never_raise(message: bytes) -> None:
    assert isinstance(OauthBearerDialogue().step(message), Failure | CheckToken)
