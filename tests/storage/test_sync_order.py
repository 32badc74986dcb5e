"""The pure order of syncs, beside a twin that remembers every write."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.sync_order import SyncOrder

LOGS = st.integers(0, 5)


class Beside(RuleBasedStateMachine):
    """The twin numbers all writes. A group covers the writes of its logs before it began."""

    @initialize()
    def begin(self) -> None:
        self.order: SyncOrder[int] = SyncOrder()
        self.unsynced: dict[int, list[int]] = {}  # the writes of each log that no group covers
        self.groups: list[dict[int, list[int]]] = []  # the covered writes of each group's logs
        self.waiting: dict[int, set[int]] = {}  # by period: the writes that it is to wait for
        self.writes = 0

    def _open(self) -> set[int]:
        covered = [writes for group in self.groups for writes in group.values()]
        return {write for writes in [*self.unsynced.values(), *covered] for write in writes}

    @rule(log=LOGS)
    def write(self, log: int) -> None:
        self.order.add(log)
        self.unsynced.setdefault(log, []).append(self.writes)
        self.writes += 1

    @rule(most=st.none() | st.integers(1, 4))
    def take(self, most: int | None) -> None:
        busy = {log for group in self.groups for log in group}
        free = [log for log in self.unsynced if log not in busy]
        taken = self.order.take(most)
        assert len(taken) == len(set(taken)) == min(len(free), most or len(free))
        assert set(taken) <= set(free)
        if taken:
            self.groups.append({log: self.unsynced.pop(log) for log in taken})

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

    @rule()
    def wait(self) -> None:
        period = self.order.barrier()
        assert (period is None) == (not self._open())
        if period is not None:
            self.waiting[period] = self._open()

    @invariant()
    def whoever_waits_hears_at_the_right_moment(self) -> None:
        for period, writes in self.waiting.items():
            assert (self.order.settled > period) == (not writes & self._open())

    @invariant()
    def a_free_log_is_ready(self) -> None:
        busy = {log for group in self.groups for log in group}
        assert set(self.order.ready) == {log for log in self.unsynced if log not in busy}


TestSyncOrder = Beside.TestCase
