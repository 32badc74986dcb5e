"""Which brokers count as alive, as a table of events and results."""

from __future__ import annotations

import pytest

from controller.liveness import (
    FENCE_RETRY_S,
    PROBE_INTERVAL_S,
    RESUME_GRACE_S,
    TAKEOVER_GRACE_S,
    Fence,
    Liveness,
    Probe,
    Silence,
)
from metadata.brokers import STREAM_GRACE_S, BrokerRegistration

SESSION_S = 9.0
ME = b"incarnation"
PROBE = Probe(1, 7)
BROKER = BrokerRegistration(1, 7, ME, fenced=False)
STREAM = 5


@pytest.fixture
def liveness() -> Liveness:
    """Broker 1 has an open stream, with a heartbeat at 100.0."""
    liveness = Liveness(SESSION_S)
    liveness.heartbeat(100.0, BROKER, STREAM)
    return liveness


def fenced(liveness: Liveness, now: float) -> bool:
    actions = liveness.due(now)
    assert all(isinstance(action, Fence) for action in actions)
    return bool(actions)


def test_silence_costs_the_session_timeout(liveness: Liveness) -> None:
    assert liveness.deadline() == 100.0 + SESSION_S
    assert liveness.due(108.9) == []
    assert fenced(liveness, 109.0)
    assert not liveness.alive(1, 7)
    assert liveness.deadline() is None


def test_a_heartbeat_begins_the_session_anew(liveness: Liveness) -> None:
    liveness.heartbeat(105.0, BROKER, STREAM)
    assert liveness.due(109.0) == []
    assert fenced(liveness, 114.0)


class TestEndedStream:
    @pytest.fixture
    def ended(self, liveness: Liveness) -> Liveness:
        liveness.stream_ended(101.0, 1, STREAM)
        assert liveness.due(101.0) == [PROBE]
        assert liveness.due(101.1) == []
        return liveness

    def test_refused_fences_at_once(self, ended: Liveness) -> None:
        ended.probed(101.01, PROBE, Silence.REFUSED)
        assert fenced(ended, 101.01)

    def test_another_incarnation_fences_at_once(self, ended: Liveness) -> None:
        ended.probed(101.01, PROBE, b"another")
        assert fenced(ended, 101.01)

    def test_no_answer_fences_after_the_grace(self, ended: Liveness) -> None:
        assert ended.deadline() == 101.0 + STREAM_GRACE_S
        assert ended.due(101.29) == []
        assert fenced(ended, 101.0 + STREAM_GRACE_S)

    def test_no_answer_is_not_made_better_by_its_arrival(self, ended: Liveness) -> None:
        ended.probed(101.2, PROBE, Silence.NO_ANSWER)
        assert fenced(ended, 101.0 + STREAM_GRACE_S)

    def test_a_new_stream_ends_the_worry(self, ended: Liveness) -> None:
        ended.heartbeat(101.2, BROKER, STREAM + 1)
        ended.probed(101.25, PROBE, Silence.REFUSED)
        assert ended.due(102.0) == []

    def test_its_own_answer_leaves_it_the_session(self, ended: Liveness) -> None:
        ended.probed(101.1, PROBE, ME)
        assert ended.due(101.5) == []
        assert fenced(ended, 100.0 + SESSION_S)

    def test_it_is_probed_again_until_its_stream_is_back(self, ended: Liveness) -> None:
        ended.probed(101.1, PROBE, ME)
        again = 101.1 + PROBE_INTERVAL_S
        assert ended.due(again) == [PROBE]
        ended.probed(again, PROBE, Silence.NO_ANSWER)
        assert ended.due(again + STREAM_GRACE_S) == []
        assert ended.due(again + PROBE_INTERVAL_S) == [PROBE]
        ended.probed(102.5, PROBE, Silence.REFUSED)
        assert fenced(ended, 102.5)

    def test_an_answer_about_an_older_registration_counts_for_nothing(
        self, ended: Liveness
    ) -> None:
        ended.heartbeat(101.1, BrokerRegistration(1, 8, b"another"), STREAM + 1)
        ended.probed(101.2, PROBE, b"another")
        assert ended.due(102.0) == []


def test_the_end_of_a_replaced_stream_does_not_matter(liveness: Liveness) -> None:
    liveness.heartbeat(100.5, BROKER, STREAM + 1)
    liveness.stream_ended(101.0, 1, STREAM)
    assert liveness.due(105.0) == []


def test_another_process_at_its_address_settles_it_even_while_a_stream_seems_open(
    liveness: Liveness,
) -> None:
    liveness.probed(101.0, PROBE, b"another")
    assert fenced(liveness, 101.0)


def test_a_refusal_while_the_stream_is_open_settles_nothing(liveness: Liveness) -> None:
    liveness.probed(101.0, PROBE, Silence.REFUSED)
    assert liveness.due(101.0) == []


def test_a_fencing_that_failed_is_tried_again_unless_it_is_heard_of(liveness: Liveness) -> None:
    action = Fence(1, 7, "silent")
    for now, heard in ((120.0, False), (130.0, True)):
        liveness.not_fenced(now, BROKER, action)
        assert liveness.due(now) == []
        if heard:
            liveness.heartbeat(now + 0.1, BROKER, STREAM)
        assert fenced(liveness, now + FENCE_RETRY_S) is not heard
    liveness.not_fenced(140.0, BrokerRegistration(1, 8, b"newer", fenced=False), action)
    assert liveness.due(150.0) == [Fence(1, 7, "it was silent for 9 s")]


class TestTakeover:
    @pytest.fixture
    def taken_over(self) -> Liveness:
        liveness = Liveness(SESSION_S)
        fenced_broker = BrokerRegistration(2, 8, b"other", fenced=True)
        liveness.claimed(100.0, [BROKER, fenced_broker])
        return liveness

    def test_brokers_that_do_not_come_are_probed(self, taken_over: Liveness) -> None:
        assert taken_over.due(100.4) == []
        assert taken_over.due(100.0 + TAKEOVER_GRACE_S) == [PROBE]
        taken_over.probed(100.6, PROBE, Silence.REFUSED)
        assert fenced(taken_over, 100.6)

    def test_brokers_that_come_are_not_probed(self, taken_over: Liveness) -> None:
        taken_over.heartbeat(100.3, BROKER, STREAM)
        assert taken_over.due(101.0) == []

    def test_the_silent_have_the_session_timeout(self, taken_over: Liveness) -> None:
        taken_over.due(100.5)
        taken_over.probed(100.8, PROBE, Silence.NO_ANSWER)
        assert taken_over.due(101.0) == []
        assert taken_over.due(101.3) == [PROBE]
        assert fenced(taken_over, 109.0)

    def test_nothing_remains_after_leadership(self, taken_over: Liveness) -> None:
        taken_over.resigned()
        assert taken_over.deadline() is None


def test_after_standing_still_everybody_gets_a_moment(liveness: Liveness) -> None:
    liveness.resumed(150.0)
    assert liveness.due(150.0) == []
    liveness.heartbeat(150.1, BROKER, STREAM)
    assert liveness.due(151.0) == []


def test_but_not_for_ever(liveness: Liveness) -> None:
    liveness.stream_ended(101.0, 1, STREAM)
    liveness.due(101.0)
    liveness.resumed(150.0)
    assert liveness.due(150.5) == []
    assert fenced(liveness, 150.0 + RESUME_GRACE_S)
