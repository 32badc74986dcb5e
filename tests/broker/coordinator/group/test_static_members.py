"""Static members (KIP-345, KIP-814)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from broker.coordinator.group.types import (
    GroupState,
    JoinAnswer,
    JoinedMember,
    LeavingMember,
    MemberProtocol,
    SyncAnswer,
)
from stele.errors import ErrorCode
from tests.support.groups import OTHER_RANGE, RANGE, SESSION_MS, GroupBench, told

STICKY = MemberProtocol("sticky", RANGE[0].metadata)


def static(bench: GroupBench, *instances: str, **options: Any) -> list[str]:
    """A stable group of static members; their ids."""
    heard = [bench.join(instance=each, **options) for each in instances]
    bench.pass_time(2 * bench.config.group_initial_rebalance_delay_ms)
    answers = [told(each, JoinAnswer) for each in heard]
    ids = [each.member_id for each in answers]
    bench.settle(ids, answers[0].generation)
    return ids


def test_a_static_member_joins_in_one_step_and_is_named_after_its_instance() -> None:
    bench = GroupBench()
    assert static(bench, "i", "j") == ["i-u1", "j-u2"]


@pytest.mark.parametrize("skips", [True, False])
def test_a_leader_that_is_restarted(skips: bool) -> None:
    bench = GroupBench()
    first, second = static(bench, "i", "j")
    answer = told(bench.join(instance="i", skips=skips), JoinAnswer)
    new = answer.member_id
    assert new not in (first, second)
    assert (answer.error, answer.generation, answer.protocol) == (ErrorCode.NONE, 1, "range")
    if skips:
        assert answer.skip_assignment
        assert answer.leader == new
        metadata = RANGE[0].metadata
        assert answer.members == (
            JoinedMember(new, "i", metadata),
            JoinedMember(second, "j", metadata),
        )
    else:  # it would assign anew if it knew that it leads
        assert not answer.skip_assignment
        assert answer.leader == first
        assert answer.members == ()
    assert bench.described().state is GroupState.STABLE
    assert told(bench.sync(new, 1, instance="i"), SyncAnswer).assignment == first.encode()
    assert bench.counters.rebalances == 1


def test_a_follower_that_is_restarted_keeps_its_assignment() -> None:
    bench = GroupBench()
    first, second = static(bench, "i", "j")
    answer = told(bench.join(instance="j"), JoinAnswer)
    assert (answer.leader, answer.members, answer.skip_assignment) == (first, (), False)
    assert bench.heartbeat(first, 1, instance="i") is ErrorCode.NONE
    synced = told(bench.sync(answer.member_id, 1, instance="j"), SyncAnswer)
    assert synced.assignment == second.encode()
    assert len(bench.log) == 2


def test_the_former_process_is_fenced() -> None:
    bench = GroupBench()
    former, _ = static(bench, "i", "j")
    bench.join(instance="i")
    assert bench.heartbeat(former, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    fenced = told(bench.sync(former, 1, instance="i"), SyncAnswer)
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    rejoin = told(bench.join(member_id=former, instance="i"), JoinAnswer)
    assert rejoin.error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.left(LeavingMember(former, "i")) == (ErrorCode.FENCED_INSTANCE_ID,)
    assert bench.heartbeat(former, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_new_process_has_a_session() -> None:
    bench = GroupBench()
    first, _ = static(bench, "i", "j")
    bench.pass_time(SESSION_MS - 1)
    bench.heartbeat(first, 1, instance="i")
    new = told(bench.join(instance="j"), JoinAnswer).member_id
    bench.pass_time(SESSION_MS - 1)
    bench.heartbeat(first, 1, instance="i")
    assert bench.described().state is GroupState.STABLE
    bench.pass_time(1)
    assert new not in {each.member_id for each in bench.described().members}
    assert bench.described().state is GroupState.PREPARING_REBALANCE


def test_another_choice_of_protocols_makes_a_rebalance() -> None:
    bench = GroupBench()
    protocols = (*RANGE, STICKY)
    first, second = static(bench, "i", "j", protocols=protocols)
    heard = bench.join(instance="j", protocols=(STICKY,))
    assert heard.told == []
    assert bench.heartbeat(first, 1, instance="i") is ErrorCode.REBALANCE_IN_PROGRESS
    bench.join(member_id=first, instance="i", protocols=protocols)
    answer = told(heard, JoinAnswer)
    assert (answer.generation, answer.protocol) == (2, "sticky")
    assert bench.heartbeat(second, 2, instance="j") is ErrorCode.FENCED_INSTANCE_ID


def test_two_restarts_of_each_change_the_protocol() -> None:
    """The usual change of the assignor: first every member is restarted with both protocols, and
    then with the new one only."""
    bench = GroupBench()
    both = (STICKY, *RANGE)
    static(bench, "i", "j")
    first = told(bench.join(instance="i", protocols=both), JoinAnswer)
    assert (first.error, first.protocol, first.generation) == (ErrorCode.NONE, "range", 1)
    heard = bench.join(instance="j", protocols=both)  # now both know the new one
    again = bench.join(member_id=first.member_id, instance="i", protocols=both)
    second = told(heard, JoinAnswer)
    for answer in (second, told(again, JoinAnswer)):
        assert (answer.error, answer.protocol, answer.generation) == (ErrorCode.NONE, "sticky", 2)
    assignments = {first.member_id: b"1", second.member_id: b"2"}
    bench.sync(second.leader, 2, assignments, protocol="sticky")
    for instance in "ij":
        answer = told(bench.join(instance=instance, protocols=(STICKY,)), JoinAnswer)
        assert (answer.error, answer.protocol, answer.generation) == (ErrorCode.NONE, "sticky", 2)


def test_a_process_that_waits_is_fenced_when_another_one_comes() -> None:
    bench = GroupBench()
    waiting = bench.join(instance="i")
    again = bench.join(instance="i")
    assert told(waiting, JoinAnswer) == JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, "i-u1")
    bench.pass_time(3_000)
    assert told(again, JoinAnswer).leader == "i-u2"


def test_a_new_process_while_the_leader_assigns_makes_a_rebalance() -> None:
    bench = GroupBench()
    heard = [bench.join(instance=each) for each in ("i", "j")]
    bench.pass_time(6_000)
    first, second = (told(each, JoinAnswer).member_id for each in heard)
    waiting = bench.sync(second, 1, instance="j")
    again = bench.join(instance="j")
    assert told(waiting, SyncAnswer).error is ErrorCode.FENCED_INSTANCE_ID
    assert bench.heartbeat(first, 1, instance="i") is ErrorCode.REBALANCE_IN_PROGRESS
    bench.join(member_id=first, instance="i")
    assert told(again, JoinAnswer).generation == 2


def test_a_leader_that_is_restarted_leads_the_next_generation_too() -> None:
    bench = GroupBench()
    first, second = static(bench, "i", "j", session_ms=100_000, rebalance_ms=8_000)
    options: dict[str, Any] = {"session_ms": 100_000, "rebalance_ms": 8_000}
    bench.join(member_id=second, instance="j", protocols=OTHER_RANGE, **options)
    bench.pass_time(8_000)  # the first one has not joined: the second one leads
    new = bench.join(instance="j", **options)
    bench.join(member_id=first, instance="i", **options)
    answer = told(new, JoinAnswer)
    assert (answer.generation, answer.leader) == (3, answer.member_id)


def test_the_session_of_a_former_process_is_over() -> None:
    bench = GroupBench()
    bench.join(instance="i")
    waiting = bench.join(instance="i")
    bench.pass_time(3_000)
    new = told(waiting, JoinAnswer).member_id
    bench.settle([new], 1)
    for _ in range(50):
        bench.pass_time(SESSION_MS - 1)
        assert bench.heartbeat(new, 1, instance="i") is ErrorCode.NONE


def test_the_new_process_of_one_keeps_no_other_alive() -> None:
    bench = GroupBench()
    leader, _ = static(bench, "i", "j")
    bench.pass_time(SESSION_MS - 1)
    bench.join(instance="j")
    bench.pass_time(1)
    assert bench.heartbeat(leader, 1, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_by_instance_id() -> None:
    bench = GroupBench()
    static(bench, "i", "j")
    asked = (LeavingMember("", "j"), LeavingMember("", "nobody"), LeavingMember("", None))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.left(*asked) == (ErrorCode.NONE, unknown, unknown)
    assert [each.group_instance_id for each in bench.described().members] == ["i"]
    assert bench.left(LeavingMember("", "j")) == (unknown,)
    assert bench.join(instance="j").told == []


def test_a_rebalance_that_nobody_joins_waits_for_somebody() -> None:
    """Its join timer would be due again and again with a rebalance timeout of 0. The next member
    that joins starts the timer again."""
    bench = GroupBench()
    static(bench, "i", "j", "k")
    for instance in ("i", "j", "k"):  # restarted, with another rebalance timeout
        assert told(bench.join(instance=instance, rebalance_ms=0), JoinAnswer).generation == 1
    assert bench.left(LeavingMember("", "k")) == (ErrorCode.NONE,)
    bench.pass_time(1)
    assert bench.described().state is GroupState.PREPARING_REBALANCE
    assert bench.machine.deadline_ms is not None
    assert bench.machine.deadline_ms >= bench.now.monotonic_ms + SESSION_MS - 1000
    came = bench.join(instance="i", rebalance_ms=500)
    bench.pass_time(499)
    assert came.told == []
    bench.pass_time(1)
    assert told(came, JoinAnswer).generation == 2


def test_the_join_time_begins_with_the_first_member_that_joins() -> None:
    """And not when a member leaves that nobody waits for."""
    bench = GroupBench()
    static(bench, "i", "j", "k", "l")
    for instance in ("i", "j", "k", "l"):  # restarted, with another rebalance timeout
        assert told(bench.join(instance=instance, rebalance_ms=500), JoinAnswer).generation == 1
    assert bench.left(LeavingMember("", "k")) == (ErrorCode.NONE,)
    bench.pass_time(600)  # nobody has joined in time
    assert bench.left(LeavingMember("", "j")) == (ErrorCode.NONE,)
    bench.pass_time(200)
    came = bench.join(instance="i", rebalance_ms=500)
    bench.pass_time(499)
    assert came.told == []
    bench.pass_time(1)
    assert told(came, JoinAnswer).generation == 2


def test_the_log_names_the_member_that_leaves(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = GroupBench()
    first, _, _ = static(bench, "i", "j", "k")
    bench.left(LeavingMember(first, "i", "done"), LeavingMember("", "j", "removed"))
    assert f"leaving: {first} (done), j (removed)" in caplog.text


def test_a_refused_record_leaves_the_former_process_in_its_place() -> None:
    bench = GroupBench()
    former, _ = static(bench, "i", "j")
    bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert bench.join(instance="i").told == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert bench.heartbeat(former, 1, instance="i") is ErrorCode.NONE
    bench.refusal = ErrorCode.NONE
    assert told(bench.join(instance="i"), JoinAnswer).error is ErrorCode.NONE


def test_nobody_is_fenced_before_the_new_process_is_certain() -> None:
    bench = GroupBench()
    former, _ = static(bench, "i", "j")
    bench.commits_at_once = False
    heard = bench.join(instance="i")
    assert heard.told == []
    fenced = bench.ask_heartbeat(former, 1, instance="i")
    assert fenced.told == []
    bench.commit()
    assert told(fenced, ErrorCode) is ErrorCode.FENCED_INSTANCE_ID
    assert told(heard, JoinAnswer).error is ErrorCode.NONE
