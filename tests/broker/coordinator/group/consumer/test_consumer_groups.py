"""Groups of the consumer protocol, one rule at a time."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.consumer.records import (
    ConsumerKey,
    Kind,
    ResolvedRegex,
)
from broker.coordinator.group.consumer.types import ConsumerHeartbeatAnswer, ResolveRequest
from broker.coordinator.group.records import decode_key, group_record
from broker.coordinator.group.types import (
    GroupState,
    JoinAnswer,
    OffsetFetchAnswer,
    OffsetFetchRequest,
    OffsetToDelete,
)
from broker.coordinator.step import Producer
from stele.errors import ErrorCode
from tests.support.consumer_protocol import (
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Cluster,
    Consumer,
    T,
    bench,
    check_shared,
    members,
    pairs,
    settle,
)
from tests.support.groups import told

# ------------------------------------------------------------------------------- joining


def test_the_first_member_gets_everything_at_once() -> None:
    made = bench()
    answer = made.consumer_join("a")
    expected = {T: frozenset(range(4))}
    assert answer == ConsumerHeartbeatAnswer(ErrorCode.NONE, None, "a", 1, INTERVAL_MS, expected)
    state = made.described_consumers()
    assert (state.state, state.epoch, state.assignment_epoch) == (GroupState.STABLE, 1, 1)
    assert state.assignor == "uniform"
    assert state.members[0].assigned == state.members[0].target == expected


def test_a_partition_is_given_only_after_its_owner_has_revoked_it() -> None:
    made = bench()
    (a,) = members(made, "a")
    b = Consumer(made, "b")
    b.join()
    assert (b.epoch, b.wanted) == (2, frozenset())
    a.beat()
    assert (a.epoch, len(a.wanted)) == (1, 2)
    b.beat()
    assert not b.wanted
    a.reconcile()
    a.beat()
    assert a.epoch == 2
    b.beat()
    b.reconcile()
    check_shared(made, a, b)
    assert made.described_consumers().state is GroupState.STABLE


def test_an_unchanged_heartbeat_writes_nothing_and_tells_no_assignment() -> None:
    made = bench()
    (a,) = members(made, "a")
    size = len(made.log)
    answer = a.beat()
    assert isinstance(answer, ConsumerHeartbeatAnswer)
    assert answer.assigned is None
    assert len(made.log) == size


def test_the_coordinator_makes_the_member_id_of_old_clients() -> None:
    made = bench()
    assert made.consumer_join("", makes_member_id=False).member_id == "u1"
    assert made.consumer_join("").error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "options",
    [
        {"member_epoch": -3},
        {"member_epoch": -2},
        {"member_epoch": 0, "owned": None},
        {"member_epoch": 0, "owned": {T: frozenset({1})}},
        {"member_epoch": 0, "topic_names": None},
        {"member_epoch": 0, "rebalance_timeout_ms": -1},
        {"member_epoch": 0, "instance_id": ""},
        {"member_epoch": 0, "rack_id": ""},
        {"member_epoch": 0, "regex": "x" * 32_001},
    ],
)
def test_heartbeats_without_meaning_are_refused(options: dict[str, Any]) -> None:
    made = bench()
    whole = {"owned": {}, "topic_names": ("t",), "rebalance_timeout_ms": 1}
    answer = made.beat("a", options.pop("member_epoch"), **{**whole, **options})
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.message
    assert not made.log


def test_an_assignor_has_to_be_enabled() -> None:
    made = bench(group_consumer_assignors=("range",))
    assert made.consumer_join("a", server_assignor="x").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert made.consumer_join("a", server_assignor="range").error is ErrorCode.NONE
    assert made.described_consumers().assignor == "range"


def test_most_members_choose_the_assignor() -> None:
    made = bench()
    made.consumer_join("a")
    assert made.described_consumers().assignor == "uniform"
    made.consumer_join("b", server_assignor="range")
    assert made.described_consumers().assignor == "range"


def test_a_full_group_takes_no_new_member() -> None:
    made = bench(group_consumer_max_size=1)
    (a,) = members(made, "a")
    assert made.consumer_join("b").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert isinstance(a.join(), ConsumerHeartbeatAnswer)
    assert a.epoch == 1


def test_a_group_that_is_not_there_has_no_members() -> None:
    made = bench()
    assert made.beat("a", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    for epoch, options in ((-1, {}), (-2, {"instance_id": "i"})):
        assert made.beat("a", epoch, **options).error is ErrorCode.GROUP_ID_NOT_FOUND
    made.consumer_join("a")
    assert made.beat("b", 1).error is ErrorCode.UNKNOWN_MEMBER_ID


# ------------------------------------------------------------------------------- epochs


def test_a_member_of_another_epoch_is_fenced_and_may_join_again() -> None:
    made = bench()
    a, b = members(made, "a", "b")
    epoch = a.epoch
    assert made.beat("a", epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert made.beat("a", epoch - 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    a.join()
    settle(a, b)
    check_shared(made, a, b)


def test_a_lost_answer_is_repeated() -> None:
    made = bench()
    (a,) = members(made, "a")
    before = a.epoch
    made.cluster.put("t", 6)
    a.beat(is_lost=True)
    assert a.epoch == before
    a.beat()
    a.reconcile()
    assert a.epoch == before + 1
    check_shared(made, a)


def test_the_former_epoch_counts_only_with_partitions_that_were_assigned() -> None:
    made = bench()
    (a,) = members(made, "a")
    made.cluster.put("t", 6)
    a.beat(is_lost=True)
    assert made.beat("a", a.epoch).error is ErrorCode.FENCED_MEMBER_EPOCH
    more = {T: frozenset(range(7))}
    assert made.beat("a", a.epoch, owned=more).error is ErrorCode.FENCED_MEMBER_EPOCH
    fewer = {T: frozenset(range(4))}
    answer = made.beat("a", a.epoch, owned=fewer)
    assert answer.error is ErrorCode.NONE
    assert answer.assigned == {T: frozenset(range(6))}, "it may not have heard of them"
    made.cluster.put("t", 7)
    settle(a)
    assert made.beat("a", a.epoch - 2, owned={}).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_commits_need_the_members_epoch() -> None:
    made = bench()
    (a,) = members(made, "a")
    assert made.commit_offset(5, member_id="a", generation=a.epoch) is ErrorCode.NONE
    assert made.commit_offset(5, member_id="a", generation=9) is ErrorCode.STALE_MEMBER_EPOCH
    assert made.commit_offset(5, member_id="b", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert made.commit_offset(5) is ErrorCode.UNKNOWN_MEMBER_ID
    old = made.commit_offset(5, member_id="a", generation=9, knows_not_found=False)
    assert old is ErrorCode.UNSUPPORTED_VERSION
    a.leave()
    assert made.commit_offset(6) is ErrorCode.NONE


@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_member_commits_in_an_earlier_epoch_what_it_has_owned_since(rebuilt: bool) -> None:
    """Its epoch has risen, and it has not heard of that yet (KIP-1251)."""
    made = bench()
    a, b = members(made, "a", "b")
    kept = a.owned  # since epoch 1
    assert a.epoch == 2
    b.leave()
    assert a.beat(is_lost=True) is ErrorCode.REQUEST_TIMED_OUT
    if rebuilt:
        made.reload()
    (member,) = made.described_consumers().members
    assert (member.member_epoch, len(pairs(member.assigned))) == (3, 4)
    asked = [min(kept), min(pairs(member.assigned) - kept), (bytes(16), 0)]

    def errors(generation: int, **options: Any) -> list[ErrorCode]:
        return made.commit_errors("a", generation, asked, **options)

    none, stale = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH
    assert errors(3) == [none, none, none]
    assert errors(2) == errors(1) == [none, stale, stale]
    assert errors(0) == errors(-1) == errors(4) == [stale, stale, stale]
    assert errors(2, knows_group_id_not_found=False)[1] is ErrorCode.UNSUPPORTED_VERSION
    assert errors(2, producer=Producer(1, 0))[:2] == [none, ErrorCode.ILLEGAL_GENERATION]


def test_the_next_process_of_a_static_member_owns_its_partitions_from_the_beginning() -> None:
    made = bench()
    static = Consumer(made, "s", "i")
    settle(static)
    (partition, *_), epoch = sorted(static.owned), static.epoch
    members(made, "a")
    settle(static)
    static.leave(for_good=False)
    assert made.commit_errors("s", epoch, [partition]) == [ErrorCode.STALE_MEMBER_EPOCH]
    again = made.consumer_join("s2", instance_id="i")
    assert again.assigned is not None
    assert partition in pairs(again.assigned)
    for earlier in range(again.member_epoch + 1):
        assert made.commit_errors("s2", earlier, [partition]) == [ErrorCode.NONE]
        assert made.commit_errors("s", earlier, [partition]) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_fetches_of_members_need_their_epoch() -> None:
    made = bench()
    members(made, "a")

    def error(member_id: str | None, epoch: int) -> ErrorCode:
        request = OffsetFetchRequest("g", None, False, member_id, epoch)
        heard = made.ask(request)
        return told(heard, OffsetFetchAnswer).error

    assert error(None, -1) is ErrorCode.NONE
    assert error("a", 1) is ErrorCode.NONE
    assert error("a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert error("b", 1) is ErrorCode.UNKNOWN_MEMBER_ID


# ------------------------------------------------------------------------------- leaving


def test_what_a_member_leaves_behind_goes_to_the_others() -> None:
    made = bench()
    a, b = members(made, "a", "b")
    left = b.leave()
    assert isinstance(left, ConsumerHeartbeatAnswer)
    assert (left.error, left.member_epoch) == (ErrorCode.NONE, -1)
    assert made.described_consumers().state is GroupState.ASSIGNING
    settle(a)
    check_shared(made, a)
    a.leave()
    assert made.described_consumers().state is GroupState.EMPTY
    assert made.beat("a", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed() -> None:
    made = bench()
    a, _ = members(made, "a", "b")
    made.pass_time(SESSION_MS - 1)
    a.beat()
    made.pass_time(1)
    assert [each.member_id for each in made.described_consumers().members] == ["a"]
    settle(a)
    check_shared(made, a)


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    made = bench()
    (a,) = members(made, "a")
    b = Consumer(made, "b")
    b.join()
    for _ in range(REBALANCE_MS // 10_000):
        a.beat()
        b.beat()
        made.pass_time(10_000)
    assert [each.member_id for each in made.described_consumers().members] == ["b"]
    settle(b)
    check_shared(made, b)


def test_other_news_of_a_member_give_it_no_more_time_to_revoke() -> None:
    made = bench()
    (a,) = members(made, "a")
    Consumer(made, "b").join()
    a.beat()
    for number in range(REBALANCE_MS // 10_000):
        assert made.beat("a", a.epoch, rack_id=f"r{number}").error is ErrorCode.NONE
        made.pass_time(10_000)
    assert "a" not in [each.member_id for each in made.described_consumers().members]


def test_a_member_gets_back_at_once_what_it_has_just_revoked() -> None:
    made = bench()
    (a,) = members(made, "a")
    b = Consumer(made, "b")
    b.join()
    a.beat()
    b.leave()
    a.reconcile()
    a.beat()
    a.reconcile()
    check_shared(made, a)
    assert made.described_consumers().state is GroupState.STABLE


def test_only_changed_targets_are_recorded() -> None:
    made = bench()
    members(made, "a", "b", "c", "d")
    size = len(made.log)
    made.consumer_join("e")
    keys = [decode_key(each.key) for each in made.log[size:]]
    assert keys.count(ConsumerKey(Kind.TARGET, "g", "e")) == 1
    assert sum(isinstance(each, ConsumerKey) and each.kind is Kind.TARGET for each in keys) == 1


def test_a_subscription_is_described_in_order_and_without_an_empty_expression() -> None:
    made = bench()
    made.consumer_join("a", "u", "t", "u", regex="")
    (member,) = made.described_consumers().members
    assert (member.topic_names, member.regex) == (("t", "u"), None)


def test_a_member_that_has_revoked_is_not_removed() -> None:
    made = bench()
    (a,) = members(made, "a")
    b = Consumer(made, "b")
    b.join()
    settle(a, b)
    for _ in range(REBALANCE_MS // 10_000 + 1):
        made.pass_time(10_000)
        settle(a, b, rounds=1)
    assert len(made.described_consumers().members) == 2


# ------------------------------------------------------------------------------- static members


def test_a_static_member_comes_back_to_its_partitions_under_another_id() -> None:
    made = bench()
    a = Consumer(made, "a", "i")
    b = Consumer(made, "b", "j")
    settle(a, b)
    before, epoch = a.owned, made.described_consumers().epoch
    left = a.leave(for_good=False)
    assert isinstance(left, ConsumerHeartbeatAnswer)
    assert left.member_epoch == -2
    again = Consumer(made, "c", "i")
    again.join()
    again.reconcile()
    assert again.owned == before
    assert made.described_consumers().epoch == epoch
    assert made.beat("a", 1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert made.beat("a", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert made.beat("z", 1, instance_id="z").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_in_use_is_not_taken_over() -> None:
    made = bench()
    Consumer(made, "a", "i").join()
    assert made.consumer_join("b", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert made.consumer_join("a", instance_id="i").error is ErrorCode.NONE


def test_a_static_member_that_stays_away_is_removed() -> None:
    made = bench()
    a = Consumer(made, "a", "i")
    a.join()
    a.leave(for_good=False)
    made.pass_time(SESSION_MS)
    assert made.described_consumers().state is GroupState.EMPTY


def test_a_static_member_that_leaves_while_it_revokes_gives_that_up() -> None:
    made = bench()
    a, b = Consumer(made, "a", "i"), Consumer(made, "b")
    settle(a)
    b.join()
    a.beat()
    a.leave(for_good=False)
    b.beat()
    b.reconcile()
    assert len(b.owned) == 2


# ------------------------------------------------------------------------------- topics


def test_new_topics_and_partitions_are_assigned_with_the_next_heartbeat() -> None:
    made = bench(cluster=Cluster(t=2))
    a = Consumer(made, "a", topics=("t", "u"))
    settle(a)
    assert a.owned == made.cluster.pairs_of({"t"})
    made.cluster.put("t", 3)
    settle(a)
    made.cluster.put("u", 1)
    settle(a)
    assert a.owned == made.cluster.pairs_of({"t", "u"})
    made.cluster.delete("t")
    settle(a)
    assert a.owned == made.cluster.pairs_of({"u"})
    made.cluster.put("t", 1)
    settle(a)
    assert a.owned == made.cluster.pairs_of({"t", "u"})


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    made = bench()
    (a,) = members(made, "a")
    made.cluster.delete("t")
    made.cluster.put("t", 4)
    settle(a)
    check_shared(made, a)


def test_other_topics_change_nothing() -> None:
    made = bench()
    (a,) = members(made, "a")
    size = len(made.log)
    made.cluster.put("other", 3)
    a.beat()
    assert len(made.log) == size


def test_a_changed_subscription_changes_the_assignment() -> None:
    made = bench(cluster=Cluster(t=2, u=2))
    (a,) = members(made, "a")
    answer = made.beat("a", a.epoch, topic_names=("u",))
    assert answer.assigned == {}
    answer = made.beat("a", a.epoch, owned={})
    assert pairs(answer.assigned or {}) == made.cluster.pairs_of({"u"})


# ------------------------------------------------------------------------------- expressions


def resolved(*names: str, version: int = 0) -> ResolvedRegex:
    return ResolvedRegex(names, version, 0)


def test_a_regular_expression_stands_for_topics() -> None:
    made = bench(cluster=Cluster(t=2, u=2))
    joined = made.consumer_join("a", topic_names=(), regex="t.*", resolved_regex=resolved("t"))
    assert pairs(joined.assigned or {}) == made.cluster.pairs_of({"t"})
    assert joined.stale_regex is None
    made.cluster.put("tt", 1)
    stale = made.beat("a", joined.member_epoch)
    assert stale.stale_regex == "t.*"
    now = resolved("t", "tt", version=made.cluster.names_version)
    made.ask(ResolveRequest("g", "t.*", now))
    told_now = made.beat("a", joined.member_epoch)
    assert pairs(told_now.assigned or {}) == made.cluster.pairs_of({"t", "tt"})
    assert told_now.stale_regex is None


def test_a_regular_expression_that_stands_for_the_same_topics_writes_nothing() -> None:
    made = bench()
    joined = made.consumer_join("a", topic_names=(), regex="t", resolved_regex=resolved("t"))
    made.cluster.put("u", 1)
    size = len(made.log)
    now = resolved("t", version=made.cluster.names_version)
    made.ask(ResolveRequest("g", "t", now))
    assert made.beat("a", joined.member_epoch).stale_regex is None
    assert len(made.log) == size


def test_a_regular_expression_is_forgotten_with_its_last_member() -> None:
    made = bench()
    made.consumer_join("a", topic_names=(), regex="t", resolved_regex=resolved("t"))
    made.consumer_join("b", topic_names=(), regex="t", resolved_regex=resolved("t"))
    made.beat("a", -1)
    assert made.consumer_join("c", topic_names=(), regex="t").stale_regex is None
    made.beat("b", -1)
    made.beat("c", -1)
    assert made.consumer_join("d", topic_names=(), regex="t").stale_regex == "t"
    made.ask(ResolveRequest("g", "x", resolved()))
    assert made.consumer_join("d", "t", regex="").stale_regex is None


# ------------------------------------------------------------------------------- administration


def test_a_group_of_consumers_is_listed_with_its_type_and_described_as_such() -> None:
    made = bench()
    members(made, "a")
    assert made.listed() == ["g"]
    assert made.listed(types=("Consumer",)) == ["g"]
    assert made.listed(types=("classic",)) == []
    assert made.listed(states=("stable",)) == ["g"]
    assert made.described().state is GroupState.DEAD
    assert made.delete() is ErrorCode.NON_EMPTY_GROUP


def test_an_empty_group_can_be_deleted_with_its_offsets() -> None:
    made = bench()
    (a,) = members(made, "a")
    assert made.commit_offset(5, member_id="a", generation=1) is ErrorCode.NONE
    (subscribed,) = made.delete_offsets(OffsetToDelete("t", 0)).errors
    assert subscribed is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    a.leave()
    assert made.delete() is ErrorCode.NONE
    assert made.described_consumers().error is ErrorCode.GROUP_ID_NOT_FOUND
    made.reload()
    assert made.listed() == []


def test_an_empty_group_without_offsets_expires() -> None:
    made = bench(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    (a,) = members(made, "a")
    made.commit_offset(5, member_id="a", generation=1)
    for _ in range(4):
        made.pass_time(30_000)
        a.beat()
    assert made.offset() == 5, "the group is subscribed to the topic"
    a.leave()
    made.pass_time(61_000)
    assert made.listed() == []


# ------------------------------------------------------------------------------- both protocols


def test_an_empty_group_changes_its_protocol() -> None:
    made = bench()
    assert made.commit_offset(7) is ErrorCode.NONE
    (a,) = members(made, "a")
    assert made.offset() == 7
    a.leave()
    again = told(made.join(), JoinAnswer)
    assert again.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert made.listed(types=("classic",)) == ["g"], "it has offsets"
    made.stable()
    assert made.offset() == 7
    assert made.listed(types=("classic",)) == ["g"]
    made.reload()
    assert made.listed(types=("classic",)) == ["g"]
    assert made.consumer_join("a").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_becomes_one_of_consumers_has_no_record_of_the_other_protocol() -> None:
    made = bench()
    (leaving,) = made.stable()
    made.left(leaving)
    members(made, "a")
    assert group_record("g", None) in made.log
    assert made.listed(types=("consumer",)) == ["g"]
    made.reload()
    assert made.listed(types=("consumer",)) == ["g"]
