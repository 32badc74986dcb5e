"""Coordinators on real replicas: the leader loads them, in the epoch in which it leads."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from broker.coordinator.runtime import CoordinatorRuntime
from broker.replication import metadata
from stele.errors import ApiError, ErrorCode
from tests.support.batches import make_batch
from tests.support.coordinators import Event, Heard, Sums
from tests.support.replica_cluster import TOPIC, Node, ReplicaCluster
from tests.support.replication import with_brokers
from tests.support.timing import until
from tests.support.worlds import Scenario, gives

COMMIT_TIMEOUT_MS = 5000


def host_sums(node: Node) -> CoordinatorRuntime[Sums]:
    """Host the sums. To be called in the broker's own process."""
    runtime = CoordinatorRuntime(
        TOPIC,
        host=node.manager.hosting,
        make_machine=Sums,
        clock=node.process.world.clock,
        commit_timeout_ms=COMMIT_TIMEOUT_MS,
    )
    node.subscribers = [runtime.apply]
    return runtime


class Coordinators:
    """The runtimes of a cluster's brokers."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.runtimes = {each.broker_id: host_sums(each) for each in cluster.nodes.values()}

    async def ask(self, broker_id: int, key: bytes, number: int | None = None) -> Any:
        """Add a number and return the sum, or only return the sum."""

        async def inside() -> Any:
            heard = Heard()

            def event(machine: Sums, now: object) -> Any:
                return (
                    machine.get(key, heard) if number is None else machine.add(key, number, heard)
                )

            self.runtimes[broker_id].submit(0, Event(event), heard)
            await until(lambda: bool(heard.told), "the coordinator is silent")
            return heard.told

        (told,) = await self.cluster[broker_id].process.run(inside())
        return told

    async def loaded(self, broker_id: int) -> None:
        runtime = self.runtimes[broker_id]
        await until(lambda: len(runtime.active) == 1, f"{broker_id} does not coordinate")


@gives("cluster", "coordinators")
def coordinated(scenario: Scenario, /, **settings: Any) -> None:
    async def main(cluster: ReplicaCluster) -> None:
        coordinators = Coordinators(cluster)
        cluster.create_topic([1, 2, 3])
        await coordinators.loaded(1)
        await scenario(cluster, coordinators)

    ReplicaCluster(**settings).run(main)


@coordinated
async def test_the_leader_coordinates_and_others_refuse(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    assert await coordinators.ask(1, b"a", 3) == 3
    assert await coordinators.ask(1, b"a", 4) == 7
    assert await coordinators.ask(2, b"a") is ErrorCode.NOT_COORDINATOR
    assert coordinators.runtimes[1].partitions == [0]
    assert coordinators.runtimes[2].partitions == []
    ends = {node.replica().log.end_offset for node in cluster.nodes.values()}
    assert ends == {2}


@coordinated
async def test_a_new_leader_has_everything_that_was_acknowledged(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    for number in range(20):
        await coordinators.ask(1, b"%d" % (number % 5), 1)
    cluster[1].kill()
    cluster.fence(1)
    await coordinators.loaded(2)
    assert [await coordinators.ask(2, b"%d" % number) for number in range(5)] == [4] * 5
    assert coordinators.runtimes[2].counters.records == 20


@coordinated
async def test_a_deposed_leader_without_a_lease_tells_nothing(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    """It does not know yet that another broker leads and has made progress."""

    await coordinators.ask(1, b"a", 1)
    cluster[1].lease = False
    cluster.change(leader=2, isr=[2, 3], to=[2, 3])
    await coordinators.loaded(2)
    assert await coordinators.ask(2, b"a", 1) == 2
    assert await coordinators.ask(1, b"a") is ErrorCode.NOT_COORDINATOR
    assert await coordinators.ask(1, b"a", 5) is ErrorCode.NOT_COORDINATOR


@coordinated
async def test_leadership_lost_and_regained_loads_anew(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    """Another leader has written in between."""

    await coordinators.ask(1, b"a", 1)
    cluster.change(leader=2)
    await coordinators.loaded(2)
    assert await coordinators.ask(2, b"a", 10) == 11
    cluster.change(leader=1)
    await until(lambda: coordinators.runtimes[1].counters.loads == 2)
    assert await coordinators.ask(1, b"a") == 11
    assert await coordinators.ask(2, b"a") is ErrorCode.NOT_COORDINATOR


@coordinated
async def test_a_partition_of_an_earlier_epoch_says_and_takes_nothing(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    """The broker leads again, but another leader may have written in between: neither a decision of
    before, nor what was loaded before, counts."""

    await coordinators.ask(1, b"a", 1)
    node = cluster[1]
    before = node.manager.hosting.host(node.replica().id)
    assert before is not None
    assert (before.refusal, before.write_refusal) == (ErrorCode.NONE, ErrorCode.NONE)
    reading = before.records()
    assert [each.key for each in (await anext(reading)).records] == [b"a"]
    cluster.change(leader=2)
    await until(lambda: not before.is_led)
    cluster.change(leader=1)
    await until(lambda: node.manager.hosting.host(node.replica().id) is not None)
    assert not before.is_led
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (before.refusal, before.write_refusal) == (refused, refused)
    end_offset = node.replica().log.end_offset
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        before.append(make_batch(), cast(Any, None))
    assert node.replica().log.end_offset == end_offset
    with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
        await anext(before.records())


@coordinated
async def test_an_epoch_that_ends_while_it_is_loaded_leaves_only_the_next_load(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    for number in range(5):
        await coordinators.ask(1, b"a", number)
    runtime = coordinators.runtimes[1]
    loads = runtime.counters.loads
    for _ in range(3):  # no turn of the loop in between
        cluster.change(leader=-1, to=[])
        cluster.change(leader=1)
    assert await coordinators.ask(1, b"a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await until(lambda: len(runtime.active) == 1)
    await asyncio.sleep(5)
    assert runtime.counters.loads == loads + 1
    assert runtime.counters.failed_loads == 0
    assert await coordinators.ask(1, b"a", 1) == 11


@coordinated
async def test_the_same_leader_in_a_later_epoch_loads_anew(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    await coordinators.ask(1, b"a", 1)
    machine = coordinators.runtimes[1].active[0]
    cluster.change(leader=-1, to=[])
    cluster.change(leader=1)
    await until(lambda: coordinators.runtimes[1].counters.loads == 2)
    assert await coordinators.ask(1, b"a") == 1
    assert coordinators.runtimes[1].active[0] is not machine


@coordinated
async def test_a_follower_that_leaves_the_isr_changes_nothing(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    await coordinators.ask(1, b"a", 1)
    cluster[3].kill()
    cluster.fence(3)
    assert await coordinators.ask(1, b"a", 1) == 2
    assert coordinators.runtimes[1].counters.loads == 1


@coordinated
async def test_below_min_isr_it_reads_and_does_not_write(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    await coordinators.ask(1, b"a", 1)
    assert coordinators.runtimes[1].may_write(0)
    assert not coordinators.runtimes[2].may_write(0)
    for broker_id in (2, 3):
        cluster[broker_id].kill()
        cluster.fence(broker_id)
    await until(lambda: cluster[1].replica().machine.is_under_min_isr)
    assert not coordinators.runtimes[1].may_write(0)
    assert await coordinators.ask(1, b"a", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await coordinators.ask(1, b"a") == 1


@coordinated(replica_lag_time_max_ms=60_000)
async def test_records_that_are_not_committed_in_time_are_not_acknowledged(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    await coordinators.ask(1, b"a", 1)
    for broker_id in (2, 3):  # nobody notices
        cluster[broker_id].kill()
    assert await coordinators.ask(1, b"a", 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert cluster[1].replica().log.end_offset == 2


@coordinated
async def test_a_topic_deleted_and_made_anew_begins_empty(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    await coordinators.ask(1, b"a", 1)
    cluster.delete_topic()
    await until(lambda: coordinators.runtimes[1].partitions == [])
    assert await coordinators.ask(1, b"a") is ErrorCode.NOT_COORDINATOR
    cluster.create_topic([1, 2, 3], topic_id=b"another-topic-id")
    await coordinators.loaded(1)
    assert await coordinators.ask(1, b"a") is None


@with_brokers
async def test_coordinators_whose_logs_are_made_in_later_turns_are_loaded_too(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "LOGS_AT_ONCE", 2)

    coordinators = Coordinators(cluster)
    cluster.create_topic(*([(1, 2, 3)] * 5), *([(2, 1, 3)] * 2))
    runtimes = coordinators.runtimes
    await until(lambda: len(runtimes[1].active) == 5, "some are not loaded")
    await until(lambda: len(runtimes[2].active) == 2, "some are not loaded")
    assert (runtimes[1].partitions, runtimes[2].partitions) == ([0, 1, 2, 3, 4], [5, 6])
    assert runtimes[1].counters.loads == 5


@with_brokers
async def test_a_coordinator_whose_log_could_not_be_made_at_first_is_loaded_then(
    cluster: ReplicaCluster,
) -> None:
    coordinators = Coordinators(cluster)
    disk = cluster[1].disk
    disk.faults.quota_bytes = disk.used_bytes()
    cluster.create_topic([1])
    await until(lambda: cluster[1].manager.measures.counters().offline_replicas == 1)
    assert coordinators.runtimes[1].partitions == []
    disk.faults.quota_bytes = None
    await coordinators.loaded(1)


@coordinated
async def test_a_log_that_cannot_be_read_is_loaded_again_when_it_can(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    await coordinators.ask(1, b"a", 1)
    runtime, log = coordinators.runtimes[1], cluster[1].replica().log
    read, failures = log.read, [OSError("once")]

    def fail_once(*args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return read(*args, **kwargs)

    log.read = fail_once  # type: ignore[method-assign]
    cluster.change(leader=1)
    await until(lambda: runtime.counters.failed_loads == 1)
    assert await coordinators.ask(1, b"a") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await until(lambda: runtime.counters.loads == 2)
    assert await coordinators.ask(1, b"a") == 1


@coordinated
async def test_stopping_refuses_waiters(
    cluster: ReplicaCluster, coordinators: Coordinators
) -> None:
    runtime = coordinators.runtimes[1]

    async def inside() -> list[Any]:
        heard = Heard()
        runtime.submit(0, Event(lambda machine, now: machine.keep(heard)), heard)
        await asyncio.sleep(0.1)
        assert heard.told == []
        await runtime.stop()
        return heard.told

    assert await cluster[1].process.run(inside()) == [ErrorCode.NOT_COORDINATOR]
    cluster.change(leader=2)
    cluster.change(leader=1)
    await asyncio.sleep(1)
    assert runtime.partitions == []
