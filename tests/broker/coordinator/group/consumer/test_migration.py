"""Live migration: members of both group protocols in one group, one rule at a time."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.group.consumer.migration import (
    METADATA_BYTES_MAX,
    assignment_bytes,
    by_id,
    subscription_of,
)
from broker.coordinator.group.consumer.types import ConsumerHeartbeatAnswer
from broker.coordinator.group.types import (
    GroupState,
    JoinAnswer,
    LeavingMember,
    MemberProtocol,
    OffsetCommitAnswer,
    OffsetToCommit,
    SyncAnswer,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import (
    Assignment,
    ConsumerProtocolError,
    Subscription,
)
from tests.support.classic_clients import REBALANCE_MS, SESSION_MS, ClassicClient, act_all
from tests.support.consumer_protocol import Cluster, Consumer, ConsumerBench
from tests.support.groups import RANGE, join_request, told
from tests.support.mixed_groups import (
    AGAIN,
    NOT_FOUND,
    UNKNOWN,
    T,
    bench,
    check_shared,
    mixed,
    of_type,
    settled,
)

# ------------------------------------------------------------------------------- upgrade


@pytest.mark.parametrize("is_eager", [True, False])
def test_the_first_consumer_upgrades_the_group_and_the_last_downgrades_it(is_eager: bool) -> None:
    made = bench()
    classic, consumer = mixed(made, is_eager=is_eager)
    generations = [each.generation for each in classic]
    state = made.described_consumers()
    assert state.state is GroupState.STABLE
    assert generations == [state.epoch] * 2 == [consumer.epoch] * 2
    assert [each.is_classic for each in state.members] == [True, True, False]
    consumer.leave()
    assert of_type(made) == "classic"
    act_all(*classic)
    check_shared(made, *classic)
    assert made.described().state is GroupState.STABLE
    assert min(each.generation for each in classic) > state.epoch
    # A member lost partitions only by a rebalance that it heard of.
    assert [each.errors for each in classic] == [[], []]


def test_members_keep_what_the_last_assignment_gave_them() -> None:
    made = bench()
    one, other = settled(made, is_eager=False)
    before = one.owned, other.owned
    answer = made.consumer_join("new")
    assert answer.error is ErrorCode.NONE
    assert answer.assigned == {}, "others own everything"
    state = made.described_consumers()
    by_id = {each.member_id: each for each in state.members}
    for each, owned in zip((one, other), before, strict=True):
        assert by_id[each.member_id].assigned == {T: frozenset(n for _, n in owned)}
    assert (one.owned, other.owned) == before
    assert made.heartbeat(one.member_id, one.generation) is AGAIN
    assert made.commit_error(one.member_id, one.generation) is ErrorCode.NONE


def test_waiters_in_the_classic_group_have_to_join_again() -> None:
    made = bench()
    (one,) = settled(made, 1)
    other = ClassicClient(made)
    other.act()
    other.act()
    assert other.joining is not None
    assert made.described().state is GroupState.PREPARING_REBALANCE
    waiting = other.joining
    made.consumer_join("new")
    assert told(waiting, JoinAnswer).error is AGAIN
    consumer = Consumer(made, "new")
    act_all(one, other, consumer)
    check_shared(made, one, other, consumer)


def test_what_members_subscribe_to_by_the_chosen_protocol_counts() -> None:
    made = bench(group_initial_rebalance_delay_ms=3_000)
    subscribed = [MemberProtocol("mine", Subscription(("u",)).encode()), *RANGE]
    first, _ = made.joined(protocols=subscribed)
    made.joined(protocols=RANGE)
    made.pass_time(10_000)
    made.sync(first, 1)
    made.consumer_join("new")
    told_topics = {each.member_id: each.topic_names for each in made.described_consumers().members}
    assert told_topics[first] == ("t",)


def test_a_group_that_never_had_a_generation_is_upgraded_too() -> None:
    made = ConsumerBench()  # with a first delay
    made.take(made.machine.loaded(made.now))
    client = ClassicClient(made)
    client.act()
    client.act()
    consumer = Consumer(made, "new")
    assert isinstance(answer := consumer.join(), ConsumerHeartbeatAnswer)
    assert answer.error is ErrorCode.NONE
    act_all(consumer, client)
    check_shared(made, consumer, client)


def assigned_by_hand(made: ConsumerBench, data: bytes, protocol_type: str = "consumer") -> None:
    """Two members of a classic group, both with the same assignment."""
    joins = [made.joined(protocol_type=protocol_type) for _ in range(2)]
    made.pass_time(10_000)
    ids = [each for each, _ in joins]
    given = dict.fromkeys(ids, data)
    heard = made.sync(ids[0], 1, given, protocol_type=protocol_type)
    assert told(heard, SyncAnswer).error is ErrorCode.NONE
    assert made.described().state is GroupState.STABLE


def test_a_partition_that_two_were_assigned_has_one_owner() -> None:
    made = bench(group_initial_rebalance_delay_ms=3_000)
    assigned_by_hand(made, Assignment((TopicPartition("t", 0), TopicPartition("u", 0))).encode())
    made.consumer_join("new")
    assigned = [each.assigned for each in made.described_consumers().members]
    assert [T in each and each[T] for each in assigned].count(frozenset({0})) == 1


@pytest.mark.parametrize(
    ("config", "protocol_type", "data", "why"),
    [
        ({"group_consumer_migration_policy": "disabled"}, "consumer", b"", "policy"),
        ({"group_consumer_migration_policy": "downgrade"}, "consumer", b"", "policy"),
        ({"group_consumer_max_size": 1}, "consumer", b"", "max.size"),
        ({}, "connect", b"", "no consumers"),
        ({}, "consumer", b"\0", "end within"),
        ({}, "consumer", Assignment((), b"mine").encode(), "assignor of their own"),
        ({}, "consumer", bytes(128 * 1024 + 1), "bytes of metadata"),
    ],
)
def test_groups_that_are_not_upgraded(
    config: dict[str, Any], protocol_type: str, data: bytes, why: str
) -> None:
    made = bench(group_initial_rebalance_delay_ms=3_000, **config)
    assigned_by_hand(made, data, protocol_type)
    before = made.described()
    answer = made.consumer_join("new")
    assert answer.error is NOT_FOUND
    assert why in (answer.message or "")
    assert made.described() == before


# ------------------------------------------------------------------------------- classic members


def test_a_member_that_has_to_revoke_joins_twice() -> None:
    made = bench()
    (one,) = settled(made, 1, is_eager=False)
    consumer = Consumer(made, "new")
    consumer.join()
    owned = one.owned
    assert len(owned) == 4
    one.act()
    assert one.has_to_join
    one.act()  # the answer says what it may keep
    assert len(one.owned) == 2
    assert one.owned < owned
    epoch = one.generation
    consumer.beat()
    assert not consumer.wanted, "it has not told that it has revoked them"
    assert made.heartbeat(one.member_id, one.generation) is AGAIN
    one.act()
    assert one.generation == epoch + 1
    consumer.beat()
    consumer.reconcile()
    check_shared(made, one, consumer)


def test_a_member_that_waits_for_partitions_gets_them_when_they_are_free() -> None:
    made = bench()
    consumer = Consumer(made, "old")
    act_all(consumer)
    one = ClassicClient(made, is_eager=False)
    for _ in range(2):
        one.act()
    assert one.owned == frozenset()
    assert made.heartbeat(one.member_id, one.generation) is ErrorCode.NONE
    for _ in range(2):
        consumer.beat()
        consumer.reconcile()
    assert made.heartbeat(one.member_id, one.generation) is AGAIN
    act_all(one, consumer)
    check_shared(made, one, consumer)


def test_a_member_that_has_what_it_should_have_stays() -> None:
    made = bench()
    (one, _), _ = mixed(made)
    assert made.heartbeat(one.member_id, one.generation) is ErrorCode.NONE


def test_new_partitions_reach_a_group_by_heartbeats_of_classic_members() -> None:
    made = bench(group_consumer_migration_policy="upgrade")
    classic, consumer = mixed(made)
    consumer.leave()
    act_all(*classic)
    assert of_type(made) == "consumer", "it is not downgraded"
    made.cluster.put("t", 6)
    act_all(*classic)
    check_shared(made, *classic)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"member_id": "nobody"}, UNKNOWN),
        ({"member_id": "new"}, UNKNOWN),  # of the consumer protocol
        ({"generation": 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"instance": "i"}, UNKNOWN),
    ],
)
def test_classic_requests_of_other_members(asked: dict[str, Any], error: ErrorCode) -> None:
    made = bench()
    (one, _), consumer = mixed(made)
    who = {"member_id": one.member_id, "generation": one.generation, **asked}
    member_id, generation = str(who.pop("member_id")), int(who.pop("generation"))
    assert made.heartbeat(member_id, generation, **who) is error
    heard = made.sync(member_id, generation, **who)
    assert told(heard, SyncAnswer).error is error
    if "generation" not in asked:
        leaving = LeavingMember(member_id, who.get("instance"))
        assert made.left(leaving) == (error,)
    act_all(one, consumer)
    assert one.errors == []


@pytest.mark.parametrize("options", [{"protocol_type": "connect"}, {"protocol": "another"}])
def test_a_sync_with_another_protocol(options: dict[str, Any]) -> None:
    made = bench()
    (one, _), _ = mixed(made)
    heard = made.sync(one.member_id, one.generation, **options)
    assert told(heard, SyncAnswer).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocols": (MemberProtocol("range", b"\0"),)},
        {"protocols": (MemberProtocol("theirs", Subscription(("t",)).encode()),)},
    ],
)
def test_joins_that_do_not_fit(options: dict[str, Any]) -> None:
    made = bench()
    classic, _ = mixed(made)
    before = made.described_consumers()
    heard = made.join(member_id=classic[0].member_id, **options)
    assert told(heard, JoinAnswer).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert made.described_consumers() == before


def test_a_full_group() -> None:
    made = bench(group_consumer_max_size=3)
    mixed(made)
    assert told(made.join(), JoinAnswer).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert told(made.join(member_id="x"), JoinAnswer).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_members_commit_in_their_generation() -> None:
    made = bench()
    (one, _), _ = mixed(made)
    for generation, error in (
        (one.generation, ErrorCode.NONE),
        (one.generation - 1, ErrorCode.ILLEGAL_GENERATION),
    ):
        heard = made.ask_commit(
            OffsetToCommit("t", 0, 5), member_id=one.member_id, generation=generation
        )
        assert told(heard, OffsetCommitAnswer).errors == (error,)


def test_members_leave() -> None:
    made = bench()
    (one, other), consumer = mixed(made)
    errors = made.left(one.member_id, one.member_id, "nobody")
    assert errors == (ErrorCode.NONE, UNKNOWN, UNKNOWN)
    act_all(other, consumer)
    check_shared(made, other, consumer)
    other.leave()
    act_all(consumer)
    check_shared(made, consumer)
    assert of_type(made) == "consumer"


# ------------------------------------------------------------------------------- time-outs


def test_a_silent_member_is_removed_after_its_own_session() -> None:
    made = bench()
    (one, other), consumer = mixed(made)
    for _ in range(4):
        made.pass_time(SESSION_MS / 3)
        other.act()
        consumer.beat()
    assert one.member_id not in {each.member_id for each in made.described_consumers().members}


def test_a_member_that_does_not_join_in_time_is_removed() -> None:
    """It sends heartbeats, but does not do what they are answered with."""
    made = bench()
    (one, other), consumer = mixed(made)
    made.cluster.put("t", 6)
    for _ in range(40):
        made.pass_time(1_000)
        made.heartbeat(one.member_id, one.generation)
        other.act()
        consumer.beat()
        consumer.reconcile()
    assert one.member_id not in {each.member_id for each in made.described_consumers().members}


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    made = bench()
    consumer = Consumer(made, "old")
    act_all(consumer)
    asked = told(made.join(), JoinAnswer)
    joined = told(made.join(member_id=asked.member_id), JoinAnswer)
    assert joined.error is ErrorCode.NONE
    for _ in range(70):
        made.pass_time(1_000)
        consumer.beat()
        made.ask_heartbeat(joined.member_id, joined.generation)
    assert [each.member_id for each in made.described_consumers().members] == ["old"]


def test_the_time_to_revoke_and_join_again_begins_with_the_answer_that_says_so() -> None:
    made = bench()
    (one,) = settled(made, 1, is_eager=False)
    consumer = Consumer(made, "new")
    consumer.join()
    one.act()
    one.act()  # the answer says what it may keep, and it has to join again without the rest
    for _ in range(REBALANCE_MS // 5_000):
        assert one.member_id in {each.member_id for each in made.described_consumers().members}
        made.pass_time(5_000)
        made.ask_heartbeat(one.member_id, one.generation)
        consumer.beat()
    assert one.member_id not in {each.member_id for each in made.described_consumers().members}


def test_the_time_to_join_does_not_begin_with_the_upgrade() -> None:
    """Nobody has told the member of it yet."""
    made = bench()
    (one,) = settled(made, 1)
    made.consumer_join("new")
    for _ in range(REBALANCE_MS // 5_000):
        made.pass_time(5_000)
        assert made.heartbeat(one.member_id, one.generation) is AGAIN
    made.pass_time(4_999)
    assert made.heartbeat(one.member_id, one.generation) is AGAIN
    made.pass_time(1)
    assert made.heartbeat(one.member_id, one.generation) is UNKNOWN


def test_the_next_coordinator_expects_nothing_of_members_that_are_settled() -> None:
    made = bench()
    classic, consumer = mixed(made)
    made.reload()
    act_all(*classic, consumer, rounds=60)
    check_shared(made, *classic, consumer)
    assert [each.errors for each in classic] == [[], []]


# ------------------------------------------------------------------------------- static members


def test_a_static_member_changes_its_protocol_and_comes_back() -> None:
    made = bench()
    one = ClassicClient(made, "i")
    other = ClassicClient(made, "j")
    act_all(one, other)
    consumer = Consumer(made, "new", "i")  # its process was stopped without leaving
    act_all(consumer, other)
    check_shared(made, consumer, other)
    again = ClassicClient(made, "i")
    act_all(again, other)
    assert of_type(made) == "classic", "it was the last one of the consumer protocol"
    check_shared(made, again, other)
    assert isinstance(consumer.beat(), ConsumerHeartbeatAnswer)
    assert consumer.owned == frozenset()


def test_a_consumer_replaces_a_static_member_of_the_classic_protocol_that_has_not_left() -> None:
    made = bench()
    act_all(ClassicClient(made, "i"))
    assert made.consumer_join("new", instance_id="i").error is ErrorCode.NONE
    assert [each.member_id for each in made.described_consumers().members] == ["new"]


def test_a_static_member_is_fenced_by_its_next_process() -> None:
    made = bench()
    consumer = Consumer(made, "old")
    one = ClassicClient(made, "i")
    act_all(consumer, one)
    again = ClassicClient(made, "i")
    again.act()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert made.heartbeat(one.member_id, one.generation, instance="i") is fenced
    heard = made.join(member_id=one.member_id, instance="i")
    assert told(heard, JoinAnswer).error is fenced
    assert told(made.join(member_id="x", instance="j"), JoinAnswer).error is UNKNOWN
    act_all(consumer, again)
    check_shared(made, consumer, again)
    assert made.left(LeavingMember("", "i")) == (ErrorCode.NONE,)
    act_all(consumer)
    check_shared(made, consumer)


def test_new_members_are_named_after_their_instance_or_client() -> None:
    made = bench()
    act_all(Consumer(made, "old"))
    static = told(made.join(instance="i"), JoinAnswer)
    assert static.error is ErrorCode.NONE, "an instance id is enough to be known by"
    assert static.member_id.startswith("i-")
    dynamic = told(made.join(client_id="c"), JoinAnswer)
    assert dynamic.error is ErrorCode.MEMBER_ID_REQUIRED
    assert dynamic.member_id.startswith("c-")


def test_a_static_member_that_does_not_tell_its_instance_id_keeps_it() -> None:
    made = bench()
    act_all(Consumer(made, "old"))
    one = told(made.join(instance="i"), JoinAnswer)
    assert told(made.join(member_id=one.member_id), JoinAnswer).error is ErrorCode.NONE
    instances = {each.member_id: each.instance_id for each in made.described_consumers().members}
    assert instances == {"old": None, one.member_id: "i"}


def test_who_is_named_by_both_ids_has_to_have_both_to_leave() -> None:
    made = bench()
    act_all(Consumer(made, "old"))
    one = told(made.join(instance="i"), JoinAnswer)
    errors = made.left(
        LeavingMember("another", "i"), LeavingMember("", "j"), LeavingMember("", None)
    )
    assert errors == (ErrorCode.FENCED_INSTANCE_ID, UNKNOWN, UNKNOWN)
    assert made.left(LeavingMember(one.member_id, "i")) == (ErrorCode.NONE,)


def test_a_request_to_join_again_needs_no_known_id() -> None:
    made = bench()
    consumer = Consumer(made, "old")
    act_all(consumer)
    request = join_request(known_id=False)
    heard = made.ask(request)
    assert told(heard, JoinAnswer).error is ErrorCode.NONE


# ------------------------------------------------------------------------------- what clients say


def test_metadata_are_read_up_to_a_size() -> None:
    bare = len(Subscription(("t",), b"").encode())
    largest = Subscription(("t",), bytes(METADATA_BYTES_MAX - bare)).encode()
    assert len(largest) == METADATA_BYTES_MAX
    assert subscription_of(largest).topics == ("t",)
    with pytest.raises(ConsumerProtocolError, match="bytes of metadata"):
        subscription_of(largest + b"\0")


def test_only_partitions_that_are_there_are_owned() -> None:
    asked = [TopicPartition("t", each) for each in (-1, 0, 3, 4)] + [TopicPartition("x", 0)]
    assert by_id(asked, Cluster(t=4).topics) == {T: frozenset({0, 3})}


@pytest.mark.parametrize(
    ("subscription", "version"),
    [(b"\0\0", 0), (b"\0\1", 1), (b"\0\3", 3), (b"\0\4", 3), (b"\xff\xff", 0), (b"\0", 0)],
)
def test_assignments_have_the_version_of_the_subscription(
    subscription: bytes, version: int
) -> None:
    data = assignment_bytes(
        {T: frozenset({1}), bytes(16): frozenset({0})}, Cluster(t=4).topics, subscription
    )
    assert data[:2] == bytes((0, version))
    assert Assignment.decode(data).partitions == (TopicPartition("t", 1),)


def test_a_group_as_large_as_it_may_be_changes_its_protocol() -> None:
    made = bench(group_initial_rebalance_delay_ms=3_000, group_consumer_max_size=2)
    assigned_by_hand(made, b"")
    assert made.consumer_join("new").error is ErrorCode.GROUP_MAX_SIZE_REACHED
    made = bench(group_max_size=2)
    _, consumer = mixed(made)
    consumer.leave()
    assert of_type(made) == "classic"


@pytest.mark.parametrize(("rack", "known"), [("r", "r"), ("", None), (None, None)])
def test_the_rack_of_a_member(rack: str | None, known: str | None) -> None:
    made = bench()
    act_all(Consumer(made, "old"))
    metadata = Subscription(("t",), rack=rack).encode()
    made.join(member_id="x", protocols=(MemberProtocol("range", metadata),))
    racks = {each.member_id: each.rack_id for each in made.described_consumers().members}
    assert racks["x"] == known
