"""Random histories of brokers with two log directories, which fail, come back and are replaced.

As ``test_machine``, with a model of the disks: in which directory each broker's replica really is,
and what the broker has reported.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from metadata.directories import UNASSIGNED
from metadata.partitions import NO_LEADER
from stele.wire.v1 import controller_pb2 as pb
from tests.controller.test_machine import BROKERS, TOPIC, History
from tests.support.controller import incarnation


class Disks:
    """The log directories of one broker."""

    def __init__(self, first: bytes, second: bytes) -> None:
        self.all = [first, second]
        self.failed: set[bytes] = set()
        self.unopened: set[bytes] = set()  # of the failed ones: the process has not opened them
        self.place: bytes | None = None  # of the replica; None: its log is not made
        self.knows: dict[bytes, int] = {first: 0, second: 0}  # the last process that opened it
        self.knew: dict[bytes, int] = {}  # in the snapshot of it: the process before that one

    @property
    def opened(self) -> list[bytes]:
        return [each for each in self.all if each not in self.unopened]

    @property
    def working(self) -> list[bytes]:
        return [each for each in self.all if each not in self.failed]

    @property
    def works(self) -> bool:
        """Whether the replica can be read and written."""
        return self.place is not None and self.place not in self.failed


class DirectoryHistory(History):
    """The partition is as in ``History``; brokers tell, lose and replace directories."""

    def __init__(self, seed: int, *, unclean: bool) -> None:
        super().__init__(seed, unclean=unclean)
        self.made = 0
        self.failures = self.waited = self.restored = 0
        self.disks = {broker: Disks(self.new_id(), self.new_id()) for broker in BROKERS}
        for broker in BROKERS:
            self.incarnations[broker] += 1
            self.register(broker)
            self.machine.heartbeat(broker)
            self.make(broker)

    def new_id(self) -> bytes:
        self.made += 1
        return b"%016d" % self.made

    def step(self) -> None:
        super().step()
        state = self.machine.partition(TOPIC)
        if state.leader == NO_LEADER and state.isr:
            self.waited += 1
        if state.leader != NO_LEADER:
            disks = self.disks[state.leader]
            assert disks.place not in disks.unopened, "the leader has no log"
        self.random.choice([self.tell, self.tell, self.fail, self.move, self.write, self.grow])()
        self.count_losses(self.machine.partition(TOPIC))

    # ---------------------------------------------------------------- what disks and brokers do

    def make(self, broker: int) -> None:
        """Begin with an empty log, if the broker may: the log may be in what is not opened. If the
        controller does not say so, nobody relies on that log, and a new one takes its place."""
        disks = self.disks[broker]
        is_free = self.machine.partition(TOPIC).directory_of(broker) == UNASSIGNED
        if is_free and disks.place in disks.unopened:
            disks.place = None
        if disks.place is None and (is_free or not disks.unopened) and disks.working:
            disks.place = self.random.choice(disks.working)
            self.data.has[broker] = 0

    def register(self, broker: int, *, lossy: bool = False) -> None:
        disks, number = self.disks[broker], self.incarnations[broker]
        held = [] if lossy or disks.place is None else [self.machine.reference(TOPIC)]
        self.machine.register(
            broker,
            number=number,
            log_directories=disks.opened,
            directory_histories=[
                pb.DirectoryHistory(
                    directory_id=each,
                    previous_broker_epoch=-1,
                    incarnation_ids=[incarnation(broker, disks.knows[each])],
                    replicas=held if each == disks.place else [],
                )
                for each in disks.opened
            ],
            corrupt=[self.machine.reference(TOPIC)] if lossy else [],
            directories_marked=True,
            unopened_directories=len(disks.unopened),
        )
        for each in disks.opened:
            if disks.knows[each] != number:
                disks.knew[each] = disks.knows[each]
                disks.knows[each] = number

    def beat(self) -> None:
        broker = self.broker()
        failed = sorted(self.disks[broker].failed)
        self.machine.heartbeat(broker, offline_directories=failed)

    def fail(self) -> None:
        """The broker tells it with its next heartbeat."""
        disks = self.disks[self.broker()]
        if len(disks.working) > 1:
            self.failures += 1
            disks.failed.add(self.random.choice(disks.working))

    def tell(self) -> None:
        broker = self.broker()
        place = self.disks[broker].place
        is_replica = broker in self.machine.partition(TOPIC).replicas
        if is_replica and place is not None and place in self.disks[broker].opened:
            self.machine.assign(broker, place, self.machine.reference(TOPIC))

    def move(self) -> None:
        """The copy is whole and on disk. The controller hears of it before it counts."""
        broker = self.broker()
        disks = self.disks[broker]
        is_replica = broker in self.machine.partition(TOPIC).replicas
        if is_replica and disks.works and len(disks.working) > 1:
            other = next(each for each in disks.working if each != disks.place)
            self.machine.assign(broker, other, self.machine.reference(TOPIC))
            if self.random.random() < 0.9:  # else the process ends in between
                disks.place = other

    def restart(self) -> None:
        """What failed is opened again, or is not, or is replaced by an empty disk, or is restored
        from an old snapshot, in which the log has nothing yet."""
        broker = self.broker()
        disks = self.disks[broker]
        self.incarnations[broker] += 1
        for each in list(disks.failed):
            fate = self.random.choice(["opened", "unopened", "replaced", "restored"])
            if fate == "unopened":
                disks.unopened.add(each)
                continue
            disks.failed.discard(each)
            disks.unopened.discard(each)
            if fate == "restored" and each in disks.knew:
                self.restored += 1
                disks.knows[each] = disks.knew[each]
                if disks.place == each:
                    self.data.has[broker] = 0
            if fate == "replaced":
                disks.all.remove(each)
                new = self.new_id()
                disks.all.append(new)
                disks.knows[new] = 0
                if disks.place == each:
                    disks.place = None
                    self.data.has[broker] = 0
        lossy = disks.works and self.random.random() < 0.1
        if lossy:
            self.data.has[broker] = 0
        self.register(broker, lossy=lossy)
        self.make(broker)

    # ---------------------------------------------------------------- what leaders do

    def grow(self) -> None:
        state = self.machine.partition(TOPIC)
        if all(self.disks[each].works for each in state.replicas):
            super().grow()

    def write(self) -> None:
        """A member whose disk has failed stores nothing, so nothing is committed."""
        if all(self.disks[each].works for each in self.machine.partition(TOPIC).isr):
            super().write()


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32), unclean=st.booleans())
def test_committed_records_are_on_every_replica_that_may_lead(seed: int, unclean: bool) -> None:
    history = DirectoryHistory(seed, unclean=unclean)
    for _ in range(60):
        history.step()


def test_the_histories_are_not_empty() -> None:
    commits = failures = waited = restored = 0
    for seed in range(20):
        history = DirectoryHistory(seed, unclean=seed % 2 == 0)
        for _ in range(100):
            history.step()
        commits += history.data.committed
        failures += history.failures
        waited += history.waited
        restored += history.restored
    assert commits > 50
    assert failures > 100
    assert waited > 20
    assert restored > 10
