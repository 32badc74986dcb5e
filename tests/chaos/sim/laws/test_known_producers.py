"""The law of what replicas that may lead know of producers."""

from __future__ import annotations

import pytest

from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.known_producers import MembersKnowTheProducers
from metadata.partitions import PartitionState
from stele.wire.batch import stamp
from storage.config import LogConfig
from tests.support.batches import make_batch
from tests.support.law_bench import LawBench, image

IN_SYNC = PartitionState(replicas=(1, 2), leader=1, isr=(1, 2))
ALONE = PartitionState(replicas=(1, 2), leader=1, isr=(1,))
ELIGIBLE = PartitionState(replicas=(1, 2), leader=1, isr=(1,), elr=(2,))


def batches(count: int) -> list[bytearray]:
    made = []
    for number in range(count):
        batch = make_batch(1, producer=(7, 0, number))
        stamp(batch, 0, base_offset=number, leader_epoch=0)
        made.append(batch)
    return made


@pytest.mark.parametrize(
    ("state", "ends", "is_compacted", "breaks"),
    [
        (IN_SYNC, (3, 3), False, True),
        (ELIGIBLE, (3, 3), False, True),
        (ALONE, (3, 3), False, False),  # it may not lead
        (IN_SYNC, (3, 2), False, False),  # the rest is still to come
        (IN_SYNC, (3, 3), True, False),
    ],
)
def test_replicas_that_may_lead_know_the_same_producers(
    state: PartitionState, ends: tuple[int, int], is_compacted: bool, breaks: bool
) -> None:
    bench = LawBench()
    law = MembersKnowTheProducers(CommittedMetadata(bench.cluster))
    config = LogConfig(compact=is_compacted)
    _, other = (
        bench.replica(broker_id, *batches(end), state=state, config=config)
        for broker_id, end in zip((1, 2), ends, strict=True)
    )
    bench.commit(image(5, state))
    law.look(bench.cluster, bench.report)
    assert not bench.broken()
    other.log.producers.expire(1 << 60, 0)
    law.look(bench.cluster, bench.report)
    assert bool(bench.broken()) is breaks
    assert law.looked == 2 * breaks
