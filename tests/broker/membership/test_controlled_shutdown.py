"""A broker that shuts down first asks the controller to move its leaders away."""

from __future__ import annotations

import asyncio

import pytest

from broker.membership.lifecycle import BrokerState
from raft.api import LeaderAndEpoch
from stele.errors import ErrorCode
from stele.wire.v1.controller_pb2 import RegisterBrokerResponse
from tests.support.broker_lifecycle import Cluster, now, with_cluster


@with_cluster
async def test_controlled_shutdown_waits_until_it_may_go(cluster: Cluster) -> None:
    controller = cluster.controllers[1]
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    asyncio.get_running_loop().call_later(0.35, lambda: setattr(controller, "may_shut_down", True))
    assert await cluster.lifecycle.controlled_shutdown(30.0)
    assert cluster.lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert now() < 0.5
    assert controller.heartbeats[-1][1].want_shutdown


@with_cluster
async def test_controlled_shutdown_has_a_bound(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    assert not await cluster.lifecycle.controlled_shutdown(3.0)
    assert now() == pytest.approx(3.0)


@with_cluster
async def test_controlled_shutdown_does_not_wait_for_controllers_that_are_gone(
    cluster: Cluster,
) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.network.services.clear()
    cluster.leader = LeaderAndEpoch(None, 2)
    cluster.lifecycle.on_leader_change()
    assert not await cluster.lifecycle.controlled_shutdown(30.0)
    assert now() < 3.0


@with_cluster
async def test_controllers_count_as_gone_after_two_seconds(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.leader = LeaderAndEpoch(None, 2)
    asyncio.get_running_loop().call_later(0.05, setattr, cluster.clock, "skipped_s", 1.9)
    assert not await cluster.lifecycle.controlled_shutdown(30.0)
    assert cluster.clock.monotonic() == 2.0


@with_cluster
async def test_without_time_to_wait_it_goes_at_once(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    assert not await cluster.lifecycle.controlled_shutdown(0.0)
    assert now() == 0.0


@with_cluster
async def test_a_broker_that_is_not_registered_has_nothing_to_ask_for(cluster: Cluster) -> None:
    cluster.controllers[1].registration = RegisterBrokerResponse(
        error=ErrorCode.DUPLICATE_BROKER_REGISTRATION
    )
    cluster.lifecycle.start()
    await asyncio.sleep(1.0)
    assert not await cluster.lifecycle.controlled_shutdown(30.0)
    assert now() == 1.0


@with_cluster
async def test_a_broker_that_was_stopped_has_nothing_to_ask_for(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    await cluster.lifecycle.stop()
    assert cluster.lifecycle.state is BrokerState.SHUTTING_DOWN
    assert not await cluster.lifecycle.controlled_shutdown(30.0)
    assert now() == 0.0


@with_cluster
async def test_a_broker_that_may_never_serve_does_not_wait_to_go(cluster: Cluster) -> None:
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    cluster.controllers[1].error = ErrorCode.INVALID_REGISTRATION
    assert not await cluster.lifecycle.controlled_shutdown(30.0)
    assert now() < 0.5
    assert [each.code for each in cluster.failures] == [ErrorCode.INVALID_REGISTRATION]


@with_cluster
async def test_who_may_go_may_go_whatever_later_answers_say(cluster: Cluster) -> None:
    cluster.controllers[1].may_shut_down = True
    cluster.lifecycle.start()
    await cluster.lifecycle.wait_unfenced()
    assert await cluster.lifecycle.controlled_shutdown(30.0)
    cluster.controllers[1].may_shut_down = False
    await asyncio.sleep(1.0)
    assert await cluster.lifecycle.controlled_shutdown(0.0)
