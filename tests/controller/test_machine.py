"""Random histories: every state and every step keeps the invariants.

The checks are in ``tests.support.controller``. ``Machine.do`` makes them for each decision, and
replays its records to check that the log leads to the same image. Here a data model knows which
replica holds every committed record.
"""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.effective import min_insync_replicas
from metadata.partitions import NO_LEADER, PartitionState
from stele.errors import ApiError, ErrorCode
from tests.support.controller import Machine

BROKERS = (1, 2, 3, 4)
TOPIC = "t"


class Data:
    """The content of replicas in the simplest form: the set of commits that each has seen."""

    def __init__(self) -> None:
        self.committed = 0
        self.has: dict[int, int] = dict.fromkeys(BROKERS, 0)

    def commit(self, isr: tuple[int, ...]) -> None:
        self.committed += 1
        for replica in isr:
            self.has[replica] = self.committed

    def lose_all_but(self, leader: int) -> None:
        self.committed = min(self.committed, self.has[leader])
        self.has = {replica: min(seen, self.committed) for replica, seen in self.has.items()}


class History:
    """One random run of a cluster with a single partition."""

    def __init__(self, seed: int, *, unclean: bool, moves: bool = False) -> None:
        self.moves = moves
        self.completed = self.cancelled = self.unregistered = 0
        self.random = random.Random(seed)
        self.machine = Machine(seed=seed)
        self.machine.brokers(*BROKERS)
        self.data = Data()
        self.incarnations = dict.fromkeys(BROKERS, 0)
        self.unclean_elections = 0
        self.machine.create(
            TOPIC,
            {0: self.random.sample(BROKERS, 3)},
            min_insync_replicas=str(self.random.randrange(1, 4)),
            unclean_leader_election_enable=str(unclean).lower(),
        )

    def step(self) -> None:
        actions = [self.fence, self.restart, self.shut_down, self.shrink]
        actions += [self.beat] * 6 + [self.grow] * 4 + [self.write] * 4
        if self.moves:
            actions += [self.reassign] * 2 + [self.cancel] + ([self.beat] + [self.grow] * 2) * 6
            actions += [self.unregister] * 2
        before = self.machine.partition(TOPIC)
        self.random.choice(actions)()
        state = self.machine.partition(TOPIC)
        for replica in set(before.replicas) - set(state.replicas):
            self.data.has[replica] = 0  # its log is deleted
        arrived = state.replicas == before.target_replicas and not state.is_reassigning
        if before.is_reassigning and arrived:
            self.completed += 1
            assert state.isr == tuple(sorted(state.replicas))
        self.count_losses(state)
        for replica in (*state.isr, *state.elr):
            assert self.data.has[replica] >= self.data.committed, state
        assert state.isr or state.elr or state.last_known_elr

    def count_losses(self, state: PartitionState) -> None:
        """A loss is recorded. From here on the new leader's records count."""
        if state.unclean_elections != self.unclean_elections:
            self.unclean_elections = state.unclean_elections
            self.data.lose_all_but(state.isr[0])

    def broker(self) -> int:
        return self.random.choice(BROKERS)

    def fence(self) -> None:
        broker = self.broker()
        if self.machine.image.broker(broker) is not None:
            self.machine.fence(broker)

    def beat(self) -> None:
        broker = self.broker()
        if self.machine.image.broker(broker) is None:
            self.restart()
        else:
            self.machine.heartbeat(broker)

    def shut_down(self) -> None:
        broker = self.broker()
        if self.machine.image.broker(broker) is not None:
            self.machine.heartbeat(broker, want_shutdown=True)

    def unregister(self) -> None:
        """Remove a broker for good, with its disks. A broker that comes back under the id has
        nothing."""
        broker = self.broker()
        before = self.machine.partition(TOPIC)
        registration = self.machine.image.broker(broker)
        code = ErrorCode.NONE
        try:
            self.machine.unregister(broker)
        except ApiError as error:
            code = error.code
        if registration is None:
            assert code is ErrorCode.BROKER_ID_NOT_REGISTERED
        elif not registration.fenced or {*before.isr, *before.elr} == {broker}:
            assert code is ErrorCode.INVALID_REQUEST
        else:
            assert code is ErrorCode.NONE
            self.unregistered += 1
            self.data.has[broker] = 0

    def restart(self) -> None:
        broker = self.broker()
        self.incarnations[broker] += 1
        lossy = self.random.random() < 0.2
        if lossy:
            self.data.has[broker] = 0
        how = self.random.choice(["corrupt", "unsynced"])
        report: dict[str, Any] = {how: [self.machine.reference(TOPIC)]} if lossy else {}
        self.machine.register(
            broker,
            number=self.incarnations[broker],
            **report,
        )

    def shrink(self) -> None:
        state = self.machine.partition(TOPIC)
        if state.leader != NO_LEADER:
            kept = [member for member in state.isr if self.random.random() < 0.5]
            self.machine.alter(TOPIC, *{state.leader, *kept})

    def grow(self) -> None:
        """Let a follower that has caught up join."""
        state = self.machine.partition(TOPIC)
        joining = self.random.choice(state.replicas)
        if state.leader == NO_LEADER or joining in state.isr:
            return
        # A follower has exactly what the leader has.
        self.data.has[joining] = self.data.has[state.leader]
        self.machine.alter(TOPIC, *state.isr, joining)

    def reassign(self) -> None:
        target = self.random.sample(BROKERS, self.random.randrange(1, 4))
        before = self.machine.partition(TOPIC)
        error = self.machine.reassign(TOPIC, *target)
        state = self.machine.partition(TOPIC)
        if error is ErrorCode.NONE:
            assert state.target_replicas == tuple(target)
        else:
            assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
            unknown = [each for each in target if self.machine.image.broker(each) is None]
            assert unknown or before.is_reassigning, "only what drops replicas is refused"
            assert state is before

    def cancel(self) -> None:
        before = self.machine.partition(TOPIC)
        error = self.machine.reassign(TOPIC)
        state = self.machine.partition(TOPIC)
        if not before.is_reassigning:
            assert error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        elif error is ErrorCode.NONE:
            self.cancelled += 1
            assert state.replicas == before.original_replicas
            assert not state.is_reassigning
        else:
            assert error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
            knowing, left = {*before.isr, *before.elr}, {*before.original_replicas}
            assert len(knowing & left) < min(self.enough(before), len(knowing)) or not (
                left & {*before.isr}
            )
            assert state is before

    def write(self) -> None:
        state = self.machine.partition(TOPIC)
        if state.leader != NO_LEADER and len(state.isr) >= self.enough(state):
            self.data.commit(state.isr)

    def enough(self, state: PartitionState) -> int:
        return min(min_insync_replicas(self.machine.image, TOPIC), state.replication_factor)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), unclean=st.booleans())
def test_committed_records_are_on_every_replica_that_may_lead(seed: int, unclean: bool) -> None:
    history = History(seed, unclean=unclean)
    for _ in range(60):
        history.step()


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32), unclean=st.booleans())
def test_they_are_so_while_the_partition_is_moved_about(seed: int, unclean: bool) -> None:
    history = History(seed, unclean=unclean, moves=True)
    for _ in range(60):
        history.step()


def test_the_histories_are_not_empty() -> None:
    totals = {"commits": 0, "leader epochs": 0, "unclean": 0, "completed": 0, "cancelled": 0}
    totals["unregistered"] = 0
    for seed in range(40):
        history = History(seed, unclean=True, moves=seed % 2 == 1)
        for _ in range(100):
            history.step()
        state = history.machine.partition(TOPIC)
        totals["commits"] += history.data.committed
        totals["leader epochs"] += state.leader_epoch
        totals["unclean"] += state.unclean_elections
        totals["completed"] += history.completed
        totals["cancelled"] += history.cancelled
        totals["unregistered"] += history.unregistered
    assert totals["commits"] > 100
    assert totals["leader epochs"] > 50
    assert totals["unclean"] > 5
    assert totals["completed"] > 10
    assert totals["cancelled"] > 10
    assert totals["unregistered"] > 10
