"""The pure order of syncs, beside a twin that remembers every write."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.sync_order import SyncOrder

LOGS = st.integers(0, 5)


class Beside(RuleBasedStateMachine):
    """The twin numbers all writes. A group covers the writes of its logs before it began."""

    @initialize()
    def begin(self) -> None:
        self.order: SyncOrder[int, int] = SyncOrder()
        self.unsynced: dict[int, list[int]] = {}  # the writes of each log that no group covers
        self.groups: list[dict[int, list[int]]] = []  # the covered writes of each group's logs
        self.waiting: dict[int, set[int]] = {}  # by caller: the writes that it is to wait for
        self.writes = self.callers = 0

    def _open(self, logs: set[int] | None = None) -> set[int]:
        """The writes that are not on disk: to these logs, or to all."""
        found = [*self.unsynced.items(), *(each for group in self.groups for each in group.items())]
        return {write for log, writes in found if logs is None or log in logs for write in writes}

    @rule(log=LOGS)
    def write(self, log: int) -> None:
        self.order.add(log)
        self.unsynced.setdefault(log, []).append(self.writes)
        self.writes += 1

    def _free(self) -> list[int]:
        busy = {log for group in self.groups for log in group}
        return [log for log in self.unsynced if log not in busy]

    def _begin(self, taken: list[int]) -> None:
        assert len(taken) == len(set(taken))
        assert set(taken) <= set(self._free())
        if taken:
            self.groups.append({log: self.unsynced.pop(log) for log in taken})

    def _size(self, log: int) -> int:
        return len(self.unsynced[log])

    @rule()
    def take(self) -> None:
        free = self._free()
        taken = self.order.take()
        assert set(taken) == set(free)
        self._begin(taken)

    @rule(most=st.integers(1, 4), budget=st.integers(0, 8))
    def take_least(self, most: int, budget: int) -> None:
        by_size = sorted(map(self._size, self._free()))
        taken = self.order.take_least(most, budget, self._size)
        sizes = list(map(self._size, taken))
        assert sizes == by_size[: len(taken)]
        assert len(taken) <= most
        assert sum(sizes[1:]) <= budget
        more = by_size[len(taken) : len(taken) + 1]
        assert not more or len(taken) == most or sum(sizes[1:] + more) > budget
        assert bool(taken) == bool(by_size)
        self._begin(taken)

    @rule(budget=st.integers(0, 8))
    def take_within(self, budget: int) -> None:
        """The oldest is never passed over, and a small one only for smaller ones."""
        free = self._free()
        ready = list(self.order.ready)
        taken = self.order.take_within(budget, self._size)
        assert taken[:1] == ready[:1]
        others = sorted(map(self._size, ready[1:]))
        sizes = list(map(self._size, taken[1:]))
        assert sizes == others[: len(sizes)]
        assert sum(sizes) <= budget
        if len(taken) < len(free):
            assert sum(others[: len(sizes) + 1]) > budget
        self._begin(taken)

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def release_one(self, data: st.DataObject) -> None:
        group = data.draw(st.sampled_from(self.groups))
        log = data.draw(st.sampled_from(sorted(group)))
        self.order.release(log)
        del group[log]
        self.groups = [each for each in self.groups if each]

    @rule(log=LOGS)
    def remove(self, log: int) -> None:
        self.order.remove(log)
        self.unsynced.pop(log, None)

    @rule()
    def clear(self) -> None:
        self.order.clear()
        self.unsynced.clear()

    @rule(logs=st.none() | st.sets(LOGS))
    def wait(self, logs: set[int] | None) -> None:
        caller, self.callers = self.callers, self.callers + 1
        waits = self.order.wait(caller, None if logs is None else sorted(logs))
        assert waits == bool(self._open(logs))
        if waits:
            self.waiting[caller] = self._open(logs)

    @invariant()
    def whoever_waits_hears_at_the_right_moment(self) -> None:
        over = {caller for caller, writes in self.waiting.items() if not writes & self._open()}
        assert sorted(self.order.over) == sorted(over)
        self.order.over.clear()
        for caller in over:
            del self.waiting[caller]

    @invariant()
    def a_free_log_is_ready(self) -> None:
        busy = {log for group in self.groups for log in group}
        assert set(self.order.ready) == {log for log in self.unsynced if log not in busy}


TestSyncOrder = Beside.TestCase
