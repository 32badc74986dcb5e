"""Callers on a controller's port, and what is refused to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.message import Message

from chaos.sim.world.simulation import Simulation
from runtime.authorization.authorizer import CLUSTER, Operation, topic_resource
from runtime.authorization.caller import ANONYMOUS, Caller, Plane
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1 import metadata_pb2 as metadata
from stele.wire.v1.caller_pb2 import OnBehalfOf
from tests.support.controller import CLUSTER_ID
from tests.support.controller_world import Controller, StubBroker
from tests.support.worlds import Scenario, gives

ID = b"0123456789abcdef"
TOPIC, BROKER = metadata.ConfigResourceType.TOPIC, metadata.ConfigResourceType.BROKER
ALICE = OnBehalfOf(principal="User:alice", client_id="laptop", address="10.1.1.1")


class Bench:
    """An active controller, and a broker that is registered with it."""

    def __init__(self, simulation: Simulation) -> None:
        self.controller = Controller(simulation)
        self.authorizer = self.controller.authorizer
        self.broker = StubBroker(simulation, 1)

    async def ask(self, method: str, request: Message, response_type: Any) -> Any:
        return await self.broker.call(f"/stele.v1.Admin/{method}", request, response_type)

    async def create(self, *names: str, **fields: Any) -> Any:
        topics = [pb.NewTopic(name=name, partitions=1, replication_factor=1) for name in names]
        request = pb.CreateTopicsRequest(topics=topics, **fields)
        return await self.ask("CreateTopics", request, pb.CreateTopicsResponse)

    def has(self, topic: str) -> bool:
        return self.controller.service.image.topic(topic) is not None


@gives("bench")
def on_bench(scenario: Scenario) -> None:
    simulation = Simulation(1)

    async def main() -> None:
        bench = Bench(simulation)
        await bench.controller.start()
        await bench.broker.join()
        await asyncio.sleep(0.1)
        await scenario(bench)

    simulation.run(main())


@on_bench
async def test_a_forwarded_change_is_its_clients(bench: Bench) -> None:
    assert (await bench.create("t", on_behalf_of=ALICE)).topics[0].error == ErrorCode.NONE
    sender, *askers = bench.authorizer.callers
    assert sender.principal == ANONYMOUS, "whether it may name another one"
    assert set(askers) == {Caller("User:alice", "laptop", "CONTROLLER", Plane.GRPC, "10.1.1.1")}


@on_bench
async def test_a_broker_of_another_cluster_changes_nothing(bench: Bench) -> None:
    """The address of one of its own controllers has come to this one."""

    foreign = OnBehalfOf(principal="User:bob", address="10.1.1.2", cluster_id="another")
    answer = await bench.create("t", on_behalf_of=foreign)
    assert answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert not bench.has("t")
    own = OnBehalfOf(principal="User:bob", address="10.1.1.2", cluster_id=CLUSTER_ID)
    assert (await bench.create("t", on_behalf_of=own)).topics[0].error == ErrorCode.NONE


@on_bench
async def test_a_client_that_does_not_call_itself_anything(bench: Bench) -> None:
    await bench.create("t", on_behalf_of=OnBehalfOf(principal="User:bob", address="10.1.1.2"))
    assert bench.authorizer.callers[-1].principal == "User:bob"
    assert bench.authorizer.callers[-1].client_id is None


@on_bench
async def test_a_direct_change_is_its_senders(bench: Bench) -> None:
    await bench.create("t")
    (caller,) = set(bench.authorizer.callers)
    assert (caller.principal, caller.client_id) == (ANONYMOUS, None)


@on_bench
async def test_only_a_broker_may_name_another_one(bench: Bench) -> None:
    bench.authorizer.denied.add((Operation.CLUSTER_ACTION, CLUSTER))
    answer = await bench.create("t", on_behalf_of=ALICE)
    assert answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert f"{ANONYMOUS} may not CLUSTER_ACTION the cluster" in answer.message
    assert not bench.has("t")
    assert (await bench.create("t")).error == ErrorCode.NONE, "who asks for itself"


@on_bench
async def test_what_may_not_be_changed_is_refused_in_its_place(bench: Bench) -> None:
    denied = bench.authorizer.denied
    denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, topic_resource("b"))}
    answer = await bench.create("a", "b", "c", on_behalf_of=ALICE, request_id=ID)
    assert [(each.name, each.error) for each in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("c", ErrorCode.NONE),
    ]
    assert answer.topics[1].message == "User:alice may not CREATE the topic b"
    assert [bench.has(name) for name in "abc"] == [True, False, True]


@on_bench
async def test_nothing_is_decided_where_everything_is_refused(bench: Bench) -> None:
    denied = bench.authorizer.denied
    denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, topic_resource("a"))}
    before = bench.controller.service.image.offset
    answer = await bench.create("a", on_behalf_of=ALICE, request_id=ID)
    assert answer.topics[0].error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert bench.controller.service.image.offset == before
    denied.clear()
    answer = await bench.create("a", on_behalf_of=ALICE, request_id=ID)
    assert answer.already_done, "an id stands for one answer"
    assert not bench.has("a")
    assert not (await bench.create("a", on_behalf_of=ALICE, request_id=b"n" * 16)).already_done
    assert bench.has("a")


@on_bench
async def test_an_answer_with_refused_items_is_repeated_as_it_was(bench: Bench) -> None:
    """Also if the caller may change those items by now: the request is the same."""
    denied = bench.authorizer.denied
    denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, topic_resource("b"))}
    first = await bench.create("a", "b", "c", on_behalf_of=ALICE, request_id=ID)
    denied.clear()
    second = await bench.create("a", "b", "c", on_behalf_of=ALICE, request_id=ID)
    assert second.already_done
    assert second.topics == first.topics
    assert not bench.has("b")


COPY = OnBehalfOf(principal="User:alice", client_id="laptop", address="10.1.1.1", repeats=True)


@on_bench
async def test_what_a_copy_may_not_change_no_other_copy_changes_later(bench: Bench) -> None:
    denied = bench.authorizer.denied
    denied |= {(Operation.CREATE, CLUSTER), (Operation.CREATE, topic_resource("a"))}
    answer = await bench.create("a", on_behalf_of=COPY, request_id=ID)
    assert answer.topics[0].error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    denied.clear()
    loop = bench.controller.process.loop
    loop.call_soon(bench.controller.quorum.resign)
    loop.call_soon(bench.controller.quorum.claim, 3)
    await asyncio.sleep(0.1)
    answer = await bench.create("a", on_behalf_of=ALICE, request_id=ID)
    assert answer.topics[0].error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not bench.has("a")


@on_bench
async def test_a_client_repeats_its_own_request_in_its_own_name(bench: Bench) -> None:
    """A client of the controller's port says that it repeats, and names nobody."""
    bench.authorizer.denied |= {(Operation.CLUSTER_ACTION, CLUSTER)}
    answer = await bench.create("a", on_behalf_of=OnBehalfOf(repeats=True), request_id=ID)
    assert answer.topics[0].error == ErrorCode.NONE
    assert {each.principal for each in bench.authorizer.callers} == {ANONYMOUS}
    assert (await bench.create("a", request_id=ID)).already_done


@on_bench
async def test_a_copy_is_not_refused_by_what_decides_nothing(bench: Bench) -> None:
    """The controller cannot write. An earlier copy may be accepted where the disk has room."""
    bench.controller.quorum.full = True
    answer = await bench.create("a", on_behalf_of=ALICE, request_id=ID)
    assert answer.error == ErrorCode.KAFKA_STORAGE_ERROR
    answer = await bench.create("a", on_behalf_of=COPY, request_id=ID)
    assert answer.error == ErrorCode.REQUEST_TIMED_OUT
    assert "may or may not have taken effect" in answer.message
    bench.controller.quorum.full = False
    assert (await bench.create("a", on_behalf_of=COPY, request_id=ID)).error == ErrorCode.NONE
    answer = await bench.create("b", on_behalf_of=COPY, request_id=ID)
    assert answer.error == ErrorCode.INVALID_REQUEST, "the id of another request, in every copy"


OF_THE_CLUSTER = [
    (Operation.ALTER, "UnregisterBroker", pb.UnregisterBrokerRequest, pb.UnregisterBrokerResponse),
    (Operation.ALTER, "ElectLeaders", pb.ElectLeadersRequest, pb.ElectLeadersResponse),
    (Operation.ALTER, "UpdateFeatures", pb.UpdateFeaturesRequest, pb.UpdateFeaturesResponse),
    (
        Operation.ALTER,
        "AlterPartitionReassignments",
        pb.AlterPartitionReassignmentsRequest,
        pb.AlterPartitionReassignmentsResponse,
    ),
    (
        Operation.DESCRIBE,
        "ListPartitionReassignments",
        pb.ListPartitionReassignmentsRequest,
        pb.ListPartitionReassignmentsResponse,
    ),
]


@pytest.mark.parametrize(
    ("operation", "method", "request_type", "response_type"),
    OF_THE_CLUSTER,
    ids=[method for _, method, _, _ in OF_THE_CLUSTER],
)
@on_bench
async def test_what_takes_a_permission_of_the_cluster(
    bench: Bench, operation: Operation, method: str, request_type: Any, response_type: Any
) -> None:
    bench.authorizer.denied.add((operation, CLUSTER))
    request = request_type(on_behalf_of=ALICE)
    answer = await bench.ask(method, request, response_type)
    assert answer.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert f"User:alice may not {operation.name} the cluster" in answer.message
    bench.authorizer.denied.clear()
    answer = await bench.ask(method, request, response_type)
    assert answer.error != ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@on_bench
async def test_a_colliding_topic_is_named_to_whom_may_see_it(bench: Bench) -> None:
    await bench.create("a.b")
    (answer,) = (await bench.create("a_b", on_behalf_of=ALICE)).topics
    assert answer.error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "topic a_b collides with topic a.b:" in answer.message
    bench.authorizer.denied.add((Operation.DESCRIBE, topic_resource("a.b")))
    (answer,) = (await bench.create("a_b", on_behalf_of=ALICE)).topics
    assert answer.error == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "topic a_b collides with another one:" in answer.message


async def topics_told(bench: Bench, *names: str) -> list[tuple[str, int, int]]:
    answer = await bench.ask(
        "DescribeTopics", pb.DescribeTopicsRequest(names=names), pb.DescribeTopicsResponse
    )
    assert answer.error == ErrorCode.NONE
    return [(each.name, each.error, len(each.partitions)) for each in answer.topics]


@on_bench
async def test_only_visible_topics_are_described(bench: Bench) -> None:
    await bench.create("a", "b")
    hidden = [topic_resource("b"), topic_resource("none")]
    bench.authorizer.denied |= {(Operation.DESCRIBE, each) for each in hidden}
    assert await topics_told(bench) == [("a", ErrorCode.NONE, 1)]
    assert bench.authorizer.denials == []
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await topics_told(bench, "a", "b", "none", "nor this") == [
        ("a", ErrorCode.NONE, 1),
        ("b", denied, 0),
        ("none", denied, 0),  # only a permitted caller learns whether a topic exists
        ("nor this", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]
    assert bench.authorizer.denials == [(Operation.DESCRIBE, each) for each in hidden]
    answer = await bench.ask(
        "DescribeTopics", pb.DescribeTopicsRequest(names=["b"]), pb.DescribeTopicsResponse
    )
    assert answer.topics[0].message == f"{ANONYMOUS} may not DESCRIBE the topic b"
    assert answer.topics[0].topic_id == b""


@on_bench
async def test_a_described_topic_shows_its_configuration_to_permitted_callers(bench: Bench) -> None:
    configs = {"retention.ms": "5"}
    topic = pb.NewTopic(name="a", partitions=1, replication_factor=1, configs=configs)
    request = pb.CreateTopicsRequest(topics=[topic])
    await bench.ask("CreateTopics", request, pb.CreateTopicsResponse)
    for shown in (configs, {}):
        for names in ((), ("a",)):
            answer = await bench.ask(
                "DescribeTopics",
                pb.DescribeTopicsRequest(names=names),
                pb.DescribeTopicsResponse,
            )
            assert (answer.topics[0].name, answer.topics[0].configs) == ("a", shown)
        bench.authorizer.denied.add((Operation.DESCRIBE_CONFIGS, topic_resource("a")))


@on_bench
async def test_only_visible_configurations_are_described(bench: Bench) -> None:
    await bench.create("a", "b")
    denied = bench.authorizer.denied
    denied |= {
        (Operation.DESCRIBE_CONFIGS, topic_resource("b")),
        (Operation.DESCRIBE_CONFIGS, topic_resource("none")),
        (Operation.DESCRIBE_CONFIGS, CLUSTER),
    }
    asked = [(TOPIC, "a"), (TOPIC, "b"), (TOPIC, "none"), (BROKER, "1"), (BROKER, "")]
    request = pb.DescribeConfigsRequest(
        resources=[pb.ConfigResource(type=kind, name=name) for kind, name in asked]
    )
    answer = await bench.ask("DescribeConfigs", request, pb.DescribeConfigsResponse)
    assert [each.error for each in answer.resources] == [
        ErrorCode.NONE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ]
    assert [bool(each.entries) for each in answer.resources] == [True, *[False] * 4]
    denied.clear()
    answer = await bench.ask("DescribeConfigs", request, pb.DescribeConfigsResponse)
    assert [each.error for each in answer.resources if each.error] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


@pytest.mark.parametrize(
    ("method", "request_type", "response_type", "named"),
    [
        (
            "DescribeCluster",
            pb.DescribeClusterRequest,
            pb.DescribeClusterResponse,
            {"controller_id": -1},
        ),
        ("DescribeFeatures", pb.DescribeFeaturesRequest, pb.DescribeFeaturesResponse, {}),
    ],
)
@pytest.mark.parametrize("leads", [True, False])
@on_bench
async def test_descriptions_of_the_cluster(
    bench: Bench,
    leads: bool,
    method: str,
    request_type: Any,
    response_type: Any,
    named: dict[str, int],
) -> None:
    """Every controller answers these from its own metadata."""

    bench.authorizer.denied.add((Operation.DESCRIBE, CLUSTER))
    if not leads:
        bench.controller.process.loop.call_soon(bench.controller.quorum.resign, 101)
        await asyncio.sleep(0.1)
    answer = await bench.ask(method, request_type(), response_type)
    assert answer == response_type(
        error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        message=f"{ANONYMOUS} may not DESCRIBE the cluster kafka-cluster",
        **named,
    )
    bench.authorizer.denied.clear()
    answer = await bench.ask(method, request_type(), response_type)
    assert answer.error == ErrorCode.NONE
    (caller,) = set(bench.authorizer.callers)
    assert caller.principal == ANONYMOUS


@on_bench
async def test_a_request_is_the_same_whatever_way_it_comes(bench: Bench) -> None:
    elsewhere = OnBehalfOf(principal="User:alice", address="10.1.1.9")
    assert not (await bench.create("t", on_behalf_of=ALICE, request_id=ID)).already_done
    for fields in ({"on_behalf_of": elsewhere}, {}):
        answer = await bench.create("t", request_id=ID, **fields)
        assert (answer.error, answer.topics[0].error) == (ErrorCode.NONE, ErrorCode.NONE)
        assert answer.already_done


@on_bench
async def test_who_does_not_lead_refuses_nothing_but_to_decide(bench: Bench) -> None:
    """Its metadata, and the permissions in them, may be old."""

    bench.authorizer.denied.add((Operation.ALTER, CLUSTER))
    bench.controller.process.loop.call_soon(bench.controller.quorum.resign, 101)
    await asyncio.sleep(0.1)
    answer = await bench.ask(
        "UnregisterBroker", pb.UnregisterBrokerRequest(broker_id=1), pb.UnregisterBrokerResponse
    )
    assert (answer.error, answer.leader_id) == (ErrorCode.NOT_CONTROLLER, 101)
