"""The law of the sets of replicas of a partition: what breaks it, and what does not."""

from types import SimpleNamespace
from typing import Any

import pytest

from broker.partition.machine import PartitionMachine
from broker.replication.replica import ReplicaState
from chaos.sim.laws.leaders_metadata import LeadersGoByTheirMetadata
from chaos.sim.laws.replica_sets import ReplicasFitTogether
from chaos.sim.laws.scene import Scene
from metadata.partitions import PartitionState
from tests.support.law_bench import LawBench, image


def broken(state: PartitionState) -> list[str]:
    bench = LawBench()
    bench.commit(image(50, state))
    return bench.broken(ReplicasFitTogether())


def moving(
    replicas: tuple[int, ...],
    original: tuple[int, ...],
    *,
    adding: tuple[int, ...] = (),
    removing: tuple[int, ...] = (),
) -> PartitionState:
    return PartitionState(
        replicas,
        isr=original[:1],
        adding_replicas=adding,
        removing_replicas=removing,
        original_replicas=original,
    )


@pytest.mark.parametrize(
    "state",
    [
        PartitionState((1, 2, 3), isr=(1, 2, 3)),
        PartitionState((3, 1, 2), isr=(1,), elr=(2,)),
        PartitionState((1, 2), isr=()),
        moving((1, 2, 3), (1, 2), adding=(3,)),
        moving((1, 2), (1, 2), removing=(2,)),
        moving((3, 1, 2), (1, 2), adding=(3,), removing=(1, 2)),
    ],
)
def test_these_fit_together(state: PartitionState) -> None:
    assert not broken(state)


@pytest.mark.parametrize(
    "state",
    [
        PartitionState((1, 2), isr=(1, 3)),
        PartitionState((1, 2), isr=(1,), elr=(3,)),
        PartitionState((1, 2), isr=(1, 2), elr=(2,)),
        PartitionState((1, 2, 1), isr=(1,)),
        PartitionState((1, 2, 3), isr=(1,), adding_replicas=(3,)),  # from what?
        PartitionState((1, 2, 3), isr=(1,), removing_replicas=(3,)),
        moving((1, 2), (1, 2)),  # it is there
        moving((1, 2, 3), (1, 2)),
        moving((1, 2, 3), (1, 2), adding=(2, 3)),
        moving((1, 2), (1, 2, 3), removing=(2,)),  # 3 is to stay, and is gone
        moving((1, 2, 3, 4), (1, 2), adding=(3,), removing=(4,)),
    ],
)
def test_these_do_not(state: PartitionState) -> None:
    (report,) = broken(state)
    assert report.startswith("t-0: PartitionState(")


@pytest.mark.parametrize(
    ("led", "min_insync", "words"),
    [
        (PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1), 1, ""),
        (PartitionState((1, 2, 3), isr=(1, 2), leader=1, partition_epoch=1), 1, "isr=(1, 2)"),
        (PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1), 2, "needs 2"),
    ],
)
def test_a_leader_goes_by_its_metadata_alone(
    led: PartitionState, min_insync: int, words: str
) -> None:
    bench = LawBench()
    leading = bench.replica(1, state=led)
    leading.machine.configured(min_insync, 0.0)
    applied = image(50, PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1))
    node: Any = SimpleNamespace(
        id=1, running=SimpleNamespace(broker=SimpleNamespace(image=applied))
    )
    scene = Scene(bench.cluster, bench.report)
    scene.leading = [(node, leading)]
    law = LeadersGoByTheirMetadata(scene)
    reports = bench.broken(law)
    assert (words in reports[0]) if words else not reports
    leading.take_down(ReplicaState.CORRUPT)
    assert not bench.broken(law), "it serves nothing, and is told nothing more"
    assert law.looked == 1


@pytest.mark.parametrize("told", ["is_under_min_isr", "is_at_min_isr"])
def test_a_leader_knows_whether_its_isr_is_large_enough(
    told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses acks=all while its ISR is too small, and only then."""
    bench = LawBench()
    state = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1)
    leading = bench.replica(1, state=state)
    node: Any = SimpleNamespace(
        id=1, running=SimpleNamespace(broker=SimpleNamespace(image=image(50, state)))
    )
    scene = Scene(bench.cluster, bench.report)
    scene.leading = [(node, leading)]
    law = LeadersGoByTheirMetadata(scene)
    assert not bench.broken(law)
    monkeypatch.setattr(PartitionMachine, told, property(lambda _: True))
    (report,) = bench.broken(law)
    assert "of being under and at the least ISR; 1 are needed" in report
