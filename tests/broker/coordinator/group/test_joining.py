"""JoinGroup: which members are accepted, and how a generation comes about."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest

from broker.coordinator.group.types import (
    GroupState,
    JoinAnswer,
    JoinedMember,
    MemberProtocol,
    SyncAnswer,
)
from broker.coordinator.step import Now
from stele.errors import ErrorCode
from tests.support.groups import (
    OTHER_RANGE,
    RANGE,
    REBALANCE_MS,
    SESSION_MS,
    GroupBench,
    join_request,
    told,
)

DELAY_MS = 3_000
STICKY = MemberProtocol("sticky", RANGE[0].metadata)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 6_000}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"session_ms": 1_800_000}, ErrorCode.MEMBER_ID_REQUIRED),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"client_id": "ü" * 16_001}, ErrorCode.INVALID_REQUEST),
        ({"instance": "i" * 32_001}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({}, ErrorCode.MEMBER_ID_REQUIRED),
    ],
)
def test_refusals_of_a_group_that_is_not_there(options: dict[str, Any], error: ErrorCode) -> None:
    bench = GroupBench()
    answer = told(bench.join(**options), JoinAnswer)
    assert answer.error is error
    assert bench.log == []
    assert bench.listed() == (["g"] if error is ErrorCode.MEMBER_ID_REQUIRED else [])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (STICKY,)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "nobody", "instance": "i"}, ErrorCode.FENCED_INSTANCE_ID),
        ({"member_id": "nobody", "instance": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_refusals_of_a_stable_group(options: dict[str, Any], error: ErrorCode) -> None:
    bench = GroupBench()
    told_static(bench, "i")
    answer = told(bench.join(**options), JoinAnswer)
    assert (answer.error, answer.member_id) == (error, options.get("member_id", ""))
    assert bench.described().state is GroupState.STABLE


def told_static(bench: GroupBench, instance: str) -> str:
    """A static member alone in a stable group."""
    heard = bench.join(instance=instance)
    bench.pass_time(DELAY_MS)
    answer = told(heard, JoinAnswer)
    bench.settle([answer.member_id], answer.generation)
    return answer.member_id


def test_a_first_member() -> None:
    bench = GroupBench()
    member_id, heard = bench.joined()
    assert member_id == "client-u1"
    assert bench.described().state is GroupState.PREPARING_REBALANCE
    bench.pass_time(DELAY_MS - 1)
    assert heard.told == []
    bench.pass_time(1)
    assert told(heard, JoinAnswer) == JoinAnswer(
        ErrorCode.NONE,
        member_id,
        1,
        "consumer",
        "range",
        member_id,
        (JoinedMember(member_id, None, RANGE[0].metadata),),
    )
    assert bench.described().state is GroupState.COMPLETING_REBALANCE
    assert bench.log == []


def test_the_longest_names_can_be_recorded() -> None:
    bench = GroupBench()
    heard = bench.join(group_id="g" * 32_767, instance="i" * 32_000, client_id="c" * 32_000)
    bench.pass_time(DELAY_MS)
    answer = told(heard, JoinAnswer)
    assert answer.error is ErrorCode.NONE
    bench.settle([answer.member_id], 1, "g" * 32_767)
    bench.reload()


def test_older_clients_join_at_once() -> None:
    bench = GroupBench()
    heard = bench.join(known_id=False)
    bench.pass_time(DELAY_MS)
    assert told(heard, JoinAnswer).member_id == "client-u1"


def test_the_first_rebalance_goes_on_while_members_come() -> None:
    """For as long as the first member allows for a rebalance."""
    bench = GroupBench()
    _, first = bench.joined(rebalance_ms=7_000)
    for _ in range(2):
        bench.pass_time(DELAY_MS - 500)
        bench.joined(rebalance_ms=60_000)
    bench.pass_time(1_999)
    bench.joined(rebalance_ms=60_000)
    assert first.told == []
    bench.pass_time(1)
    assert len(told(first, JoinAnswer).members) == 4


def test_the_first_rebalance_ends_with_its_time() -> None:
    bench = GroupBench()
    _, first = bench.joined(rebalance_ms=DELAY_MS)
    bench.joined(rebalance_ms=DELAY_MS)
    bench.pass_time(DELAY_MS - 1)
    bench.now = Now(float(DELAY_MS), bench.now.time_ms + 1)
    bench.take(bench.machine.tick(bench.now))
    assert len(told(first, JoinAnswer).members) == 2


def test_the_first_rebalance_ends_when_nobody_comes() -> None:
    bench = GroupBench()
    _, first = bench.joined()
    bench.pass_time(1_000)
    bench.joined()
    bench.pass_time(2 * DELAY_MS - 1_001)
    assert first.told == []
    bench.pass_time(1)
    assert len(told(first, JoinAnswer).members) == 2


def test_without_a_delay_the_first_generation_begins_at_once() -> None:
    bench = GroupBench(group_initial_rebalance_delay_ms=0)
    _, heard = bench.joined()
    bench.pass_time(0)
    assert told(heard, JoinAnswer).generation == 1


def test_a_second_member_makes_the_first_join_again() -> None:
    bench = GroupBench()
    (first,) = bench.stable()
    second, heard = bench.joined()
    assert bench.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = bench.join(member_id=first)
    answers = [told(each, JoinAnswer) for each in (again, heard)]
    assert [(each.generation, each.leader) for each in answers] == [(2, first)] * 2
    assert [len(each.members) for each in answers] == [2, 0]
    assert second == answers[1].member_id


def test_a_rebalance_waits_for_members_that_were_given_an_id() -> None:
    bench = GroupBench()
    (first,) = bench.stable()
    pending = told(bench.join(), JoinAnswer).member_id
    again = bench.join(member_id=first)  # the leader wants another assignment
    assert again.told == []
    bench.join(member_id=pending)
    assert told(again, JoinAnswer).generation == 2


def test_those_that_were_given_an_id_and_do_not_come_are_forgotten() -> None:
    bench = GroupBench()
    (first,) = bench.stable()
    pending = told(bench.join(session_ms=7_000), JoinAnswer).member_id
    again = bench.join(member_id=first)
    bench.pass_time(7_000)
    assert told(again, JoinAnswer).generation == 2
    assert told(bench.join(member_id=pending), JoinAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_alone_makes_no_member() -> None:
    bench = GroupBench()
    pending = told(bench.join(), JoinAnswer).member_id
    assert bench.described().members == ()
    assert bench.heartbeat(pending, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert told(bench.sync(pending, 0), SyncAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_given_to_a_dynamic_member_is_no_static_one_s() -> None:
    bench = GroupBench()
    pending = told(bench.join(), JoinAnswer).member_id
    answer = told(bench.join(member_id=pending, instance="i"), JoinAnswer)
    assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_join_in_time_is_removed() -> None:
    bench = GroupBench()
    first, second = bench.stable(2, rebalance_ms=20_000)
    third, heard = bench.joined(rebalance_ms=10_000)
    bench.join(member_id=second, rebalance_ms=10_000)
    for _ in range(4):
        bench.pass_time(5_000 - 1)
        assert heard.told == []
        assert bench.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    bench.pass_time(4)
    answer = told(heard, JoinAnswer)
    assert (answer.generation, answer.leader) == (2, second)
    assert bench.heartbeat(first, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert {each.member_id for each in bench.described().members} == {second, third}


def test_a_follower_with_nothing_new_is_answered_at_once() -> None:
    bench = GroupBench()
    first, second = bench.stable(2)
    answer = told(bench.join(member_id=second), JoinAnswer)
    assert (answer.generation, answer.leader, answer.members) == (1, first, ())
    assert bench.described().state is GroupState.STABLE
    assert bench.join(member_id=second, protocols=OTHER_RANGE).told == []
    assert bench.described().state is GroupState.PREPARING_REBALANCE


def test_the_last_answer_is_repeated_while_the_leader_assigns() -> None:
    bench = GroupBench()
    first, _ = bench.joined()
    second, _ = bench.joined()
    bench.pass_time(2 * DELAY_MS)
    answers = [told(bench.join(member_id=each), JoinAnswer) for each in (first, second)]
    assert [len(each.members) for each in answers] == [2, 0]
    assert {each.generation for each in answers} == {1}
    waiting = bench.sync(second, 1)
    bench.join(member_id=first, protocols=OTHER_RANGE)
    assert told(waiting, SyncAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.described().state is GroupState.PREPARING_REBALANCE


def test_a_second_join_of_a_member_that_waits_takes_its_place() -> None:
    bench = GroupBench()
    member_id, heard = bench.joined()
    again = bench.join(member_id=member_id)
    assert told(heard, JoinAnswer).error is ErrorCode.REBALANCE_IN_PROGRESS
    bench.pass_time(DELAY_MS)
    assert told(again, JoinAnswer).generation == 1


def test_the_log_tells_why_a_member_joins(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for reason, expected in (("a deploy", "(a deploy)"), ("", "(it gives no reason)")):
        request = dataclasses.replace(join_request(known_id=False), reason=reason)
        bench = GroupBench()
        bench.ask(request)
        assert expected in caplog.text


def test_the_members_vote_for_a_protocol() -> None:
    bench = GroupBench()
    both = (*RANGE, STICKY)
    _, first = bench.joined(protocols=both)
    bench.joined(protocols=(STICKY, *RANGE))
    bench.joined(protocols=(STICKY, *RANGE, MemberProtocol("mine", b"")))
    bench.pass_time(2 * DELAY_MS)
    assert told(first, JoinAnswer).protocol == "sticky"


def test_only_protocols_that_all_support_are_voted_for() -> None:
    bench = GroupBench()
    _, first = bench.joined(protocols=(STICKY, *RANGE))
    bench.joined(protocols=(STICKY, *RANGE))
    bench.joined(protocols=RANGE)
    bench.pass_time(2 * DELAY_MS)
    assert told(first, JoinAnswer).protocol == "range"


def test_an_empty_group_may_change_its_protocol_type() -> None:
    bench = GroupBench()
    (member_id,) = bench.stable()
    bench.left(member_id)
    _, heard = bench.joined(protocol_type="connect", protocols=(MemberProtocol("x", b"?"),))
    bench.pass_time(DELAY_MS)
    answer = told(heard, JoinAnswer)
    assert (answer.protocol_type, answer.protocol, answer.generation) == ("connect", "x", 3)


def test_a_new_member_that_never_hears_of_a_generation_is_removed() -> None:
    bench = GroupBench()
    bench.stable(rebalance_ms=1_000_000, session_ms=400_000)
    new, heard = bench.joined()
    bench.pass_time(300_000)
    answer = told(heard, JoinAnswer)
    assert (answer.error, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert new not in {each.member_id for each in bench.described().members}


def test_waiting_members_are_alive() -> None:
    bench = GroupBench()
    first, second = bench.stable(2, rebalance_ms=1_000_000)
    again = bench.join(member_id=first, rebalance_ms=1_000_000)
    for _ in range(10):
        bench.pass_time(SESSION_MS - 1)
        bench.heartbeat(second, 1)
    assert again.told == []
    bench.join(member_id=second, rebalance_ms=1_000_000)
    assert told(again, JoinAnswer).generation == 2


class TestMaxSize:
    """``group.max.size``"""

    def test_new_members_are_turned_away(self) -> None:
        bench = GroupBench(group_max_size=2)
        first, _ = bench.stable(2)
        answer = told(bench.join(), JoinAnswer)
        assert (answer.error, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert bench.join(member_id=first).told == []

    def test_those_that_wait_are_counted_while_members_join(self) -> None:
        bench = GroupBench(group_max_size=1)
        member_id, _ = bench.joined()
        answer = told(bench.join(), JoinAnswer)
        assert answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
        again = bench.join(member_id=member_id)
        bench.pass_time(DELAY_MS)
        assert told(again, JoinAnswer).error is ErrorCode.NONE

    def test_a_lowered_limit_keeps_the_last_ones_out(self) -> None:
        bench = GroupBench()
        first, second = bench.stable(2)
        lowered = GroupBench(group_max_size=1)
        lowered.log = bench.log
        lowered.reload()
        assert lowered.heartbeat(first, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        kept = lowered.join(member_id=second)
        answer = told(lowered.join(member_id=first), JoinAnswer)
        assert (answer.error, answer.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        assert told(kept, JoinAnswer).leader == second

    def test_a_full_group_goes_on_with_the_next_coordinator(self) -> None:
        bench = GroupBench(group_max_size=2)
        ids = bench.stable(2)
        bench.reload()
        assert [bench.heartbeat(each, 1) for each in ids] == [ErrorCode.NONE] * 2

    def test_a_static_member_that_comes_back_takes_no_more_room(self) -> None:
        bench = GroupBench(group_max_size=1)
        told_static(bench, "i")
        assert told(bench.join(instance="i"), JoinAnswer).error is ErrorCode.NONE


def test_a_rebalance_that_only_static_members_do_not_join_goes_on() -> None:
    bench = GroupBench()
    member_id = told_static(bench, "i")
    other, _ = bench.joined()
    bench.left(other)
    for _ in range(2 * REBALANCE_MS // 5_000):
        bench.pass_time(5_000)
        state = ErrorCode.REBALANCE_IN_PROGRESS
        assert bench.heartbeat(member_id, 1, instance="i") is state
    answer = told(bench.join(member_id=member_id, instance="i"), JoinAnswer)
    assert (answer.error, answer.generation) == (ErrorCode.NONE, 2)
