"""Random lives of a group whose clients change between both group protocols."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.group.consumer.types import ConsumerDescribeAnswer, ConsumerDescribeRequest
from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.types import DescribeAnswer, DescribeRequest, GroupState
from stele.errors import ErrorCode
from tests.support.classic_clients import ClassicClient, act_all
from tests.support.consumer_protocol import Cluster, Consumer, ConsumerBench, Pairs, pairs
from tests.support.coordinators import Heard
from tests.support.strict_steps import Strict

COUNT = 4


class StrictBench(Strict, ConsumerBench):
    pass


class MixedGroupLife(RuleBasedStateMachine):
    """One group; its clients are replaced by clients of the other protocol, orderly or not."""

    @initialize(
        is_eager=st.booleans(),
        kinds=st.lists(st.booleans(), min_size=COUNT, max_size=COUNT),
        policy=st.sampled_from(("bidirectional", "bidirectional", "upgrade")),
        interval_ms=st.sampled_from((0, 1_000)),
    )
    def begin(self, is_eager: bool, kinds: list[bool], policy: str, interval_ms: int) -> None:
        self.cluster = Cluster(t=4, u=2)
        self.cluster.assignment_interval_ms = self.interval_ms = interval_ms
        self.bench = StrictBench(
            cluster=self.cluster,
            group_initial_rebalance_delay_ms=1_000,
            group_consumer_migration_policy=policy,
        )
        self.bench.take(self.bench.machine.loaded(self.bench.now))
        self.is_eager, self.policy = is_eager, policy
        self.processes = 0
        self.clients = [self.fresh(number, kind) for number, kind in enumerate(kinds)]
        act_all(*self.clients)

    def fresh(self, which: int, is_classic: bool) -> ClassicClient | Consumer:
        """A new process in the place of a client; the last place has an instance id."""
        instance = "i" if which == COUNT - 1 else None
        topics = ("t", "u") if which % 2 else ("t",)
        self.processes += 1
        if is_classic:
            return ClassicClient(self.bench, instance, topics, self.is_eager)
        return Consumer(self.bench, f"m{self.processes}", instance, topics)

    clients_ = st.integers(0, COUNT - 1)

    # ------------------------------------------------------------------------ clients

    @rule(which=clients_, leaves=st.booleans())
    def change_protocol(self, which: int, leaves: bool) -> None:
        client = self.clients[which]
        if leaves and client.is_member:
            client.leave()
        self.clients[which] = self.fresh(which, isinstance(client, Consumer))

    @rule(turns=st.lists(clients_, min_size=2, max_size=12))
    def act(self, turns: list[int]) -> None:
        for which in turns:
            client = self.clients[which]
            if isinstance(client, ClassicClient):
                client.act()
            else:
                client.beat()
                self.a_partition_has_one_owner()
                client.reconcile()
            self.a_partition_has_one_owner()

    @rule(which=clients_)
    def leave(self, which: int) -> None:
        client = self.clients[which]
        if client.is_member:
            client.leave()

    @rule(name=st.sampled_from(("t", "u")), more=st.integers(1, 2))
    def grow(self, name: str, more: int) -> None:
        self.cluster.put(name, self.cluster.counts[name] + more)

    @rule(ms=st.sampled_from((0, 1_000, 8_000, 20_000, 50_000)))
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
    def settle(self) -> None:
        """If all members obey their answers, all partitions have owners soon, by one protocol."""
        self.bench.refusal = ErrorCode.NONE
        self.catch_up()
        self.bench.pass_time(70_000)  # the group removes dead members
        act_all(*self.clients, rounds=30)
        owned = [pair for client in self.clients for pair in client.owned]
        wanted = {name for client in self.clients for name in client.topics}
        assert len(owned) == len(set(owned))
        assert set(owned) == self.cluster.pairs_of(wanted)
        kinds = {isinstance(each, Consumer) for each in self.clients}
        consumers, classic = self.described(self.bench.machine)
        if True in kinds:
            assert consumers.state is GroupState.STABLE
            assert {each.is_classic for each in consumers.members} == {not each for each in kinds}
        elif self.policy == "bidirectional":
            assert classic.state is GroupState.STABLE

    # ------------------------------------------------------------------------ laws

    def described(self, machine: GroupMachine) -> tuple[ConsumerDescribeAnswer, DescribeAnswer]:
        """The group as it is, with changes that are not committed yet."""
        (consumers,) = machine.take(ConsumerDescribeRequest("g"), Heard(), self.bench.now).replies
        (classic,) = machine.take(DescribeRequest("g"), Heard(), self.bench.now).replies
        return consumers.answer, classic.answer

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        """Among the clients that may commit it, or may still come to know their epoch."""
        owned = [self.of(each) for each in self.clients]
        assert sum(map(len, owned)) == len(frozenset().union(*owned)), self.clients

    def of(self, client: ClassicClient | Consumer) -> Pairs:
        if isinstance(client, ClassicClient):
            error = self.bench.commit_error(client.member_id, client.generation)
            may_act = error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
            return client.owned if client.is_member and may_act else frozenset()
        members = self.described(self.bench.machine)[0].members
        known = {each.member_id: each.member_epoch for each in members}
        if client.member_id not in known:
            return frozenset()
        if client.epoch == known[client.member_id]:
            return client.owned
        return self.bench.committable(client.member_id, client.epoch)

    @invariant()
    def assignments_do_not_overlap(self) -> None:
        members = self.described(self.bench.machine)[0].members
        for kind in ("assigned", "target"):
            found = [pairs(getattr(each, kind)) for each in members]
            assert sum(map(len, found)) == len(frozenset().union(*found)), kind

    @invariant()
    def the_next_coordinator_knows_the_same(self) -> None:
        consumers, classic = self.described(self.bench.machine)
        rebuilt = self.described(self.bench.rebuilt())
        assert rebuilt[0] == consumers
        if classic.state in (GroupState.STABLE, GroupState.EMPTY):
            assert rebuilt[1] in (classic, DescribeAnswer("g", GroupState.DEAD))


TestMixedGroupLife = MixedGroupLife.TestCase
TestMixedGroupLife.settings = settings(max_examples=20, stateful_step_count=30)
