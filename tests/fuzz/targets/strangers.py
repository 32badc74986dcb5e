"""What comes before a login, from anybody: SASL on both planes, the first bytes of TLS, tokens and
keys of issuers.

No changed bytes log anybody in, nothing is served meanwhile, and nobody else notices.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from runtime.logins.grpc import LOG_IN, GrpcLogins
from runtime.real.tls_listener import RealServerTls
from runtime.real.tls_transport import TlsTransport
from security.sasl.dialogue import Failure, Success
from security.sasl.tokens import KeysError, TokenRules, UnknownKeyError, parse_keys
from stele.security import dialogues
from stele.security.scram import SCRAM_SHA_256
from stele.wire import kafka
from stele.wire.kafka.messages import (
    api_versions,
    create_topics,
    metadata,
    sasl_authenticate,
    sasl_handshake,
)
from stele.wire.v1.login_pb2 import LogInRequest, LogInResponse
from stele.world import RpcError, Stream
from tests.fuzz.brokers import Said, check_alive
from tests.fuzz.bytes import mutated
from tests.fuzz.cost import Meter
from tests.support.broker_apis import Client
from tests.support.logins import SCRAM, World
from tests.support.timing import run_virtual
from tests.support.tls import AUTHORITY, listener
from world.network import Identity, Peer, Service

Input = tuple[str, list[bytes]]
"""The kind of the input, and its bytes: frames, metadata, pieces of a connection, texts."""

_KINDS: Final = ("kafka", "grpc", "tls", "token", "keys")
_FRAMES: Final = 12
_SERVED: Final = "/stele.v1.Admin/ListTopics"
_NOW_S: Final = 1_800_000_000


# ------------------------------------------------------------------------------ SASL of Kafka


def _tokens(secret: str) -> list[bytes]:
    """First tokens of each mechanism, and second ones that fit no challenge."""
    scram = dialogues.ScramDialogue(SCRAM_SHA_256, "bob", secret, "abc")
    return [
        f"\0alice\0{secret}".encode(),
        f"alice\0alice\0{secret}".encode(),
        scram.first(),
        b"n,a=bob,n=bob,r=abc,tokenauth=true",
        b"c=biws,r=abcdef,p=" + base64.b64encode(bytes(32)),
        b"n,,\x01auth=Bearer " + secret.encode() + b"\x01\x01",
        b"n,a=x,\x01auth=Bearer x\x01traceparent=1\x01\x01",
        b"\x01",
        b"",
    ]


def _frames() -> list[bytes]:
    requests: list[tuple[Any, int, Any]] = [
        (api_versions.API, 3, api_versions.ApiVersionsRequest("fuzz", "1")),
        (metadata.API, 12, metadata.MetadataRequest()),
        (create_topics.API, 7, create_topics.CreateTopicsRequest()),
    ]
    for mechanism in ("PLAIN", SCRAM, "OAUTHBEARER", "GSSAPI", ""):
        for version in (0, 1):
            handshake = sasl_handshake.SaslHandshakeRequest(mechanism)
            requests.append((sasl_handshake.API, version, handshake))
    for token in _tokens("guess"):
        for version in (0, 1, 2):
            step = sasl_authenticate.SaslAuthenticateRequest(token)
            requests.append((sasl_authenticate.API, version, step))
    encoded = [
        b"".join(kafka.encode_request(api, version, 1, "fuzz", message))[kafka.SIZE_BYTES :]
        for api, version, message in requests
    ]
    return [*encoded, *_tokens("guess")]  # the last ones as frames without a header


def _check_kafka(frames: list[bytes], meter: Meter) -> str:
    async def main() -> int:
        world = World()
        world.verified = Failure("", "not of this issuer")
        clients: list[Client] = []
        for frame in frames:
            if not clients or clients[-1].transport.closed:
                clients.append(world.client())
            meter.request(len(frame))
            clients[-1].send_bytes(len(frame).to_bytes(kafka.SIZE_BYTES) + frame)
            await asyncio.sleep(0.2)
        assert {each.protocol.principal for each in clients} == {"User:ANONYMOUS"}
        assert not world.edges.authorizer.callers, "something was served before a login"
        await asyncio.sleep(60)
        assert all(each.transport.closed for each in clients), "a login may take 30 s"
        await check_alive(world.edges)
        return world.metrics.failed.value

    return "failed logins" if run_virtual(main()) else "no login"


# ------------------------------------------------------------------------------- SASL of gRPC


def _check_grpc(texts: list[bytes], meter: Meter) -> str:
    async def main() -> str:
        world, served = World(), list[str]()
        world.verified = Failure("", "not of this issuer")

        async def serve(payload: bytes, peer: Peer) -> bytes:
            served.append(peer.principal)
            return b""

        async def talk(stream: Stream, peer: Peer) -> None:
            served.append(peer.principal)

        logins = GrpcLogins("CLIENTS", world.logins, world.edges.clock, random.Random(1))
        service = logins.protect(Service({_SERVED: serve}, {"/stele.v1.Log/Publish": talk}))
        answered = 0
        for text in texts:
            peer = Peer("10.0.0.9", authorization=text.decode("latin-1"))
            meter.request(len(text))
            for method in (*service.unary, LOG_IN):
                try:
                    answer = await service.call(method, b"", peer)
                except RpcError:
                    continue
                assert not LogInResponse.FromString(answer).session
                answered += 1
        assert served == []
        return "answered" if answered else "refused"

    return run_virtual(main())


def _authorizations() -> list[bytes]:
    texts = [b"", b"Session 1.VXNlcjphbGljZQ==.00", b"Bearer a.b.c", b"Basic YTpi"]
    for token in _tokens("guess"):
        for mechanism in ("PLAIN", SCRAM, "OAUTHBEARER", "GSSAPI"):
            request = LogInRequest(mechanism=mechanism, token=token)
            texts.append(b"SASL " + base64.b64encode(request.SerializeToString()))
        request = LogInRequest(token=token, dialogue_id=bytes(16))
        texts.append(b"SASL " + base64.b64encode(request.SerializeToString()))
    return texts


# ------------------------------------------------------------------------------------- TLS


class _Inline(Executor):
    """Handshakes are parts of a turn here, so that they are timed."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


class _Raw(asyncio.Transport):
    """A network that takes everything."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1)})
        self.is_closed = self.is_paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class _Application(asyncio.Protocol):
    def __init__(self) -> None:
        self.has_peer = False

    def tls_established(self, identity: Identity) -> None:
        self.has_peer = True

    def data_received(self, data: bytes) -> None:
        self.has_peer = True


def _check_tls(pieces: list[bytes], meter: Meter) -> str:
    async def main() -> str:
        tls = RealServerTls(listener(client_auth="required"), _Inline())
        application, raw = _Application(), _Raw()
        server = TlsTransport(tls, application, bytearray(16 * 1024))
        server.connection_made(raw)
        for piece in pieces:
            meter.request(len(piece))
            for _ in range(20):
                if raw.is_closed or not raw.is_paused:
                    break
                await asyncio.sleep(0)  # a step of the handshake
            if raw.is_closed:
                break
            buffer = server.get_buffer(-1)
            count = min(len(piece), len(buffer))
            buffer[:count] = piece[:count]
            with meter.turn():
                server.buffer_updated(count)
            await asyncio.sleep(0)
        server.eof_received()
        server.connection_lost(None)
        for _ in range(5):
            await asyncio.sleep(0)  # its last step may say why it failed
        assert not application.has_peer
        (reason,) = tls.failures
        return reason

    return asyncio.run(main())


def _hellos() -> list[bytes]:
    """ClientHellos of several clients, and what else comes to a port with TLS."""
    hellos = []
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = AUTHORITY.client_context(AUTHORITY.key_store("fuzz"))
        context.minimum_version = context.maximum_version = version
        outgoing = ssl.MemoryBIO()
        client = context.wrap_bio(ssl.MemoryBIO(), outgoing, False, "127.0.0.1")
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            hellos.append(outgoing.read())
    return [
        *hellos,
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 9092\r\n" + hellos[0],
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12) + hellos[0],
        b"\x00\x00\x00\x10\x00\x12\x00\x03" + bytes(12),
        b"\x16\x03\x01\xff\xff" + bytes(100),
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"\x14\x03\x03\x00\x01\x01",
        b"\x80\x2e\x01\x00\x02" + bytes(43),
    ]


# --------------------------------------------------------------------------- tokens and keys

_KEY: Final = ec.generate_private_key(ec.SECP256R1())
_CLAIMS: Final = {"sub": "alice", "iat": _NOW_S, "exp": _NOW_S + 600, "aud": "kafka"}
_RULES: Final = TokenRules(audiences=("kafka",))


def _key_set() -> bytes:
    entry = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(_KEY.public_key()))
    rsa = {"kty": "RSA", "n": base64.urlsafe_b64encode(bytes([255] * 256)).decode(), "e": "AQAB"}
    okp = {"kty": "OKP", "crv": "Ed25519", "x": base64.urlsafe_b64encode(bytes(32)).decode()}
    return json.dumps({"keys": [entry | {"kid": "1"}, rsa | {"kid": "2"}, okp]}).encode()


def _check_tokens(texts: list[bytes], meter: Meter) -> str:
    keys, outcomes = parse_keys(_key_set()), set[str]()
    for text in texts:
        token = text.decode("latin-1")
        meter.request(len(text))
        with meter.turn():
            try:
                result = _RULES.verify(token, keys, _NOW_S * 1000)
            except UnknownKeyError:
                result = Failure("", "unknown key")
            unsecured = _RULES.read_unsecured(token, _NOW_S * 1000)
        # Base64 has more than one text of the same bytes, so a changed token may be the same one.
        assert isinstance(result, Failure) or result.principal == "User:alice"
        assert isinstance(unsecured, Failure | Success)
        outcomes.add(type(result).__name__)
    return " and ".join(sorted(outcomes))


def _check_keys(texts: list[bytes], meter: Meter) -> str:
    usable = 0
    for text in texts:
        meter.request(len(text))
        with meter.turn():
            try:
                keys = parse_keys(text)
            except KeysError:
                continue
        usable += 1
        for token in _signed_tokens()[:2]:
            try:
                _RULES.verify(token.decode(), keys, _NOW_S * 1000)
            except UnknownKeyError:
                continue
    return "usable" if usable else "no keys"


def _signed_tokens() -> list[bytes]:
    tokens = [
        jwt.encode(_CLAIMS, _KEY, "ES256", headers={"kid": kid}).encode() for kid in ("1", "2")
    ]
    tokens.append(jwt.encode(_CLAIMS | {"exp": 1e300}, _KEY, "ES256").encode())
    tokens.append(jwt.encode(_CLAIMS, "secret" * 8, "HS256").encode())
    tokens.append(jwt.encode(_CLAIMS, "", "none").encode())
    return tokens


_CHECKS: Final[dict[str, Callable[[list[bytes], Meter], str]]] = {
    "kafka": _check_kafka,
    "grpc": _check_grpc,
    "tls": _check_tls,
    "token": _check_tokens,
    "keys": _check_keys,
}


class StrangersTarget:
    name = "strangers"
    examples = 60

    def __init__(self, rng: random.Random) -> None:
        self._seeds: dict[str, list[bytes]] = {
            "kafka": _frames(),
            "grpc": _authorizations(),
            "tls": _hellos(),
            "token": _signed_tokens(),
            "keys": [_key_set()],
        }

    def draw(self, rng: random.Random) -> Input:
        kind = rng.choice(_KINDS)
        return kind, [self._one(rng, kind) for _ in range(rng.randint(1, _FRAMES))]

    def _one(self, rng: random.Random, kind: str) -> bytes:
        seeds = self._seeds[kind]
        seed = rng.choice(seeds)
        return bytes(mutated(rng, seed, seeds)) if rng.random() < 0.6 else seed

    def run(self, data: Input, meter: Meter) -> str:
        kind, pieces = data
        with Said() as said:
            outcome = _CHECKS[kind](pieces, meter)
        said.check(3 * len(pieces) + 3)
        return f"{kind}: {outcome}"


TARGET = StrangersTarget
