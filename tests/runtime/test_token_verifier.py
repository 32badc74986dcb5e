"""When the keys of an issuer are fetched, and what tokens get meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from runtime.logins.tokens import RETRY_S, WAITING_MAX, TokenVerifier, UnsecuredVerifier
from runtime.real.fetching import fetch
from security.sasl.dialogue import Failure, Success
from security.sasl.tokens import TokenRules
from stele.security.answer_content import MAX_BYTES
from tests.support.timing import LoopClock
from tests.support.worlds import virtual


class Issuer:
    """Has keys, and may be out of reach."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {}
        self.fetches = 0
        self.is_down = False
        self.takes_s = 0.1
        self.clock = LoopClock()
        self.add("1")
        self.verifier = TokenVerifier(
            TokenRules(), self.fetch, self.clock, refresh_ms=3_600_000, source="https://issuer"
        )

    def add(self, kid: str) -> None:
        self.keys[kid] = ec.generate_private_key(ec.SECP256R1())

    async def fetch(self) -> bytes:
        self.fetches += 1
        await asyncio.sleep(self.takes_s)
        if self.is_down:
            raise OSError("out of reach")
        algorithm = jwt.get_algorithm_by_name("ES256")
        entries = []
        for kid, key in self.keys.items():
            entry = json.loads(algorithm.to_jwk(key.public_key()))
            entry.pop("key_ops", None)
            entries.append(entry | {"kid": kid})
        return json.dumps({"keys": entries}).encode()

    def token(self, kid: str = "1") -> str:
        now_s = self.clock.time_ms() / 1000
        claims = {"sub": "alice", "iat": now_s, "exp": now_s + 60}
        key = self.keys.get(kid) or ec.generate_private_key(ec.SECP256R1())
        return jwt.encode(claims, key, "ES256", headers={"kid": kid})

    async def verify(self, kid: str = "1") -> Success | Failure:
        return await self.verifier.verify(self.token(kid))


@virtual
async def test_an_issuer_is_asked_again_after_ten_seconds_also_for_old_keys() -> None:
    issuer = Issuer()
    issuer.takes_s = 0.0
    assert isinstance(await issuer.verify(), Success)
    assert isinstance(await issuer.verify("invented"), Failure)
    assert issuer.fetches == 1
    await asyncio.sleep(RETRY_S)
    assert isinstance(await issuer.verify("invented"), Failure)
    assert issuer.fetches == 2

    await asyncio.sleep(3600)
    issuer.is_down = True
    for _ in range(3):
        assert isinstance(await issuer.verify(), Success)
        await asyncio.sleep(1)
    assert issuer.fetches == 3


@virtual
async def test_an_error_without_words_is_named() -> None:
    async def fetch() -> bytes:
        raise OSError

    verifier = TokenVerifier(TokenRules(), fetch, LoopClock(), refresh_ms=1000, source="https://i")
    failed = await verifier.verify("a.b.c")
    assert failed == Failure("", "no keys from https://i: OSError", is_retriable=True)


@virtual
async def test_few_tokens_wait_for_keys_at_a_time() -> None:
    """Invented key ids hold no more places than these, and a known key needs none."""
    issuer = Issuer()
    waiting = [asyncio.ensure_future(issuer.verify()) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    beyond = await issuer.verify()
    assert beyond == Failure("", "16 tokens wait for keys", is_retriable=True)
    assert all(isinstance(each, Success) for each in await asyncio.gather(*waiting))

    await asyncio.sleep(RETRY_S)
    assert isinstance(await issuer.verify(), Success)
    await asyncio.sleep(0.2)
    assert issuer.fetches == 1  # the keys are an hour old at most
    began_s = asyncio.get_running_loop().time()
    waiting = [asyncio.ensure_future(issuer.verify("invented")) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    beyond = await issuer.verify("invented")
    assert isinstance(beyond, Failure)
    assert beyond.is_retriable
    assert isinstance(await issuer.verify(), Success)
    assert asyncio.get_running_loop().time() == began_s
    for failed in await asyncio.gather(*waiting):
        assert isinstance(failed, Failure)
        assert not failed.is_retriable
    assert issuer.fetches == 2


@virtual
async def test_keys_are_fetched_once_for_many_tokens() -> None:
    issuer = Issuer()
    found = await asyncio.gather(*(issuer.verify() for _ in range(10)))
    assert all(isinstance(each, Success) for each in found)
    assert isinstance(await issuer.verify(), Success)
    assert issuer.fetches == 1


@virtual
async def test_a_new_key_is_fetched_when_a_token_has_it() -> None:
    issuer = Issuer()
    await issuer.verify()
    await asyncio.sleep(RETRY_S)
    issuer.add("2")
    found = await asyncio.gather(*(issuer.verify("2") for _ in range(10)))
    assert all(isinstance(each, Success) for each in found)
    assert issuer.fetches == 2


@virtual
async def test_invented_keys_fetch_once_in_a_while() -> None:
    issuer = Issuer()
    await issuer.verify()
    for number in range(100):
        found = await issuer.verify(f"invented-{number}")
        assert isinstance(found, Failure)
        assert not found.is_retriable
        await asyncio.sleep(0.5)
    assert issuer.fetches <= 2 + 50 / RETRY_S
    assert isinstance(await issuer.verify(), Success)


@virtual
async def test_a_login_may_be_tried_again_while_there_are_no_keys() -> None:
    issuer = Issuer()
    issuer.is_down = True
    for _ in range(5):
        found = await issuer.verify()
        assert isinstance(found, Failure)
        assert found.is_retriable
        assert "https://issuer: out of reach" in found.private
    assert issuer.fetches == 1
    issuer.is_down = False
    await asyncio.sleep(RETRY_S)
    assert isinstance(await issuer.verify(), Success)


@virtual
async def test_old_keys_serve_while_the_issuer_is_out_of_reach() -> None:
    issuer = Issuer()
    await issuer.verify()
    issuer.is_down = True
    await asyncio.sleep(3600)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert isinstance(await issuer.verify(), Success)
    assert loop.time() == began_s  # nobody waits for the refresh
    await asyncio.sleep(1)
    assert isinstance(await issuer.verify(), Success)
    assert issuer.fetches == 2


@virtual
async def test_a_key_that_the_issuer_has_withdrawn_is_forgotten() -> None:
    issuer = Issuer()
    token = issuer.token()
    assert isinstance(await issuer.verifier.verify(token), Success)
    del issuer.keys["1"]
    issuer.add("2")
    await asyncio.sleep(RETRY_S)
    assert isinstance(await issuer.verify("2"), Success)
    assert isinstance(await issuer.verifier.verify(token), Failure)


@virtual
async def test_what_is_no_key_set_is_a_failure_that_may_be_tried_again() -> None:
    async def garbage() -> bytes:
        return b"<html>"

    verifier = TokenVerifier(
        TokenRules(), garbage, LoopClock(), refresh_ms=1, source="https://issuer"
    )
    found = await verifier.verify("a.b.c")
    assert isinstance(found, Failure)
    assert found.is_retriable
    assert "no JSON Web Key Set" in found.private


@virtual
async def test_an_unsecured_token() -> None:
    clock = LoopClock()
    now_s = clock.time_ms() / 1000
    token = jwt.encode({"sub": "a", "iat": now_s, "exp": now_s + 9}, "", "none")
    found = await UnsecuredVerifier(TokenRules(), clock).verify(token)
    assert isinstance(found, Success)
    assert found.principal == "User:a"


async def test_a_file_is_fetched(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    file.write_bytes(b"{}")
    assert await fetch(file.as_uri(), 5) == b"{}"
    file.write_bytes(bytes(MAX_BYTES + 1))
    for url, reason in (
        (file.as_uri(), "has more than"),
        ((tmp_path / "absent").as_uri(), "No such file"),
        ("http://127.0.0.1:1/", "only https and file"),
        ("https://127.0.0.1:1/", "refused"),
        ("nonsense", "only https and file"),
    ):
        with pytest.raises(OSError, match=reason):
            await fetch(url, 5)


async def test_what_comes_byte_by_byte_is_given_up(tmp_path: Path) -> None:
    pipe = tmp_path / "slow"
    os.mkfifo(pipe)
    is_left = threading.Event()

    def dribble() -> None:
        with open(pipe, "wb", buffering=0) as slow:
            try:
                while True:
                    slow.write(b" ")
                    is_left.wait(0.02)
            except BrokenPipeError:
                is_left.set()

    writer = threading.Thread(target=dribble)
    writer.start()
    with pytest.raises(OSError, match=r"did not come whole within|nothing whole came within"):
        await fetch(pipe.as_uri(), 0.1)
    assert is_left.wait(10), "the thread that reads has ended, too"
    writer.join()
