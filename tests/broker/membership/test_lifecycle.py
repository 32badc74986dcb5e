"""Registration and the heartbeat stream."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.membership.identity import BrokerIdentity
from broker.membership.lifecycle import BrokerState
from broker.membership.room import Room
from raft.api import LeaderAndEpoch
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import (
    HeartbeatResponse,
    ProbeRequest,
    ProbeResponse,
    RegisterBrokerResponse,
)
from stele.world import RpcCode, RpcError
from tests.support.broker_edges import PEER
from tests.support.broker_lifecycle import INCARNATION, Cluster, now, with_cluster


@with_cluster
async def test_registers_heartbeats_and_is_unfenced(cluster: Cluster) -> None:
    lifecycle = cluster.lifecycle
    assert lifecycle.state.name == "STARTING"
    lifecycle.start()
    assert await lifecycle.wait_registered() == 10
    await lifecycle.wait_unfenced()
    assert lifecycle.state.name == "RUNNING"
    assert lifecycle.lease_valid()
    assert now() == 0.0

    request = cluster.controllers[1].registrations[0]
    assert request.incarnation_id == INCARNATION
    assert request.previous_broker_epoch == 7
    (history,) = request.directory_histories
    assert (history.directory_id, history.previous_broker_epoch) == (b"d" * 16, 7)
    assert list(history.incarnation_ids) == [b"e" * 16]
    assert list(request.log_directories) == [b"d" * 16]
    assert request.directories_marked
    assert [(r.topic_id, r.partition) for r in history.replicas] == [(b"t" * 16, 5)]
    assert [(c.topic_id, c.partition) for c in request.corrupt] == [(b"t" * 16, 3)]
    assert lifecycle.broker_epoch == 10

    await asyncio.sleep(6.1)
    times = [at for at, _ in cluster.controllers[1].heartbeats]
    assert times == pytest.approx([0, 2, 4, 6])


def test_directories_that_are_not_open_need_a_controller_that_knows_of_them() -> None:
    """An older controller ignores their number, and would take their replicas for lost. It refuses
    a broker that does not support the finalized level."""
    for unopened, min_level in ((0, 1), (2, 5)):
        identity = BrokerIdentity(
            "cluster", 1, INCARNATION, "", (), True, unopened_directories=unopened
        )
        request = identity.registration((), corrupt=(), unsynced=(), held={})
        levels = {each.name: each.min_level for each in request.features}
        assert (request.unopened_directories, levels["metadata.version"]) == (unopened, min_level)


@with_cluster
async def test_catching_up_is_reported_at_once_and_so_is_being_unfenced(cluster: Cluster) -> None:
    cluster.offset = 3
    controller = cluster.controllers[1]
    controller.unfence_at = 1000
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_registered()
    await asyncio.sleep(0.5)
    assert cluster.lifecycle.state is BrokerState.RECOVERY
    cluster.offset = 9
    cluster.lifecycle.on_metadata(unfenced=False)
    await asyncio.sleep(0.1)
    assert len(controller.heartbeats) == 1

    cluster.offset = 10
    cluster.lifecycle.on_metadata(unfenced=False)
    cluster.lifecycle.on_metadata(unfenced=False)
    await asyncio.sleep(0.1)
    assert [h.metadata_offset for _, h in controller.heartbeats] == [3, 10]
    assert cluster.lifecycle.fenced

    controller.fenced = False
    cluster.offset = 11
    cluster.lifecycle.on_metadata(unfenced=True)
    await asyncio.sleep(0)
    await cluster.lifecycle.wait_unfenced()
    assert now() == pytest.approx(0.7)


@with_cluster
async def test_an_answer_to_no_heartbeat_of_the_stream_is_no_acknowledgement(
    cluster: Cluster,
) -> None:
    """Such an answer does not show when the session was renewed."""

    lifecycle, controller = cluster.lifecycle, cluster.controllers[1]
    controller.mute = True
    controller.extra = [HeartbeatResponse(sequence=77)]
    lifecycle.start()
    await lifecycle.wait_unfenced()
    assert not lifecycle.lease_valid()
    assert lifecycle.acknowledged_ago_s is None


@with_cluster
async def test_it_waits_for_a_controller_while_none_leads(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.leader = LeaderAndEpoch(None, 2)
    cluster.lifecycle.on_leader_change()
    await asyncio.sleep(3.0)
    assert cluster.lifecycle.lease_valid()
    cluster.elect(2)
    await asyncio.sleep(0.001)
    assert len(cluster.controllers[2].heartbeats) == 1
    assert cluster.failures == []


@with_cluster
async def test_an_unfenced_broker_has_nothing_to_tell_of_metadata_at_once(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.lifecycle.on_metadata(unfenced=True)
    await asyncio.sleep(1.9)
    assert len(cluster.controllers[1].heartbeats) == 1


@pytest.mark.parametrize(
    ("error", "warned"), [(ErrorCode.NOT_CONTROLLER, 0), (ErrorCode.UNKNOWN_SERVER_ERROR, 1)]
)
@with_cluster
async def test_a_stream_is_left_when_its_heartbeats_are_refused(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, error: ErrorCode, warned: int
) -> None:
    """A warning is logged only if the reason is more than an election."""

    caplog.set_level(logging.WARNING)
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.error = error
    await asyncio.sleep(2.01)
    controller.error = ErrorCode.NONE
    await asyncio.sleep(0.06)
    assert len(controller.streams) == 2
    assert len(controller.registrations) == 1
    assert cluster.lifecycle.lease_valid()
    assert len(caplog.records) == warned


@with_cluster
async def test_a_new_leader_gets_the_stream_at_once_and_no_new_registration(
    cluster: Cluster,
) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    await asyncio.sleep(0.5)
    cluster.elect(2)
    await asyncio.sleep(0.001)
    second = cluster.controllers[2]
    assert [h.broker_epoch for _, h in second.heartbeats] == [10]
    assert not second.registrations
    assert cluster.lifecycle.broker_epoch == 10


@with_cluster
async def test_a_broken_stream_is_opened_again_within_the_backoff(cluster: Cluster) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.streams[0].break_off()  # type: ignore[attr-defined]
    await asyncio.sleep(0.06)
    assert len(controller.streams) == 2
    assert cluster.lifecycle.lease_valid()


@pytest.mark.parametrize(
    "error", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED]
)
@with_cluster
async def test_a_stale_epoch_makes_it_register_again(cluster: Cluster, error: ErrorCode) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.error = error
    controller.registration = RegisterBrokerResponse(broker_epoch=50)
    await asyncio.sleep(2.01)
    assert not cluster.lifecycle.lease_valid()
    controller.error = ErrorCode.NONE
    await asyncio.sleep(0.5)
    assert cluster.lifecycle.broker_epoch == 50
    assert len(controller.registrations) >= 2
    assert {r.incarnation_id for r in controller.registrations} == {INCARNATION}


@with_cluster
async def test_the_epoch_of_a_registration_that_is_over_stays_until_there_is_another(
    cluster: Cluster,
) -> None:
    """Replicas go on sending requests with it, and are refused. A clean shutdown also names it."""

    controller, lifecycle = cluster.controllers[1], cluster.lifecycle
    assert lifecycle.broker_epoch == -1
    lifecycle.start()
    await lifecycle.wait_unfenced()
    controller.error = ErrorCode.STALE_BROKER_EPOCH
    controller.registration = RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    await asyncio.sleep(4)
    assert (lifecycle.state.name, lifecycle.broker_epoch) == ("STARTING", 10)
    controller.error = ErrorCode.NONE
    controller.registration = RegisterBrokerResponse(broker_epoch=10)
    assert await lifecycle.wait_registered() == 10
    await lifecycle.wait_unfenced()
    assert lifecycle.lease_valid()


@with_cluster
async def test_corruption_found_later_is_reported_in_the_same_epoch(cluster: Cluster) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.corrupt.append(PartitionId(b"t" * 16, 4))
    cluster.lifecycle.report_replicas()
    await asyncio.sleep(0.06)
    assert [len(request.corrupt) for request in controller.registrations] == [1, 2]
    assert len(controller.streams) == 2
    assert cluster.lifecycle.broker_epoch == 10
    assert cluster.lifecycle.lease_valid()


@with_cluster
async def test_a_broker_that_can_serve_no_more_asks_to_be_fenced(cluster: Cluster) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.lifecycle.fence()
    await asyncio.sleep(0.001)
    assert controller.heartbeats[-1][1].want_fence


@with_cluster
async def test_a_refusal_for_good_fails_the_broker(cluster: Cluster) -> None:
    cluster.controllers[1].registration = RegisterBrokerResponse(
        error=ErrorCode.INVALID_REGISTRATION, message="no endpoints"
    )
    cluster.lifecycle.start()
    with pytest.raises(ApiError, match="no endpoints"):
        await cluster.lifecycle.wait_registered()
    assert [f.code for f in cluster.failures] == [ErrorCode.INVALID_REGISTRATION]
    assert not await cluster.lifecycle.controlled_shutdown(1.0)


@with_cluster
async def test_another_cluster_at_a_controllers_address_ends_nothing(cluster: Cluster) -> None:
    foreign = RegisterBrokerResponse(error=ErrorCode.INCONSISTENT_CLUSTER_ID, leader_id=2)
    cluster.controllers[1].registration = foreign
    cluster.lifecycle.start()
    await asyncio.sleep(10.0)
    assert not cluster.failures
    assert not cluster.controllers[2].registrations, "its leader is nobody here"
    cluster.elect(2)
    await cluster.lifecycle.wait_unfenced()
    cluster.elect(1)
    cluster.controllers[1].error = ErrorCode.INCONSISTENT_CLUSTER_ID
    await asyncio.sleep(1.0)
    assert not cluster.failures
    cluster.elect(2)
    await asyncio.sleep(0.1)
    assert cluster.lifecycle.lease_valid()
    assert len(cluster.controllers[2].registrations) == 1


@with_cluster
async def test_another_live_incarnation_is_waited_for(cluster: Cluster) -> None:
    controller = cluster.controllers[1]
    controller.registration = RegisterBrokerResponse(error=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    cluster.lifecycle.start()
    await asyncio.sleep(1.0)
    assert 3 < len(controller.registrations) < 20
    controller.registration = RegisterBrokerResponse(broker_epoch=11)
    assert await cluster.lifecycle.wait_registered() == 11


@with_cluster
async def test_another_incarnation_that_stays_alive_fails_the_broker(cluster: Cluster) -> None:
    cluster.controllers[1].registration = RegisterBrokerResponse(
        error=ErrorCode.DUPLICATE_BROKER_REGISTRATION, message="broker 4 is alive at b4:9092"
    )
    cluster.lifecycle.start()
    await asyncio.sleep(19.9)
    assert cluster.failures == []
    with pytest.raises(ApiError, match="broker 4 is alive at b4:9092"):
        await cluster.lifecycle.wait_registered()
    assert [f.code for f in cluster.failures] == [ErrorCode.DUPLICATE_BROKER_REGISTRATION]


@with_cluster
async def test_an_id_is_waited_for_as_long_as_the_setting_says(cluster: Cluster) -> None:
    cluster.controllers[1].registration = RegisterBrokerResponse(
        error=ErrorCode.DUPLICATE_BROKER_REGISTRATION
    )
    cluster.lifecycle.start()
    await asyncio.sleep(0.01)
    cluster.clock.skipped_s = 19.95  # the next attempt is at 20 s
    await asyncio.sleep(0.05)
    assert [f.code for f in cluster.failures] == [ErrorCode.DUPLICATE_BROKER_REGISTRATION]


@with_cluster
async def test_a_refusal_that_may_pass_is_never_given_up_on(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning is repeated every 15 s."""

    caplog.set_level(logging.WARNING)
    controller = cluster.controllers[1]
    controller.registration = RegisterBrokerResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    cluster.lifecycle.start()
    await asyncio.sleep(0.01)
    assert len(caplog.records) == 1
    cluster.clock.skipped_s = 14.95  # the next attempt is at 15 s
    await asyncio.sleep(0.05)
    assert len(caplog.records) == 2
    await asyncio.sleep(100.0)
    assert cluster.failures == []
    controller.registration = RegisterBrokerResponse(broker_epoch=11)
    assert await cluster.lifecycle.wait_registered() == 11


@with_cluster
async def test_a_duplicate_id_is_said_at_once_and_then_rarely(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]

    caplog.set_level(logging.WARNING)
    controller = cluster.controllers[1]
    controller.registration = RegisterBrokerResponse(
        error=ErrorCode.DUPLICATE_BROKER_REGISTRATION, message="stop the other"
    )
    cluster.lifecycle.start()
    await asyncio.sleep(0.5)
    (first,) = lines()
    assert "stop the other" in first
    assert "it asks again, and gives up in 20 s" in first
    await asyncio.sleep(19.0)
    assert len(controller.registrations) > 10
    assert len(lines()) == 2


@with_cluster
async def test_a_heartbeat_that_is_refused_for_good_fails_the_broker(cluster: Cluster) -> None:
    """This happens if a broker that it cannot reach was unfenced while it registered."""

    cluster.controllers[1].error = ErrorCode.INVALID_REGISTRATION
    cluster.lifecycle.start()
    with pytest.raises(ApiError, match="heartbeat refused"):
        await cluster.lifecycle.wait_unfenced()
    assert [f.code for f in cluster.failures] == [ErrorCode.INVALID_REGISTRATION]


@with_cluster
async def test_a_probe_is_answered_with_the_brokers_identity(cluster: Cluster) -> None:
    probe = cluster.lifecycle.service().unary["/stele.v1.BrokerControl/Probe"]
    answer = ProbeResponse.FromString(await probe(ProbeRequest().SerializeToString(), PEER))
    assert (answer.broker_id, answer.incarnation_id) == (4, INCARNATION)
    with pytest.raises(RpcError) as caught:
        await probe(b"\xff\xff", PEER)
    assert caught.value.code is RpcCode.INVALID_ARGUMENT


@with_cluster
async def test_heartbeats_are_numbered_and_tell_of_room(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    for room in Room:
        cluster.room = room
        await asyncio.sleep(2.5)
    told = [request for _, request in cluster.controllers[1].heartbeats]
    assert [request.sequence for request in told] == list(range(1, len(told) + 1))
    rooms = list(dict.fromkeys((each.out_of_room, each.yields) for each in told))
    assert rooms == [(False, False), (True, False), (True, True)]


@with_cluster
async def test_without_any_metadata_it_is_not_deposed_until_the_controller_says_so(
    cluster: Cluster,
) -> None:
    cluster.offset = -1
    assert not cluster.lifecycle.deposed()


@with_cluster
async def test_it_is_deposed_until_it_has_the_metadata_in_which_it_led_nothing(
    cluster: Cluster,
) -> None:
    cluster.controllers[1].leads_nothing_at = 20
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.controllers[1].leads_nothing_at = 15  # an earlier controller's
    await asyncio.sleep(2.5)
    deposed = []
    for offset in (12, 17, 19, 20):
        cluster.offset = offset
        deposed.append(cluster.lifecycle.deposed())
    assert deposed == [True, True, True, False]
