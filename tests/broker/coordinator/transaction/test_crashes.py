"""Every order of crashes of the coordinator, of a partition's leader and of the client around
EndTxn, beside partitions that take markers as they come.

The way of one commit has these points: the client asks, the decision is committed, the answer is
sent, a marker is written on each of two partitions, the end is recorded. A crash comes before any
of them:

- coordinator: another one has all that is committed, and with ``keeps`` also what is not;
- leader: the marker of one partition is written, but nobody hears of it;
- client: its answer is lost. It asks again, or another client begins (``replaces``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from broker.coordinator.transaction.types import EndRequest, InitRequest, TransactionRef
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.support.coordinators import Heard
from tests.support.transactions import TIMEOUT_MS, TransactionBench, partitions

PARTITIONS = partitions("a0", "b1")
POINTS = ("ask", "commit", "tell", "mark a", "mark b", "end")


class Crash(NamedTuple):
    of: str
    before: str
    variant: bool


class Partition:
    """A partition of a topic: the records and markers of one producer id."""

    def __init__(self, epoch: int) -> None:
        self.is_open = True
        self.epoch = epoch
        self.outcomes: list[bool] = []

    def mark(self, epoch: int, *, commit: bool) -> None:
        assert epoch >= self.epoch, "a marker of the past"
        if self.is_open:
            self.outcomes.append(commit)
        self.is_open = False
        self.epoch = epoch


class Commit:
    """A client that commits, with crashes on the way."""

    def __init__(self, version: int, crashes: tuple[Crash, ...]) -> None:
        self.bench = TransactionBench(version=version)
        self.bench.writes_markers = False
        self.client = self.bench.producer()
        self.bench.add(self.client, "a0", "b1")
        self.logs = {each: Partition(self.client.producer_epoch) for each in PARTITIONS}
        self.crashes = crashes
        self.heard = Heard()
        self.was_told = False
        self.is_replaced = False

    def run(self) -> None:
        for point in POINTS:
            for crash in self.crashes:
                if crash.before == point:
                    getattr(self, f"crash_{crash.of}")(crash.variant)
            getattr(self, "do_" + point.split()[0])(*point.split()[1:])
        self.settle()

    # ------------------------------------------------------------------ the way of a commit

    def do_ask(self) -> None:
        self.bench.commits_at_once = False
        self.ask()

    def ask(self) -> None:
        if self.is_replaced:
            begin = InitRequest("t", TIMEOUT_MS)
            self.bench.ask(begin)
            return
        request = EndRequest(self.client, True, 2 if self.bench.version == 2 else 0)
        self.heard = self.bench.ask(request)

    def do_commit(self) -> None:
        self.bench.commits_at_once = True
        self.bench.commit()

    def do_tell(self) -> None:
        if self.heard.told and getattr(self.heard.told[0], "error", None) is ErrorCode.NONE:
            self.was_told = True

    def do_mark(self, topic: str) -> None:
        self.mark(PARTITIONS[0] if topic == "a" else PARTITIONS[1], tells=True)

    def mark(self, partition: TopicPartition, *, tells: bool) -> None:
        for due in self.bench.due:
            if partition in due.partitions:
                self.logs[partition].mark(due.ref.producer_epoch, commit=due.commit)
        if tells:
            self.bench.write_markers([partition])

    def do_end(self) -> None:
        self.bench.commit()

    # ------------------------------------------------------------------ crashes

    def crash_coordinator(self, keeps: bool) -> None:
        self.bench.reload(keeps=None if keeps else self.bench.high_watermark)

    def crash_leader(self, first: bool) -> None:
        """The marker is written, and the one who asked for it does not hear of it."""
        self.mark(PARTITIONS[0 if first else 1], tells=False)

    def crash_client(self, replaces: bool) -> None:
        self.heard = Heard()
        if replaces:
            self.is_replaced = True
        self.ask()

    # ------------------------------------------------------------------ in the end

    def settle(self) -> None:
        """All come back, ask until there is an answer, and begin the next transaction."""
        bench = self.bench
        bench.commits_at_once = True
        for _ in range(4):
            bench.commit()
            self.do_tell()
            for partition in PARTITIONS:
                self.mark(partition, tells=True)
            if not self.was_told:
                self.ask()
        self.do_tell()
        outcome = self.check()
        ref = bench.producer()
        assert all(ref.producer_epoch > each.epoch for each in self.logs.values())
        for old in range(ref.producer_epoch):
            zombie = TransactionRef("t", ref.producer_id, old)
            assert bench.add(zombie, "a0").error is ErrorCode.PRODUCER_FENCED
        assert bench.add(ref, "a0").error is ErrorCode.NONE
        if self.is_replaced:
            return
        assert self.was_told == outcome

    def check(self) -> bool:
        """All partitions have the same outcome, once."""
        outcomes = [each.outcomes for each in self.logs.values()]
        assert outcomes[0] == outcomes[1]
        (outcome,) = outcomes[0]
        assert not any(each.is_open for each in self.logs.values())
        if not self.is_replaced:
            state = self.bench.describe().state.label
            assert state == ("CompleteCommit" if outcome else "CompleteAbort")
        if self.was_told:
            assert outcome, "what was told was not done"
        return outcome


def crashes_of(count: int) -> Iterator[tuple[Crash, ...]]:
    kinds = [
        Crash(of, before, variant)
        for of in ("coordinator", "leader", "client")
        for before in POINTS
        for variant in (True, False)
    ]
    return itertools.permutations(kinds, count)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2])
def test_every_order_of_crashes(version: int, count: int) -> None:
    for crashes in crashes_of(count):
        try:
            Commit(version, crashes).run()
        except AssertionError as error:
            raise AssertionError(f"{crashes}: {error}") from error


def test_one_crash_of_each() -> None:
    """In every order that makes a difference, at every pair of points of the commit's second
    half, where two of them were not enough to lose anything."""
    count = 0
    for before in itertools.product(POINTS, repeat=3):
        for order in itertools.permutations(("coordinator", "leader", "client")):
            crashes = tuple(
                Crash(of, point, variant=(count + index) % 2 == 0)
                for index, (of, point) in enumerate(zip(order, before, strict=True))
            )
            count += 1
            try:
                Commit(2, crashes).run()
            except AssertionError as error:
                raise AssertionError(f"{crashes}: {error}") from error
