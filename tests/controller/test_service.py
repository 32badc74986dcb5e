"""The controller on a quorum, with brokers that come, go, die and fall silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from chaos.sim.world.simulation import Simulation
from metadata.partitions import NO_LEADER
from raft.api import CommittedBatch
from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from stele.world import RpcError
from tests.support.controller_world import Controller, StubBroker
from tests.support.worlds import Scenario, gives

ID = b"0123456789abcdef"
CREATE = "/stele.v1.Admin/CreateTopics"


class World:
    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self.controller = Controller(self.simulation)
        self.brokers: dict[int, StubBroker] = {}

    async def start(self, *broker_ids: int) -> None:
        await self.controller.start()
        for broker_id in broker_ids:
            await self.add(broker_id)
        await asyncio.sleep(0.1)
        for broker_id in broker_ids:
            assert not self.fenced(broker_id)

    async def add(self, broker_id: int, number: int = 0) -> StubBroker:
        broker = self.brokers[broker_id] = StubBroker(self.simulation, broker_id, number)
        await broker.join()
        return broker

    def fenced(self, broker_id: int) -> bool:
        return self.controller.service.image.brokers[broker_id].fenced

    async def fenced_after(self, broker_id: int, limit_s: float) -> float:
        """The time until a broker is fenced."""
        begin = self.simulation.now
        while not self.fenced(broker_id):
            await asyncio.sleep(0.005)
            assert self.simulation.now < begin + limit_s
        return self.simulation.now - begin

    async def create(self, name: str, *replicas: int, via: int = 1, request_id: bytes = b"") -> Any:
        topic = admin.NewTopic(
            name=name,
            partitions=-1,
            replication_factor=-1,
            assignments=[admin.NewTopic.Assignment(partition=0, replicas=replicas)],
        )
        request = admin.CreateTopicsRequest(topics=[topic], request_id=request_id)
        return await self.brokers[via].call(CREATE, request, admin.CreateTopicsResponse)


@gives("world")
def with_controller(scenario: Scenario) -> None:
    """A controller, to which the test adds brokers. It must not fail."""
    world = World()
    world.simulation.run(scenario(world))
    assert not world.controller.fatal


@with_controller
async def test_a_topic_is_answered_when_it_is_committed(world: World) -> None:
    await world.start(1, 2)
    world.controller.quorum.held = True
    answer = asyncio.ensure_future(world.create("t", 1, 2))
    await asyncio.sleep(1.0)
    assert not answer.done()
    assert world.controller.service.image.topic("t") is None
    again = asyncio.ensure_future(world.create("t", 1, 2))
    await asyncio.sleep(0.1)
    assert not again.done(), "a refusal must wait for what it is based on"
    world.controller.quorum.held = False
    world.controller.process.loop.call_soon(world.controller.quorum.commit)
    assert (await answer).topics[0].error == ErrorCode.NONE
    assert (await again).topics[0].error == ErrorCode.TOPIC_ALREADY_EXISTS
    assert world.controller.service.image.topic("t") is not None


@with_controller
async def test_lost_leadership_is_answered_honestly(world: World) -> None:
    await world.start(1, 2)
    image = world.controller.service.image
    world.controller.quorum.held = True
    wrote = asyncio.ensure_future(world.create("t", 1))
    await asyncio.sleep(0.05)
    only_read = asyncio.ensure_future(world.create("t", 1))
    stale = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
    refused = asyncio.ensure_future(
        world.brokers[1].call(
            "/stele.v1.Controller/AllocateProducerIds", stale, pb.AllocateProducerIdsResponse
        )
    )
    await asyncio.sleep(0.05)
    assert not refused.done()
    world.controller.process.loop.call_soon(world.controller.quorum.resign, 101)
    answer = await wrote
    assert (answer.error, answer.leader_id) == (ErrorCode.REQUEST_TIMED_OUT, 101)
    assert (await only_read).error == ErrorCode.NOT_CONTROLLER
    assert (await refused).error == ErrorCode.NOT_CONTROLLER
    assert world.controller.service.image is image
    assert not world.controller.service.active
    later = await world.create("u", 1)
    assert (later.error, later.leader_id) == (ErrorCode.NOT_CONTROLLER, 101)


@with_controller
async def test_a_repetition_waits_for_the_first_one_that_is_under_way(world: World) -> None:
    await world.start(1)
    quorum = world.controller.quorum
    quorum.held = True
    first = asyncio.ensure_future(world.create("t", 1, request_id=ID))
    await asyncio.sleep(0.05)
    again = asyncio.ensure_future(world.create("t", 1, request_id=ID))
    await asyncio.sleep(0.5)
    assert not first.done()
    assert not again.done()
    assert len(quorum.proposed) == 1
    quorum.held = False
    world.controller.process.loop.call_soon(quorum.commit)
    assert not (await first).already_done
    assert (await again).already_done
    assert (await again).topics[0].topic_id == (await first).topics[0].topic_id


@with_controller
async def test_a_repetition_knows_as_little_as_the_first_one(world: World) -> None:
    """The answer is not "refused": the repeated decision was proposed, and the next leader may
    commit it."""
    await world.start(1)
    quorum = world.controller.quorum
    quorum.held = True
    first = asyncio.ensure_future(world.create("t", 1, request_id=ID))
    await asyncio.sleep(0.05)
    again = asyncio.ensure_future(world.create("t", 1, request_id=ID))
    await asyncio.sleep(0.05)
    world.controller.process.loop.call_soon(quorum.resign, 101)
    for answer in (await first, await again):
        assert answer.error == ErrorCode.REQUEST_TIMED_OUT
        assert f"repeat the request with the id {ID.hex()} to find out" in answer.message


@with_controller
async def test_a_linearizable_read_waits_for_what_the_quorum_has_committed(world: World) -> None:
    await world.start(1)
    quorum = world.controller.quorum
    quorum.held = True
    created = asyncio.ensure_future(world.create("t", 1))
    await asyncio.sleep(0.05)
    end = quorum.proposed[-1].last_offset + 1
    quorum.confirmed = end  # committed, and on its way to the controller
    request = admin.DescribeTopicsRequest(linearizable=True)
    read = asyncio.ensure_future(
        world.brokers[1].call(
            "/stele.v1.Admin/DescribeTopics", request, admin.DescribeTopicsResponse
        )
    )
    await asyncio.sleep(0.5)
    assert not read.done()
    quorum.held = False
    world.controller.process.loop.call_soon(quorum.commit)
    assert [topic.name for topic in (await read).topics] == ["t"]
    await created


@with_controller
async def test_a_read_index_counts_control_records_once_they_have_come(world: World) -> None:
    await world.start(1)
    service, quorum = world.controller.service, world.controller.quorum
    end_offset = quorum.confirmed = service.image.offset + 2

    def ask() -> asyncio.Future[pb.ReadIndexResponse]:
        name = "/stele.v1.Controller/ReadIndex"
        call = world.brokers[1].call(name, pb.ReadIndexRequest(), pb.ReadIndexResponse)
        return asyncio.ensure_future(call)

    first = ask()
    await asyncio.sleep(0.5)
    assert not first.done()
    world.controller.process.loop.call_soon(service.on_commit, [], end_offset)
    assert (await first).metadata_offset == end_offset - 1

    quorum.confirmed = end_offset + 1
    second = ask()
    await asyncio.sleep(0.5)
    world.controller.process.loop.call_soon(quorum.resign, 101)
    assert (await second).error == ErrorCode.NOT_CONTROLLER


@with_controller
async def test_who_does_not_lead_answers_no_linearizable_read(world: World) -> None:
    await world.start(1)
    world.controller.process.loop.call_soon(world.controller.quorum.resign, 101)
    await asyncio.sleep(0.05)
    request = admin.DescribeTopicsRequest(linearizable=True)
    describe = "/stele.v1.Admin/DescribeTopics"
    with pytest.raises(RpcError, match="not the active one"):
        await world.brokers[1].call(describe, request, admin.DescribeTopicsResponse)
    index = await world.brokers[1].call(
        "/stele.v1.Controller/ReadIndex", pb.ReadIndexRequest(), pb.ReadIndexResponse
    )
    assert (index.error, index.leader_id) == (ErrorCode.NOT_CONTROLLER, 101)


@with_controller
async def test_a_decision_of_ours_that_another_leader_commits_is_taken_in(world: World) -> None:
    await world.start(1)
    quorum = world.controller.quorum
    quorum.held = True
    asyncio.ensure_future(world.create("t", 1)).add_done_callback(lambda task: task.result())
    await asyncio.sleep(0.05)
    batch: CommittedBatch = quorum.proposed[0]
    world.controller.process.loop.call_soon(quorum.resign, 101)
    await asyncio.sleep(0.05)
    service, end_offset = world.controller.service, batch.last_offset + 1
    world.controller.process.loop.call_soon(service.on_commit, [batch], end_offset)
    await asyncio.sleep(0.05)
    assert world.controller.service.image.topic("t") is not None


@with_controller
async def test_an_answer_tells_what_is_committed_with_its_own_decision(world: World) -> None:
    await world.start(1)
    broker = world.brokers[1]
    broker.process.pause()
    await world.fenced_after(1, 6.0)
    fenced_at = world.controller.service.image.offset
    broker.answers.clear()
    broker.process.resume()
    await asyncio.sleep(1.0)
    unfenced = next(answer for answer in broker.answers if not answer.fenced)
    assert unfenced.committed_offset > fenced_at


@with_controller
async def test_a_killed_broker_is_fenced_at_once_and_its_leaders_move(world: World) -> None:
    await world.start(1, 2)
    await world.create("t", 1, 2)
    world.simulation.kill(world.brokers[1].process)
    assert await world.fenced_after(1, 1.0) < 0.1
    topic = world.controller.service.image.topic("t")
    assert topic is not None
    assert topic.partitions[0].leader == 2
    assert world.controller.service.metrics.timed_out_brokers == 1
    assert world.controller.service.metrics.offline_partitions == 0


@with_controller
async def test_a_broker_that_is_cut_off_costs_the_session(world: World) -> None:
    await world.start(1, 2)
    world.simulation.fabric.isolate("b1", ["c100"])
    await asyncio.sleep(0.2)
    assert not world.fenced(1)
    assert await world.fenced_after(1, 4.0) > 2.0


@with_controller
async def test_a_paused_broker_costs_the_session_and_comes_back(world: World) -> None:
    await world.start(1, 2)
    world.brokers[1].process.pause()
    assert 2.4 < await world.fenced_after(1, 6.0) < 3.6
    world.brokers[1].process.resume()
    await asyncio.sleep(1.0)
    assert not world.fenced(1)


@with_controller
async def test_a_stream_that_ends_while_the_process_lives_does_not_fence(world: World) -> None:
    await world.start(1)
    broker = world.brokers[1]
    assert broker.stream is not None
    await broker.process.run(broker.stream.close())
    await asyncio.sleep(1.0)
    assert not world.fenced(1)
    world.simulation.kill(broker.process)
    assert await world.fenced_after(1, 2.0) < 0.6, "it is probed until its stream is back"


@with_controller
async def test_a_quick_restart_is_registered_at_once(world: World) -> None:
    await world.start(1, 2)
    await world.create("t", 1, 2)
    old = world.brokers[1]
    world.simulation.kill(old.process)
    new = await world.add(1, number=1)
    assert new.epoch > old.epoch
    await asyncio.sleep(0.1)
    assert not world.fenced(1)
    topic = world.controller.service.image.topic("t")
    assert topic is not None
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (2, (2,))


@with_controller
async def test_a_second_process_under_the_same_id_is_refused(world: World) -> None:
    await world.start(1)
    impostor = StubBroker(world.simulation, 1, number=9)
    answer = await impostor.register()
    assert answer.error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "alive" in answer.message
    assert not world.fenced(1)


@with_controller
async def test_a_new_controller_probes_brokers_that_do_not_come(world: World) -> None:
    await world.start(1, 2, 3)
    await world.create("t", 1, 2, 3)
    for broker in world.brokers.values():
        broker.interval_s = 1e9
    world.brokers[3].controller = "c101"
    next_one = Controller(world.simulation, 101, log=world.controller.quorum.log)
    world.simulation.kill(world.controller.process)
    world.simulation.kill(world.brokers[1].process)
    await next_one.start(claim=2)
    world.controller = next_one
    world.brokers[3].beat()
    assert 0.5 <= await world.fenced_after(1, 2.0) < 0.6
    await asyncio.sleep(1.0)
    assert not world.fenced(2), "it answers probes"
    assert not world.fenced(3)
    topic = next_one.service.image.topic("t")
    assert topic is not None
    assert topic.partitions[0].leader == 2


@with_controller
async def test_controlled_shutdown(world: World) -> None:
    await world.start(1, 2)
    await world.create("t", 1, 2)
    broker = world.brokers[1]
    broker.want_shutdown = True
    await asyncio.sleep(1.5)
    may = [answer.may_shut_down for answer in broker.answers]
    assert may.index(True) == len(may) - may.count(True), "once let go, always let go"
    topic = world.controller.service.image.topic("t")
    assert topic is not None
    assert topic.partitions[0].leader == 2
    assert world.fenced(1)


@with_controller
async def test_a_stale_heartbeat_is_refused(world: World) -> None:
    await world.start(1)
    stale = world.brokers[1]
    stale.epoch -= 1
    stale.beat()
    await asyncio.sleep(0.2)
    assert stale.answers[-1].error == ErrorCode.STALE_BROKER_EPOCH
    assert stale.answers[-1].fenced


@with_controller
async def test_a_deposed_controller_acknowledges_no_heartbeat(world: World) -> None:
    """The next controller may have been elected before the heartbeat. It fences the broker a
    session after that, when a lease from this heartbeat would still hold."""
    await world.start(1)
    broker = world.brokers[1]
    world.controller.quorum.majority.clear()
    answered = len(broker.answers)
    await asyncio.sleep(2.0)
    assert len(broker.answers) == answered, "it does not know yet whether it still leads"
    world.controller.process.loop.call_soon(world.controller.quorum.resign, 101)
    world.controller.process.loop.call_soon(world.controller.quorum.majority.set)
    await asyncio.sleep(0.1)
    assert all(answer.error == ErrorCode.NOT_CONTROLLER for answer in broker.answers[answered:])


@with_controller
async def test_a_heartbeat_is_heard_while_the_one_before_waits_for_the_quorum(world: World) -> None:
    """A broker that sends heartbeats is alive, however slow the quorum is. Once the quorum answers,
    the newest heartbeat is answered next, so that a backlog costs no lease."""
    await world.start(1)
    broker, quorum = world.brokers[1], world.controller.quorum
    broker.interval_s = 1e9
    answers: list[pb.HeartbeatResponse] = []

    async def send_and_receive() -> None:
        channel = broker.process.world.network.channel(Address(broker.controller, 9093))
        stream = channel.stream("/stele.v1.Controller/Heartbeat")
        for sequence in range(20):
            await stream.send(broker.heartbeat(sequence))
            await asyncio.sleep(0.5)
        quorum.majority.set()
        for _ in range(2):
            payload = await stream.receive()
            assert payload is not None
            answers.append(pb.HeartbeatResponse.FromString(payload))
        await channel.close()

    quorum.majority.clear()
    await broker.process.run(send_and_receive())
    assert [answer.sequence for answer in answers] == [0, 19]
    assert [answer.error for answer in answers] == [0, 0]
    assert world.controller.service.metrics.timed_out_brokers == 0


@with_controller
async def test_streams_end_with_leadership(world: World) -> None:
    await world.start(1)
    broker = world.brokers[1]
    broker.interval_s = 1e9
    world.controller.process.loop.call_soon(world.controller.quorum.resign, 101)
    await asyncio.sleep(0.1)
    assert broker.stream is not None
    begin = len(broker.answers)
    assert await broker.process.run(broker.stream.receive()) is None
    assert len(broker.answers) == begin


@with_controller
async def test_standing_still_does_not_fence_the_living(world: World) -> None:
    await world.start(1, 2)
    world.controller.process.pause()
    await asyncio.sleep(30.0)
    world.controller.process.resume()
    await asyncio.sleep(2.0)
    assert world.controller.service.metrics.timed_out_brokers == 0


@with_controller
async def test_leadership_returns_to_the_preferred_replica(world: World) -> None:
    await world.start(1, 2)
    await world.create("t", 1, 2)
    world.simulation.kill(world.brokers[1].process)
    await world.fenced_after(1, 1.0)
    await world.add(1, number=1)
    await asyncio.sleep(0.1)
    image = world.controller.service.image
    topic = image.topic("t")
    assert topic is not None
    state = topic.partitions[0]
    request = pb.AlterPartitionRequest(
        broker_id=2,
        broker_epoch=image.brokers[2].broker_epoch,
        partitions=[
            pb.AlterPartitionRequest.Partition(
                topic_id=topic.topic_id,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                isr=[
                    pb.AlterPartitionRequest.Member(
                        broker_id=id_, broker_epoch=image.brokers[id_].broker_epoch
                    )
                    for id_ in (1, 2)
                ],
            )
        ],
    )
    answer = await world.brokers[2].call(
        "/stele.v1.Controller/AlterPartition", request, pb.AlterPartitionResponse
    )
    assert answer.partitions[0].error == ErrorCode.NONE
    assert answer.leader_id == 100
    assert world.controller.service.metrics.preferred_replica_imbalance == 1
    await asyncio.sleep(300.0)
    assert world.controller.service.metrics.preferred_replica_imbalance == 0


@with_controller
async def test_descriptions_come_from_any_controller(world: World) -> None:
    await world.start(1, 2)
    await world.create("t", 2, 1)
    standby = Controller(world.simulation, 101, log=world.controller.quorum.log)
    await standby.start(claim=None)
    ask = world.brokers[1]
    ask.controller = "c101"
    cluster = await ask.call(
        "/stele.v1.Admin/DescribeCluster",
        admin.DescribeClusterRequest(),
        admin.DescribeClusterResponse,
    )
    assert [(b.broker_id, b.host, b.port, b.grpc_port, b.fenced) for b in cluster.brokers] == [
        (1, "b1", 9093, 9193, False),
        (2, "b2", 9094, 9194, False),
    ]
    described = await ask.call(
        "/stele.v1.Admin/DescribeTopics",
        admin.DescribeTopicsRequest(names=["t", "x"]),
        admin.DescribeTopicsResponse,
    )
    assert described.topics[0].partitions[0].leader == 2
    assert described.topics[1].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    everything = await ask.call(
        "/stele.v1.Admin/DescribeTopics",
        admin.DescribeTopicsRequest(),
        admin.DescribeTopicsResponse,
    )
    assert [topic.name for topic in everything.topics] == ["t"]
    ids = await ask.call(
        "/stele.v1.Controller/AllocateProducerIds",
        pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=ask.epoch),
        pb.AllocateProducerIdsResponse,
    )
    assert ids.error == ErrorCode.NOT_CONTROLLER


@with_controller
async def test_garbage_is_refused(world: World) -> None:
    await world.start(1)
    channel_of = world.brokers[1].process.world.network

    async def send() -> None:
        channel = channel_of.channel(Address("c100", 9093))
        for method in (CREATE, "/stele.v1.Controller/RegisterBroker"):
            with pytest.raises(RpcError, match="invalid_argument"):
                await channel.call(method, b"\xff\xff\xff", timeout_s=1.0)
        stream = channel.stream("/stele.v1.Controller/Heartbeat")
        await stream.send(b"\xff\xff\xff")
        assert await stream.receive() is None
        await channel.close()

    await world.brokers[1].process.run(send())
    assert not world.fenced(1)


@with_controller
async def test_a_log_that_does_not_fit_is_fatal(world: World) -> None:
    await world.start(1)
    service = world.controller.service
    batch = CommittedBatch(service.image.offset + 1, 1, 0, (b"\xff",))
    service.on_commit([batch], batch.last_offset + 1)
    assert len(world.controller.fatal) == 1
    assert not service.active
    world.controller.fatal.clear()


@with_controller
async def test_a_full_disk_delays_fencing_but_does_not_forget_it(world: World) -> None:
    await world.start(1, 2)
    quorum = world.controller.quorum
    quorum.full = True
    world.simulation.kill(world.brokers[1].process)
    await asyncio.sleep(3.0)
    assert not world.fenced(1)
    refused = await world.create("t", 2, via=2)
    assert refused.error == ErrorCode.KAFKA_STORAGE_ERROR
    quorum.full = False
    assert await world.fenced_after(1, 1.0) <= 0.6
    assert not world.fenced(2)


@with_controller
async def test_stopping_ends_everything(world: World) -> None:
    await world.start(1, 2)
    await world.create("t", 1, 2)
    await world.controller.process.run(world.controller.service.stop())
    await asyncio.sleep(20.0)
    assert not world.fenced(1)
    topic = world.controller.service.image.topic("t")
    assert topic is not None
    assert topic.partitions[0].leader != NO_LEADER
