"""What the next coordinator knows of a group of the consumer protocol."""

from __future__ import annotations

from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.records import (
    CurrentAssignment,
    Kind,
    MemberMetadata,
    current_record,
    decode_consumer_key,
    member_record,
    tombstone,
)
from broker.coordinator.group.deadlines import Deadlines
from broker.coordinator.group.types import (
    GroupState,
)
from broker.coordinator.step import Now
from stele.errors import ErrorCode
from tests.support.consumer_protocol import (
    REBALANCE_MS,
    Cluster,
    Consumer,
    T,
    bench,
    check_shared,
    members,
    settle,
)


def test_the_next_coordinator_sees_what_became_of_topics_meanwhile() -> None:
    made = bench()
    (a,) = members(made, "a")
    made.cluster.put("t", 6)
    made.reload()
    settle(a)
    check_shared(made, a)


def test_records_that_crossed_by_compaction_leave_what_was_said_last() -> None:
    made = bench()
    made.consumer_join("a", instance_id="i")
    owned = CurrentAssignment(2, 1, assigned={T: frozenset({1})})
    made.log += [
        current_record("g", "b", owned),
        current_record("g", "a", CurrentAssignment(2, 1)),
        member_record("g", "b", MemberMetadata(instance_id="i", topic_names=("t",))),
        tombstone(Kind.MEMBER, "g", "a"),
    ]
    made.reload()
    assert [each.member_id for each in made.described_consumers().members] == ["b"]
    assert made.consumer_join("c", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_an_owner_stays_when_an_older_assignment_ends_after_it() -> None:
    group = ConsumerGroup("g", GroupConfig(), Deadlines(), Cluster(t=4))
    for member_id, numbers in (("a", {1, 2}), ("b", {1}), ("a", {3})):
        owned = CurrentAssignment(1, assigned={T: frozenset(numbers)})
        key, value = current_record("g", member_id, owned)
        group.replay(decode_consumer_key(key), value, 1, Now(0.0, 0))
    assert [group.owner(T, each) for each in range(4)] == [None, "b", None, "a"]


def test_the_next_coordinator_knows_everything() -> None:
    made = bench()
    a, b = members(made, "a", "b")
    c = Consumer(made, "c")
    c.join()
    a.beat()
    before = made.described_consumers()
    assert before.state is GroupState.RECONCILING
    made.reload()
    assert made.described_consumers() == before
    settle(a, b, c)
    check_shared(made, a, b, c)


def test_the_next_coordinator_waits_for_revocations_anew() -> None:
    made = bench()
    (a,) = members(made, "a")
    Consumer(made, "b").join()
    a.beat()
    made.pass_time(40_000)
    made.reload()
    for _ in range(2):
        a.beat()
        made.pass_time(REBALANCE_MS // 2)
    assert "a" not in [each.member_id for each in made.described_consumers().members]


def test_states_that_are_not_known_are_left_by_joining_again() -> None:
    made = bench()
    (a,) = members(made, "a")
    key, value = next(each for each in reversed(made.log) if each.key[:2] == b"\0\x08")
    assert value is not None
    made.log.append(type(made.log[0])(key, value[:10] + b"\x63" + value[11:]))
    made.reload()
    assert a.epoch == 1
    assert made.beat("a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert made.beat("a", 1, owned={}).error is ErrorCode.NONE, "it has nothing to give up"
    made.reload()
    a.join()
    settle(a)
    check_shared(made, a)
