"""The share session and the membership alone."""

from __future__ import annotations

from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.records import AcknowledgeType
from stele.share_consumer.membership import (
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMembership,
)
from stele.share_consumer.session import (
    ENDS,
    GAP,
    AcknowledgedRange,
    Kind,
    Outcome,
    SessionRequest,
    ShareSession,
    ranges_of,
)

P, Q = PartitionId(b"p" * 16, 0), PartitionId(b"p" * 16, 1)
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
RENEW = AcknowledgeType.RENEW
LOCK_S = 30.0


def opened(*partitions: PartitionId) -> ShareSession:
    session = ShareSession(patience_s=300.0)
    session.read(partitions)
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    assert (request.kind, request.epoch, request.added) == (Kind.FETCH, 0, list(partitions))
    answer(session, request)
    return session


def answer(
    session: ShareSession,
    request: SessionRequest | None,
    errors: dict[PartitionId, ApiError] | None = None,
    now_s: float = 0.0,
) -> None:
    assert request is not None
    session.on_answer(request, errors or {}, now_s, LOCK_S, now_s)


def test_neighbouring_offsets_of_a_type_are_one_range() -> None:
    assert ranges_of({3: 1, 1: 1, 2: 1, 4: 2, 6: 2}) == [
        AcknowledgedRange(1, 3, 1),
        AcknowledgedRange(4, 4, 2),
        AcknowledgedRange(6, 6, 2),
    ]


def test_epochs_count_and_wrap_to_one() -> None:
    session = opened(P)
    for epoch in (1, 2):
        request = session.next_request(0.0, wants_records=True)
        assert request is not None
        assert request.epoch == epoch
        answer(session, request)
    answer(session, SessionRequest(Kind.FETCH, 2**31 - 1))
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    assert request.epoch == 1


def test_one_request_at_a_time_and_only_for_a_reason() -> None:
    session = opened(P)
    assert session.next_request(0.0, wants_records=False) is None
    assert session.next_request(0.0, wants_records=True) is not None
    assert session.next_request(0.0, wants_records=True) is None


def test_partitions_are_added_and_forgotten() -> None:
    session = opened(P)
    assert not session.read([P])
    assert session.read([Q])
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    assert (request.added, request.forgotten) == ([Q], [P])
    answer(session, request)
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    assert (request.added, request.forgotten) == ([], [])


def test_a_fetch_carries_decisions_about_partitions_that_are_read() -> None:
    session = opened(P)
    session.took(P, [0, 1], 0.0, LOCK_S)
    session.decide(P, 0, ACCEPT, 1)
    session.leave_gap(P, 1)
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    assert request.kind is Kind.FETCH
    assert request.acknowledged == {P: [AcknowledgedRange(0, 0, 1), AcknowledgedRange(1, 1, GAP)]}
    answer(session, request)
    assert session.take_outcomes() == [Outcome(P, (1,), (0,), None)]


def test_a_fetch_would_add_a_partition_that_is_not_read_any_more() -> None:
    session = opened(P)
    session.took(P, [0], 0.0, LOCK_S)
    session.read([Q])
    session.decide(P, 0, ACCEPT, 1)
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    assert request.kind is Kind.ACKNOWLEDGE


def test_the_first_fetch_of_a_session_carries_no_decision() -> None:
    session = opened(P)
    session.took(P, [0], 0.0, LOCK_S)
    session.decide(P, 0, ACCEPT, 1)
    session.on_lost("it broke", maybe_taken=True)
    (outcome,) = session.take_outcomes()
    assert outcome.error is not None
    assert outcome.error.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    assert (request.epoch, request.added, request.decisions) == (0, [P], {})


def test_renewals_go_in_a_request_of_their_own_before_decisions() -> None:
    session = opened(P)
    session.took(P, [0, 1, 2], 0.0, LOCK_S)
    session.decide(P, 0, RELEASE, 1)
    assert session.next_at_s(0.0) == 0.0
    request = session.next_request(15.0, wants_records=True)
    assert request is not None
    assert request.kind is Kind.ACKNOWLEDGE
    assert request.acknowledged == {P: [AcknowledgedRange(1, 2, RENEW)]}
    answer(session, request, now_s=15.0)
    request = session.next_request(15.0, wants_records=True)
    assert request is not None
    assert request.acknowledged == {P: [AcknowledgedRange(0, 0, 2)]}
    answer(session, request, now_s=15.0)
    assert session.next_at_s(15.0) == 30.0


def test_an_application_renews_one_record_alone_and_hears_of_it() -> None:
    session = ShareSession(patience_s=0.0)
    session.read([P])
    answer(session, session.next_request(0.0, wants_records=True))
    first = session.took(P, [0, 1, 2], 0.0, LOCK_S)
    assert session.next_request(20.0, wants_records=False) is None, "nothing is renewed by itself"
    second = session.renew(P, 1, 20.0, 7)
    assert second is not None
    assert session.next_at_s(20.0) == 0.0
    request = session.next_request(20.0, wants_records=True)
    assert request is not None
    assert request.acknowledged == {P: [AcknowledgedRange(1, 1, RENEW)]}
    answer(session, request, now_s=20.0)
    assert session.take_outcomes() == [Outcome(P, (7,), (1,), None, is_renewal=True)]
    assert session.next_request(LOCK_S, wants_records=False) is None
    assert not session.holds(first, 0, LOCK_S)
    assert session.holds(second, 1, LOCK_S)
    session.decide(P, 1, ACCEPT, 8)
    answer(session, session.next_request(LOCK_S, wants_records=False))
    assert session.take_outcomes() == [Outcome(P, (8,), (1,), None)]


def test_every_renewal_has_an_outcome() -> None:
    session = opened(P)
    session.took(P, [0], 0.0, LOCK_S)

    def told() -> list[tuple[tuple[int, ...], ErrorCode | None]]:
        found = session.take_outcomes()
        assert all(each.is_renewal for each in found if each.numbers != (9,))
        return [(each.numbers, each.error.code if each.error else None) for each in found]

    invalid = ErrorCode.INVALID_RECORD_STATE
    session.renew(P, 5, 0.0, 1)
    assert told() == [((1,), invalid)], "it has no such record"
    session.renew(P, 0, 0.0, 2)
    session.renew(P, 0, 0.0, 3)
    request = session.next_request(0.0, wants_records=False)
    answer(session, request, {P: ApiError(invalid)})
    assert told() == [((2, 3), invalid)], "the leader refuses it"
    session.renew(P, 0, 0.0, 4)
    session.decide(P, 0, ACCEPT, 9)
    request = session.next_request(0.0, wants_records=False)
    assert told() == [((4,), invalid)], "a decision came before it"
    answer(session, request)
    assert told() == [((9,), None)]
    session.took(P, [1, 2], 0.0, LOCK_S)
    session.renew(P, 1, 0.0, 5)
    request = session.next_request(0.0, wants_records=False)
    session.decide(P, 1, ACCEPT, 9)
    answer(session, request)
    assert told() == [((5,), None)], "a decision came after it"
    session.renew(P, 2, 0.0, 6)
    session.on_lost("it broke", maybe_taken=True)
    assert told() == [((9,), ErrorCode.SHARE_SESSION_NOT_FOUND), ((6,), invalid)]
    session.took(P, [3], 0.0, LOCK_S)
    session.renew(P, 3, 0.0, 7)
    session.next_request(LOCK_S, wants_records=False)
    assert told() == [((7,), invalid)], "its lock has ended"
    session.can_renew = False
    session.took(P, [4], 0.0, LOCK_S)
    session.renew(P, 4, 0.0, 8)
    assert told() == [((8,), ErrorCode.UNSUPPORTED_VERSION)]


def test_a_renewed_lock_lasts_longer() -> None:
    session = opened(P)
    delivery = session.took(P, [0], 0.0, LOCK_S)
    answer(session, session.next_request(15.0, wants_records=False), now_s=15.0)
    assert session.holds(delivery, 0, 44.9)
    assert not session.holds(delivery, 0, 45.0)


def test_a_renewal_that_is_refused_is_not_tried_again() -> None:
    session = opened(P)
    session.took(P, [0], 0.0, LOCK_S)
    refused = ApiError(ErrorCode.INVALID_RECORD_STATE)
    answer(session, session.next_request(15.0, wants_records=False), {P: refused}, 15.0)
    assert session.next_request(16.0, wants_records=False) is None
    assert session.next_at_s(16.0) == 30.0
    session.decide(P, 0, ACCEPT, 1)
    assert session.next_request(29.0, wants_records=False) is not None


def test_a_decision_after_the_end_of_the_lock_is_not_sent() -> None:
    session = opened(P)
    session.took(P, [0], 0.0, LOCK_S)
    session.took(P, [1], 20.0, LOCK_S)
    session.decide(P, 0, ACCEPT, 1)
    session.decide(P, 1, ACCEPT, 2)
    request = session.next_request(30.0, wants_records=False)
    assert request is not None
    assert request.acknowledged == {P: [AcknowledgedRange(1, 1, 1)]}
    (late,) = session.take_outcomes()
    assert (late.offsets, late.error is None) == ((0,), False)


def test_a_second_decision_about_a_record_does_not_count() -> None:
    session = opened(P)
    session.took(P, [0], 0.0, LOCK_S)
    session.decide(P, 0, ACCEPT, 1)
    session.decide(P, 0, RELEASE, 2)
    (outcome,) = session.take_outcomes()
    assert outcome.numbers == (2,)
    assert outcome.error is not None


def test_the_last_request_ends_the_session() -> None:
    session = opened(P)
    session.took(P, [0, 1], 0.0, LOCK_S)
    request = session.last_request(0.0)
    assert request is not None
    assert (request.epoch, request.acknowledged) == (ENDS, {})
    answer(session, request)
    assert session.last_request(0.0) is None


REFUSED = ApiError(ErrorCode.INVALID_RECORD_STATE)


def settled(session: ShareSession, bad: set[int]) -> tuple[list[list[int]], set[int], set[int]]:
    """The offsets of each request to a broker that has lost the locks of ``bad``, and the decisions
    that count and that do not."""
    requests: list[list[int]] = []
    counting: set[int] = set()
    failed: set[int] = set()
    while (request := session.next_request(0.0, wants_records=False)) is not None:
        offsets = sorted(request.decisions[P])
        requests.append(offsets)
        answer(session, request, {P: REFUSED} if bad & set(offsets) else {})
        for outcome in session.take_outcomes():
            (counting if outcome.error is None else failed).update(outcome.offsets)
    assert not session.has_decisions
    return requests, counting, failed


def test_one_refused_decision_takes_no_others_along() -> None:
    for bad in range(8):
        session = opened(P)
        session.took(P, list(range(8)), 0.0, LOCK_S)
        for offset in range(8):
            session.decide(P, offset, ACCEPT, offset)
        requests, counting, failed = settled(session, {bad})
        assert (counting, failed) == (set(range(8)) - {bad}, {bad})
        assert len(requests) == 7


def test_refused_decisions_are_split_by_lock_first() -> None:
    session = opened(P)
    session.took(P, [0, 2, 4], 0.0, LOCK_S)
    session.took(P, [1, 3], 0.0, LOCK_S)
    for offset in range(5):
        session.decide(P, offset, ACCEPT, offset)
    requests, counting, failed = settled(session, {1, 3})
    assert requests == [[0, 1, 2, 3, 4], [0, 2, 4], [1, 3], [1], [3]]
    assert (counting, failed) == ({0, 2, 4}, {1, 3})


def test_decisions_that_are_all_refused_take_few_requests() -> None:
    session = opened(P)
    every = range(500)
    session.took(P, list(every), 0.0, LOCK_S)
    for offset in every:
        session.decide(P, offset, ACCEPT, offset)
    requests, counting, failed = settled(session, set(every))
    assert (counting, failed) == (set(), set(every))
    assert len(requests) == 65


def test_a_decision_waits_until_those_that_were_refused_before_it_are_settled() -> None:
    session = opened(P, Q)
    session.took(P, [0, 1, 2], 0.0, LOCK_S)
    session.decide(P, 0, ACCEPT, 0)
    session.decide(P, 1, ACCEPT, 1)
    answer(session, session.next_request(0.0, wants_records=False), {P: REFUSED})
    session.decide(P, 2, ACCEPT, 2)
    requests, counting, failed = settled(session, {1})
    assert requests == [[0], [1], [2]]
    assert (counting, failed) == ({0, 2}, {1})


def test_a_refused_group_that_could_not_be_persisted_is_sent_again() -> None:
    session = opened(P)
    session.took(P, [0, 1], 0.0, LOCK_S)
    session.decide(P, 0, ACCEPT, 0)
    session.decide(P, 1, ACCEPT, 1)
    answer(session, session.next_request(0.0, wants_records=False), {P: REFUSED})
    moving = ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answer(session, session.next_request(0.0, wants_records=False), {P: moving})
    assert session.next_request(0.0, wants_records=False) is None
    again = session.next_request(0.1, wants_records=False)
    assert again is not None
    assert list(again.decisions[P]) == [0]


def test_refused_decisions_end_with_their_lock_and_with_the_session() -> None:
    for is_lost in (False, True):
        session = opened(P)
        session.took(P, [0, 1, 2], 0.0, LOCK_S)
        for offset in range(3):
            session.decide(P, offset, ACCEPT, offset)
        answer(session, session.next_request(0.0, wants_records=False), {P: REFUSED})
        if is_lost:
            session.on_lost("it broke", maybe_taken=True)
        else:
            assert session.next_request(LOCK_S, wants_records=False) is None
        outcomes = session.take_outcomes()
        assert sorted(o for each in outcomes for o in each.offsets) == [0, 1, 2]
        assert all(each.error is not None for each in outcomes)
        assert not session.has_decisions


def test_a_record_that_is_given_again_settles_the_decision_that_was_not_sent() -> None:
    session = opened(P)
    session.took(P, [0, 1], 0.0, LOCK_S)
    session.decide(P, 0, ACCEPT, 1)
    session.took(P, [0], 1.0, LOCK_S)
    (late,) = session.take_outcomes()
    assert (late.numbers, late.error is None) == ((1,), False)
    session.decide(P, 0, RELEASE, 2)
    request = session.next_request(1.0, wants_records=False)
    assert request is not None
    assert request.acknowledged == {P: [AcknowledgedRange(0, 0, 2)]}


def test_a_refused_renewal_takes_no_other_lock_along() -> None:
    session = opened(P)
    old = session.took(P, [0], 0.0, LOCK_S)
    new = session.took(P, [1], 0.0, LOCK_S)
    answer(session, session.next_request(15.0, wants_records=False), {P: REFUSED}, 15.0)
    answer(session, session.next_request(15.0, wants_records=False), {P: REFUSED}, 15.0)
    answer(session, session.next_request(15.0, wants_records=False), {}, 15.0)
    assert not session.holds(old, 0, 30.0)
    assert session.holds(new, 1, 44.9)
    assert session.next_request(15.0, wants_records=False) is None


def test_an_idle_session_has_no_partitions_records_and_decisions() -> None:
    session = opened(P)
    session.took(P, [0], 0.0, LOCK_S)
    session.read([])
    assert not session.is_idle
    session.decide(P, 0, ACCEPT, 1)
    assert not session.is_idle
    answer(session, session.next_request(0.0, wants_records=False))
    assert session.is_idle


def test_a_fetch_waits_briefly_where_an_acknowledgement_may_follow() -> None:
    session = opened(P)
    assert session.longest_wait_s == LOCK_S / 4
    session.took(P, [0], 0.0, LOCK_S)
    assert session.longest_wait_s == 0.1
    session.decide(P, 0, ACCEPT, 1)
    assert session.longest_wait_s == 0.1
    answer(session, session.next_request(0.0, wants_records=False))
    assert session.longest_wait_s == LOCK_S / 4


def test_a_fetch_waits_less_than_a_lock() -> None:
    session = ShareSession(patience_s=300.0)
    assert session.longest_wait_s == 0.25, "it is not known yet"
    session.read([P])
    request = session.next_request(0.0, wants_records=True)
    assert request is not None
    session.on_answer(request, {}, 0.0, 0.2, 0.0)
    assert session.longest_wait_s == 0.05


# -------------------------------------------------------------------------------- membership


def assigned(*partitions: PartitionId, epoch: int = 1) -> ShareHeartbeatAnswer:
    return ShareHeartbeatAnswer(ErrorCode.NONE, "", epoch, 5000, frozenset(partitions))


def test_a_heartbeat_says_topics_only_when_they_are_news() -> None:
    membership = ShareMembership("m")
    membership.subscribe(["t"])
    first = membership.heartbeat()
    assert first == ShareHeartbeat("m", 0, frozenset({"t"}))
    membership.on_answer(first, assigned(P))
    assert membership.assigned == {P}
    second = membership.heartbeat()
    assert second == ShareHeartbeat("m", 1, None)
    membership.on_answer(second, ShareHeartbeatAnswer(ErrorCode.NONE, "", 2, 5000))
    assert membership.assigned == {P}
    membership.subscribe(["u"])
    assert membership.heartbeat() == ShareHeartbeat("m", 2, frozenset({"u"}))


def test_a_lost_heartbeat_is_said_in_full_again() -> None:
    membership = ShareMembership("m")
    membership.subscribe(["t"])
    membership.on_answer(membership.heartbeat(), assigned(P))
    membership.on_lost()
    assert membership.heartbeat() == ShareHeartbeat("m", 1, frozenset({"t"}))


def test_an_answer_from_before_the_member_left_means_nothing() -> None:
    membership = ShareMembership("m")
    membership.subscribe(["t"])
    membership.on_answer(membership.heartbeat(), assigned(P))
    asked = membership.heartbeat()
    assert membership.leave() == ShareHeartbeat("m", -1)
    membership.on_answer(asked, assigned(P, epoch=2))
    assert (membership.epoch, membership.assigned) == (0, frozenset())
    assert membership.leave() is None
