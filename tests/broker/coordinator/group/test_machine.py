"""The life of the machine: loading, unloading, lists."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from broker.coordinator.group.consumer.records import Kind, ResolvedRegex, tombstone
from broker.coordinator.group.consumer.types import ConsumerDescribeRequest, ResolveRequest
from broker.coordinator.group.counters import GroupCounters
from broker.coordinator.group.registry import DELETION_MS
from broker.coordinator.group.types import (
    DeleteAnswer,
    DescribeRequest,
    GroupState,
    GroupType,
    JoinAnswer,
    ListedGroup,
    ListRequest,
    OffsetToCommit,
)
from broker.coordinator.step import KeyValue, Machine, Now, Step
from stele.errors import ErrorCode
from tests.support.consumer_protocol import ConsumerBench
from tests.support.coordinators import Heard
from tests.support.groups import SESSION_MS, GroupBench, told


def test_it_is_a_machine() -> None:
    machine: Machine = GroupBench().machine
    assert machine.deadline_ms is None
    assert machine.tick(Now(0.0, 0)).records == []


def test_records_of_others_are_refused() -> None:
    machine = GroupBench().machine
    with pytest.raises(ValueError, match="version"):
        machine.replay(0, KeyValue(b"\0\x09\0\1g", b""), Now(0.0, 0))
    with pytest.raises(ValueError, match="ends early"):
        machine.replay(0, KeyValue(b"\0\2\0\1g", b"\0\3"), Now(0.0, 0))
    with pytest.raises(ValueError, match="ends early"):
        machine.replay(0, KeyValue(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3"), Now(0.0, 0))


def test_members_go_on_with_another_coordinator() -> None:
    bench = GroupBench()
    leader, follower = bench.stable(2)
    bench.commit_offset(5, member_id=follower, generation=1)
    bench.pass_time(SESSION_MS - 1)
    bench.reload()
    bench.pass_time(SESSION_MS - 1)
    assert bench.heartbeat(leader, 1) is ErrorCode.NONE
    assert bench.offset() == 5
    assert bench.commit_offset(6, member_id=follower, generation=1) is ErrorCode.NONE
    bench.pass_time(SESSION_MS - 1)
    assert bench.heartbeat(leader, 1) is ErrorCode.NONE
    bench.pass_time(1)
    assert bench.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_was_not_recorded_is_lost() -> None:
    bench = GroupBench()
    (first,) = bench.stable()
    second, waiting = bench.joined()
    again = bench.join(member_id=first)
    assert [len(each.told) for each in (again, waiting)] == [1, 1]
    bench.reload()
    assert bench.heartbeat(first, 2) is ErrorCode.ILLEGAL_GENERATION
    assert bench.heartbeat(second, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_every_waiter_is_handed_back_once() -> None:
    bench = GroupBench()
    joining = [bench.joined("a")[1], bench.joined("b")[1]]
    leader, _ = bench.joined("c")
    follower, _ = bench.joined("c")
    bench.pass_time(6_000)
    joining += [bench.joined("a")[1]]
    assert leader != follower
    waiting = bench.sync(follower, 1, group_id="c")
    handed = bench.reload()
    assert waiting in handed
    assert len(handed) == len({id(each) for each in handed})
    for each in (*joining, waiting):
        assert len(each.told) == 1
    assert bench.machine.unloaded() == []


def test_answers_that_rest_on_uncommitted_records_wait_after_a_load() -> None:
    bench = GroupBench()
    (member_id,) = bench.stable()
    log = bench.log
    successor = GroupBench()
    successor.commits_at_once = False
    successor.log = log
    successor.machine = successor.rebuilt()
    heard = successor.ask_heartbeat(member_id, 1)
    assert heard.told == []
    successor.commit()
    assert told(heard, ErrorCode) is ErrorCode.NONE


def settles_at(bench: GroupBench, ask: Callable[[], Heard]) -> int:
    """The high watermark at which an answer is given, that many records before the log's end."""
    heard = ask()
    for behind in range(len(bench.log) - bench.high_watermark - 1, -1, -1):
        assert heard.told == []
        bench.commit(len(bench.log) - behind)
        if heard.told:
            return behind
    raise AssertionError("it is never told")


def describing(bench: GroupBench) -> Callable[[], Heard]:
    return lambda: bench.ask(DescribeRequest("g"))


def test_answers_about_a_group_wait_for_its_last_record() -> None:
    bench = GroupBench()
    ids = bench.stable()
    bench.commits_at_once = False
    bench.leave(*ids)
    assert settles_at(bench, describing(bench)) == 0


def test_answers_about_offsets_wait_for_the_last_one() -> None:
    bench = GroupBench()
    bench.commits_at_once = False
    for _ in range(2):
        bench.ask_commit(OffsetToCommit("t", 0, 5))
    assert settles_at(bench, functools.partial(bench.ask_offsets, require_stable=True)) == 0


def joining_as_a_member(bench: GroupBench) -> Callable[[], Heard]:
    return lambda: bench.join(member_id="nobody")


@pytest.mark.parametrize("asking", [describing, joining_as_a_member])
def test_a_deleted_group_is_answered_when_its_tombstone_is_certain(
    asking: Callable[[GroupBench], Callable[[], Heard]],
) -> None:
    bench = GroupBench()
    bench.left(*bench.stable())
    bench.commits_at_once = False
    bench.ask_deletion_of_group()
    assert settles_at(bench, asking(bench)) == 0


def test_answers_about_consumers_wait_for_their_last_record() -> None:
    made = ConsumerBench()
    made.commits_at_once = False
    made.ask_join("a")
    describe = functools.partial(made.ask, ConsumerDescribeRequest("g"))
    assert len(made.log) > 3
    assert settles_at(made, describe) == 0
    made.ask_beat("a", -1)
    made.commit()
    made.ask_deletion_of_group()
    assert settles_at(made, describe) == 0
    # Tombstones that compaction has left while the group's own has gone.
    made.take(Step([tombstone(Kind.MEMBER, "g", "a")]))
    assert settles_at(made, describe) == 0


def test_rebalances_of_consumers_are_counted_once_and_not_at_a_load() -> None:
    made = ConsumerBench()
    made.take(made.machine.loaded(made.now))
    made.consumer_join("a")
    made.consumer_join("b")
    made.reload()
    assert made.counters.rebalances == 2
    for each in "ab":
        made.beat(each, -1)
    assert made.delete() is ErrorCode.NONE
    assert made.counters.rebalances == 2


def test_a_regular_expression_is_resolved_for_consumers_that_use_it_only() -> None:
    classic, consumers = GroupBench(), ConsumerBench()
    classic.stable()
    consumers.consumer_join("a")
    resolved = ResolvedRegex(("t",), 0, 0)
    for bench, group_id in ((classic, "g"), (classic, "nothing"), (consumers, "g")):
        before = len(bench.log)
        heard = bench.ask(ResolveRequest(group_id, "t", resolved))
        assert heard.told == [None]
        assert len(bench.log) == before


def test_a_tombstone_removes_a_group_while_loading() -> None:
    bench = GroupBench()
    bench.left(*bench.stable())
    bench.delete()
    bench.reload()
    assert bench.listed() == []


class TestDeletionInParts:
    """A group that has more offsets than fit into a step."""

    def deleted_in_part(self, bench: GroupBench, group_id: str = "g") -> int:
        """How many offsets are left."""
        for first in range(0, 1000, 100):
            some = (OffsetToCommit("a-long-name", first + each, 1) for each in range(100))
            bench.ask_commit(*some, group_id=group_id)
        answer = told(bench.ask_deletion_of_group(group_id), DeleteAnswer)
        assert (answer.error, answer.is_over) == (ErrorCode.NONE, False)
        return len(bench.offsets(group_id=group_id))

    def test_nobody_gets_into_the_group_before_the_last_part(self) -> None:
        bench = ConsumerBench()
        bench.take(bench.machine.loaded(bench.now))
        assert 0 < self.deleted_in_part(bench) < 1000
        wait = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert wait.retriable
        assert told(bench.join(), JoinAnswer).error is wait
        assert bench.commit_offset(7) is wait
        assert bench.consumer_join("a").error is wait
        assert bench.delete() is ErrorCode.NONE
        assert bench.listed() == []
        assert bench.commit_offset(7) is ErrorCode.NONE
        assert bench.offsets() != ()
        assert told(bench.join(), JoinAnswer).error is ErrorCode.MEMBER_ID_REQUIRED

    def test_a_deletion_that_ends_early_closes_the_group_for_a_while(self) -> None:
        bench = GroupBench()
        left = self.deleted_in_part(bench)
        bench.pass_time(DELETION_MS - 1)
        assert told(bench.join(), JoinAnswer).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        bench.pass_time(1)
        assert told(bench.join(), JoinAnswer).error is ErrorCode.MEMBER_ID_REQUIRED
        assert len(bench.offsets()) == left

    def test_another_coordinator_does_not_know_of_it(self) -> None:
        bench = GroupBench()
        self.deleted_in_part(bench)
        bench.reload()
        assert told(bench.join(), JoinAnswer).error is ErrorCode.MEMBER_ID_REQUIRED


def test_lists() -> None:
    bench = GroupBench()
    bench.stable(group_id="a")
    bench.commit_offset(1, group_id="b")
    bench.joined("c")
    heard = bench.ask(ListRequest())
    assert heard.told == [
        (
            ListedGroup("a", "consumer", GroupState.STABLE, GroupType.CLASSIC),
            ListedGroup("b", "", GroupState.EMPTY, GroupType.CLASSIC),
            ListedGroup("c", "consumer", GroupState.PREPARING_REBALANCE, GroupType.CLASSIC),
        )
    ]
    assert bench.listed(states=("STABLE", " empty")) == ["a", "b"]
    assert bench.listed(types=("Classic",)) == ["a", "b", "c"]
    assert bench.listed(types=("consumer",)) == []
    assert bench.listed(states=("dead",)) == []


def test_the_state_of_a_group_that_is_not_there() -> None:
    described = GroupBench().described("nothing")
    assert (described.state, described.members) == (GroupState.DEAD, ())


def test_what_happens_is_counted_once_and_not_at_a_load() -> None:
    bench = GroupBench()
    bench.reload()
    first, second = bench.stable(2)
    bench.commit_offset(5, member_id=first, generation=1)
    bench.commit_offset(6, member_id=second, generation=1)
    bench.commit_offset(7, member_id=first, generation=0)  # refused
    assert bench.counters == GroupCounters(rebalances=1, offset_commits=2)
    bench.reload()
    assert bench.counters == GroupCounters(rebalances=1, offset_commits=2)
    bench.left(first, second)
    assert bench.counters.rebalances == 1
    assert bench.delete() is ErrorCode.NONE
    assert bench.counters == GroupCounters(rebalances=1, offset_commits=2, offset_removals=1)


def test_a_generation_that_nobody_was_assigned_anything_in_is_not_counted() -> None:
    bench = GroupBench()
    bench.reload()
    bench.joined(rebalance_ms=8_000)
    bench.pass_time(3_000)
    assert bench.described().state is GroupState.COMPLETING_REBALANCE
    bench.pass_time(8_000)
    assert bench.described().state is GroupState.EMPTY
    assert bench.counters == GroupCounters()
