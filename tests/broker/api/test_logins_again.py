"""Sessions of a SASL listener that end, and clients that log in again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from security.sasl.dialogue import Success
from stele.errors import ErrorCode
from stele.security import dialogues
from stele.security.scram import SCRAM_SHA_256
from stele.wire.kafka.messages import (
    create_topics,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
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
from tests.support.worlds import virtual

BOBS_PASSWORD = b"\0bob\0bob-secret"


@virtual
async def test_a_session_ends_unless_the_client_logs_in_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World({"PLAIN": 10_000})
    client, idle = world.client(), world.client()
    for each in (client, idle):
        assert (await log_in(each)).session_lifetime_ms == 10_000
    await asyncio.sleep(9)
    assert (await log_in(client)).session_lifetime_ms == 10_000
    await asyncio.sleep(9)
    assert (await client.call(metadata.API, 12, METADATA)).brokers
    idle.send(metadata.API, 12, METADATA)
    assert await is_closed(idle)
    assert "the session of User:alice has ended" in caplog.text
    assert world.metrics.expired.value == 1
    assert (world.metrics.succeeded.value, world.metrics.repeated.value) == (2, 1)


@virtual
async def test_a_request_that_waits_for_its_turn_is_not_served_after_the_session() -> None:
    world = World({"PLAIN": 10_000})
    client = world.client()
    await log_in(client)
    await asyncio.sleep(9.98)
    for name in ("first", "late"):
        wanted = create_topics.CreateTopicsRequest([create_topics.CreatableTopic(name, 1, 1)])
        client.send(create_topics.API, 7, wanted)
    answer = await client.receive(create_topics.API, 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert await is_closed(client)
    assert [each.topics[0].name for each in world.edges.controller.created] == ["first"]
    assert (client.protocol.in_flight, world.metrics.expired.value) == (0, 1)


@virtual
async def test_a_client_may_log_in_again_though_its_login_waited_for_its_turn() -> None:
    world = World({"PLAIN": 10_000})
    client = world.client()
    await log_in(client)
    await asyncio.sleep(9.98)
    wanted = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("first", 1, 1)])
    client.send(create_topics.API, 7, wanted)
    client.send(sasl_handshake.API, 1, sasl_handshake.SaslHandshakeRequest("PLAIN"))
    assert (await client.receive(create_topics.API, 7)).topics[0].error_code == ErrorCode.NONE
    shaken = await client.receive(sasl_handshake.API, 1)
    assert shaken.error_code == ErrorCode.NONE
    assert (await say(client, b"\0alice\0alice-secret")).error_code == ErrorCode.NONE
    assert (await client.call(metadata.API, 12, METADATA)).brokers


@virtual
async def test_a_client_may_log_in_again_after_its_session_has_ended() -> None:
    world = World({"PLAIN": 10_000})
    client = world.client()
    await log_in(client)
    await asyncio.sleep(20)
    assert (await log_in(client)).error_code == ErrorCode.NONE
    assert (await client.call(metadata.API, 12, METADATA)).brokers
    assert world.metrics.expired.value == 0


@virtual
async def test_requests_are_served_while_a_client_logs_in_again() -> None:
    world = World({"PLAIN": 10_000})
    client = world.client()
    await log_in(client)
    await asyncio.sleep(5)
    await shake(client, "PLAIN")
    assert (await client.call(metadata.API, 12, METADATA)).brokers
    assert (await say(client, b"\0alice\0alice-secret")).error_code == ErrorCode.NONE


@virtual
async def test_the_end_of_a_token_is_the_end_of_the_session() -> None:
    world = World({"OAUTHBEARER": 60_000})
    for expires_in_ms, lifetime_ms in ((5_000, 5_000), (600_000, 60_000), (-5_000, 1)):
        world.verified = Success(
            "User:token", expires_ms=world.edges.clock.time_ms() + 10 + expires_in_ms
        )
        client = world.client()
        await shake(client, "OAUTHBEARER")
        assert (await say(client, TOKEN)).session_lifetime_ms == lifetime_ms
    await asyncio.sleep(0.01)
    client.send(metadata.API, 12, METADATA)
    assert await is_closed(client)


@pytest.mark.parametrize(
    ("mechanism", "token", "error"),
    [
        ("PLAIN", b"\0bob\0bob-secret", ErrorCode.SASL_AUTHENTICATION_FAILED),
        ("PLAIN", b"\0alice\0guess", ErrorCode.SASL_AUTHENTICATION_FAILED),
        (SCRAM, b"", ErrorCode.SASL_AUTHENTICATION_FAILED),
    ],
)
@virtual
async def test_whoever_logs_in_again_stays_the_same(
    mechanism: str, token: bytes, error: ErrorCode
) -> None:
    world = World({"PLAIN": 10_000, SCRAM: 10_000})
    client = world.client()
    await log_in(client)
    await asyncio.sleep(5)
    answer: Any = await shake(client, mechanism)
    if mechanism == "PLAIN":
        answer = await say(client, token)
    assert answer.error_code == error
    assert await is_closed(client)
    assert client.protocol.principal == "User:alice"
    assert (world.metrics.failed.value, world.metrics.repeat_failed.value) == (0, 1)


@virtual
async def test_a_login_again_is_refused_where_sessions_have_no_end() -> None:
    client = World({}).client()
    await log_in(client)
    assert (await shake(client, "PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await client.call(metadata.API, 12, METADATA)).brokers


@virtual
async def test_a_client_logs_in_again_at_once_and_then_once_a_second() -> None:
    """A token may be near its end when the client connects: the next one comes soon."""
    client = World({"PLAIN": 500}).client()
    loop = asyncio.get_running_loop()
    took_s = []
    for pause_s in (0.0, 0.0, 0.4, 1.0):
        await asyncio.sleep(pause_s)
        began_s = loop.time()
        answer = await log_in(client)
        assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 500)
        took_s.append(loop.time() - began_s)
    assert (await client.call(metadata.API, 12, METADATA)).brokers
    assert took_s == [pytest.approx(each, abs=0.05) for each in (0, 0, 0.6, 0)]


@virtual
async def test_a_client_that_leaves_while_its_login_waits_leaves_nothing_behind() -> None:
    world = World({"PLAIN": 500})
    client = world.client()
    for _ in range(2):
        await log_in(client)
    client.send(sasl_handshake.API, 1, sasl_handshake.SaslHandshakeRequest("PLAIN"))
    await asyncio.sleep(0.1)
    client.protocol.connection_lost(None)
    await asyncio.sleep(2)
    assert (world.metrics.repeated.value, world.metrics.repeat_failed.value) == (1, 0)


@virtual
async def test_a_removed_credential_ends_the_connection_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World({"PLAIN": 10_000})
    alice, bob, other = (world.client() for _ in range(3))
    for client, user in ((alice, "alice"), (bob, "bob"), (other, "bob")):
        assert (await log_in(client, user)).error_code == ErrorCode.NONE
    world.remove_bob()
    assert await is_closed(bob)
    assert await is_closed(other)
    assert "is closed: the SCRAM-SHA-256 credential of user 'bob' was removed" in caplog.text
    assert world.metrics.revoked.value == 2
    assert (await alice.call(metadata.API, 12, METADATA)).brokers
    again = world.client()
    assert (await log_in(again, "bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@virtual
async def test_a_login_again_counts_by_its_own_credential() -> None:
    world = World({"PLAIN": 10_000})
    bob = world.client()
    for _ in range(2):
        await log_in(bob, "bob")
    assert len(world.sessions) == 1
    bob.disconnect()
    await asyncio.sleep(0.1)
    assert len(world.sessions) == 0


@virtual
async def test_a_credential_that_is_removed_during_a_login_lets_nobody_in() -> None:
    world = World()
    for _ in range(2):
        bob = world.client()
        await shake(bob, "PLAIN")
        bob.send(sasl_authenticate.API, 2, sasl_authenticate.SaslAuthenticateRequest(BOBS_PASSWORD))
        await asyncio.sleep(0.005)  # the password is being hashed
        world.remove_bob()
        answer = await bob.receive(sasl_authenticate.API, 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert bob.protocol.principal == "User:ANONYMOUS"


@virtual
async def test_a_credential_that_is_removed_between_two_tokens_lets_nobody_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    bob = world.client()
    await shake(bob, SCRAM)
    dialogue = dialogues.ScramDialogue(SCRAM_SHA_256, "bob", "bob-secret", "abc")
    challenge = await say(bob, dialogue.first())
    proof = dialogue.answer(challenge.auth_bytes)
    assert proof is not None
    world.remove_bob()
    assert (await say(bob, proof)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "was removed or changed during the login" in caplog.text
