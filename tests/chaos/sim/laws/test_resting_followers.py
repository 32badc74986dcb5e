"""The law of followers that rest."""

from __future__ import annotations

from broker.partition.effects import BrokerStatus
from broker.partition.progress import Attendance
from chaos.sim.laws.resting_followers import RestingFollowersHaveEverything
from metadata.partitions import PartitionState
from tests.support.batches import make_batch
from tests.support.law_bench import LawBench

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)


def test_who_rests_has_everything() -> None:
    bench, session = LawBench(), Attendance()
    law = RestingFollowersHaveEverything(bench.scene)
    leading = bench.replica(1, make_batch(2), state=STATE)
    bench.scene.leading = [(bench.sim_node(1), leading)]
    machine = leading.machine
    assert not bench.broken(law)
    assert law.looked == 0
    for broker_id, offset in ((2, 2), (3, 1)):
        machine.fetched(broker_id, offset, BrokerStatus(100 + broker_id, True), 0.0, session)
    assert not bench.broken(law)
    assert law.looked == 1
    machine.appended(machine.log._replace(end_offset=3), 1.0)
    assert not bench.broken(law)
    resting = machine.progress_of(2)
    assert resting is not None
    resting.rests_in = session
    (report,) = bench.broken(law)
    assert "lets broker 2 rest, which has 2" in report
