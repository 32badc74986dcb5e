"""Target assignments are made some time apart, so that many changes share one (KIP-1263)."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.consumer.records import Kind
from broker.coordinator.group.types import GroupState
from broker.coordinator.step import Now
from stele.errors import ErrorCode
from tests.support.classic_clients import ClassicClient
from tests.support.consumer_protocol import (
    INTERVAL_MS,
    Cluster,
    Consumer,
    ConsumerBench,
    settle,
)

WAIT_MS = 1_000
T = Cluster().id_of("t")


def bench(
    cluster: Cluster | None = None, interval_ms: int = WAIT_MS, **config: Any
) -> ConsumerBench:
    cluster = cluster or Cluster(t=4)
    cluster.assignment_interval_ms = interval_ms
    made = ConsumerBench(cluster, **config)
    made.take(made.machine.loaded(made.now))
    return made


def assignments(made: ConsumerBench) -> int:
    """How many were made."""
    keys = (record.key for record in made.log if record.value is not None)
    return sum(each[:2] == bytes((0, Kind.TARGET_EPOCH)) for each in keys)


def shares(*members: Consumer) -> list[int]:
    return sorted(len(each.owned) for each in members)


@pytest.mark.parametrize(("interval_ms", "expected"), [(0, 200), (WAIT_MS, 2)])
def test_members_that_join_together_share_an_assignment(interval_ms: int, expected: int) -> None:
    made = bench(Cluster(t=400), interval_ms)
    members = [Consumer(made, f"m{number}") for number in range(200)]
    for each in members:
        each.join()
        made.pass_time(4)
    for _ in range(8):
        made.pass_time(INTERVAL_MS)
        settle(*members, rounds=1)
    assert shares(*members) == [2] * 200
    assert made.described_consumers().state is GroupState.STABLE
    assert assignments(made) == expected


def test_a_member_waits_for_the_next_assignment_in_the_epoch_of_the_last_one() -> None:
    made = bench()
    a, b = Consumer(made, "a"), Consumer(made, "b")
    settle(a, rounds=2)
    made.pass_time(300)
    answer: Any = b.join()
    assert (answer.member_epoch, answer.assigned) == (1, {})
    assert answer.heartbeat_interval_ms == 700, "it comes back when the assignment may be made"
    state = made.described_consumers()
    assert (state.state, state.epoch, state.assignment_epoch) == (GroupState.ASSIGNING, 2, 1)
    made.pass_time(699)
    answer = b.beat()
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (1, 1)
    assert len(a.owned) == 4
    made.pass_time(1)
    answer = b.beat()
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (2, INTERVAL_MS)
    settle(a, b)
    assert shares(a, b) == [2, 2]


def test_who_changes_nothing_for_long_gets_an_assignment_at_once() -> None:
    made = bench()
    a, b = Consumer(made, "a"), Consumer(made, "b")
    settle(a)
    made.pass_time(WAIT_MS)
    b.join()
    assert (b.epoch, assignments(made)) == (2, 2)


def test_the_next_coordinator_waits_for_the_rest_of_the_time() -> None:
    made = bench()
    a, b = Consumer(made, "a"), Consumer(made, "b")
    settle(a)
    made.pass_time(400)
    made.reload()
    b.join()
    assert (b.epoch, assignments(made)) == (1, 1)
    made.pass_time(600)
    b.beat()
    assert (b.epoch, assignments(made)) == (2, 2)


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    made = bench()
    a, b = Consumer(made, "a"), Consumer(made, "b")
    settle(a)
    made.now = Now(made.now.monotonic_ms, made.now.time_ms - 3_600_000)
    b.join()
    assert (b.epoch, assignments(made)) == (2, 2)


def test_a_clock_near_its_origin_delays_nothing() -> None:
    """A time of 0 stands for none."""
    made = bench()
    made.now = Now(0.0, WAIT_MS // 2)
    a = Consumer(made, "a")
    a.join()
    assert (a.epoch, assignments(made)) == (1, 1)


def test_a_topic_that_is_not_subscribed_to_any_more_is_given_up_at_once() -> None:
    made = bench(Cluster(t=4, u=2))
    a, b = Consumer(made, "a", topics=("t", "u")), Consumer(made, "b", topics=("t", "u"))
    settle(a)
    a.options["topic_names"] = ("t",)
    a.beat()
    assert {topic_id for topic_id, _ in a.wanted} == {T}
    a.reconcile()
    a.beat()
    assert (a.epoch, assignments(made)) == (1, 1)
    b.join()
    assert not b.wanted, "nobody has assigned it yet"
    made.pass_time(WAIT_MS)
    settle(a, b)
    assert {topic_id for topic_id, _ in a.owned} == {T}
    assert a.owned | b.owned == made.cluster.pairs_of({"t", "u"})


def test_a_topic_that_is_deleted_is_given_up_at_once() -> None:
    made = bench(Cluster(t=4, u=2))
    a = Consumer(made, "a", topics=("t", "u"))
    settle(a)
    made.cluster.delete("u")
    settle(a, rounds=2)
    assert a.owned == made.cluster.pairs_of({"t"})
    assert assignments(made) == 1
    assert made.described_consumers().epoch == 2


def test_a_static_member_that_comes_back_gets_its_partitions_at_once() -> None:
    made = bench()
    a, b = Consumer(made, "a", "i"), Consumer(made, "b")
    settle(a, b)
    made.pass_time(WAIT_MS)
    settle(a, b)
    owned = a.owned
    a.leave(for_good=False)
    again = Consumer(made, "c", "i")
    settle(again, rounds=1)
    assert again.owned == owned
    assert assignments(made) == 2


def test_a_classic_member_joins_again_only_when_there_is_something_to_get() -> None:
    made = bench(Cluster(t=4), group_initial_rebalance_delay_ms=0)
    a, b = Consumer(made, "a"), ClassicClient(made, None, ("t",), False)
    settle(a)
    for _ in range(6):
        b.act()
        made.pass_time(100)
    assert b.is_member
    assert b.generation == 1, "it does not join again and again while the assignment waits"
    assert (len(b.owned), assignments(made)) == (0, 1)
    made.pass_time(WAIT_MS)
    for _ in range(6):
        a.beat()
        a.reconcile()
        b.act()
    assert (len(a.owned), len(b.owned), assignments(made)) == (2, 2, 2)


def test_a_classic_member_gives_a_topic_up_although_the_assignment_waits() -> None:
    made = bench(Cluster(t=2, u=2), group_initial_rebalance_delay_ms=0)
    topics = ("t", "u")
    a, b = Consumer(made, "a", topics=topics), ClassicClient(made, None, topics, False)
    settle(a)
    made.pass_time(WAIT_MS)
    for _ in range(8):
        b.act()
        settle(a, rounds=1)
    assert b.owned == made.cluster.pairs_of({"u"})
    b.topics = ("t",)
    b.join()
    assert b.owned == frozenset()
    again = ErrorCode.REBALANCE_IN_PROGRESS
    assert made.heartbeat(b.member_id, b.generation) is again, "it has not said that it has"
    b.act()
    assert made.heartbeat(b.member_id, b.generation) is ErrorCode.NONE


def test_members_of_the_classic_protocol_alone_make_the_assignment_by_joining() -> None:
    made = bench(Cluster(t=4), group_consumer_migration_policy="upgrade")
    a, b = Consumer(made, "a"), ClassicClient(made, None, ("t",), False)
    settle(a)
    while not b.is_member:
        b.act()
    a.leave()
    for _ in range(4):
        made.pass_time(WAIT_MS)
        b.act()
    assert len(b.owned) == 4
