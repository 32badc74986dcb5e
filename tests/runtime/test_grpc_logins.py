"""Logins on a gRPC listener with SASL, in virtual time."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import Callable
from typing import Any

import pytest

from runtime.logins.grpc import (
    LOG_IN,
    MAX_REQUEST_CHARACTERS,
    SESSION_MS,
    TOKENS_MAX,
    GrpcLogins,
)
from runtime.logins.listener import AuthenticationMetrics, Begin, ListenerLogins
from runtime.logins.pending import DEADLINE_S, MAX_DIALOGUES
from runtime.logins.sessions import OpenSessions
from runtime.metrics.registry import MetricsRegistry
from security.sasl.dialogue import Dialogue, Failure, Success
from security.sasl.plain import PlainDialogue
from security.sasl.scram import ScramDialogue
from stele.errors import ErrorCode
from stele.grpc_login import LoggedInChannel
from stele.security import dialogues
from stele.security.client_security import SaslCredentials
from stele.security.scram import SCRAM_SHA_256, ScramCredential, ScramMechanism
from stele.wire.v1.login_pb2 import LogInRequest, LogInResponse
from stele.world import RpcCode, RpcError, Stream
from tests.support.logins import look_at
from tests.support.scram import SALT
from tests.support.timing import LoopClock
from tests.support.worlds import virtual
from world.network import Peer, Service

METHOD = "/stele.v1.Admin/DescribeCluster"
STREAM = "/stele.v1.Log/Subscribe"


class Credentials:
    def __init__(self) -> None:
        self.is_loaded = True
        self.has_bob = True

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        if not self.is_loaded or not self.has_bob or (mechanism, user) != (SCRAM_SHA_256, "bob"):
            return None
        return ScramCredential.of_password(mechanism, "bob-secret", SALT, 4096)

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        return ScramCredential(SALT, bytes(32), bytes(32), 4096)


class Computing:
    """Computes slowly."""

    def __init__(self) -> None:
        self.takes_s = 0.0
        self.calls = 0

    async def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(self.takes_s)
        return work(*arguments)


class Idle:
    """A stream on which nothing comes."""

    async def send(self, message: bytes) -> None: ...

    async def receive(self) -> bytes | None:
        await asyncio.sleep(1e6)
        return None

    async def close(self) -> None: ...


class Server:
    """A gRPC listener, and a channel to it."""

    def __init__(self, session_ms: int = 0, *, verifies: bool = True) -> None:
        self.clock = LoopClock()
        self.metrics = AuthenticationMetrics(MetricsRegistry())
        self.verified: Success | Failure = Success("User:token")
        self.verifications = 0
        self.compute = Computing()
        self.credentials = Credentials()
        self.sessions = OpenSessions(self.credentials)
        begin: dict[str, Begin] = {
            "PLAIN": lambda nonce: PlainDialogue({"alice": "alice-secret"}, self.credentials),
            "SCRAM-SHA-256": lambda nonce: ScramDialogue(SCRAM_SHA_256, self.credentials, nonce),
        }
        self.rng = random.Random(1)
        self.logins = ListenerLogins(
            begin,
            clock=self.clock,
            rng=self.rng,
            compute=self.compute,
            metrics=self.metrics,
            sessions=self.sessions,
            failure_delay_ms=100,
            session_ms=dict.fromkeys([*begin, "OAUTHBEARER"], session_ms),
            verify_token=self._verify if verifies else None,
        )
        self.callers: list[str] = []
        self.last_authorization: str | None = None
        self.service: Service
        self.restart()

    def restart(self) -> None:
        served = Service(unary={METHOD: self._unary}, streams={STREAM: self._stream})
        logins = GrpcLogins("CLIENTS", self.logins, self.clock, self.rng)
        self.service = logins.protect(served)

    async def _verify(self, token: str) -> Success | Failure:
        self.verifications += 1
        await asyncio.sleep(self.compute.takes_s)
        return self.verified

    async def _unary(self, payload: bytes, peer: Peer) -> bytes:
        self.callers.append(peer.principal)
        return b"answer"

    async def _stream(self, stream: Stream, peer: Peer) -> None:
        self.callers.append(peer.principal)
        await stream.receive()

    # -------------------------------------------------------- as an OpenChannel

    async def call(
        self, method: str, request: bytes, *, timeout_s: float, authorization: str | None = None
    ) -> bytes:
        self.last_authorization = authorization
        peer = Peer("10.0.0.9", authorization=authorization)
        return await self.service.call(method, request, peer)

    def stream(self, method: str, authorization: str | None = None) -> Stream:
        raise NotImplementedError

    async def close(self) -> None: ...

    async def log_in(self, **request: Any) -> LogInResponse:
        return await self.step(LogInRequest(**request).SerializeToString())

    async def step(self, payload: bytes) -> LogInResponse:
        authorization = f"SASL {base64.b64encode(payload).decode()}"
        return LogInResponse.FromString(
            await self.call(LOG_IN, b"", timeout_s=1, authorization=authorization)
        )

    async def refusal(self, authorization: str | None) -> RpcError:
        with pytest.raises(RpcError) as caught:
            await self.call(METHOD, b"", timeout_s=1, authorization=authorization)
        return caught.value


def channel(server: Server, user: str = "bob", mechanism: str = "SCRAM-SHA-256") -> LoggedInChannel:
    credentials = SaslCredentials(mechanism=mechanism, username=user, password=f"{user}-secret")
    return LoggedInChannel(server, credentials, server.rng)


PLAIN_TOKEN = b"\0alice\0alice-secret"


@pytest.mark.parametrize(("user", "mechanism"), [("bob", "SCRAM-SHA-256"), ("alice", "PLAIN")])
@virtual
async def test_a_client_logs_in_once_for_all_its_calls(user: str, mechanism: str) -> None:
    server = Server()
    own = channel(server, user, mechanism)
    answers = await asyncio.gather(*(own.call(METHOD, b"", timeout_s=1) for _ in range(3)))
    assert answers == [b"answer"] * 3
    assert server.callers == [f"User:{user}"] * 3
    assert server.metrics.succeeded.value == 1


@virtual
async def test_a_client_logs_in_again_before_its_session_ends_and_after_a_restart() -> None:
    server = Server(10_000)
    own = channel(server)
    for _ in range(20):
        assert await own.call(METHOD, b"", timeout_s=1) == b"answer"
        await asyncio.sleep(1)
    assert server.metrics.succeeded.value in (2, 3)
    server.restart()
    assert await own.call(METHOD, b"", timeout_s=1) == b"answer"
    assert server.metrics.expired.value == 0


@virtual
async def test_a_refused_login_is_answered_late_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    own = LoggedInChannel(
        server,
        SaslCredentials(mechanism="SCRAM-SHA-256", username="bob", password="guess"),
        server.rng,
    )
    with pytest.raises(RpcError, match="the login of user 'bob' by SCRAM-SHA-256 failed") as caught:
        await own.call(METHOD, b"", timeout_s=1)
    assert caught.value.code is RpcCode.UNAUTHENTICATED
    assert loop.time() - began_s >= 0.1
    assert "10.0.0.9 on CLIENTS failed to log in by SCRAM-SHA-256: wrong password" in caplog.text
    assert "guess" not in caplog.text
    assert (server.metrics.failed.value, server.callers) == (1, [])


@virtual
async def test_the_time_of_a_failure_does_not_tell_how_long_its_check_took() -> None:
    """Some users take a hash, and some tokens a signature."""
    server = Server()
    server.verified = Failure("", "its signature is wrong")
    loop = asyncio.get_running_loop()
    took_s = []
    for server.compute.takes_s in (0, 0.03):
        for user in ("alice", "nobody"):
            began_s = loop.time()
            answer = await server.log_in(mechanism="PLAIN", token=f"\0{user}\0guess".encode())
            assert answer.error == ErrorCode.SASL_AUTHENTICATION_FAILED
            took_s.append(loop.time() - began_s)
        began_s = loop.time()
        await server.refusal("Bearer token")
        took_s.append(loop.time() - began_s)
    assert (server.compute.calls, server.verifications) == (2, 2)
    assert took_s == pytest.approx([0.1] * 6, abs=0.001)


@virtual
async def test_a_node_that_does_not_know_the_credentials_yet_asks_to_try_again() -> None:
    server = Server()
    own = channel(server)
    server.credentials.is_loaded = False
    with pytest.raises(RpcError) as caught:
        await own.call(METHOD, b"", timeout_s=1)
    assert caught.value.code is RpcCode.UNAVAILABLE
    server.credentials.is_loaded = True
    assert await own.call(METHOD, b"", timeout_s=1) == b"answer"


@pytest.mark.parametrize(
    "authorization",
    [None, "Session", "Session x.y.z", "Session 9999999999999.VXNlcjphbGljZQ==.", "Basic YTpi"],
)
@virtual
async def test_a_call_without_a_login_is_refused(authorization: str | None) -> None:
    server = Server()
    assert (await server.refusal(authorization)).code is RpcCode.UNAUTHENTICATED
    assert server.callers == []


@virtual
async def test_a_session_cannot_be_changed() -> None:
    server = Server()
    answer = await server.log_in(mechanism="PLAIN", token=PLAIN_TOKEN)
    assert answer.session_lifetime_ms == SESSION_MS
    ends_ms, principal, by_token, signature = answer.session.split(".")
    root = base64.urlsafe_b64encode(b"User:root").decode()
    for changed in (
        f"{int(ends_ms) + 1}.{principal}.{by_token}.{signature}",
        f"{ends_ms}.{root}.{by_token}.{signature}",
        f"{ends_ms}.{principal}.1.{signature}",
        f"{ends_ms}.{principal}.{by_token}.{signature[:-1]}",
        f"{ends_ms}.{principal}",
    ):
        assert (await server.refusal(f"Session {changed}")).code is RpcCode.UNAUTHENTICATED
    assert await server.call(METHOD, b"", timeout_s=1, authorization=f"session {answer.session}")


@virtual
async def test_a_session_ends() -> None:
    server = Server(10_000)
    answer = await server.log_in(mechanism="PLAIN", token=PLAIN_TOKEN)
    authorization = f"Session {answer.session}"
    await asyncio.sleep(9.9)
    await server.call(METHOD, b"", timeout_s=1, authorization=authorization)
    peer = Peer("10.0.0.9", authorization=authorization)
    with pytest.raises(RpcError, match="the session has ended") as caught:
        await server.service.converse(STREAM, Idle(), peer)
    assert caught.value.code is RpcCode.UNAUTHENTICATED
    assert "has ended" in (await server.refusal(authorization)).detail
    assert server.metrics.expired.value == 1


@virtual
async def test_a_token_is_a_login() -> None:
    server = Server()
    server.verified = Success("User:token", expires_ms=server.clock.time_ms() + 5_000)
    for _ in range(3):
        await server.call(METHOD, b"", timeout_s=1, authorization="Bearer abc")
    assert (server.callers, server.verifications) == (["User:token"] * 3, 1)
    await asyncio.sleep(5)
    assert "has ended" in (await server.refusal("Bearer abc")).detail
    server.verified = Failure("", "wrong audience")
    assert (await server.refusal("Bearer abc")).code is RpcCode.UNAUTHENTICATED
    server.verified = Failure("", "no keys", is_retriable=True)
    assert (await server.refusal("Bearer abc")).code is RpcCode.UNAVAILABLE
    assert (await Server(verifies=False).refusal("Bearer abc")).code is RpcCode.UNAUTHENTICATED


@virtual
async def test_an_unknown_mechanism_and_an_unknown_dialogue() -> None:
    server = Server()
    answer = await server.log_in(mechanism="GSSAPI")
    assert answer.error == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256"]
    answer = await server.log_in(dialogue_id=b"x", token=b"c=biws")
    assert answer.error == ErrorCode.ILLEGAL_SASL_STATE


@virtual
async def test_a_dialogue_is_continued_once_and_in_time() -> None:
    server = Server()
    dialogue = dialogues.ScramDialogue(SCRAM_SHA_256, "bob", "bob-secret", "abc")
    first = await server.log_in(mechanism="SCRAM-SHA-256", token=dialogue.first())
    proof = dialogue.answer(first.token)
    assert (await server.log_in(dialogue_id=first.dialogue_id, token=proof)).session
    again = await server.log_in(dialogue_id=first.dialogue_id, token=proof)
    assert again.error == ErrorCode.ILLEGAL_SASL_STATE
    late = await server.log_in(mechanism="SCRAM-SHA-256", token=dialogue.first())
    await asyncio.sleep(DEADLINE_S)
    answer = await server.log_in(dialogue_id=late.dialogue_id, token=proof)
    assert answer.error == ErrorCode.ILLEGAL_SASL_STATE


@virtual
async def test_dialogues_and_requests_are_bounded() -> None:
    server = Server()
    dialogue = dialogues.ScramDialogue(SCRAM_SHA_256, "bob", "bob-secret", "abc")
    first = await server.log_in(mechanism="SCRAM-SHA-256", token=dialogue.first())
    for _ in range(MAX_DIALOGUES):
        last = await server.log_in(mechanism="SCRAM-SHA-256", token=b"n,,n=bob,r=abc")
    answer = await server.log_in(dialogue_id=first.dialogue_id, token=b"")
    assert answer.error == ErrorCode.ILLEGAL_SASL_STATE
    assert (await server.log_in(dialogue_id=last.dialogue_id)).error == (
        ErrorCode.SASL_AUTHENTICATION_FAILED
    )


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "SASL /w==",  # no message
        "SASL Zg",  # not padded
        "SASL ?",
        "Session x.y.z",
    ],
)
@virtual
async def test_a_step_of_a_login_is_in_the_metadata(authorization: str | None) -> None:
    server = Server()
    payload = LogInRequest(mechanism="PLAIN", token=PLAIN_TOKEN).SerializeToString()
    with pytest.raises(RpcError) as caught:
        await server.call(LOG_IN, payload, timeout_s=1, authorization=authorization)
    assert caught.value.code is RpcCode.INVALID_ARGUMENT
    assert server.metrics.succeeded.value == 0


@virtual
async def test_a_step_of_a_login_has_a_largest_size() -> None:
    server = Server()

    def padded(size: int) -> LogInRequest:
        """Whose base64 has this length."""
        request = LogInRequest(mechanism="PLAIN")
        request.token = bytes(size // 4 * 3 - request.ByteSize() - 4)
        assert len(base64.b64encode(request.SerializeToString())) == size
        return request

    answer = await server.step(padded(MAX_REQUEST_CHARACTERS).SerializeToString())
    assert answer.error == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(RpcError, match="a login of 65540 characters"):
        await server.step(padded(MAX_REQUEST_CHARACTERS + 4).SerializeToString())


@virtual
async def test_a_failure_says_what_everybody_may_know(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    told = await server.log_in(mechanism="PLAIN", token=b"\0alice\0guess")
    assert "username or password" in told.message

    async def fail(dialogue: Dialogue, token: bytes) -> Failure:
        return Failure("", "nobody may know")

    monkeypatch.setattr(server.logins, "step", fail)
    told = await server.log_in(mechanism="PLAIN", token=b"\0alice\0guess")
    assert told.message == "the login failed"


@virtual
async def test_so_many_tokens_are_remembered() -> None:
    server = Server()
    server.verified = Success("User:token")
    for number in range(TOKENS_MAX + 1):
        await server.call(METHOD, b"", timeout_s=1, authorization=f"Bearer {number}")
    await server.call(METHOD, b"", timeout_s=1, authorization=f"Bearer {TOKENS_MAX}")
    assert server.verifications == TOKENS_MAX + 1
    await server.call(METHOD, b"", timeout_s=1, authorization="Bearer 0")
    assert server.verifications == TOKENS_MAX + 2


@virtual
async def test_a_timeout_of_a_handler_is_not_the_end_of_a_session() -> None:
    server = Server()

    async def late(stream: Stream, peer: Peer) -> None:
        raise TimeoutError

    logins = GrpcLogins("CLIENTS", server.logins, server.clock, server.rng)
    server.service = logins.protect(Service(streams={STREAM: late}))
    answer = await server.log_in(mechanism="PLAIN", token=PLAIN_TOKEN)
    peer = Peer("10.0.0.9", authorization=f"Session {answer.session}")
    with pytest.raises(TimeoutError):
        await server.service.converse(STREAM, Idle(), peer)


@virtual
async def test_a_password_is_no_delegation_token() -> None:
    server = Server()
    answer = await server.log_in(mechanism="PLAIN", token=PLAIN_TOKEN)
    peer = Peer("10.0.0.9", authorization=f"Session {answer.session}")
    assert not (await server.service.admit(METHOD, peer)).by_delegation_token


@virtual
async def test_a_removed_credential_refuses_calls_and_ends_streams() -> None:
    server = Server()
    sessions = {}
    for user in ("bob", "alice"):
        own = channel(server, user, "SCRAM-SHA-256" if user == "bob" else "PLAIN")
        await own.call(METHOD, b"", timeout_s=1)
        sessions[user] = server.last_authorization
    streams = {
        user: asyncio.ensure_future(
            server.service.converse(STREAM, Idle(), Peer("10.0.0.9", authorization=session))
        )
        for user, session in sessions.items()
    }
    await asyncio.sleep(10)
    assert len(server.sessions) == 1, "what a listed user does rests on no credential"
    server.credentials.has_bob = False
    refused = await server.refusal(sessions["bob"])
    assert refused.code is RpcCode.UNAUTHENTICATED
    assert "the SCRAM-SHA-256 credential of user 'bob' was removed" in refused.detail
    look_at(server.sessions)
    with pytest.raises(RpcError, match="credential of user 'bob' was removed") as caught:
        await streams["bob"]
    assert caught.value.code is RpcCode.UNAUTHENTICATED
    assert (server.metrics.revoked.value, len(server.sessions)) == (1, 0)
    await asyncio.sleep(1)
    assert not streams["alice"].done()
    streams["alice"].cancel()
