"""Delegation tokens over Kafka's protocol and over gRPC (KIP-48)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.api import create_delegation_token as api
from broker.api.logins import logins_of, sessions_of
from broker.grpc.admin import AdminService
from metadata.delegation_tokens import removal_record
from metadata.records import METADATA_VERSION, METADATA_VERSION_LEVEL
from metadata.scram_credentials import ScramUser, credential_record
from runtime.authorization.authorizer import Operation, token_resource, user_resource
from runtime.metrics.registry import MetricsRegistry
from security.delegation_tokens import token_hmac, token_password
from stele.errors import ErrorCode
from stele.security.client_security import SaslCredentials
from stele.security.dialogues import dialogue_of
from stele.security.scram import SCRAM_SHA_256, ScramCredential
from stele.wire.kafka.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
)
from stele.wire.v1 import admin_pb2 as pb
from tests.support.authorizer import FakeAuthorizer
from tests.support.broker_apis import Client, Edges
from tests.support.worlds import virtual
from world.network import Peer

DAY_MS = 86_400_000
ANN, BOB, RITA = "User:ann", "User:bob", "User:rita"
SASL = {
    "listener_security_protocol_map": "EXTERNAL:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "SCRAM-SHA-256,PLAIN",
    "listener_name_external_plain_sasl_jaas_config": 'Plain required user_ann="ann-secret";',
    "listener_name_external_connections_max_reauth_ms": "3600000",
}

CreateRequest = create_delegation_token.CreateDelegationTokenRequest
CreateResponse = create_delegation_token.CreateDelegationTokenResponse
Renewer = create_delegation_token.CreatableRenewers
Owner = describe_delegation_token.DescribeDelegationTokenOwner


def edges_with_tokens(authorizer: FakeAuthorizer | None = None, **settings: str) -> Edges:
    edges = Edges(authorizer, **{"delegation_token_secret_key": "secret"} | SASL | settings)
    edges.finalize(METADATA_VERSION, METADATA_VERSION_LEVEL)
    return edges


def client_of(edges: Edges, principal: str, *, by_delegation_token: bool = False) -> Client:
    client = edges.client()
    client.protocol.log_in(principal, by_delegation_token=by_delegation_token)
    return client


async def create(
    client: Client, *renewers: str, owner: str | None = None, version: int = 3, life_ms: int = -1
) -> CreateResponse:
    request = CreateRequest(
        None if owner is None else "User",
        owner,
        [Renewer("User", each) for each in renewers],
        life_ms,
    )
    return await client.call(create_delegation_token.API, version, request)


async def renew(client: Client, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    request = renew_delegation_token.RenewDelegationTokenRequest(hmac, period_ms)
    answer = await client.call(renew_delegation_token.API, 2, request)
    return answer.error_code, answer.expiry_timestamp_ms


async def expire(client: Client, hmac: bytes, period_ms: int = -1) -> tuple[int, int]:
    request = expire_delegation_token.ExpireDelegationTokenRequest(hmac, period_ms)
    answer = await client.call(expire_delegation_token.API, 2, request)
    return answer.error_code, answer.expiry_timestamp_ms


async def describe(
    client: Client, *owners: str, of_all: bool = True, version: int = 3
) -> tuple[int, list[Any]]:
    named = None if of_all and not owners else [Owner("User", each) for each in owners]
    request = describe_delegation_token.DescribeDelegationTokenRequest(named)
    answer = await client.call(describe_delegation_token.API, version, request)
    return answer.error_code, answer.tokens


@pytest.mark.parametrize("version", [1, 2, 3])
@virtual
async def test_a_token_is_made_with_the_hmac_of_its_id(version: int) -> None:
    edges = edges_with_tokens()
    answer = await create(client_of(edges, ANN), "rita", version=version)
    assert answer.error_code == ErrorCode.NONE
    assert (answer.principal_type, answer.principal_name) == ("User", "ann")
    assert answer.hmac == token_hmac(b"secret", answer.token_id)
    assert answer.expiry_timestamp_ms - answer.issue_timestamp_ms == DAY_MS
    assert answer.max_timestamp_ms - answer.issue_timestamp_ms == 7 * DAY_MS
    if version == 3:
        told = answer.token_requester_principal_type, answer.token_requester_principal_name
        assert told == ("User", "ann")
    (token,) = edges.publisher.image.delegation_tokens.values()
    assert (token.token_id, token.renewers) == (answer.token_id, (RITA,))


@virtual
async def test_a_token_is_renewed_and_expired_by_its_hmac() -> None:
    edges = edges_with_tokens()
    ann, rita, bob = (client_of(edges, each) for each in (ANN, RITA, BOB))
    for _ in range(2):
        await create(ann)
    made = await create(ann, "rita")
    await asyncio.sleep(1)
    expected_ms = made.issue_timestamp_ms + DAY_MS
    code, expiry_ms = await renew(rita, made.hmac)
    assert (code, expiry_ms > expected_ms) == (ErrorCode.NONE, True)
    assert (await renew(bob, made.hmac))[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await expire(bob, made.hmac))[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await renew(ann, made.hmac[:-1]))[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert (await renew(ann, b""))[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert (await expire(ann, made.hmac, 0))[0] == ErrorCode.NONE
    await asyncio.sleep(0.01)
    assert (await renew(ann, made.hmac))[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    other = await create(ann)
    assert await expire(ann, other.hmac) == (ErrorCode.NONE, edges.clock.time_ms())
    assert other.token_id not in edges.publisher.image.delegation_tokens


@virtual
async def test_a_token_of_somebody_else_needs_a_permission_on_this_user() -> None:
    authorizer = FakeAuthorizer()
    authorizer.only = frozenset()
    edges = edges_with_tokens(authorizer)
    tool = client_of(edges, "User:tool")
    answer = await create(tool, owner="bob")
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (answer.principal_name, answer.token_requester_principal_name) == ("bob", "tool")
    assert authorizer.denials == [(Operation.CREATE_TOKENS, user_resource(BOB))]
    assert (await create(tool, owner="tool")).error_code == ErrorCode.NONE
    authorizer.only = frozenset({(Operation.CREATE_TOKENS, user_resource(BOB))})
    answer = await create(tool, owner="bob")
    assert answer.error_code == ErrorCode.NONE
    assert answer.hmac == token_hmac(b"secret", answer.token_id)


@virtual
async def test_a_caller_sees_its_own_tokens_and_tokens_that_acls_show() -> None:
    authorizer = FakeAuthorizer()
    edges = edges_with_tokens(authorizer)
    ann, bob, tool = (client_of(edges, each) for each in (ANN, BOB, "User:tool"))
    of_ann = await create(ann, "rita")
    of_bob = await create(tool, owner="bob")
    authorizer.only = frozenset()

    async def seen(client: Client, *owners: str, of_all: bool = True) -> dict[str, bytes]:
        code, tokens = await describe(client, *owners, of_all=of_all)
        assert code == ErrorCode.NONE
        assert [each.token_id for each in tokens] == sorted(each.token_id for each in tokens)
        return {each.token_id: each.hmac for each in tokens}

    assert await seen(ann) == {of_ann.token_id: of_ann.hmac}
    assert await seen(client_of(edges, RITA)) == {of_ann.token_id: of_ann.hmac}
    assert await seen(bob) == await seen(tool) == {of_bob.token_id: of_bob.hmac}
    assert await seen(ann, "bob") == await seen(ann, of_all=False) == {}
    assert await seen(tool, "bob", "ann") == {of_bob.token_id: of_bob.hmac}
    assert await seen(ann, "rita") == {of_ann.token_id: of_ann.hmac}
    for need in (
        (Operation.DESCRIBE, token_resource(of_bob.token_id)),
        (Operation.DESCRIBE_TOKENS, user_resource(BOB)),
    ):
        authorizer.only = frozenset({need})
        assert await seen(ann) == {of_ann.token_id: of_ann.hmac, of_bob.token_id: b""}
    assert authorizer.denials == [], "what is left out is no denial"
    _, (token,) = await describe(ann, "ann")
    assert (token.principal_name, token.token_requester_principal_name) == ("ann", "ann")
    assert [each.principal_name for each in token.renewers] == ["rita"]
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (
        of_ann.issue_timestamp_ms,
        of_ann.expiry_timestamp_ms,
        of_ann.max_timestamp_ms,
    )


@pytest.mark.parametrize(
    ("principal", "by_token"), [("User:ANONYMOUS", False), (ANN, True)], ids=["nobody", "by token"]
)
@virtual
async def test_who_has_proven_no_secret_of_its_own_has_no_tokens(
    principal: str, by_token: bool
) -> None:
    edges = edges_with_tokens()
    made = await create(client_of(edges, ANN))
    client = client_of(edges, principal, by_delegation_token=by_token)
    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (await create(client)).error_code == not_allowed
    assert (await renew(client, made.hmac))[0] == not_allowed
    assert (await expire(client, made.hmac))[0] == not_allowed
    assert await describe(client) == (not_allowed, [])
    assert len(edges.publisher.image.delegation_tokens) == 1


@virtual
async def test_without_a_secret_key_there_are_no_tokens() -> None:
    edges = edges_with_tokens(delegation_token_secret_key="")
    client, disabled = client_of(edges, ANN), ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (await create(client)).error_code == disabled
    assert (await renew(client, b"x"))[0] == (await expire(client, b"x"))[0] == disabled
    assert await describe(client) == (disabled, [])


@virtual
async def test_an_owner_that_is_no_user_is_refused() -> None:
    client = client_of(edges_with_tokens(), ANN)
    request = CreateRequest(None, None, [Renewer("Group", "x")], -1)
    answer = await client.call(api.SERVED.api, 3, request)
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


# ------------------------------------------------------------------------- gRPC


async def ask(edges: Edges, principal: str, method: str, request: Any) -> Any:
    service = AdminService(edges.context, "EXTERNAL").service()
    handler = service.unary[f"/stele.v1.Admin/{method}"]
    payload = await handler(request.SerializeToString(), Peer("10.0.0.9", principal=principal))
    return getattr(pb, f"{method}Response").FromString(payload)


@virtual
async def test_over_grpc_a_token_is_named_by_its_id() -> None:
    edges = edges_with_tokens()
    made = await ask(
        edges, ANN, "CreateDelegationToken", pb.CreateDelegationTokenRequest(renewers=[RITA])
    )
    token = made.token
    assert token.hmac == token_hmac(b"secret", token.token_id)
    await asyncio.sleep(1)
    renewed = await ask(
        edges, RITA, "RenewDelegationToken", pb.RenewDelegationTokenRequest(token_id=token.token_id)
    )
    assert renewed.expiry_ms > token.expiry_ms
    told = await ask(
        edges, ANN, "DescribeDelegationTokens", pb.DescribeDelegationTokensRequest(owners=[ANN])
    )
    token.expiry_ms = renewed.expiry_ms
    assert list(told.tokens) == [token]
    refused = await ask(
        edges,
        BOB,
        "ExpireDelegationToken",
        pb.ExpireDelegationTokenRequest(token_id=token.token_id),
    )
    assert refused.error == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    expired = await ask(
        edges,
        ANN,
        "ExpireDelegationToken",
        pb.ExpireDelegationTokenRequest(token_id=token.token_id, expiry_period_ms=-1),
    )
    assert expired.error == ErrorCode.NONE
    told = await ask(edges, ANN, "DescribeDelegationTokens", pb.DescribeDelegationTokensRequest())
    assert (told.error, list(told.tokens)) == (ErrorCode.NONE, [])


@virtual
async def test_a_repeated_request_does_not_get_the_secret_of_a_token() -> None:
    """The controller answers a repeated request with its first outcome."""
    edges = edges_with_tokens()
    first = pb.CreateDelegationTokenResponse(
        token=pb.DelegationToken(token_id="id", owner=ANN, requester=ANN), already_done=True
    )

    async def again(payload: bytes, _: Peer) -> bytes:
        return first.SerializeToString()

    controller = edges.network.services[("controller", 9093)]
    controller.unary["/stele.v1.Admin/CreateDelegationToken"] = again
    request = pb.CreateDelegationTokenRequest(request_id=b"r" * 16)
    told = await ask(edges, ANN, "CreateDelegationToken", request)
    assert told.token.hmac == token_hmac(b"secret", "id")
    told = await ask(edges, BOB, "CreateDelegationToken", request)
    assert (told.error, told.token.hmac) == (ErrorCode.INVALID_REQUEST, b"")
    assert "make a new id" in told.message


@virtual
async def test_over_grpc_refusals_say_why() -> None:
    disabled = edges_with_tokens(delegation_token_secret_key="")
    for edges, principal, reason in (
        (disabled, ANN, "delegation.token.secret.key"),
        (edges_with_tokens(), "User:ANONYMOUS", "nobody has logged in on the listener EXTERNAL"),
    ):
        for method in ("CreateDelegationToken", "DescribeDelegationTokens"):
            told = await ask(edges, principal, method, getattr(pb, f"{method}Request")())
            assert told.error
            assert reason in told.message


# ------------------------------------------------------------------------- logins


class _World:
    """What ``logins_of`` needs of the world of ``Edges``."""

    def __init__(self, edges: Edges) -> None:
        self.clock, self.rng, self.network = edges.clock, edges.rng, edges.network
        self.compute = self

    async def call(self, work: Any, *arguments: Any) -> Any:
        return work(*arguments)


class _Newest:
    def __init__(self, edges: Edges) -> None:
        self._edges = edges

    @property
    def image(self) -> Any:
        return self._edges.publisher.image


def connected(edges: Edges) -> Client:
    world: Any = _World(edges)
    newest = _Newest(edges)
    sessions = sessions_of(edges.config, newest, world)
    logins = logins_of(edges.config, newest, world, MetricsRegistry(), sessions)
    return edges.client(logins=logins["EXTERNAL"])


async def say(client: Client, token: bytes) -> sasl_authenticate.SaslAuthenticateResponse:
    request = sasl_authenticate.SaslAuthenticateRequest(token)
    return await client.call(sasl_authenticate.API, 2, request)


async def log_in(
    client: Client, token_id: str, hmac: bytes
) -> sasl_authenticate.SaslAuthenticateResponse:
    request = sasl_handshake.SaslHandshakeRequest("SCRAM-SHA-256")
    assert (await client.call(sasl_handshake.API, 1, request)).error_code == ErrorCode.NONE
    dialogue = dialogue_of(
        SaslCredentials(
            mechanism="SCRAM-SHA-256",
            username=token_id,
            password=token_password(hmac),
            is_delegation_token=True,
        ),
        "abc",
    )
    challenge = await say(client, dialogue.first())
    assert challenge.error_code == ErrorCode.NONE
    proof = dialogue.answer(challenge.auth_bytes)
    assert proof is not None
    return await say(client, proof)


@virtual
async def test_the_holder_of_a_token_logs_in_as_its_owner_until_it_expires() -> None:
    edges = edges_with_tokens()
    made = await create(client_of(edges, ANN), life_ms=10_000)
    client = connected(edges)
    answer = await log_in(client, made.token_id, made.hmac)
    assert answer.error_code == ErrorCode.NONE
    assert 9_000 < answer.session_lifetime_ms <= 10_000
    assert client.protocol.principal == ANN
    assert (await create(client)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    await asyncio.sleep(10.1)
    late = await log_in(connected(edges), made.token_id, made.hmac)
    assert late.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.transport.closed, "an expired session never looks like a missing permission"


@virtual
async def test_a_removed_token_lets_nobody_in() -> None:
    edges = edges_with_tokens()
    made = await create(client_of(edges, ANN))
    edges.commit(removal_record(made.token_id))
    answer = await log_in(connected(edges), made.token_id, made.hmac)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@virtual
async def test_a_connection_by_a_token_logs_in_again_by_a_token_of_the_same_owner() -> None:
    edges = edges_with_tokens()
    ann = client_of(edges, ANN)
    made, other = await create(ann, life_ms=10_000), await create(ann)
    client = connected(edges)
    await log_in(client, made.token_id, made.hmac)
    await asyncio.sleep(9)
    answer = await log_in(client, other.token_id, other.hmac)
    assert (answer.error_code, answer.session_lifetime_ms) == (ErrorCode.NONE, 3_600_000)
    await asyncio.sleep(9)
    assert (await create(client)).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@virtual
async def test_a_connection_does_not_change_between_a_token_and_a_password() -> None:
    edges = edges_with_tokens()
    made = await create(client_of(edges, ANN))
    credential = ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt", 4096)
    edges.commit(credential_record(ScramUser("ann", 1), credential))
    client = connected(edges)
    await log_in(client, made.token_id, made.hmac)
    await asyncio.sleep(5)
    request = sasl_handshake.SaslHandshakeRequest("SCRAM-SHA-256")
    await client.call(sasl_handshake.API, 1, request)
    by_password = SaslCredentials(mechanism="SCRAM-SHA-256", username="ann", password="pw")
    dialogue = dialogue_of(by_password, "abc")
    proof = dialogue.answer((await say(client, dialogue.first())).auth_bytes)
    assert proof is not None
    answer = await say(client, proof)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "logs in again as before" in (answer.error_message or "")
