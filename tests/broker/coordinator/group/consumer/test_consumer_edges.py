"""Groups of the consumer protocol: bounds, and what a request leaves as it is."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.consumer import draft
from broker.coordinator.group.consumer.reconciliation import reconcile
from broker.coordinator.group.consumer.records import (
    CurrentAssignment,
    Kind,
    MemberMetadata,
    MemberState,
    ResolvedRegex,
    member_record,
    tombstone,
)
from broker.coordinator.group.consumer.types import ConsumerHeartbeatRequest
from broker.coordinator.group.types import (
    GroupState,
    OffsetFetchAnswer,
    OffsetFetchRequest,
    OffsetToDelete,
)
from broker.coordinator.step import Step
from stele.errors import ErrorCode
from tests.support.consumer_protocol import (
    Cluster,
    Consumer,
    ConsumerBench,
    by_topic,
    settle,
)
from tests.support.groups import told

UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
T = Cluster().id_of("t")


def bench(**config: Any) -> ConsumerBench:
    made = ConsumerBench(**config)
    made.take(made.machine.loaded(made.now))
    return made


def settled(made: ConsumerBench, *ids: str) -> list[Consumer]:
    found = [Consumer(made, each) for each in ids]
    settle(*found)
    return found


def state(made: ConsumerBench) -> GroupState:
    return made.described_consumers().state


# ------------------------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"member_id": "a" * 32_000}, ErrorCode.NONE),
        ({"member_id": "a" * 32_001}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": "i" * 32_001}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": "r" * 32_001}, ErrorCode.INVALID_REQUEST),
        ({"topic_names": ("t", "t" * 32_001)}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": 0}, ErrorCode.NONE),
        ({"topic_names": None, "regex": "t"}, ErrorCode.NONE),
    ],
)
def test_the_bounds_of_a_join(options: dict[str, Any], error: ErrorCode) -> None:
    assert bench().consumer_join(**{"member_id": "a", **options}).error is error


def test_only_a_joining_member_may_be_without_a_member_id() -> None:
    made = bench()
    made.consumer_join("", makes_member_id=False)
    assert made.beat("", 1, makes_member_id=False).error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("group_id", ["", "g" * 32_768])
def test_a_group_needs_a_name(group_id: str) -> None:
    made = bench()
    request = ConsumerHeartbeatRequest(
        group_id, "a", 0, client_id="c", owned={}, topic_names=("t",), rebalance_timeout_ms=1
    )
    heard = made.ask(request)
    assert [each.error for each in heard.told] == [ErrorCode.INVALID_GROUP_ID]


@pytest.mark.parametrize("reloads", [False, True])
def test_an_instance_id_that_a_member_has_given_up_is_free(reloads: bool) -> None:
    """The member joins again under another instance id. A client with the first one is then a new
    member, also after the other one has left."""
    made = bench()
    assert made.consumer_join("a", instance_id="first").error is ErrorCode.NONE
    assert made.consumer_join("a", instance_id="second").error is ErrorCode.NONE
    if reloads:
        made.reload()
    assert made.consumer_join("b", instance_id="first").error is ErrorCode.NONE
    assert made.beat("a", -1, instance_id="second").error is ErrorCode.NONE
    assert made.consumer_join("c", instance_id="second").error is ErrorCode.NONE
    taken = made.consumer_join("d", instance_id="first")
    assert taken.error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert {each.member_id for each in made.described_consumers().members} == {"b", "c"}


def test_who_is_no_member_cannot_leave() -> None:
    made = bench()
    made.consumer_join("a")
    assert made.beat("b", -1).error is UNKNOWN


def test_what_a_member_has_told_stays_until_it_tells_otherwise() -> None:
    made = bench()
    epoch = made.consumer_join("a", rack_id="r", server_assignor="range").member_epoch
    for rack_id in ("r", "s"):
        made.beat("a", epoch, rack_id=rack_id)
        made.beat("a", epoch)
        described = made.described_consumers()
        assert (described.members[0].rack_id, described.assignor) == (rack_id, "range")
    made.beat("a", epoch, server_assignor="uniform")
    assert made.described_consumers().assignor == "uniform"


def test_a_member_may_shorten_its_rebalance_timeout_to_nothing() -> None:
    made = bench()
    (a,) = settled(made, "a")
    made.consumer_join("b")
    made.beat("a", a.epoch, rebalance_timeout_ms=0)
    made.pass_time(0)
    assert [each.member_id for each in made.described_consumers().members] == ["b"]


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({}, False),
        ({"rebalance_timeout_ms": 0}, False),
        ({"owned": "all"}, False),
        ({"owned": "all", "rebalance_timeout_ms": 0}, True),
        ({"owned": "all", "rebalance_timeout_ms": 1}, True),
    ],
)
def test_the_answer_to_a_whole_heartbeat_has_the_assignment(
    options: dict[str, Any], is_told: bool
) -> None:
    made = bench()
    (a,) = settled(made, "a")
    if "owned" in options:
        options = {**options, "owned": by_topic(a.owned)}
    answer = made.beat("a", a.epoch, **options)
    assert answer.assigned == (by_topic(a.owned) if is_told else None)


def test_the_former_epoch_counts_with_all_that_was_assigned() -> None:
    made = bench()
    (a,) = settled(made, "a")
    answer = made.beat("a", a.epoch, topic_names=("t", "nothing"))
    assert answer.member_epoch == a.epoch + 1
    assert made.beat("a", a.epoch, owned=by_topic(a.owned)).error is ErrorCode.NONE


def test_a_heartbeat_that_changes_nothing_copies_nothing_of_the_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its cost would grow with the number of members."""
    made = bench()
    members = settled(made, "a", "b", "c")
    copies = 0
    state = draft.DraftState

    def counted(*args: Any) -> Any:
        nonlocal copies
        copies += 1
        return state(*args)

    monkeypatch.setattr(draft, "DraftState", counted)
    for each in members:
        assert made.beat(each.member_id, each.epoch).error is ErrorCode.NONE
    assert copies == 0
    assert made.consumer_join("d").error is ErrorCode.NONE
    assert copies == 1
    assert made.beat("a", members[0].epoch).error is ErrorCode.NONE
    assert copies == 1, "also while a target assignment waits for its time"


def test_a_heartbeat_looks_at_topics_only_when_there_is_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = bench()
    (a,) = settled(made, "a")

    def hashed(*arguments: object) -> int:
        raise AssertionError("it looks at all topics")

    monkeypatch.setattr(draft, "metadata_hash", hashed)
    assert made.beat("a", a.epoch).error is ErrorCode.NONE
    made.cluster.put("u", 1)
    with pytest.raises(AssertionError, match="looks at all topics"):
        made.beat("a", a.epoch)


def test_what_a_member_says_that_it_does_not_own_it_need_not_revoke() -> None:
    two, one, other = ({T: frozenset(each)} for each in ({0, 1}, {0}, {1}))
    current = CurrentAssignment(1, 1, MemberState.STABLE, two)
    for owned in (None, two):
        after = reconcile(current, one, 2, owned, lambda *_: True)
        assert after == CurrentAssignment(1, 1, MemberState.UNREVOKED_PARTITIONS, one, other)
    after = reconcile(current, one, 2, one, lambda *_: True)
    assert after == CurrentAssignment(2, 1, MemberState.STABLE, one, epochs={T: {0: 1}})


def test_a_partition_keeps_its_assignment_epoch_until_it_is_revoked() -> None:
    def on(current: CurrentAssignment, epoch: int, target: set[int], owned: set[int]) -> Any:
        wanted, told = ({T: frozenset(each)} for each in (target, owned))
        return reconcile(current, wanted, epoch, told, lambda *_: True)

    def since(current: CurrentAssignment) -> dict[int, int | None]:
        return {number: current.owned_since(T, number) for number in range(4)}

    joined = on(CurrentAssignment(), 5, {0, 1}, set())
    assert since(joined) == {0: 5, 1: 5, 2: None, 3: None}
    more = on(joined, 6, {0, 1, 2}, {0, 1})
    assert since(more) == {0: 5, 1: 5, 2: 6, 3: None}
    same = on(more, 7, {0, 1, 2}, {0, 1, 2})
    assert since(same) == {0: 5, 1: 5, 2: 6, 3: None}
    revoking = on(same, 8, {1, 3}, {0, 1, 2})
    assert revoking.state is MemberState.UNREVOKED_PARTITIONS
    assert since(revoking) == {0: 5, 1: 5, 2: 6, 3: None}, "it owns what it has to revoke"
    given_back = on(revoking, 9, {0, 1, 3}, {1})
    assert since(given_back) == {0: 9, 1: 5, 2: None, 3: 9}


# ------------------------------------------------------------------------------- states


def test_the_states_of_a_group() -> None:
    made = bench()
    a, b = settled(made, "a", "b")
    assert state(made) is GroupState.STABLE
    b.leave()
    assert state(made) is GroupState.ASSIGNING
    settle(a)
    assert state(made) is GroupState.STABLE
    a.leave()
    assert state(made) is GroupState.EMPTY


def test_a_group_reconciles_until_all_members_have_the_newest_epoch() -> None:
    made = bench()
    a, _ = settled(made, "a", "b")
    made.cluster.put("t", 6)
    settle(a)
    assert state(made) is GroupState.RECONCILING


def test_a_group_reconciles_until_all_members_have_their_partitions() -> None:
    made = bench()
    (a,) = settled(made, "a")
    made.consumer_join("b")
    settle(a)
    assert state(made) is GroupState.RECONCILING, "b has not heard that its partitions are free"


# ------------------------------------------------------------------------------- offsets


def test_members_use_the_topics_of_their_regular_expressions() -> None:
    made = bench()
    resolved = ResolvedRegex(("t",), 0, 0)
    made.consumer_join("a", topic_names=(), regex="t.*", resolved_regex=resolved)
    asked = OffsetToDelete("t", 0), OffsetToDelete("u", 0)
    expected = (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    assert made.delete_offsets(*asked).errors == expected
    made.consumer_join("b", "u")
    made.beat("a", -1)
    assert made.delete_offsets(*asked).errors == expected[::-1]


def test_who_commits_to_an_empty_group_may_not_be_of_an_epoch() -> None:
    made = bench()
    made.consumer_join("a")
    old = made.commit_offset(5, member_id="b", generation=1, knows_not_found=False)
    assert old is UNKNOWN
    made.beat("a", -1)
    assert made.commit_offset(5, member_id="a", generation=0) is UNKNOWN
    assert made.commit_offset(5, member_id="a") is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        (None, 0, UNKNOWN),
        (None, 1, UNKNOWN),
        (None, -1, ErrorCode.NONE),
    ],
)
def test_who_fetches_offsets_as_a_member_has_to_be_one(
    member_id: str | None, epoch: int, error: ErrorCode
) -> None:
    made = bench()
    made.consumer_join("a")
    request = OffsetFetchRequest("g", None, False, member_id, epoch)
    heard = made.ask(request)
    assert told(heard, OffsetFetchAnswer).error is error


# ------------------------------------------------------------------------------- records


def test_an_instance_id_stays_with_the_member_that_has_got_it() -> None:
    made = bench()
    made.consumer_join("a", instance_id="i")
    made.take(
        Step(
            [
                member_record("g", "b", MemberMetadata(instance_id="i", topic_names=("t",))),
                tombstone(Kind.MEMBER, "g", "nobody"),
                tombstone(Kind.MEMBER, "g", "a"),
            ]
        )
    )
    (member,) = made.described_consumers().members
    assert (member.member_id, member.instance_id) == ("b", "i")
    assert made.beat("b", 0, instance_id="i", owned={}).error is ErrorCode.INVALID_REQUEST
    assert made.consumer_join("b", instance_id="i").error is ErrorCode.NONE
    assert made.beat("a", 1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_id_is_free_when_its_member_has_left_for_good() -> None:
    made = bench()
    made.consumer_join("a", instance_id="i")
    assert made.beat("a", -1, instance_id="i").error is ErrorCode.NONE
    assert made.consumer_join("b", instance_id="i").error is ErrorCode.NONE


def test_a_member_may_get_an_instance_id_by_joining_again() -> None:
    made = bench()
    made.consumer_join("a")
    assert made.consumer_join("a", instance_id="i").error is ErrorCode.NONE
    assert [each.instance_id for each in made.described_consumers().members] == ["i"]


def test_who_has_no_assignment_any_more_owns_nothing() -> None:
    made = bench()
    settled(made, "a")
    made.take(Step([tombstone(Kind.CURRENT, "g", each) for each in ("a", "nobody")]))
    (member,) = made.described_consumers().members
    assert (member.member_id, member.assigned) == ("a", {})
