"""The lease of a broker: when it ends, and which streams it rests on."""

from __future__ import annotations

import asyncio

from broker.membership.lease import Lease
from broker.membership.lifecycle import BrokerLifecycle, BrokerState
from metadata.brokers import STREAM_GRACE_S
from raft.api import LeaderAndEpoch
from stele.errors import ErrorCode
from stele.wire.v1.controller_pb2 import HeartbeatResponse, RegisterBrokerResponse
from tests.support.broker_lifecycle import Cluster, Controller, now, with_cluster
from tests.support.timing import HandClock


async def with_silent_controller(cluster: Cluster) -> tuple[BrokerLifecycle, Controller]:
    """The broker is unfenced, and its controller answers nothing from now on."""
    lifecycle, controller = cluster.lifecycle, cluster.controllers[1]
    lifecycle.start()
    await lifecycle.wait_unfenced()
    controller.mute = True
    return lifecycle, controller


@with_cluster
async def test_the_lease_counts_from_when_the_acknowledged_heartbeat_was_sent(
    cluster: Cluster,
) -> None:
    lifecycle, controller = cluster.lifecycle, cluster.controllers[1]
    assert not lifecycle.lease_valid()
    lifecycle.start()
    await lifecycle.wait_unfenced()
    await asyncio.sleep(2.01)  # the heartbeat of second 2 was the last one acknowledged
    controller.acknowledges = False
    await asyncio.sleep(8.98)
    assert lifecycle.lease_valid()
    await asyncio.sleep(0.02)
    assert not lifecycle.lease_valid()


@with_cluster
async def test_while_no_other_controller_is_known_the_stream_stays(cluster: Cluster) -> None:
    """A broker that ends its stream is fenced at once if no probe reaches it."""

    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    before = cluster.leader
    for leader in (LeaderAndEpoch(None, before.epoch), before):
        cluster.leader = leader
        cluster.lifecycle.on_leader_change()
        await asyncio.sleep(5.0)
        assert cluster.lifecycle.lease_valid()
    assert len(cluster.controllers[1].streams) == 1


@with_cluster
async def test_a_lease_outlasts_its_controller(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.controllers[2].mute = True
    cluster.elect(2)
    await asyncio.sleep(4.0)
    assert len(cluster.controllers[2].streams) == 1
    assert cluster.lifecycle.lease_valid()


@with_cluster
async def test_a_controller_that_leads_again_may_end_the_session_when_the_stream_ends(
    cluster: Cluster,
) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.mute = True
    cluster.elect(1)
    await asyncio.sleep(STREAM_GRACE_S - 0.01)
    assert cluster.lifecycle.lease_valid()
    await asyncio.sleep(0.02)
    assert len(controller.streams) == 2
    assert not cluster.lifecycle.lease_valid()


@with_cluster
async def test_a_lease_outlasts_a_stream_that_its_controller_has_ended(cluster: Cluster) -> None:
    """It may have been killed. When it leads again, it has not heard of this broker."""

    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.hangs_up = True
    await asyncio.sleep(2.01)
    controller.hangs_up, controller.mute = False, True
    assert len(controller.streams) == 1
    cluster.elect(1)
    await asyncio.sleep(2 * STREAM_GRACE_S)
    assert len(controller.streams) == 2
    assert cluster.lifecycle.lease_valid()


@with_cluster
async def test_a_stream_that_ends_while_no_controller_is_known_waits_for_one(
    cluster: Cluster,
) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.leader = LeaderAndEpoch(None, 2)
    cluster.lifecycle.on_leader_change()
    cluster.controllers[1].hangs_up = True
    await asyncio.sleep(5.0)
    assert cluster.lifecycle.lease_valid()
    assert len(cluster.controllers[1].streams) == 1
    cluster.elect(2)
    await asyncio.sleep(0.1)
    assert len(cluster.controllers[2].streams) == 1
    assert cluster.failures == []


@with_cluster
async def test_the_lease_of_a_broker_that_leaves_ends_when_it_may_be_fenced(
    cluster: Cluster,
) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    assert now() == 0.0
    cluster.controllers[1].mute = True
    cluster.lifecycle.report_replicas()
    await asyncio.sleep(STREAM_GRACE_S)
    assert now() == STREAM_GRACE_S
    assert not cluster.lifecycle.lease_valid()


@with_cluster
async def test_to_leave_again_gives_no_longer_lease(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.controllers[1].mute = True
    for _ in range(2):
        cluster.lifecycle.report_replicas()
        await asyncio.sleep(0.75 * STREAM_GRACE_S)
    assert not cluster.lifecycle.lease_valid()


@with_cluster
async def test_a_broker_keeps_the_stream_of_a_silent_controller_until_another_one_is_heard(
    cluster: Cluster,
) -> None:
    """The controller may be active. If it saw the stream end, it would fence a broker that no probe
    reaches. So the lease lasts on."""

    lifecycle, controller = await with_silent_controller(cluster)
    await asyncio.sleep(6.0)
    assert (len(controller.streams), controller.open) == (2, 2)
    assert lifecycle.lease_valid()
    controller.mute = False
    await asyncio.sleep(2.0)
    assert (len(controller.streams), controller.open) == (2, 1)
    assert lifecycle.lease_valid()
    await asyncio.sleep(10.0)
    assert lifecycle.lease_valid()


@with_cluster
async def test_the_streams_of_a_silent_controller_end_with_the_lease(cluster: Cluster) -> None:
    lifecycle, controller = await with_silent_controller(cluster)
    await asyncio.sleep(8.9)
    assert lifecycle.lease_valid()
    await asyncio.sleep(0.2)
    assert not lifecycle.lease_valid()
    await asyncio.sleep(40.0)
    assert len(controller.streams) > 5
    assert controller.open == 1


@with_cluster
async def test_another_leader_ends_the_streams_of_a_silent_controller(cluster: Cluster) -> None:
    lifecycle, controller = await with_silent_controller(cluster)
    await asyncio.sleep(6.0)
    assert controller.open == 2
    cluster.elect(2)
    await asyncio.sleep(0.1)
    assert controller.open == 0
    assert lifecycle.lease_valid()


@with_cluster
async def test_who_stops_ends_the_streams_of_a_silent_controller(cluster: Cluster) -> None:
    lifecycle, controller = await with_silent_controller(cluster)
    await asyncio.sleep(6.0)
    await lifecycle.stop()
    await asyncio.sleep(0.1)
    assert controller.open == 0


@with_cluster
async def test_an_error_that_ends_the_stream_ends_the_lease(cluster: Cluster) -> None:
    lifecycle, controller = cluster.lifecycle, cluster.controllers[1]
    lifecycle.start()
    await lifecycle.wait_unfenced()
    controller.error = ErrorCode.UNKNOWN_SERVER_ERROR
    await asyncio.sleep(2.0 + STREAM_GRACE_S + 0.01)
    assert not lifecycle.lease_valid()


@with_cluster
async def test_who_is_no_controller_any_more_takes_nothing_from_the_lease(cluster: Cluster) -> None:
    lifecycle, controller = cluster.lifecycle, cluster.controllers[1]
    lifecycle.start()
    await lifecycle.wait_unfenced()
    controller.error = ErrorCode.NOT_CONTROLLER
    await asyncio.sleep(6.0)
    assert lifecycle.lease_valid()


@with_cluster
async def test_the_lease_sees_a_pause_that_the_loop_does_not(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.clock.skipped_s = 9.0
    assert not cluster.lifecycle.lease_valid()
    await asyncio.sleep(2.1)
    assert cluster.lifecycle.lease_valid()


@with_cluster
async def test_a_late_answer_takes_nothing_from_the_lease(cluster: Cluster) -> None:
    lifecycle, controller = cluster.lifecycle, cluster.controllers[1]
    lifecycle.start()
    await asyncio.sleep(2.5)
    assert lifecycle.acknowledged_ago_s == 0.5
    controller.extra = [HeartbeatResponse(sequence=1), HeartbeatResponse(sequence=77)]
    controller.mute = True
    await asyncio.sleep(2.0)
    assert lifecycle.acknowledged_ago_s == 2.5
    assert lifecycle.lease_valid()
    assert cluster.failures == []


@with_cluster
async def test_a_silent_controller_is_left_before_the_session_ends(cluster: Cluster) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.mute = True
    await asyncio.sleep(4.4)
    assert len(controller.streams) == 1, "it may be slow"
    await asyncio.sleep(0.2)
    assert len(controller.streams) == 2


@with_cluster
async def test_a_report_takes_the_lease_only_if_the_next_stream_is_silent(cluster: Cluster) -> None:
    """The registration is the same, so no new answer to a heartbeat is needed at first."""

    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.mute = True
    cluster.lifecycle.report_replicas()
    await asyncio.sleep(0.06)
    assert len(controller.registrations) == 2
    assert cluster.lifecycle.lease_valid()
    await asyncio.sleep(STREAM_GRACE_S)
    assert not cluster.lifecycle.lease_valid()  # the new stream was not heard from


@with_cluster
async def test_a_report_that_makes_another_registration_ends_the_lease_of_the_one_before(
    cluster: Cluster,
) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.registration = RegisterBrokerResponse(broker_epoch=50)
    controller.mute = True
    cluster.lifecycle.report_replicas()
    await asyncio.sleep(0.06)
    assert cluster.lifecycle.broker_epoch == 50
    assert cluster.lifecycle.state is BrokerState.RECOVERY
    assert cluster.lifecycle.acknowledged_ago_s is None


@with_cluster
async def test_a_fenced_answer_ends_the_lease(cluster: Cluster) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    controller.fenced, controller.unfence_at = True, 1000
    await asyncio.sleep(2.1)
    assert cluster.lifecycle.fenced
    assert not cluster.lifecycle.lease_valid()


@with_cluster
async def test_a_heartbeat_begins_the_lease_only_with_the_metadata_of_its_answer(
    cluster: Cluster,
) -> None:
    """A broker was paused, fenced, and unfenced again: others may lead what it led before."""

    cluster.controllers[1].committed_offset = 13
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    assert not cluster.lifecycle.lease_valid()
    cluster.offset = 13
    assert cluster.lifecycle.lease_valid()


@with_cluster
async def test_the_lease_ends_when_the_metadata_stand_still(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    began = now()
    cluster.controllers[1].committed_offset = 13
    await asyncio.sleep(8.99)
    assert cluster.lifecycle.lease_valid()
    await asyncio.sleep(0.02)
    assert not cluster.lifecycle.lease_valid()
    cluster.offset = 13  # it lasts from the newest heartbeat, which was sent at second 8
    assert cluster.lifecycle.lease_valid()
    cluster.controllers[1].acknowledges = False
    await asyncio.sleep(began + 16.99 - now())
    assert cluster.lifecycle.lease_valid()
    await asyncio.sleep(0.02)
    assert not cluster.lifecycle.lease_valid()


def leased(session_s: float = 9.0) -> tuple[Lease, HandClock, list[int]]:
    """A lease, its clock, and the offset that is applied."""
    clock, applied = HandClock(), [5]
    return Lease(clock, session_s, lambda: applied[0]), clock, applied


def test_of_an_older_controller_that_has_committed_less_no_lease_begins_earlier() -> None:
    lease, _, applied = leased()
    for sequence, committed in ((1, 7), (2, 6)):
        lease.sent(sequence)
        lease.acknowledged(sequence, committed)
    applied[0] = 6
    assert not lease.is_valid
    applied[0] = 7
    assert lease.is_valid


def test_after_a_stream_was_left_too_long_only_newer_heartbeats_begin_the_lease() -> None:
    """The controller may have fenced this broker and unfenced it since."""
    lease, clock, applied = leased()
    for sequence, committed in ((1, 5), (2, 6)):
        lease.sent(sequence)
        lease.acknowledged(sequence, committed)
    assert lease.is_valid
    lease.stream_left()
    clock.now_ms += int(STREAM_GRACE_S * 1000) + 1
    lease.stream_opened()
    lease.sent(3)
    lease.acknowledged(3, 8)
    valid = {}
    for offset in (6, 7, 8):
        applied[0] = offset
        valid[offset] = lease.is_valid
    assert valid == {6: False, 7: False, 8: True}


def test_a_stream_that_was_left_briefly_costs_no_lease() -> None:
    lease, clock, _ = leased()
    lease.sent(1)
    lease.acknowledged(1, 5)
    lease.stream_left()
    clock.now_ms += int(STREAM_GRACE_S * 1000) - 1
    lease.stream_opened()
    lease.sent(2)
    lease.acknowledged(2, 8)
    clock.now_ms += 1000
    assert lease.is_valid
