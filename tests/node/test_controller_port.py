"""Which callers may send requests about the quorum to a controller's port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor

from chaos.sim.world.process import Process
from chaos.sim.world.simulation import Simulation
from metadata.acl import CLUSTER_NAME, ResourceType
from node.format import format_directory
from node.node import Node, build
from runtime.administration.acls import filter_message, message_of
from runtime.authorization.authorizer import CLUSTER, Operation
from runtime.config.node import from_settings
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2, controller_pb2, raft_pb2
from stele.wire.v1.caller_pb2 import OnBehalfOf
from stele.world import RpcCode, RpcError
from tests.support.acls import acl
from tests.support.authorizer import FakeAuthorizer
from tests.support.worlds import simulated

ALICE = OnBehalfOf(principal="User:alice", address="10.1.1.1")
DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
NO_SETTINGS: Mapping[str, str] = {}
TRANSFERRED = raft_pb2.TransferLeadershipResponse
OTHER = {Operation.DESCRIBE: Operation.ALTER, Operation.ALTER: Operation.DESCRIBE}


def controller(
    process: Process,
    node_id: int,
    authorizer: FakeAuthorizer | None,
    *,
    voters: Sequence[int] = (1, 2),
    settings: Mapping[str, str] = NO_SETTINGS,
) -> Node:
    config = from_settings(
        {
            "node.id": str(node_id),
            "process.roles": "controller",
            "controller.quorum.voters": ",".join(f"{each}@c{each}:9093" for each in voters),
            "controller.listener": f"c{node_id}:9093",
            "metrics.listener": "",
            "log.dirs": "/data",
            **settings,
        }
    )
    world = process.world
    format_directory(world.disk, ["/data"], "cluster", node_id, world.rng)
    return build(config, world, authorizer=authorizer)


async def ask(asker: Process, node_id: int, method: str, request: Any, answer: Any) -> Any:
    async def call() -> bytes:
        channel = asker.world.network.channel(Address(f"c{node_id}", 9093))
        try:
            return await channel.call(method, request.SerializeToString(), timeout_s=5)
        finally:
            await channel.close()

    return answer.FromString(await asker.run(call()))


@pytest.mark.parametrize("service", ["Admin", "Raft"])
@pytest.mark.parametrize(
    ("operation", "name", "request_type", "answer_type"),
    [
        (
            Operation.DESCRIBE,
            "DescribeQuorum",
            raft_pb2.DescribeQuorumRequest,
            raft_pb2.DescribeQuorumResponse,
        ),
        (
            Operation.ALTER,
            "TransferLeadership",
            raft_pb2.TransferLeadershipRequest,
            raft_pb2.TransferLeadershipResponse,
        ),
        (Operation.ALTER, "AddVoter", raft_pb2.AddVoterRequest, raft_pb2.VoterChangeResponse),
        (Operation.ALTER, "RemoveVoter", raft_pb2.RemoveVoterRequest, raft_pb2.VoterChangeResponse),
    ],
)
@simulated(1)
async def test_callers_without_permission_are_refused_by_every_leader_of_the_quorum(
    sim: Simulation,
    operation: Operation,
    name: str,
    request_type: Any,
    answer_type: Any,
    service: str,
) -> None:
    """As an administrator and as a voter. A request that a broker forwards is judged as its
    client's."""
    authorizer = FakeAuthorizer()

    processes = {node_id: sim.process(f"c{node_id}") for node_id in (1, 2)}
    nodes = {
        node_id: controller(process, node_id, authorizer) for node_id, process in processes.items()
    }
    await asyncio.gather(*(processes[each].run(nodes[each].start()) for each in nodes))
    await asyncio.sleep(5)
    roles = {node.controller.active: each for each, node in nodes.items() if node.controller}
    leader, other = roles[True], roles[False]
    asker = sim.process("b1")

    async def answers(**fields: Any) -> list[Any]:
        method, request = f"/stele.v1.{service}/{name}", request_type(**fields)
        return [
            await ask(asker, node_id, method, request, answer_type) for node_id in (leader, other)
        ]

    for fields, asked_by in (({}, "User:ANONYMOUS"), ({"on_behalf_of": ALICE}, "User:alice")):
        authorizer.denied = {(operation, CLUSTER)}
        for answer in await answers(**fields):
            assert (answer.error, answer.leader_id) == (DENIED, -1)  # nor hears who leads
            assert f"{asked_by} may not {operation.name} the cluster" in answer.message
        authorizer.denied = {(OTHER[operation], CLUSTER)}
        for answer in await answers(**fields):
            assert answer.error != DENIED
            assert answer.leader_id == leader
        assert authorizer.callers[-1].principal == asked_by
    authorizer.denied = {(Operation.CLUSTER_ACTION, CLUSTER)}
    for answer in await answers(on_behalf_of=ALICE):
        assert (answer.error, answer.leader_id) == (DENIED, -1), "the sender is no broker"
        assert "User:ANONYMOUS may not CLUSTER_ACTION the cluster" in answer.message
    await asyncio.gather(*(processes[each].run(nodes[each].stop()) for each in nodes))


ADMINISTRATION = {"DescribeQuorum", "TransferLeadership", "AddVoter", "RemoveVoter"}
OF_NODES = [
    method
    for module, name in ((raft_pb2, "Raft"), (controller_pb2, "Controller"))
    for method in module.DESCRIPTOR.services_by_name[name].methods
    if method.name not in ADMINISTRATION
]


@simulated(1)
async def test_what_nodes_ask_of_one_another_is_refused_to_others(sim: Simulation) -> None:
    """Every method, before its request is looked at: these requests are empty."""
    authorizer = FakeAuthorizer()

    process, asker = sim.process("c1"), sim.process("b1")
    node = controller(process, 1, authorizer, voters=(1,))
    await process.run(node.start())
    await asyncio.sleep(5)

    async def failure(method: MethodDescriptor) -> RpcError | None:
        name = f"/{method.containing_service.full_name}/{method.name}"
        channel = asker.world.network.channel(Address("c1", 9093))
        try:
            if method.client_streaming:
                stream = channel.stream(name)
                await stream.send(b"")
                await stream.receive()
            else:
                await channel.call(name, b"", timeout_s=5)
        except RpcError as error:
            return error
        finally:
            await channel.close()
        return None

    for method in OF_NODES:
        allowed = await asker.run(failure(method))
        assert allowed is None or allowed.code is not RpcCode.PERMISSION_DENIED
    authorizer.denied = {(Operation.CLUSTER_ACTION, CLUSTER)}
    for method in OF_NODES:
        refused = await asker.run(failure(method))
        assert refused is not None, method.full_name
        assert refused.code is RpcCode.PERMISSION_DENIED
        assert "User:ANONYMOUS may not CLUSTER_ACTION the cluster" in refused.detail
    await process.run(node.stop())


@pytest.mark.parametrize(
    ("name", "asked", "answer_type"),
    [
        ("TransferLeadership", raft_pb2.TransferLeadershipRequest(), TRANSFERRED),
        ("AddVoter", raft_pb2.AddVoterRequest(), raft_pb2.VoterChangeResponse),
        ("RemoveVoter", raft_pb2.RemoveVoterRequest(), raft_pb2.VoterChangeResponse),
    ],
)
@simulated(1)
async def test_a_right_that_is_being_removed_changes_no_voter(
    sim: Simulation, name: str, asked: Any, answer_type: Any
) -> None:
    """The removal is in the log of the leader, and the other voter has not fetched it yet."""
    settings = {"authorizer.class.name": "stele", "super.users": "User:ANONYMOUS"}
    processes = {node_id: sim.process(f"c{node_id}") for node_id in (1, 2)}
    nodes = {
        node_id: controller(process, node_id, None, settings=settings)
        for node_id, process in processes.items()
    }
    await asyncio.gather(*(processes[each].run(nodes[each].start()) for each in nodes))
    await asyncio.sleep(5)
    (leader,) = [each for each, node in nodes.items() if node.controller and node.controller.active]
    asker = sim.process("b1")
    right = acl(
        CLUSTER_NAME, Operation.ALTER, principal=ALICE.principal, resource_type=ResourceType.CLUSTER
    )

    async def admin(method: str, request: Any, answer_type: Any) -> Any:
        return await ask(asker, leader, f"/stele.v1.Admin/{method}", request, answer_type)

    async def as_alice() -> Any:
        sent = type(asked)(on_behalf_of=ALICE)
        return await admin(name, sent, answer_type)

    given = admin_pb2.CreateAclsRequest(acls=[message_of(right)])
    assert (await admin("CreateAcls", given, admin_pb2.CreateAclsResponse)).error == ErrorCode.NONE
    assert (await as_alice()).error not in (DENIED, ErrorCode.NONE), "the request names no voter"
    sim.fabric.wire.holds.append(lambda said: 0.3 if said.method == "/stele.v1.Raft/Fetch" else 0.0)
    everything = filter_message(1, None, 1, None, None, 1, 1)
    taken = admin_pb2.DeleteAclsRequest(filters=[everything])
    removal = asyncio.ensure_future(admin("DeleteAcls", taken, admin_pb2.DeleteAclsResponse))
    await asyncio.sleep(0.05)
    node = nodes[leader].controller
    assert node is not None
    assert len(node.image.acls) == 1, "the removal is not committed"
    assert (await as_alice()).error == DENIED
    assert (await removal).error == ErrorCode.NONE
