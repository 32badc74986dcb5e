"""The answers that administrators get while controllers die, stand still and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from chaos.sim.cluster.cluster import CONTROLLER_PORT, SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.world.rpc_server import RpcServer
from metadata.records import METADATA_VERSION_LEVEL
from node.node import SUPPORTED_FEATURES
from stele.addresses import Address
from stele.admin.descriptions import ConfigResource, NewTopic
from stele.admin.features import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureDescription,
)
from stele.errors import ApiError, BulkError, ErrorCode, OutcomeUnknownError
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1.controller_pb2 import ReadIndexRequest, ReadIndexResponse
from stele.wire.v1.raft_pb2 import DescribeQuorumRequest, DescribeQuorumResponse
from stele.world import RpcError
from tests.support.sim_cluster import TOPIC, a_topic, admin_of, judged, write

ID = b"0123456789abcdef"


def active(cluster: SimCluster) -> SimNode:
    found = cluster.active_controller
    assert found is not None
    return found


async def ask(cluster: SimCluster, node: SimNode, method: str, request: Any, answer: Any) -> Any:
    """Send one call to a controller's own port."""
    channel = cluster.client_world.network.channel(Address(node.host, CONTROLLER_PORT))
    try:
        return answer.FromString(
            await channel.call(method, request.SerializeToString(), timeout_s=30.0)
        )
    finally:
        await channel.close()


async def another_active(cluster: SimCluster, than: SimNode) -> SimNode:
    await cluster.until(
        lambda: cluster.active_controller not in (None, than), "another controller is active"
    )
    return active(cluster)


# -------------------------------------------------------------------------- once


@pytest.mark.parametrize("delay_ms", [0, 1, 2, 3, 5, 8, 20])
def test_a_topic_asked_for_twice_over_a_killed_controller_is_made_once(delay_ms: int) -> None:
    """The first request is under way when its controller dies. The second goes to another
    controller."""

    async def scenario(cluster: SimCluster) -> None:
        await a_topic(cluster)
        request = pb.CreateTopicsRequest(
            topics=[pb.NewTopic(name="once", partitions=3, replication_factor=3)], request_id=ID
        )
        first = asyncio.ensure_future(
            cluster.client.administrate("CreateTopics", request.SerializeToString())
        )
        await asyncio.sleep(delay_ms / 1000)
        dead = active(cluster)
        dead.kill()
        await another_active(cluster, dead)
        answers = [pb.CreateTopicsResponse.FromString(await first)]
        for _ in range(2):
            again = await cluster.client.administrate("CreateTopics", request.SerializeToString())
            answers.append(pb.CreateTopicsResponse.FromString(again))
        assert [answer.error for answer in answers] == [ErrorCode.NONE] * 3
        assert [answer.already_done for answer in answers][1:] == [True, True]
        assert all(answer.topics[0].error == ErrorCode.NONE for answer in answers)
        assert len({answer.topics[0].topic_id for answer in answers}) == 1
        await cluster.until_isr("once", 3)
        assert answers[0].topics[0].topic_id == cluster.image.topics.ids["once"]
        assert len(cluster.image.topics) == 2

    JudgedCluster(delay_ms).run(scenario)


@pytest.mark.parametrize("seed", range(3))
@judged
async def test_the_admin_client_never_doubles_and_never_lies(
    cluster: SimCluster, seed: int
) -> None:
    """Each call succeeds, or says that the outcome is unknown. Then the same call finds out."""

    await a_topic(cluster)
    unknown = 0
    async with admin_of(cluster, default_api_timeout_ms=1500) as admin:
        for number in range(8):
            victim = active(cluster)
            name = f"t{number}"
            creating: Awaitable[Any] = asyncio.ensure_future(
                admin.create_topics([NewTopic(name, 1, 3)])
            )
            await asyncio.sleep(0.002 * (number % 4))
            if number % 2:
                victim.pause()
            else:
                victim.kill()
            try:
                (created,) = await creating
            except OutcomeUnknownError as error:
                unknown += 1
                await another_active(cluster, victim)
                (created,) = await admin.create_topics(
                    [NewTopic(name, 1, 3)], request_id=error.request_id
                )
            await another_active(cluster, victim)
            assert cluster.image.topics.ids[name] == created.topic_id
            if number % 2:
                victim.resume()
            else:
                victim.start()
            await cluster.until_isr(name, 3)
    assert unknown, "no outcome was ever unknown: this test shows nothing"


@judged(7)
async def test_without_controllers_nothing_is_done_and_that_is_said(cluster: SimCluster) -> None:
    await a_topic(cluster)
    for node in cluster.controllers.values():
        node.kill()
    began = cluster.simulation.now
    async with admin_of(cluster, default_api_timeout_ms=3000) as admin:
        with pytest.raises(OutcomeUnknownError) as caught:
            await admin.create_topics([NewTopic("later", 1, 3)])
        assert cluster.simulation.now - began < 20.0, "a request hangs"
        assert caught.value.request_id.hex() in str(caught.value)
        for node in cluster.controllers.values():
            node.start()
        await cluster.until(lambda: cluster.active_controller is not None, "one is active")
        (created,) = await admin.create_topics(
            [NewTopic("later", 1, 3)], request_id=caught.value.request_id
        )
    assert cluster.image.topics.ids["later"] == created.topic_id


# ------------------------------------------------------------------------ linearizable


async def depose(cluster: SimCluster) -> tuple[SimNode, SimNode]:
    """Cut the active controller off from the others, whose connections to it break. They elect
    another one before the old one has missed enough fetches to resign."""
    old, fabric = active(cluster), cluster.simulation.fabric
    others = [node.host for node in cluster.controllers.values() if node is not old]
    server = old.machine.ports[CONTROLLER_PORT]
    assert isinstance(server, RpcServer)
    calling = server.calls  # the fetches of the others wait here for news
    await cluster.until(
        lambda: {*others} <= {call.peer.address for call in calling.values()}, "both are connected"
    )
    for other in others:
        fabric.cut(other, old.host)
        server.reset(other)
    await asyncio.sleep(2 * max(fabric.faults.latency_s))  # the resets arrive
    fabric.isolate(old.host, others)
    new = await another_active(cluster, old)
    assert thinks_it_is_active(old)
    return old, new


def thinks_it_is_active(node: SimNode) -> bool:
    return bool(node.node and node.node.controller and node.node.controller.active)


@pytest.mark.parametrize("pause_s", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("seed", range(2))
@judged
async def test_a_deposed_leader_never_answers_with_an_old_state(
    cluster: SimCluster, seed: int, pause_s: float
) -> None:
    """Both if it does not know yet that it was deposed, and if it stood still when the questions
    came."""

    await a_topic(cluster)
    zombie, new = await depose(cluster)
    creation = pb.CreateTopicsRequest(
        topics=[pb.NewTopic(name="new", partitions=1, replication_factor=3)], request_id=ID
    )
    create = "/stele.v1.Admin/CreateTopics"
    created = await ask(cluster, new, create, creation, pb.CreateTopicsResponse)
    assert created.topics[0].error == ErrorCode.NONE
    assert thinks_it_is_active(zombie)
    zombie.pause()
    describe = "/stele.v1.Admin/DescribeTopics"
    index, quorum = "/stele.v1.Controller/ReadIndex", "/stele.v1.Admin/DescribeQuorum"
    fresh = pb.DescribeTopicsRequest(linearizable=True)
    asked = [
        ask(cluster, zombie, describe, pb.DescribeTopicsRequest(), pb.DescribeTopicsResponse),
        ask(cluster, zombie, describe, fresh, pb.DescribeTopicsResponse),
        ask(cluster, zombie, index, ReadIndexRequest(), ReadIndexResponse),
        ask(cluster, zombie, quorum, DescribeQuorumRequest(), DescribeQuorumResponse),
    ]
    questions = [asyncio.ensure_future(question) for question in asked]
    await asyncio.sleep(pause_s)
    zombie.resume()
    local, linearizable, found, described = await asyncio.gather(*questions, return_exceptions=True)
    # A read that is not linearizable gets the old state.
    assert isinstance(local, pb.DescribeTopicsResponse)
    assert [topic.name for topic in local.topics] == [TOPIC]
    assert isinstance(linearizable, RpcError)
    assert isinstance(found, ReadIndexResponse)
    assert found.error == ErrorCode.NOT_CONTROLLER
    assert isinstance(described, DescribeQuorumResponse)
    assert described.error == ErrorCode.NOT_CONTROLLER
    cluster.simulation.fabric.heal()
    async with admin_of(cluster) as admin:
        assert [topic.name for topic in await admin.list_topics()] == ["new", TOPIC]


@pytest.mark.parametrize("seed", range(2))
@judged
async def test_a_change_that_anybody_has_seen_is_seen_by_readers_of_every_broker(
    cluster: SimCluster, seed: int
) -> None:
    """Another client reads at once through any broker, also one that is behind."""

    await a_topic(cluster)
    fabric = cluster.simulation.fabric
    async with admin_of(cluster) as writer:
        for number in range(6):
            name = f"t{number}"
            behind = cluster.brokers[1 + number % 3]
            if number % 2:
                await cluster.client.create_topic(f"w{number}")
            await writer.create_topics([NewTopic(name, 1, 3)])
            async with admin_of(cluster, through=behind) as reader:
                names = [topic.name for topic in await reader.list_topics()]
                assert name in names
                described = await reader.describe_cluster()
                assert [each.broker_id for each in described.brokers] == [1, 2, 3]
                resource = ConfigResource.topic(name)
                assert await reader.describe_configs([resource])
    fabric.heal()


# ---------------------------------------------------------------------------- features


async def until_equal(ask: Callable[[], Awaitable[object]], expected: object) -> None:
    async with asyncio.timeout(30.0):
        while await ask() != expected:
            await asyncio.sleep(0.1)


def metadata_version(features: Sequence[FeatureDescription]) -> FeatureDescription:
    return next(each for each in features if each.name == "metadata.version")


@judged(3)
async def test_levels_survive_controllers_and_snapshots(cluster: SimCluster) -> None:
    await a_topic(cluster)
    async with admin_of(cluster) as admin:
        await admin.create_topics([NewTopic("remembered", 1, 3)])
        with pytest.raises(Exception, match="would be forgotten"):
            await admin.update_features({"metadata.version": 1}, SAFE_DOWNGRADE)
        (down,) = await admin.update_features({"metadata.version": 1}, UNSAFE_DOWNGRADE)
        assert (down.level_before, down.level) == (METADATA_VERSION_LEVEL, 1)
        dead = active(cluster)
        dead.kill()
        await another_active(cluster, dead)
        feature = metadata_version(await admin.describe_features())
        assert feature.level == 1
        assert (feature.min_level, feature.max_level) == (1, METADATA_VERSION_LEVEL)
        assert not len(cluster.image.outcomes)
        dead.start()
        (up,) = await admin.update_features({"metadata.version": 2}, UPGRADE)
        assert (up.level_before, up.level, up.already_done) == (1, 2, False)
        assert len(cluster.image.outcomes) == 1
        for broker in cluster.brokers.values():
            await broker.stop()
            broker.start()
        await cluster.until_isr(TOPIC, 3)


@judged(5)
async def test_an_upgrade_waits_for_a_controller_of_an_older_version(cluster: SimCluster) -> None:
    older = tuple(
        ("metadata.version", 1, 1) if each[0] == "metadata.version" else each
        for each in SUPPORTED_FEATURES
    )

    async with admin_of(cluster) as admin:

        async def levels() -> dict[int, int]:
            feature = metadata_version(await admin.describe_features())
            return {each.node_id: each.max_level for each in feature.controllers}

        async def upgrade() -> None:
            await admin.update_features({"metadata.version": 2}, UPGRADE)

        await until_equal(levels, dict.fromkeys((101, 102, 103), METADATA_VERSION_LEVEL))
        await admin.update_features({"metadata.version": 1}, UNSAFE_DOWNGRADE)
        behind = next(each for each in cluster.controllers.values() if each != active(cluster))
        await behind.stop()
        behind.features = older
        behind.start()
        expected = dict.fromkeys((101, 102, 103), METADATA_VERSION_LEVEL) | {behind.id: 1}
        await until_equal(levels, expected)
        for down in (False, True):
            if down:
                behind.kill()
            with pytest.raises(BulkError, match=f"controller {behind.id} supports .* not 2"):
                await upgrade()
        behind.features = SUPPORTED_FEATURES
        behind.start()
        await until_equal(levels, dict.fromkeys((101, 102, 103), METADATA_VERSION_LEVEL))
        await upgrade()
        new = cluster.add_controller()
        await cluster.until(lambda: new.ready, "the new one observes")
        new.kill()
        new.features = older
        new.start()
        await cluster.until(lambda: new.ready, "the new one observes")
        before = cluster.voter_ids
        with pytest.raises(ApiError, match=r"metadata\.version is finalized at 2") as refusal:
            await cluster.add_voter(new.id)
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION
        assert cluster.voter_ids == before


# -------------------------------------------------------------------------- gone for good


@judged(1)
async def test_a_broker_that_is_gone_is_forgotten_and_comes_back_as_a_new_one(
    cluster: SimCluster,
) -> None:
    await a_topic(cluster)
    gone = cluster.brokers[max(cluster.brokers)]
    async with admin_of(cluster) as admin:
        with pytest.raises(ApiError, match="alive"):
            await admin.unregister_broker(gone.id)
        gone.kill()
        await cluster.until(
            lambda: (found := cluster.image.broker(gone.id)) is not None and found.fenced,
            "it is fenced",
        )
        await admin.unregister_broker(gone.id)
        described = await admin.describe_cluster()
        assert gone.id not in [each.broker_id for each in described.brokers]
        await write(cluster, 3)
        await admin.create_topics([NewTopic("elsewhere", 1, 2)])
        (topic,) = await admin.describe_topics(["elsewhere"])
        assert gone.id not in topic.partitions[0].replicas
        gone.start()
        await cluster.until_isr(TOPIC, 3)
        assert cluster.image.broker(gone.id) is not None
        with pytest.raises(ApiError) as refused:
            await admin.unregister_broker(99)
        assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED
