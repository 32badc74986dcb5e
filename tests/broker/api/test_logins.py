"""The gate of a SASL listener: what is served before a login, and how a login ends."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.api.logins import NewestCredentials
from metadata.image import EMPTY
from metadata.scram_credentials import ScramUser, credential_record
from runtime.kafka.authentication import (
    DEADLINE_S,
    MAX_REQUESTS,
    Gate,
)
from security.sasl.dialogue import Dialogue, Failure, Step
from security.sasl.plain import PlainDialogue
from stele.errors import ErrorCode
from stele.security import dialogues
from stele.security.scram import SCRAM_SHA_256, ScramCredential
from stele.wire.kafka import SIZE_BYTES
from stele.wire.kafka.messages import (
    api_versions,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from tests.support.broker_apis import Edges
from tests.support.logins import (
    METADATA,
    SCRAM,
    TOKEN,
    World,
    is_closed,
    log_in,
    say,
    shake,
)
from tests.support.scram import SALT
from tests.support.worlds import virtual
from world.network import Identity


@virtual
async def test_a_client_logs_in_and_works() -> None:
    world = World()
    client = world.client()
    versions = await client.call(api_versions.API, 3, api_versions.ApiVersionsRequest("a", "1"))
    told = {each.api_key: (each.min_version, each.max_version) for each in versions.api_keys}
    assert (told[17], told[36]) == ((0, 1), (0, 2))
    assert client.protocol.principal == "User:ANONYMOUS"
    answer = await log_in(client)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 0)
    assert client.protocol.principal == "User:alice"
    assert (await client.call(metadata.API, 12, METADATA)).brokers
    assert world.metrics.succeeded.value == 1
    await asyncio.sleep(2 * DEADLINE_S)
    assert not client.transport.closed


@virtual
async def test_requests_carry_the_principal_of_the_login() -> None:
    world = World()
    client = world.client()
    await client.call(api_versions.API, 3, api_versions.ApiVersionsRequest("a", "1"))
    await log_in(client)
    await client.call(metadata.API, 12, metadata.MetadataRequest([], False))
    await client.call(api_versions.API, 3, api_versions.ApiVersionsRequest("a", "1"))
    world.edges.authorizer.callers.clear()
    await client.call(
        metadata.API, 12, metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    )
    assert {each.principal for each in world.edges.authorizer.callers} == {"User:alice"}


@virtual
async def test_a_certificate_gives_no_principal_and_binds_to_a_node() -> None:
    world = World()
    client = world.client()
    client.protocol.tls_established(Identity("User:CN=node-2", frozenset([2])))
    assert client.protocol.principal == "User:ANONYMOUS"
    await log_in(client)
    named = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    await client.call(metadata.API, 12, named)
    callers = {(each.principal, each.node_ids) for each in world.edges.authorizer.callers}
    assert callers == {("User:alice", frozenset([2]))}


@pytest.mark.parametrize("version", [0, 1, 2])
@virtual
async def test_scram_over_every_version(version: int) -> None:
    world = World()
    client = world.client()
    dialogue = dialogues.ScramDialogue(SCRAM_SHA_256, "bob", "bob-secret", "abc")
    assert (await shake(client, SCRAM)).mechanisms == ["PLAIN", SCRAM, "OAUTHBEARER"]
    challenge = await say(client, dialogue.first(), version)
    proof = dialogue.answer(challenge.auth_bytes)
    assert proof is not None
    last = await say(client, proof, version)
    assert (last.error_code, last.error_message) == (ErrorCode.NONE, None)
    assert dialogue.answer(last.auth_bytes) is None
    assert client.protocol.principal == "User:bob"


@virtual
async def test_tokens_without_a_header_after_version_0_of_the_handshake() -> None:
    world = World()
    client = world.client()
    dialogue = dialogues.ScramDialogue(SCRAM_SHA_256, "bob", "bob-secret", "abc")
    await shake(client, SCRAM, 0)

    async def say_raw(token: bytes) -> bytes:
        client.send_bytes(len(token).to_bytes(SIZE_BYTES) + token)
        answer = await client.transport.written.get()
        assert int.from_bytes(answer[:SIZE_BYTES]) == len(answer) - SIZE_BYTES
        return answer[SIZE_BYTES:]

    proof = dialogue.answer(await say_raw(dialogue.first()))
    assert proof is not None
    assert dialogue.answer(await say_raw(proof)) is None
    assert (await client.call(metadata.API, 12, METADATA)).brokers


@virtual
async def test_a_wrong_token_without_a_header_ends_the_connection() -> None:
    client = World().client()
    await shake(client, "PLAIN", 0)
    client.send_bytes((13).to_bytes(SIZE_BYTES) + b"\0alice\0guessx")
    assert await is_closed(client)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0guess", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0guess", "Authentication failed: Invalid username or password"),
        (b"nonsense", "Authentication failed: Invalid username or password"),
    ],
)
@virtual
async def test_a_failure_is_answered_late_and_then_closes(token: bytes, message: str) -> None:
    world = World()
    client, other = world.client(), world.client()
    await shake(client, "PLAIN")
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    client.send(sasl_authenticate.API, 2, sasl_authenticate.SaslAuthenticateRequest(token))
    assert (await log_in(other)).error_code == ErrorCode.NONE
    assert loop.time() - began_s < 0.1
    answer = await client.receive(sasl_authenticate.API, 2)
    assert (answer.error_code, answer.error_message) == (58, message)
    assert loop.time() - began_s >= 0.1
    assert await is_closed(client)
    assert client.protocol.principal == "User:ANONYMOUS"
    assert world.metrics.failed.value == 1


@virtual
async def test_the_time_of_a_failure_does_not_tell_who_exists() -> None:
    """A password in the configuration is compared at once. Any other one is hashed, slowly."""
    world = World()
    took_s = []
    for user in ("alice", "bob", "nobody"):
        client = world.client()
        await shake(client, "PLAIN")
        began_s = asyncio.get_running_loop().time()
        assert (await say(client, f"\0{user}\0guess".encode())).error_code == 58
        took_s.append(asyncio.get_running_loop().time() - began_s)
    assert world.compute.calls == 2
    assert took_s == pytest.approx([0.1] * 3, abs=0.001)


@virtual
async def test_the_answer_to_a_disabled_mechanism_names_the_enabled_ones() -> None:
    world = World()
    client = world.client()
    answer = await shake(client, "GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN", SCRAM, "OAUTHBEARER"]
    assert await is_closed(client)


@virtual
async def test_a_token_before_the_handshake_and_a_handshake_within_a_login() -> None:
    world = World()
    client = world.client()
    answer = await say(client, b"\0alice\0alice-secret")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_closed(client)
    client = world.client()
    await shake(client, "PLAIN")
    assert (await shake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert await is_closed(client)


@virtual
async def test_a_listener_without_sasl_has_no_logins() -> None:
    client = World().edges.client()
    assert (await shake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    answer = await say(client, b"")
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert "has no SASL" in (answer.error_message or "")
    assert (await client.call(metadata.API, 12, METADATA)).brokers


@virtual
async def test_other_requests_before_the_login_close_the_connection() -> None:
    client = World().client()
    client.send(metadata.API, 12, METADATA)
    assert await is_closed(client)
    client = World().client()
    await shake(client, "PLAIN")
    client.send(sasl_authenticate.API, 2, sasl_authenticate.SaslAuthenticateRequest(b"\0alice\0x"))
    client.send(metadata.API, 12, METADATA)  # pipelined behind a login that may succeed
    await client.receive(sasl_authenticate.API, 2)
    assert await is_closed(client)


@virtual
async def test_frames_before_the_login_are_small() -> None:
    world = World()
    client = world.client()
    client.send_bytes((Gate.MAX_FRAME_BYTES + 1).to_bytes(SIZE_BYTES))
    assert await is_closed(client)
    client = world.client()
    await log_in(client)
    client.send_bytes((Gate.MAX_FRAME_BYTES + 1).to_bytes(SIZE_BYTES))
    assert not await is_closed(client)


@virtual
async def test_requests_before_the_login_are_few() -> None:
    client = World().client()
    request = api_versions.ApiVersionsRequest("a", "1")
    for _ in range(MAX_REQUESTS):
        await client.call(api_versions.API, 3, request)
    client.send(api_versions.API, 3, request)
    assert await is_closed(client)


@virtual
async def test_a_login_has_a_deadline() -> None:
    world = World()
    client = world.client()
    await asyncio.sleep(DEADLINE_S - 1)
    assert (await shake(client, "PLAIN")).error_code == ErrorCode.NONE  # still open
    await asyncio.sleep(1)
    assert client.transport.closed
    assert world.metrics.failed.value == 1


@virtual
async def test_a_lost_connection_leaves_nothing_behind() -> None:
    world = World()
    client = world.client()
    await shake(client, "OAUTHBEARER")
    client.send(sasl_authenticate.API, 2, sasl_authenticate.SaslAuthenticateRequest(TOKEN))
    await asyncio.sleep(0.005)
    client.disconnect()
    await asyncio.sleep(2 * DEADLINE_S)
    assert client.protocol.principal == "User:ANONYMOUS"
    assert (world.metrics.succeeded.value, world.metrics.failed.value) == (0, 0)


# --------------------------------------------------------------------------- slow work


@virtual
async def test_plain_checks_a_scram_credential_off_the_event_loop() -> None:
    world = World()
    assert (await log_in(world.client(), "bob")).error_code == ErrorCode.NONE
    assert world.compute.calls == 1


@virtual
async def test_a_failure_of_the_work_is_not_told_as_a_failed_login() -> None:
    world = World()
    world.compute.fails = True
    client = world.client()
    await shake(client, "PLAIN")
    client.send(
        sasl_authenticate.API, 2, sasl_authenticate.SaslAuthenticateRequest(b"\0bob\0bob-secret")
    )
    assert await is_closed(client)
    world.verified = Failure("", "the keys cannot be fetched", is_retriable=True)
    client = world.client()
    await shake(client, "OAUTHBEARER")
    client.send(sasl_authenticate.API, 2, sasl_authenticate.SaslAuthenticateRequest(TOKEN))
    assert await is_closed(client)


@virtual
async def test_a_dialogue_that_fails_itself_ends_the_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Dialogue, token: bytes) -> Step:
        raise RuntimeError("a bug")

    monkeypatch.setattr(PlainDialogue, "step", broken)
    client = World().client()
    await shake(client, "PLAIN")
    client.send(sasl_authenticate.API, 2, sasl_authenticate.SaslAuthenticateRequest(b""))
    assert await is_closed(client)
    assert "a dialogue of SASL failed" in caplog.text


@virtual
async def test_the_log_has_the_true_cause_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    world = World()
    for user in ("alice", "nobody", "alice"):
        client = world.client()
        await shake(client, "PLAIN")
        await say(client, f"\0{user}\0guess".encode())
    await asyncio.sleep(1)
    client = world.client()
    await shake(client, "PLAIN")
    await say(client, b"\0nobody\0guess")
    said = [each.getMessage() for each in caplog.records if "failed to log in" in each.message]
    who = "10.0.0.9:5555 on EXTERNAL failed to log in by PLAIN"
    assert said == [
        f"{who}: wrong password of user 'alice'",
        f"{who}: unknown user 'nobody' (2 more since the last such line)",
    ]
    assert "guess" not in caplog.text


@virtual
async def test_a_stranger_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    client = World().client()
    await shake(client, "PLAIN")
    await say(client, b"\0" + b"n" * 60_000 + b"\0guess")
    (said,) = [each for each in caplog.messages if "unknown user 'nnn" in each]
    assert len(said) < 1_000


@virtual
async def test_a_client_reads_why_its_token_is_refused() -> None:
    world = World()
    world.verified = Failure("", "wrong audience")
    client = world.client()
    await shake(client, "OAUTHBEARER")
    told = await say(client, TOKEN)
    assert (told.error_code, told.auth_bytes) == (ErrorCode.NONE, b'{"status":"invalid_token"}')
    answer = await say(client, b"\x01")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "invalid token" in (answer.error_message or "")
    assert await is_closed(client)


# --------------------------------------------------------------------- the wiring


@virtual
async def test_a_credential_is_found_in_the_newest_metadata() -> None:
    edges = Edges()
    store = NewestCredentials(edges.publisher)
    assert store.is_loaded
    assert store.find(SCRAM_SHA_256, "bob") is None
    credential = ScramCredential.of_password(SCRAM_SHA_256, "bob-secret", SALT, 4096)
    edges.commit(credential_record(ScramUser("bob", 1), credential))
    assert store.find(SCRAM_SHA_256, "bob") == credential
    assert len(store.stand_in(SCRAM_SHA_256, "nobody").salt) == 20


def test_a_broker_knows_no_credentials_before_it_has_metadata() -> None:
    metadata = SimpleNamespace(image=EMPTY)
    store = NewestCredentials(metadata)
    assert not store.is_loaded
    metadata.image = replace(EMPTY, offset=0)
    assert store.is_loaded


# ------------------------------------------------------------------- any order of requests

RIGHT, WRONG = b"\0alice\0alice-secret", b"\0alice\0guess"
STEPS = st.one_of(
    st.tuples(st.just("shake"), st.sampled_from(["PLAIN", "NONE"]), st.sampled_from([0, 1])),
    st.tuples(st.just("say"), st.sampled_from([RIGHT, WRONG, b""]) | st.binary(max_size=20)),
    st.tuples(st.just("raw"), st.sampled_from([RIGHT, WRONG]) | st.binary(max_size=20)),
    st.tuples(st.just("versions")),
    st.tuples(st.just("metadata")),
)


class Twin:
    """What a client of PLAIN has proven, word for word."""

    def __init__(self) -> None:
        self.expects = "shake"
        self.is_in = False

    def takes(self, step: tuple[Any, ...]) -> None:
        kind = step[0]
        if self.expects == "raw":
            self._token(step[1] if kind == "raw" else None)
        elif kind == "shake" and self.expects == "shake" and step[1] == "PLAIN":
            self.expects = "say" if step[2] else "raw"
        elif kind == "say" and self.expects == "say":
            self._token(step[1])
        elif kind == "versions" or (self.is_in and kind != "raw"):
            pass
        else:
            self.expects = "nothing"

    def _token(self, token: bytes | None) -> None:
        self.is_in = token == RIGHT
        self.expects = "done" if self.is_in else "nothing"


@example([("versions",), ("shake", "PLAIN", 1), ("say", RIGHT), ("metadata",), ("versions",)])
@example([("shake", "PLAIN", 0), ("raw", RIGHT), ("metadata",), ("say", RIGHT)])
@example([("shake", "PLAIN", 0), ("say", RIGHT), ("metadata",)])
@example([("shake", "PLAIN", 1), ("raw", RIGHT), ("say", RIGHT)])
@example([("say", RIGHT), ("metadata",)])
@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=8))
def test_whoever_sends_whatever_is_let_in_by_the_password_alone(steps: list[Any]) -> None:
    async def scenario() -> None:
        client, twin = World().client(), Twin()
        for step in steps:
            if client.transport.closed:
                break
            match step:
                case ("shake", mechanism, version):
                    handshake = sasl_handshake.SaslHandshakeRequest(mechanism)
                    client.send(sasl_handshake.API, version, handshake)
                case ("say", token):
                    said = sasl_authenticate.SaslAuthenticateRequest(token)
                    client.send(sasl_authenticate.API, 2, said)
                case ("raw", token):
                    client.send_bytes(len(token).to_bytes(SIZE_BYTES) + token)
                case ("versions",):
                    request = api_versions.ApiVersionsRequest("a", "1")
                    client.send(api_versions.API, 3, request)
                case _:
                    client.send(metadata.API, 12, METADATA)
            twin.takes(step)
            await asyncio.sleep(0.5)
            assert (client.protocol.principal == "User:alice") == twin.is_in
            if twin.expects == "nothing":
                assert client.transport.closed

    virtual.run(scenario)
