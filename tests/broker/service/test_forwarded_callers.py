"""What a broker tells the controller about the client for which it asks."""

from __future__ import annotations

from runtime.authorization.caller import ANONYMOUS
from stele.errors import ErrorCode
from stele.wire.kafka.messages import create_topics
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import raft_pb2 as raft
from stele.wire.v1.caller_pb2 import OnBehalfOf
from tests.support.authorization import call_admin
from tests.support.broker_apis import CONTROLLER, Edges
from tests.support.worlds import virtual
from world.network import Peer

FORGED = OnBehalfOf(principal="User:root", client_id="root", address="127.0.0.1")


@virtual
async def test_a_change_over_kafkas_protocol() -> None:
    edges = Edges()
    request = create_topics.CreateTopicsRequest(
        [create_topics.CreatableTopic("a", 1, 1)], timeout_ms=1000
    )
    answer = await edges.client().call(create_topics.API, 7, request)
    assert answer.topics[0].error_code == ErrorCode.NONE
    (sent,) = edges.controller.created
    assert sent.on_behalf_of == OnBehalfOf(
        principal=ANONYMOUS, client_id="test", address="10.0.0.9", cluster_id="cluster"
    )


@virtual
async def test_a_client_cannot_say_that_it_is_another_one() -> None:
    edges = Edges()
    request = admin.CreateTopicsRequest(topics=[admin.NewTopic(name="a")], on_behalf_of=FORGED)
    await call_admin(edges, "Admin/CreateTopics", request, admin.CreateTopicsResponse)
    (sent,) = edges.controller.created
    assert sent.on_behalf_of == OnBehalfOf(
        principal=ANONYMOUS, address="10.0.0.9", cluster_id="cluster"
    )


@virtual
async def test_a_client_says_that_its_request_is_a_copy() -> None:
    edges = Edges()
    request = admin.CreateTopicsRequest(
        topics=[admin.NewTopic(name="a")], on_behalf_of=OnBehalfOf(repeats=True)
    )
    await call_admin(edges, "Admin/CreateTopics", request, admin.CreateTopicsResponse)
    (sent,) = edges.controller.created
    assert sent.on_behalf_of == OnBehalfOf(
        principal=ANONYMOUS, address="10.0.0.9", cluster_id="cluster", repeats=True
    )


@virtual
async def test_a_question_to_the_quorums_leader() -> None:
    edges = Edges()
    asked: list[raft.DescribeQuorumRequest] = []

    async def describe(payload: bytes, _: Peer) -> bytes:
        asked.append(raft.DescribeQuorumRequest.FromString(payload))
        return raft.DescribeQuorumResponse().SerializeToString()

    edges.network.services[CONTROLLER].unary["/stele.v1.Admin/DescribeQuorum"] = describe
    request = raft.DescribeQuorumRequest(on_behalf_of=FORGED)
    await call_admin(edges, "Admin/DescribeQuorum", request, raft.DescribeQuorumResponse)
    assert asked[0].on_behalf_of == OnBehalfOf(
        principal=ANONYMOUS, address="10.0.0.9", cluster_id="cluster"
    )
