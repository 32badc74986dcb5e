"""Random lives of a share group beside clients that know what they have."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.share.records import ShareKind, share_tombstone
from broker.coordinator.group.share.types import (
    Initialization,
    NewStatesAnswer,
    NewStatesRequest,
    ShareDeletionAnswer,
    ShareDescribeAnswer,
    ShareDescribeRequest,
    ShareHeartbeatAnswer,
    StatesDeletedRequest,
    StatesDeletionRequest,
)
from stele.errors import ErrorCode
from tests.support.consumer_protocol import Cluster, Pairs, pairs
from tests.support.coordinators import Heard
from tests.support.share_groups import ShareBench, ShareClient
from tests.support.strict_steps import Strict

NAMES = ("t", "u", "v")
SUBSCRIPTIONS = (("t",), ("t", "u"), ("u", "v"), NAMES)


class StrictBench(Strict, ShareBench):
    """Keeps what heartbeats ask the share coordinator for, until that has done it."""

    initializes = False

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster=cluster)
        self.asked: list[Initialization] = []
        self.done: Pairs = frozenset()

    def ask_share_beat(self, *args: object, **options: object) -> Heard:
        heard = super().ask_share_beat(*args, **options)  # type: ignore[arg-type]
        for answer in heard.told:
            if isinstance(answer, ShareHeartbeatAnswer) and answer.to_initialize is not None:
                self.asked.append(answer.to_initialize)
        return heard

    def complete(self, which: int) -> None:
        wanted = self.asked[which % len(self.asked)]
        self.done |= pairs(wanted.partitions)
        self.initialize(wanted)


class ShareGroupLife(RuleBasedStateMachine):
    """One group; members come and go, answers are lost, topics change, the share coordinator
    initializes late and twice, the group coordinator fails, and its log refuses records."""

    @initialize(interval_ms=st.sampled_from((0, 1_000, 15_000)))
    def begin(self, interval_ms: int) -> None:
        self.cluster = Cluster(t=3, u=1)
        self.cluster.assignment_interval_ms = self.interval_ms = interval_ms
        self.bench = StrictBench(self.cluster)
        self.bench.take(self.bench.machine.loaded(self.bench.now))
        self.clients = [ShareClient(self.bench, f"m{number}") for number in range(5)]
        # The twin: the greatest epochs ever, and of each member id.
        self.epoch = self.assignment_epoch = self.removals = 0
        self.member_epochs: dict[str, int] = defaultdict(int)

    # ------------------------------------------------------------------------ clients

    clients_ = st.integers(0, 4)

    @rule(which=clients_, topics=st.sampled_from(SUBSCRIPTIONS))
    def join(self, which: int, topics: tuple[str, ...]) -> None:
        self.clients[which].topics = topics
        self.clients[which].join()

    @rule(which=clients_, is_lost=st.booleans())
    def beat(self, which: int, is_lost: bool) -> None:
        if self.clients[which].is_member:
            self.clients[which].beat(is_lost=is_lost)

    @rule(which=clients_)
    def leave(self, which: int) -> None:
        self.clients[which].leave()

    @rule(which=st.integers(0, 20))
    def complete(self, which: int) -> None:
        if self.bench.asked:
            self.bench.complete(which)

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def grow(self, name: str, more: int) -> None:
        self.cluster.put(name, self.cluster.counts.get(name, 0) + more)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        if name in self.cluster.counts:
            self.cluster.delete(name)

    @rule(ms=st.sampled_from((0, 400, 5_000, 20_000, 50_000)))
    def pass_time(self, ms: int) -> None:
        self.bench.pass_time(ms)

    # ------------------------------------------------------------------------ faults

    @rule(refused=st.booleans())
    def change_disk(self, refused: bool) -> None:
        self.bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS if refused else ErrorCode.NONE

    @rule()
    def lag(self) -> None:
        self.bench.commits_at_once = False

    @rule()
    def catch_up(self) -> None:
        self.bench.commits_at_once = True
        self.bench.commit()

    @rule()
    def fail_over(self) -> None:
        self.bench.reload()

    @rule()
    def delete_group(self) -> None:
        self.bench.ask_deletion_of_group()

    @rule(name=st.sampled_from(NAMES))
    def begin_states_anew(self, name: str) -> None:
        if name in self.cluster.counts:
            topic_id = self.cluster.id_of(name)
            heard = self.bench.ask(NewStatesRequest("g", {topic_id: frozenset({0})}))
            for answer in heard.told:
                if isinstance(answer, NewStatesAnswer) and answer.error is ErrorCode.NONE:
                    assert answer.state_epoch > self.epoch

    @rule(name=st.sampled_from(NAMES), is_done=st.booleans())
    def delete_states(self, name: str, is_done: bool) -> None:
        if name in self.cluster.counts:
            topic_ids = frozenset({self.cluster.id_of(name)})
            heard = self.bench.ask(StatesDeletionRequest("g", topic_ids))
            if is_done:
                numbers = [e.number for e in heard.told if isinstance(e, ShareDeletionAnswer)]
                over = numbers[0] if numbers else None
                self.bench.ask(StatesDeletedRequest("g", topic_ids, over))

    @rule()
    def settle(self) -> None:
        """If all members obey their answers and the share coordinator works, each member has
        partitions of its topics soon, and each partition has a member."""
        self.bench.refusal = ErrorCode.NONE
        self.catch_up()
        self.bench.pass_time(70_000)  # the group removes dead members
        for _ in range(8):
            for client in self.clients:
                if client.is_member:
                    client.beat()
            asked, self.bench.asked = self.bench.asked, []
            for wanted in asked:
                self.bench.done |= pairs(wanted.partitions)
                self.bench.initialize(wanted)
            self.bench.pass_time(max(self.interval_ms, 5_000))
        members = [each for each in self.clients if each.is_member]
        every = self.cluster.pairs_of({name for each in members for name in each.topics})
        assert frozenset().union(*(each.owned for each in members)) == every
        for each in members:
            assert each.epoch == self.described(self.bench.machine).epoch
            assert each.owned <= self.cluster.pairs_of(each.topics)
            assert each.owned or not self.cluster.pairs_of(each.topics) or self.is_mixed(members)
        assert not self.bench.asked

    def is_mixed(self, members: list[ShareClient]) -> bool:
        return len({each.topics for each in members}) > 1

    # ------------------------------------------------------------------------ laws

    def described(self, machine: GroupMachine) -> ShareDescribeAnswer:
        """The group as it is, with changes that are not committed yet."""
        (reply,) = machine.take(ShareDescribeRequest("g"), Heard(), self.bench.now).replies
        assert isinstance(reply.answer, ShareDescribeAnswer)
        return reply.answer

    @invariant()
    def only_initialized_partitions_are_assigned(self) -> None:
        for each in self.described(self.bench.machine).members:
            assert pairs(each.assigned) <= self.bench.done

    @invariant()
    def the_group_has_no_more_members_than_it_may(self) -> None:
        assert len(self.described(self.bench.machine).members) <= 4

    @invariant()
    def epochs_never_go_back(self) -> None:
        """They begin anew only if the group is deleted."""
        removals = self.bench.log.count(share_tombstone(ShareKind.GROUP, "g"))
        if removals > self.removals:
            self.removals, self.epoch, self.assignment_epoch = removals, 0, 0
            self.member_epochs.clear()
        state = self.described(self.bench.machine)
        assert state.assignment_epoch <= state.epoch
        assert state.epoch >= self.epoch
        assert state.assignment_epoch >= self.assignment_epoch
        self.epoch, self.assignment_epoch = state.epoch, state.assignment_epoch
        for each in state.members:
            assert 0 < each.member_epoch <= state.assignment_epoch
            assert each.member_epoch >= self.member_epochs[each.member_id]
        known = {each.member_id: each.member_epoch for each in state.members}
        self.member_epochs = defaultdict(int, known)

    @invariant()
    def the_next_coordinator_knows_the_same(self) -> None:
        assert self.described(self.bench.rebuilt()) == self.described(self.bench.machine)


TestShareGroupLife = ShareGroupLife.TestCase
TestShareGroupLife.settings = settings(max_examples=40, stateful_step_count=40)
