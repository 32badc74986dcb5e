"""The keys of a view against a twin that goes through everything each time."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stele.topic_view.entries import Entries, Evicted, Reason

KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
PARTITIONS = st.integers(0, 2)


class TwinEntry:
    def __init__(self, value: bytes, partition: int, expires_at_ms: int | None) -> None:
        self.value = value
        self.partition = partition
        self.expires_at_ms = expires_at_ms
        self.is_old = False

    def is_over(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


class EntriesMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.entries = Entries()
        self.twin: dict[bytes, TwinEntry] = {}
        self.now_ms = 1_000
        self.count = 0

    @rule(key=KEYS, partition=PARTITIONS, ttl_ms=st.none() | st.integers(-5, 30))
    def put(self, key: bytes, partition: int, ttl_ms: int | None) -> None:
        self.count += 1
        value = b"%d" % self.count
        expires_at_ms = None if ttl_ms is None else self.now_ms + ttl_ms
        self.entries.put(key, value, partition, expires_at_ms)
        self.twin[key] = TwinEntry(value, partition, expires_at_ms)

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        entry = self.twin.pop(key, None)
        expected = None if entry is None else Evicted(key, entry.value, Reason.DELETED)
        assert self.entries.delete(key) == expected

    @rule(by_ms=st.integers(0, 20))
    def time_goes_on(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(limit=st.integers(0, 5))
    def expire(self, limit: int) -> None:
        over = sorted(
            (entry.expires_at_ms or 0, int(entry.value), key)
            for key, entry in self.twin.items()
            if entry.is_over(self.now_ms)
        )[:limit]
        expected = [Evicted(key, self.twin.pop(key).value, Reason.EXPIRED) for *_, key in over]
        assert self.entries.expire(self.now_ms, limit) == expected

    @rule(partition=PARTITIONS)
    def begin_again(self, partition: int) -> None:
        self.entries.begin_again(partition)
        for entry in self.twin.values():
            if entry.partition == partition:
                entry.is_old = True

    @rule(partition=PARTITIONS)
    def settle(self, partition: int) -> None:
        gone = {
            Evicted(key, entry.value, Reason.LOST)
            for key, entry in self.twin.items()
            if entry.partition == partition and entry.is_old
        }
        for each in gone:
            del self.twin[each.key]
        assert set(self.entries.settle(partition)) == gone

    @invariant()
    def tells_what_the_twin_tells(self) -> None:
        expected = {k: e.value for k, e in self.twin.items() if not e.is_over(self.now_ms)}
        assert dict(self.entries.items(self.now_ms)) == expected
        assert len(self.entries) == len(self.twin)
        for key in (b"a", b"b", b"c", b"d"):
            assert self.entries.get(key, self.now_ms) == expected.get(key)


TestEntries = EntriesMachine.TestCase
TestEntries.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_times_of_replaced_values_do_not_pile_up() -> None:
    entries = Entries()
    for number in range(100_000):
        entries.put(b"k", b"%d" % number, 0, 1_000_000 + number)
    assert entries.spare_times < 3_000
    assert entries.expire(1_000_000 + 99_998, 10) == []
    assert entries.expire(1_000_000 + 99_999, 10) == [Evicted(b"k", b"99999", Reason.EXPIRED)]
