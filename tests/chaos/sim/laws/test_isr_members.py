"""The laws of leaders' proposals and of the fetches that replicas serve."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from broker.partition.effects import BrokerStatus
from broker.replication.replica import Replica
from chaos.sim.cluster.client import FETCH_MAX_WAIT_MS
from chaos.sim.laws.isr_members import IsrLosesOnlyWhoLags
from chaos.sim.laws.served_readers import ReadersAreServed
from metadata.partitions import PartitionState
from stele.errors import ErrorCode
from tests.support.batches import make_batch
from tests.support.law_bench import TOPIC, LawBench, Replicas, image

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)
LAG_MS = 30_000.0


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


# ------------------------------------------------------------------------ leaving an ISR


class Leader:
    """Broker 1 leads a log of two records, by the clock of its process."""

    def __init__(self, bench: LawBench) -> None:
        self.bench = bench
        self.law = IsrLosesOnlyWhoLags(bench.scene)
        self.leading = bench.replica(1, make_batch(2), state=STATE)
        hosted = Replicas(101)
        hosted.append(self.leading)
        bench.brokers[1].node.broker.replicas = SimpleNamespace(hosted=hosted)

    def fetched(self, broker_id: int, offset: int, at_ms: float) -> None:
        status = BrokerStatus(100 + broker_id, True)
        self.leading.machine.fetched(broker_id, offset, status, at_ms)

    def proposes(self, at_ms: float) -> None:
        self.leading.machine.ticked(at_ms)

    def appended(self, at_ms: float) -> None:
        machine = self.leading.machine
        end = machine.log.end_offset + 1
        machine.appended(machine.log._replace(end_offset=end, durable_offset=end), at_ms)

    def looks(self, at_ms: float) -> list[str]:
        clock = SimpleNamespace(monotonic=lambda: at_ms / 1000)
        world = SimpleNamespace(clock=clock)
        self.bench.brokers[1].process = SimpleNamespace(incarnation=1, world=world)
        self.bench.scene.look_at_nodes([self.bench.sim_node(1)])
        return self.bench.broken(self.law)


@pytest.fixture
def leader(bench: LawBench) -> Leader:
    return Leader(bench)


def test_who_lags_may_be_left_out(leader: Leader) -> None:
    leader.fetched(2, 2, 0.0)
    leader.fetched(3, 1, 0.0)
    leader.proposes(LAG_MS + 1)
    assert not leader.looks(LAG_MS + 5)
    assert leader.law.looked == 1


@pytest.mark.parametrize(("seen_ms", "breaks"), [(LAG_MS - 25, True), (LAG_MS + 5, False)])
def test_who_had_everything_lately_may_not(leader: Leader, seen_ms: float, breaks: bool) -> None:
    leader.fetched(2, 2, 0.0)
    leader.fetched(3, 1, 0.0)
    assert not leader.looks(1.0)
    leader.proposes(LAG_MS + 1)
    assert bool(leader.looks(seen_ms)) is breaks


def test_who_has_everything_may_not(leader: Leader) -> None:
    leader.fetched(2, 2, 0.0)
    leader.fetched(3, 1, 0.0)
    leader.proposes(LAG_MS + 1)
    leader.fetched(3, 2, LAG_MS + 2)
    (report,) = leader.looks(LAG_MS + 50)
    assert "leaves 3 out of the ISR" in report
    assert not leader.looks(LAG_MS + 60)  # once is enough


def test_a_fetch_after_the_proposal_may_tell_of_earlier(leader: Leader) -> None:
    leader.fetched(2, 2, 0.0)
    leader.fetched(3, 1, 0.0)
    leader.fetched(3, 1, LAG_MS - 100)
    assert not leader.looks(LAG_MS)
    leader.proposes(LAG_MS + 1)
    # Now the leader knows that this one had everything at the fetch before.
    leader.appended(LAG_MS + 2)
    leader.fetched(3, 2, LAG_MS + 3)
    progress = leader.leading.machine.progress_of(3)
    assert progress is not None
    assert progress.caught_up_ms == LAG_MS - 100
    assert not leader.looks(LAG_MS + 10)


def test_who_comes_back_between_a_proposal_and_the_look_was_away(leader: Leader) -> None:
    leader.fetched(2, 2, 0.0)
    leader.fetched(3, 1, 0.0)
    leader.proposes(LAG_MS + 1)
    leader.fetched(3, 2, LAG_MS + 2)
    assert not leader.looks(LAG_MS + 10)


# ------------------------------------------------------------------------ serving readers


def serves(bench: LawBench, broker_id: int, state: PartitionState) -> Replica:
    replica = bench.replica(broker_id, make_batch(2), state=state)
    bench.brokers[broker_id].node.broker.image = image(1, state)
    return replica


@pytest.mark.parametrize(
    ("broker", "isr", "breaks"),
    [(1, (1, 2), True), (2, (1, 2), True), (3, (1, 2), False)],
)
def test_a_leader_and_an_isr_serve(
    bench: LawBench, broker: int, isr: tuple[int, ...], breaks: bool
) -> None:
    law = ReadersAreServed(bench.scene)
    replica = serves(bench, broker, replace(STATE, isr=isr))
    bench.scene.leading = [(bench.sim_node(broker), replica)]
    assert not bench.broken(law)
    bench.simulation.run(asyncio.sleep(1.0))
    law.refused(TOPIC, 0, broker, ErrorCode.OFFSET_NOT_AVAILABLE, 0.4)
    assert not bench.broken()
    law.refused(TOPIC, 0, broker, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.4)
    assert bool(bench.broken()) is breaks
    assert law.looked == 1


def test_a_leader_without_lease_may_refuse_requests_that_waited_in_vain(bench: LawBench) -> None:
    law = ReadersAreServed(bench.scene)
    leads, follows = serves(bench, 1, STATE), serves(bench, 2, STATE)
    bench.scene.leading = [(bench.sim_node(1), leads)]
    bench.scene.following = [(bench.sim_node(2), follows)]
    assert not bench.broken(law)
    bench.simulation.run(asyncio.sleep(1.0))
    law.refused(TOPIC, 0, 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, FETCH_MAX_WAIT_MS / 1000)
    assert not bench.broken()
    law.refused(TOPIC, 0, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, FETCH_MAX_WAIT_MS / 1000)
    assert bench.broken()


def test_who_has_changed_meanwhile_may_have_been_right(bench: LawBench) -> None:
    law = ReadersAreServed(bench.scene)
    replica = serves(bench, 2, STATE)
    bench.scene.following = [(bench.sim_node(2), replica)]
    assert not bench.broken(law)
    law.refused(TOPIC, 0, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.5)
    assert not bench.broken()
    assert law.looked == 0


def test_a_change_that_nobody_has_looked_at_yet_does_not_count(bench: LawBench) -> None:
    law = ReadersAreServed(bench.scene)
    replica = serves(bench, 3, replace(STATE, isr=(1, 2)))
    bench.scene.following = [(bench.sim_node(3), replica)]
    assert not bench.broken(law)
    bench.simulation.run(asyncio.sleep(1.0))
    grown = replace(STATE, partition_epoch=STATE.partition_epoch + 1)
    replica.machine.updated(grown, 1, replica.position, 1000.0)
    assert 3 in replica.machine.state.isr
    law.refused(TOPIC, 0, 3, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.5)
    assert not bench.broken()


def test_a_broker_with_old_metadata_may_send_consumers_away(bench: LawBench) -> None:
    law = ReadersAreServed(bench.scene)
    replica = serves(bench, 2, STATE)
    broker = bench.brokers[2].node.broker

    async def main() -> None:
        bench.scene.following = [(bench.sim_node(2), replica)]
        assert not bench.broken(law)
        bench.scene.following = []
        await asyncio.sleep(1.0)
        broker.deposed = True
        law.refused(TOPIC, 0, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.5)
        assert not bench.broken(law)
        broker.deposed = False  # while the answer is under way
        await asyncio.sleep(0.4)
        law.refused(TOPIC, 0, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.5)
        assert not bench.broken()
        assert law.looked == 0
        await asyncio.sleep(0.2)
        law.refused(TOPIC, 0, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.5)
        assert bench.broken()

    bench.simulation.run(main())
