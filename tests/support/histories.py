"""Histories of drills, made up: a green one as a whole, and any other for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from chaos.drills.history import (
    FINAL,
    LIVE,
    Acked,
    Event,
    Expectations,
    Failed,
    Header,
    History,
    PartitionHistory,
    QuorumState,
    Read,
    Sent,
    Step,
)

PARTITIONS = 2


def header(expectations: Expectations | None = None) -> Header:
    return Header(
        drill="made-up",
        title="Made up",
        expectations=expectations or Expectations(),
        partitions=PARTITIONS,
        replication_factor=3,
        brokers=(101, 102, 103),
        controllers=(1, 2, 3),
        cluster="process",
        seed=1,
    )


def green(expectations: Expectations | None = None) -> History:
    """Ten records in each partition, one every 100 ms; a fault at 300 ms, healed at 600 ms.

    During the fault nothing is acknowledged, a probe is refused, and partition 0 gets a leader.
    """
    events: list[Event] = []
    for partition in range(PARTITIONS):
        leader = 101 + partition
        events.append(PartitionHistory(0, partition, leader, 0, (101, 102, 103), (), 0))
        for number in range(10):
            sent_ms = number * 100.0
            acked_ms = sent_ms + 5 if not 300 <= sent_ms < 600 else 610.0 + number
            events.append(Sent(sent_ms, "writer1", partition, number))
            events.append(Acked(acked_ms, "writer1", partition, number, number))
            events.append(Read(acked_ms + 3, LIVE, partition, number, "writer1", number))
        events.append(Sent(400, "probe1", partition, 0))
        events.append(Failed(450, "probe1", partition, 0, "NOT_ENOUGH_REPLICAS", False))
    events += [
        QuorumState(0, 1, 5),
        Step(100, "steady", "it runs"),
        Step(300, "fault", "kill -9 broker 101", (101,)),
        PartitionHistory(350, 0, 102, 1, (102, 103), (), 0),
        PartitionHistory(355, 1, 102, 0, (102, 103), (), 0),
        Step(600, "heal", "start broker 101", (101,)),
        QuorumState(650, 2, 6),
        PartitionHistory(700, 0, 102, 1, (101, 102, 103), (), 0),
        Step(750, "recovered", "it is whole"),
        Step(1000, "end", "nothing more is written"),
    ]
    events.sort(key=lambda event: event.at_ms)
    for partition in range(PARTITIONS):
        events += [Read(1100, FINAL, partition, each, "writer1", each) for each in range(10)]
    return History(header(expectations), tuple(events))


_moments = st.integers(0, 40).map(float)
_partitions = st.integers(0, PARTITIONS - 1)
_producers = st.sampled_from(["writer1", "writer2"])
_numbers = st.integers(0, 4)
_offsets = st.integers(0, 6)
_readers = st.sampled_from([FINAL, LIVE, "member-1"])

events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Sent, _moments, _producers, _partitions, _numbers),
    st.builds(Acked, _moments, _producers, _partitions, _numbers, st.integers(-1, 6)),
    st.builds(Failed, _moments, _producers, _partitions, _numbers, st.just("X"), st.booleans()),
    st.builds(Read, _moments, _readers, _partitions, _offsets, _producers, _numbers),
    st.builds(
        Step, _moments, st.sampled_from(["fault", "heal", "recovered"]), st.just("a"), st.just(())
    ),
)
"""Any events, in a space that is small enough for them to meet."""


def histories() -> st.SearchStrategy[History]:
    return st.lists(events, max_size=30).map(
        lambda each: History(header(), tuple(sorted(each, key=lambda event: event.at_ms)))
    )
