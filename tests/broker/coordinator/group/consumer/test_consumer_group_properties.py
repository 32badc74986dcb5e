"""Random lives of a consumer group beside clients that know what they own."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.group.consumer.records import Kind, tombstone
from broker.coordinator.group.consumer.types import ConsumerDescribeAnswer, ConsumerDescribeRequest
from broker.coordinator.group.machine import GroupMachine
from broker.coordinator.group.types import GroupState
from stele.errors import ErrorCode
from tests.support.consumer_protocol import Cluster, Consumer, ConsumerBench, Pairs, pairs, settle
from tests.support.coordinators import Heard
from tests.support.strict_steps import Strict

NAMES = ("t", "u", "v")
SUBSCRIPTIONS = (("t",), ("t", "u"), ("u", "v"), NAMES)


class StrictBench(Strict, ConsumerBench):
    pass


class ConsumerGroupLife(RuleBasedStateMachine):
    """One group; members come and go, answers are lost, topics change, the coordinator fails, and
    its log refuses records."""

    @initialize(
        assignor=st.sampled_from(("uniform", "range")),
        size=st.integers(0, 5),
        interval_ms=st.sampled_from((0, 1_000, 15_000)),
    )
    def begin(self, assignor: str, size: int, interval_ms: int) -> None:
        self.cluster = Cluster(t=4, u=2)
        self.cluster.assignment_interval_ms = self.interval_ms = interval_ms
        self.bench = StrictBench(cluster=self.cluster)
        self.bench.take(self.bench.machine.loaded(self.bench.now))
        instances = (None, None, None, "i", "j")
        self.clients = [
            Consumer(self.bench, f"m{number}", instance, options={"server_assignor": assignor})
            for number, instance in enumerate(instances)
        ]
        self.processes = len(self.clients)
        # The twin: the greatest epochs ever, and of each member id.
        self.epoch = self.assignment_epoch = self.removals = 0
        self.member_epochs: dict[str, int] = defaultdict(int)
        settle(*self.clients[:size])

    # ------------------------------------------------------------------------ clients

    clients_ = st.integers(0, 4)

    @rule(which=clients_, topics=st.sampled_from(SUBSCRIPTIONS))
    def join(self, which: int, topics: tuple[str, ...]) -> None:
        client = self.clients[which]
        client.topics = topics
        client.join()

    @rule(which=clients_, is_lost=st.booleans())
    def beat(self, which: int, is_lost: bool) -> None:
        client = self.clients[which]
        if client.is_member:
            client.beat(is_lost=is_lost)

    @rule(turns=st.lists(st.tuples(clients_, st.booleans()), min_size=4, max_size=15))
    def beat_in_turns(self, turns: list[tuple[int, bool]]) -> None:
        for which, reconciles in turns:
            client = self.clients[which]
            if client.is_member:
                client.beat()
                if reconciles:
                    client.reconcile()
                self.a_partition_has_one_owner()

    @rule(which=clients_)
    def reconcile(self, which: int) -> None:
        self.clients[which].reconcile()

    @rule(which=clients_, for_good=st.booleans())
    def leave(self, which: int, for_good: bool) -> None:
        client = self.clients[which]
        client.leave(for_good=for_good or client.instance_id is None)

    @rule(which=clients_)
    def restart(self, which: int) -> None:
        """Its process dies, and the next one has another member id."""
        client = self.clients[which]
        client.give_up()
        client.member_id = f"m{self.processes}"
        self.processes += 1

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
    def settle(self) -> None:
        """If all members obey their answers, all partitions have owners soon. Then the group is
        stable."""
        self.bench.refusal = ErrorCode.NONE
        self.catch_up()
        self.bench.pass_time(70_000)  # the group removes dead members
        for _ in range(14):
            self.bench.pass_time(self.interval_ms)
            for client in self.clients:
                client.beat()
                client.reconcile()
        wanted = {name for client in self.clients for name in client.topics}
        owned = [pair for client in self.clients for pair in client.owned]
        assert len(owned) == len(set(owned))
        assert set(owned) == self.cluster.pairs_of(wanted)
        assert self.described(self.bench.machine).state is GroupState.STABLE
        for client in self.clients:
            assert client.epoch == self.clients[0].epoch
            assert {each for each, _ in client.owned} <= {
                self.cluster.id_of(name) for name in client.topics
            }

    # ------------------------------------------------------------------------ laws

    def described(self, machine: GroupMachine) -> ConsumerDescribeAnswer:
        """The group as it is, with changes that are not committed yet."""
        (reply,) = machine.take(ConsumerDescribeRequest("g"), Heard(), self.bench.now).replies
        assert isinstance(reply.answer, ConsumerDescribeAnswer)
        return reply.answer

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        """Among the clients that may commit it, or may still come to know their epoch."""
        known = {each.member_id: each for each in self.described(self.bench.machine).members}
        owned: list[Pairs] = [
            client.owned
            if client.epoch == known[client.member_id].member_epoch
            else self.bench.committable(client.member_id, client.epoch)
            for client in self.clients
            if client.member_id in known
        ]
        assert sum(map(len, owned)) == len(frozenset().union(*owned))

    @invariant()
    def members_may_commit_what_they_own(self) -> None:
        """Until the coordinator has removed them, whatever answers they have not heard."""
        known = {each.member_id: each for each in self.described(self.bench.machine).members}
        for client in self.clients:
            member = known.get(client.member_id)
            if member is None or client.epoch == 0 or member.member_epoch < client.epoch:
                continue
            owned = sorted(client.owned & pairs(member.assigned))
            errors = self.bench.commit_errors(client.member_id, client.epoch, owned)
            assert errors == [ErrorCode.NONE] * len(owned)

    @invariant()
    def assignments_do_not_overlap(self) -> None:
        members = self.described(self.bench.machine).members
        for kind in ("assigned", "target"):
            found = [pairs(getattr(each, kind)) for each in members]
            assert sum(map(len, found)) == len(frozenset().union(*found)), kind

    @invariant()
    def epochs_never_go_back(self) -> None:
        """They begin anew only if the group expires without members."""
        removals = self.bench.log.count(tombstone(Kind.GROUP, "g"))
        if removals > self.removals:
            self.removals, self.epoch, self.assignment_epoch = removals, 0, 0
            self.member_epochs.clear()
        state = self.described(self.bench.machine)
        assert state.assignment_epoch <= state.epoch
        assert state.epoch >= self.epoch
        assert state.assignment_epoch >= self.assignment_epoch
        self.epoch, self.assignment_epoch = state.epoch, state.assignment_epoch
        for each in state.members:
            assert each.member_epoch <= state.assignment_epoch
            if each.member_epoch > 0:
                assert each.member_epoch >= self.member_epochs[each.member_id]
                self.member_epochs[each.member_id] = each.member_epoch

    @invariant()
    def the_next_coordinator_knows_the_same(self) -> None:
        assert self.described(self.bench.rebuilt()) == self.described(self.bench.machine)


TestConsumerGroupLife = ConsumerGroupLife.TestCase
TestConsumerGroupLife.settings = settings(max_examples=40, stateful_step_count=40)
