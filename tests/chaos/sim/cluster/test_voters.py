"""The quorum's voters change while a whole cluster works: growth, shrinking, replaced disks."""

from __future__ import annotations

import asyncio
import random

import pytest
from google.protobuf.message import Message

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.membership import directory_id
from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.damage import Damage
from chaos.sim.world.wire import Said
from stele.admin.admin import Admin
from stele.config import ClientWorld
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid
from stele.wire.v1 import raft_pb2 as pb
from tests.support.sim_cluster import TOPIC, a_topic, judged, write


async def until_voters(cluster: SimCluster, *ids: int) -> None:
    await cluster.until(lambda: cluster.voter_ids == ids, f"{ids} vote, not {cluster.voter_ids}")


async def until_ready(cluster: SimCluster, node: SimNode) -> None:
    await cluster.until(lambda: node.ready, f"{node.host} votes or observes")


async def until_another_leads(cluster: SimCluster, old: SimNode) -> None:
    await cluster.until(lambda: cluster.active_controller not in (None, old), "another one leads")


async def refused(attempt: object) -> ErrorCode:
    with pytest.raises(ApiError) as refusal:
        await attempt  # type: ignore[misc]
    assert refusal.value.message
    return refusal.value.code


@pytest.mark.parametrize("seed", range(3))
@judged(controllers=1)
async def test_one_controller_becomes_five_and_three_again(cluster: SimCluster, seed: int) -> None:
    await a_topic(cluster)
    for count in range(2, 6):
        node = cluster.add_controller()
        await until_ready(cluster, node)
        await cluster.add_voter(node.id)
        await until_voters(cluster, *range(101, 101 + count))
        await cluster.client.create_topic(f"with-{count}")
        await write(cluster, 2, f"voters {count}")
    for _ in range(2):
        leader = cluster.active_controller
        assert leader is not None
        await cluster.remove_voter(leader.id)
        await until_another_leads(cluster, leader)
        await leader.stop()
        await write(cluster, 2, f"without {leader.id}")
    assert len(cluster.voter_ids) == 3
    await cluster.until_isr(TOPIC, 3)
    leader = cluster.active_controller
    assert leader is not None
    leader.kill()
    await cluster.client.create_topic("after-the-leader")
    await cluster.client.check_promises(TOPIC)


@judged(3)
async def test_a_wiped_controller_votes_again_when_it_is_removed_and_added(
    cluster: SimCluster,
) -> None:
    await a_topic(cluster)
    active = cluster.active_controller
    wiped = next(each for each in cluster.controllers.values() if each is not active)
    wiped.kill()
    cluster.wipe(wiped)
    wiped.start()
    await cluster.until(lambda: wiped.ready, "the wiped one observes")
    assert await refused(cluster.add_voter(wiped.id)) is ErrorCode.DUPLICATE_VOTER
    await cluster.remove_voter(wiped.id)
    await cluster.add_voter(wiped.id)
    assert cluster.voter_ids == (101, 102, 103)
    other = next(
        each
        for each in cluster.controllers.values()
        if each is not wiped and each is not cluster.active_controller
    )
    other.kill()  # so that the wiped one is needed
    await cluster.client.create_topic("needs-the-wiped-one")


@judged(4, controllers=1)
async def test_brokers_follow_a_quorum_whose_first_voters_are_all_gone(cluster: SimCluster) -> None:
    await a_topic(cluster)
    first = cluster.controllers[101]
    new = cluster.add_controller()
    await cluster.until(lambda: new.ready, "it observes")
    await cluster.add_voter(new.id)
    await cluster.remove_voter(first.id)
    await cluster.until(lambda: cluster.active_controller is new, "the new one leads")
    await first.stop()
    await write(cluster, 3, "without the first")
    await asyncio.sleep(5.0)
    assert all(broker.ready for broker in cluster.brokers.values())
    for broker in cluster.brokers.values():
        broker.kill()
        broker.start()
    await cluster.until_isr(TOPIC, 3)
    await write(cluster, 3, "restarted")
    await cluster.client.check_promises(TOPIC)


@judged(6, combined=True)
async def test_combined_nodes_leave_the_quorum_and_go_on_as_brokers(cluster: SimCluster) -> None:
    await a_topic(cluster)
    new = cluster.add_controller()
    await until_ready(cluster, new)
    await cluster.add_voter(new.id)
    leader = cluster.active_controller
    assert leader is not None
    await cluster.remove_voter(leader.id)
    await until_another_leads(cluster, leader)
    await write(cluster, 3, "the former leader is a broker still")
    leader.kill()
    leader.start()
    await until_ready(cluster, leader)
    await cluster.until_isr(TOPIC, 3)
    assert leader.id not in cluster.voter_ids
    await cluster.client.check_promises(TOPIC)


@judged(0)
async def test_no_voter_is_spared_while_the_removal_of_another_may_take_effect(
    cluster: SimCluster,
) -> None:
    def hold(said: Said) -> float:
        return 1.0 if said.method.endswith("/RemoveVoter") else 0.0

    damage = Damage(cluster, random.Random(0))
    nodes = list(cluster.controllers.values())
    await cluster.until(lambda: damage.has_voter_to_spare(nodes[0]), "all disks are known")
    active = cluster.active_controller
    leaving, *others = (node for node in nodes if node is not active)
    cluster.simulation.fabric.wire.holds.append(hold)
    removal = asyncio.create_task(cluster.remove_voter(leaving.id))
    await asyncio.sleep(0.1)
    assert cluster.voter_ids == (101, 102, 103)  # the request is under way
    assert damage.has_voter_to_spare(leaving)
    assert not any(damage.has_voter_to_spare(node) for node in others)
    await removal
    assert not any(damage.has_voter_to_spare(node) for node in nodes)
    await cluster.add_voter(leaving.id)
    await cluster.until(lambda: damage.has_voter_to_spare(leaving), "three vote again")
    # A copy of the request may still be under way.
    assert not any(damage.has_voter_to_spare(node) for node in others)


@judged(0)
async def test_a_refused_removal_may_take_effect_as_long_as_the_voter_has_that_disk(
    cluster: SimCluster,
) -> None:
    damage = Damage(cluster, random.Random(0))
    first, second, third = cluster.controllers.values()
    await cluster.until(lambda: damage.has_voter_to_spare(first), "all disks are known")
    cluster.simulation.fabric.faults.duplicate = 1.0  # one copy is refused for the other
    with pytest.raises(ApiError):
        await cluster.remove_voter(second.id)
    assert not damage.has_voter_to_spare(third)
    cluster.simulation.fabric.faults.duplicate = 0.0
    await until_voters(cluster, first.id, third.id)
    second.kill()
    cluster.wipe(second)
    second.start()
    await until_ready(cluster, second)
    await cluster.add_voter(second.id)
    await cluster.until(lambda: damage.has_voter_to_spare(third), "three vote again")


# --------------------------------------------------------------------------- asking again


def removal(cluster: SimCluster, node: SimNode, request_id: bytes) -> pb.RemoveVoterRequest:
    directory = directory_id(node)
    assert directory is not None
    return pb.RemoveVoterRequest(
        voter_id=node.id, voter_directory_id=directory, request_id=request_id
    )


async def ask(cluster: SimCluster, method: str, request: Message) -> pb.VoterChangeResponse:
    answer = await cluster.client.administrate(method, request.SerializeToString())
    return pb.VoterChangeResponse.FromString(answer)


async def one_to_spare(cluster: SimCluster) -> SimNode:
    """A voter that does not lead, if the disks of all voters are known."""
    damage = Damage(cluster, random.Random(0))
    nodes = list(cluster.controllers.values())
    await cluster.until(lambda: damage.has_voter_to_spare(nodes[0]), "all disks are known")
    return next(node for node in nodes if node is not cluster.active_controller)


@pytest.mark.parametrize("has_another_leader", [False, True])
@judged(3)
async def test_a_removal_that_comes_again_when_the_voter_is_back_does_nothing(
    cluster: SimCluster, has_another_leader: bool
) -> None:
    node = await one_to_spare(cluster)
    request = removal(cluster, node, b"i" * 16)
    assert (await ask(cluster, "RemoveVoter", request)).error == ErrorCode.NONE
    again = await ask(cluster, "RemoveVoter", request)
    assert (again.error, node.id in cluster.voter_ids) == (ErrorCode.NONE, False)
    await cluster.add_voter(node.id)
    leader = cluster.active_controller
    assert leader is not None
    if has_another_leader:
        leader.kill()
        await until_another_leads(cluster, leader)
        leader.start()
        await until_ready(cluster, leader)
    late = await ask(cluster, "RemoveVoter", request)
    assert late.error == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert "ask again under a new request id" in late.message
    assert cluster.voter_ids == (101, 102, 103)
    request.request_id = b"j" * 16
    assert (await ask(cluster, "RemoveVoter", request)).error == ErrorCode.NONE
    assert node.id not in cluster.voter_ids


@judged(4)
async def test_an_addition_that_comes_again_when_the_voter_is_gone_does_nothing(
    cluster: SimCluster,
) -> None:
    node = await one_to_spare(cluster)
    await cluster.remove_voter(node.id)
    request = pb.AddVoterRequest(
        voter_id=node.id,
        voter_directory_id=directory_id(node),
        endpoint=f"{node.host}:9093",
        timeout_ms=5000,
        request_id=b"i" * 16,
    )
    for _ in range(2):
        assert (await ask(cluster, "AddVoter", request)).error == ErrorCode.NONE
    await cluster.remove_voter(node.id)
    late = await ask(cluster, "AddVoter", request)
    assert late.error == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert node.id not in cluster.voter_ids


@judged(5)
async def test_an_id_of_another_request_is_refused(cluster: SimCluster) -> None:
    node = await one_to_spare(cluster)
    other = pb.TransferLeadershipRequest(voter_id=node.id, request_id=b"i" * 16)
    await cluster.client.administrate("TransferLeadership", other.SerializeToString())
    request = removal(cluster, node, b"i" * 16)
    for request_id in (b"i" * 16, b"short"):
        request.request_id = request_id
        answer = await ask(cluster, "RemoveVoter", request)
        assert (answer.error, "request id" in answer.message) == (
            ErrorCode.INVALID_REQUEST,
            True,
        )
    assert cluster.voter_ids == (101, 102, 103)


@pytest.mark.parametrize("seed", range(4))
@judged
async def test_copies_that_come_late_undo_nothing(cluster: SimCluster, seed: int) -> None:
    rng = random.Random(seed)

    def echo(said: Said) -> float | None:
        return rng.uniform(0.0, 4.0) if said.method.endswith("Voter") else None

    node = await one_to_spare(cluster)
    directory = encode_uuid(directory_id(node) or b"")
    world = cluster.client_world
    servers = ",".join(f"{each.host}:9092" for each in cluster.brokers.values())
    client = ClientWorld(world.clock, world.network, world.rng)
    admin = Admin(servers, world=client, default_api_timeout_ms=60_000)
    cluster.simulation.fabric.wire.echoes.append(echo)
    for _ in range(3):
        await admin.remove_voter(node.id, directory)
        assert node.id not in cluster.voter_ids
        await admin.add_voter(node.id, directory, f"{node.host}:9093")
    await admin.close()
    await asyncio.sleep(10)
    assert cluster.voter_ids == (101, 102, 103)
