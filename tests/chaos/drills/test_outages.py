"""Outages and other times of a history, against a twin that looks at every millisecond."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.drills.history import LIVE, Acked, Committed, Event, Failed, History, Read, Sent, Step
from chaos.drills.outages import Outage, measure
from tests.support.histories import PARTITIONS, green, header


@st.composite
def workloads(draw: st.DrawFn) -> History:
    """Records with an end each, or without one, and a fault somewhere."""
    events: list[Event] = [Step(float(draw(st.integers(0, 30))), "fault", "a fault")]
    for number in range(draw(st.integers(0, 8))):
        partition = draw(st.integers(0, PARTITIONS - 1))
        sent_ms = float(draw(st.integers(0, 50)))
        events.append(Sent(sent_ms, "writer1", partition, number))
        done_ms = sent_ms + draw(st.integers(1, 30))
        kind = draw(st.sampled_from(["acked", "failed", "open"]))
        if kind == "acked":
            events.append(Acked(done_ms, "writer1", partition, number, number))
        elif kind == "failed":
            events.append(Failed(done_ms, "writer1", partition, number, "X", True))
    events.append(Step(60.0, "end", "the end"))
    return History(header(), tuple(sorted(events, key=lambda event: event.at_ms)))


def silence(history: History, partition: int) -> float:
    """The most half milliseconds in a row in which a record waits and none is acknowledged. One
    that has failed waits for the acknowledgement of another."""
    began, end = history.first_fault_ms or 0.0, history.end_ms
    acked = [each for each in history.of(Acked) if each.partition == partition]
    acks = {each.at_ms for each in acked}
    ends = {each.number: each.at_ms for each in acked}
    for failed in history.of(Failed):
        if failed.partition == partition:
            later = (moment for moment in acks if moment >= failed.at_ms)
            ends[failed.number] = min(later, default=float("inf"))
    sent = [
        (each.at_ms, ends.get(each.number, float("inf")))
        for each in history.of(Sent)
        if each.partition == partition
    ]
    longest = running = 0.0
    moment = began + 0.25
    while moment < end:
        waits = any(begin < moment < done for begin, done in sent)
        before = moment - 0.25
        if before in acks or not any(begin < before < done for begin, done in sent):
            running = 0.0
        running = running + 0.5 if waits else 0.0
        longest = max(longest, running)
        moment += 0.5
    return longest


@given(workloads())
@settings(max_examples=300, deadline=None)
def test_outages_of_writes_agree_with_the_twin(history: History) -> None:
    found = {each.partition: each.duration_ms for each in measure(history).writes}
    assert found == {number: silence(history, number) for number in range(PARTITIONS)}


def test_a_green_history_says_what_its_fault_cost() -> None:
    times = measure(green())
    # The records of 300 to 500 ms wait. That of 600 ms is the first to be acknowledged.
    assert times.writes == (Outage(0, 300.0, 305.0), Outage(1, 300.0, 305.0))
    assert [each.duration_ms for each in times.reads] == [3.0, 3.0]
    assert times.detected_ms == 50.0
    assert times.recovered_ms == 150.0
    assert (times.elections, times.quorum_elections, times.unclean_elections) == (1, 1, 0)
    assert times.isr_least == 2


def test_what_is_never_read_waits_until_the_end() -> None:
    history = green()
    kept = [
        each
        for each in history.events
        if not (isinstance(each, Read) and each.reader == LIVE and each.offset == 9)
    ]
    times = measure(History(history.header, tuple(kept)))
    assert [each.duration_ms for each in times.reads] == [1000.0 - 905.0] * 2


def test_committed_offsets_that_go_back_are_counted() -> None:
    commits = [
        Committed(float(at), "member-1", 0, offset) for at, offset in enumerate((5, 9, 7, 9))
    ]
    assert measure(History(header(), tuple(commits))).regressions == 1


def test_without_a_fault_nothing_is_measured() -> None:
    times = measure(History(header(), (Sent(1.0, "writer1", 0, 0),)))
    assert (times.writes, times.reads, times.detected_ms) == ((), (), None)
