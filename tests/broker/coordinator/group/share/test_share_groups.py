"""Share groups: members, their epochs and partitions, and what becomes of their requests."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.registry import DELETION_MS
from broker.coordinator.group.share.types import ShareDeletionAnswer, ShareDeletionRequest
from broker.coordinator.group.types import GroupState, JoinAnswer
from stele.errors import ErrorCode
from tests.support.consumer_protocol import INTERVAL_MS, SESSION_MS, Cluster, pairs
from tests.support.groups import join_request, told
from tests.support.share_groups import ShareBench, ShareClient


@pytest.fixture
def bench() -> ShareBench:
    made = ShareBench(cluster=Cluster(t=4, u=2))
    made.take(made.machine.loaded(made.now))
    return made


def settled(bench: ShareBench, *clients: ShareClient) -> None:
    for client in clients:
        assert client.join() is ErrorCode.NONE
    for _ in range(2):
        for client in clients:
            assert client.beat() is ErrorCode.NONE


def test_a_partition_is_assigned_when_its_state_is_initialized(bench: ShareBench) -> None:
    bench.initializes = False
    answer = bench.share_beat("a", 0, "t")
    assert answer.error is ErrorCode.NONE
    assert answer.assigned == {}
    assert answer.heartbeat_interval_ms < INTERVAL_MS
    assert answer.to_initialize is not None
    assert pairs(answer.to_initialize.partitions) == bench.cluster.pairs_of(["t"])
    bench.initialize(answer.to_initialize)
    later = bench.share_beat("a", answer.member_epoch)
    assert later.assigned is not None
    assert pairs(later.assigned) == bench.cluster.pairs_of(["t"])
    assert later.member_epoch > answer.member_epoch
    assert later.heartbeat_interval_ms == INTERVAL_MS
    assert later.to_initialize is None


def test_an_initialization_is_asked_for_again_after_a_while(bench: ShareBench) -> None:
    bench.initializes = False
    first = bench.share_beat("a", 0, "t")
    assert bench.share_beat("a", first.member_epoch).to_initialize is None
    bench.pass_time(5_000)
    again = bench.share_beat("a", first.member_epoch)
    assert again.to_initialize == first.to_initialize
    assert bench.share_beat("a", first.member_epoch).to_initialize is None


def test_the_next_coordinator_asks_for_the_initialization(bench: ShareBench) -> None:
    bench.initializes = False
    first = bench.share_beat("a", 0, "t")
    bench.reload()
    assert bench.share_beat("a", first.member_epoch).to_initialize == first.to_initialize


def test_partitions_that_are_initialized_late_come_later(bench: ShareBench) -> None:
    bench.initializes = False
    epoch = bench.share_beat("a", 0, "t").member_epoch
    topic_id = bench.cluster.id_of("t")
    bench.initialize_all({topic_id: frozenset({1, 3})})
    some = bench.share_beat("a", epoch)
    assert some.assigned == {topic_id: frozenset({1, 3})}
    bench.initialize_all({topic_id: frozenset({0, 2})})
    assert bench.share_beat("a", some.member_epoch).assigned == {topic_id: frozenset(range(4))}


def test_members_share_the_partitions(bench: ShareBench) -> None:
    a, b = ShareClient(bench, "a"), ShareClient(bench, "b")
    settled(bench, a, b)
    assert len(a.owned) == len(b.owned) == 2
    assert a.owned | b.owned == bench.cluster.pairs_of(["t"])
    assert a.epoch == b.epoch


def test_more_members_than_partitions_share_each(bench: ShareBench) -> None:
    clients = [ShareClient(bench, each, ("u",)) for each in "abcd"]
    settled(bench, *clients)
    assert [len(each.owned) for each in clients] == [1, 1, 1, 1]
    assert frozenset().union(*(each.owned for each in clients)) == bench.cluster.pairs_of(["u"])


def test_an_answer_has_the_assignment_when_it_is_news_or_asked_for(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    assert bench.share_beat("a", a.epoch).assigned is None
    named = bench.share_beat("a", a.epoch, "t")
    assert named.assigned is not None
    assert pairs(named.assigned) == a.owned
    assert bench.share_beat("a", a.epoch - 1).assigned == named.assigned, "the answer was lost"


def test_the_others_get_the_partitions_of_a_member_that_leaves(bench: ShareBench) -> None:
    a, b = ShareClient(bench, "a"), ShareClient(bench, "b")
    settled(bench, a, b)
    b.leave()
    a.beat()
    assert a.owned == bench.cluster.pairs_of(["t"])


def test_a_silent_member_is_removed(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    bench.pass_time(SESSION_MS)
    assert bench.described_share().members == ()
    assert bench.described_share().state is GroupState.EMPTY
    assert a.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert a.beat() is ErrorCode.NONE


def test_new_partitions_of_a_topic_are_initialized_and_assigned(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    bench.cluster.put("t", 6)
    a.beat()
    a.beat()
    assert len(a.owned) == 6


def test_a_topic_that_is_made_anew_is_initialized_anew(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    bench.cluster.delete("t")
    a.beat()
    assert a.owned == frozenset()
    bench.cluster.put("t", 1)
    a.beat()
    a.beat()
    assert a.owned == bench.cluster.pairs_of(["t"])


def test_a_member_whose_answer_was_lost_may_send_its_epoch_of_before(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    b = ShareClient(bench, "b")
    settled(bench, b)
    former = a.epoch
    a.beat(is_lost=True)
    assert a.epoch == former
    assert a.beat() is ErrorCode.NONE
    assert a.epoch > former
    assert bench.share_beat("a", former).error is ErrorCode.NONE
    assert bench.share_beat("a", former - 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert bench.share_beat("a", a.epoch + 1).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_full_group_takes_no_other_member(bench: ShareBench) -> None:
    clients = [ShareClient(bench, each) for each in "abcd"]
    settled(bench, *clients)
    answer = bench.share_beat("e", 0, "t")
    assert answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert "group.share.max.size" in (answer.message or "")
    assert clients[0].join() is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member_id", "epoch", "options"),
    [
        ("", 0, {}),
        ("a", -2, {}),
        ("a", 0, {"rack_id": ""}),
        ("a", 0, {"client_id": "c" * 40_000}),
    ],
)
def test_a_request_that_means_nothing(
    bench: ShareBench, member_id: str, epoch: int, options: dict[str, Any]
) -> None:
    answer = bench.share_beat(member_id, epoch, "t", **options)
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert answer.message
    assert bench.log == []


def test_a_member_joins_with_topics(bench: ShareBench) -> None:
    assert bench.share_beat("a", 0).error is ErrorCode.INVALID_REQUEST


def test_who_is_no_member(bench: ShareBench) -> None:
    assert bench.share_beat("a", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.share_beat("a", -1).error is ErrorCode.GROUP_ID_NOT_FOUND
    settled(bench, ShareClient(bench, "b"))
    assert bench.share_beat("a", 3).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.share_beat("a", -1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_targets_are_made_at_most_once_in_the_interval(bench: ShareBench) -> None:
    bench.cluster.assignment_interval_ms = 1_000
    a, b = ShareClient(bench, "a"), ShareClient(bench, "b")
    a.join()
    answer = bench.share_beat("a", a.epoch)
    assert answer.heartbeat_interval_ms == 1_000
    assert a.owned == frozenset()
    b.join()
    bench.pass_time(1_000)
    b.beat()
    a.beat()
    assert len(a.owned) == len(b.owned) == 2


def test_a_member_may_subscribe_to_other_topics(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    before = a.epoch
    bench.share_beat("a", a.epoch, "u")
    a.beat()
    assert a.epoch > before
    assert a.owned == bench.cluster.pairs_of(["u"])


def test_a_deleted_topic_is_taken_from_members_before_the_next_target(bench: ShareBench) -> None:
    a = ShareClient(bench, "a", ("t", "u"))
    settled(bench, a)
    bench.cluster.assignment_interval_ms = 60_000
    before = a.epoch
    bench.cluster.delete("t")
    a.beat()
    assert a.owned == bench.cluster.pairs_of(["u"])
    assert a.epoch == before, "the target is of the same epoch"


# ------------------------------------------------------------------ other kinds of groups


def test_a_group_of_another_kind_does_not_become_a_share_group(bench: ShareBench) -> None:
    assert bench.commit_offset(3) is ErrorCode.NONE
    answer = bench.share_beat("a", 0, "t")
    assert answer.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "classic" in (answer.message or "")
    assert bench.offset() == 3


def test_a_share_group_stays_one_also_without_members(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    for _ in range(2):
        joined = told(bench.ask(join_request()), JoinAnswer)
        assert joined.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert bench.consumer_join("c").error is ErrorCode.GROUP_ID_NOT_FOUND
        assert bench.commit_offset(3) is ErrorCode.GROUP_ID_NOT_FOUND
        assert bench.heartbeat("a", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
        assert bench.left("a") == (ErrorCode.UNKNOWN_MEMBER_ID,)
        a.leave()
    assert bench.described_share().error is ErrorCode.NONE


def test_a_share_group_does_not_expire(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    a.leave()
    for _ in range(5):
        bench.pass_time(bench.config.offsets_retention_minutes * 60_000)
    assert bench.described_share().state is GroupState.EMPTY
    assert bench.described_share().error is ErrorCode.NONE


def test_share_groups_are_listed_by_their_type(bench: ShareBench) -> None:
    settled(bench, ShareClient(bench, "a"))
    bench.commit_offset(1, group_id="other")
    assert bench.listed(types=("share",)) == ["g"]
    assert bench.listed(types=("classic",)) == ["other"]
    assert bench.described().state is GroupState.DEAD


def test_a_deleted_share_group_is_gone(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    assert bench.delete() is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert bench.delete() is ErrorCode.NONE
    assert bench.described_share().error is ErrorCode.GROUP_ID_NOT_FOUND
    bench.reload()
    assert bench.described_share().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_states_are_set_anew_in_an_epoch_of_their_own(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    some = {bench.cluster.id_of("t"): frozenset({0})}
    assert bench.new_states(some).error is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    before = bench.described_share().epoch
    epochs = [bench.new_states(some).state_epoch for _ in range(3)]
    assert epochs == [before + 1, before + 2, before + 3]
    bench.reload()
    assert bench.new_states(some).state_epoch == before + 4


def test_a_state_that_is_set_first_is_initialized_then(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    a.leave()
    some = {bench.cluster.id_of("u"): frozenset({1})}
    before = bench.share_partitions()
    assert bench.new_states(some).error is ErrorCode.NONE
    assert bench.share_partitions() == before
    bench.initialize_all(some)
    assert bench.share_partitions() == {**before, **some}


def test_a_deleted_state_is_initialized_anew(bench: ShareBench) -> None:
    a = ShareClient(bench, "a", ("t", "u"))
    settled(bench, a)
    t, u = bench.cluster.id_of("t"), bench.cluster.id_of("u")
    assert bench.delete_states(t).error is ErrorCode.NON_EMPTY_GROUP
    a.leave()
    for _ in range(2):  # the answer may be lost
        assert bench.delete_states(t, bytes(16)).states == {t: frozenset(range(4))}
    assert set(bench.share_partitions()) == {u}
    assert a.join() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert bench.new_states({t: frozenset({0})}).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.states_deleted(t)
    assert bench.delete_states(t).states == {}
    assert a.join() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the outcome may be unknown"
    bench.pass_time(DELETION_MS)
    settled(bench, a)
    assert a.owned == bench.cluster.pairs_of(["t", "u"])


def test_a_group_opens_when_the_deletion_of_its_states_is_over(bench: ShareBench) -> None:
    a = ShareClient(bench, "a", ("t", "u"))
    settled(bench, a)
    a.leave()
    t, u = bench.cluster.id_of("t"), bench.cluster.id_of("u")
    of_t, of_u, again = (bench.delete_states(each).number for each in (t, u, u))
    bench.states_deleted(t, over=of_t)
    bench.states_deleted(u, over=of_u)
    assert a.join() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the last one is under way"
    bench.states_deleted(u, over=again)
    settled(bench, a)
    assert a.owned == bench.cluster.pairs_of(["t", "u"])


def test_a_group_without_the_states_that_are_deleted_stays_open(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    a.leave()
    assert bench.delete_states(bench.cluster.id_of("u")).states == {}
    assert a.join() is ErrorCode.NONE


def test_the_end_of_a_deletion_does_not_open_a_group_that_is_deleted(bench: ShareBench) -> None:
    a = ShareClient(bench, "a")
    settled(bench, a)
    a.leave()
    t = bench.cluster.id_of("t")
    number = bench.delete_states(t).number
    bench.ask(ShareDeletionRequest("g"))
    bench.states_deleted(t, over=number)
    assert a.join() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.pass_time(DELETION_MS)
    assert a.join() is ErrorCode.NONE


def test_the_states_of_a_deleted_topic_need_no_deletion(bench: ShareBench) -> None:
    a = ShareClient(bench, "a", ("t", "u"))
    settled(bench, a)
    a.leave()
    t = bench.cluster.id_of("t")
    assert bench.delete_states(t).states == {t: frozenset(range(4))}
    bench.cluster.delete("t")
    assert bench.delete_states(t).states == {}


def test_there_are_no_states_without_a_group(bench: ShareBench) -> None:
    assert bench.new_states({}).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert bench.delete_states(bytes(16)).error is ErrorCode.GROUP_ID_NOT_FOUND
    bench.states_deleted(bytes(16))
    assert bench.described_share().error is ErrorCode.GROUP_ID_NOT_FOUND


def given_up(bench: ShareBench) -> tuple[set[str], bool]:
    """The topics whose states have to be deleted before the group, and whether the coordinator has
    to write that down."""
    before = len(bench.log)
    answer = told(bench.ask(ShareDeletionRequest("g")), ShareDeletionAnswer)
    assert answer.states is not None
    names = {each for each in bench.cluster.counts if bench.cluster.id_of(each) in answer.states}
    assert len(names) == len(answer.states)
    return names, len(bench.log) > before


def test_the_states_of_a_group_are_given_up_once(bench: ShareBench) -> None:
    a = ShareClient(bench, "a", ("t", "u"))
    settled(bench, a)
    a.leave()
    assert given_up(bench) == ({"t", "u"}, True)
    assert given_up(bench) == ({"t", "u"}, False)
    bench.reload()
    assert given_up(bench) == ({"t", "u"}, False)
    bench.cluster.delete("t")
    assert given_up(bench) == ({"u"}, True)
    assert given_up(bench) == ({"u"}, False)


@pytest.mark.parametrize("initializes", [True, False])
def test_states_of_deleted_topics_only_are_given_up(bench: ShareBench, initializes: bool) -> None:
    """The share coordinator deletes the states. The group must not take the partitions for
    initialized, or about to be."""
    bench.initializes = initializes
    a = ShareClient(bench, "a")
    settled(bench, a)
    a.leave()
    bench.cluster.delete("t")
    assert given_up(bench) == (set(), True)
    assert given_up(bench) == (set(), False)
