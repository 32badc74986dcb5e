"""The law of deleted records and of log start offsets."""

from dataclasses import replace

import pytest

from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.deletions import DeletedRecordsStayDeleted
from metadata.partitions import PartitionState
from tests.support.batches import make_batch
from tests.support.law_bench import TOPIC, LawBench, image

STATE = PartitionState((1, 2, 3), isr=(1, 2), elr=(3,), leader=1, leader_epoch=5)


@pytest.mark.parametrize(
    ("state", "breaks"),
    [
        (STATE, True),
        (replace(STATE, isr=(1, 2, 3), elr=()), True),
        (replace(STATE, elr=()), False),  # it may not lead, and learns it before it may
        (replace(STATE, unclean_elections=1), False),
    ],
)
def test_replicas_that_may_lead_have_deleted_what_was_acknowledged(
    state: PartitionState, breaks: bool
) -> None:
    bench = LawBench()
    bench.commit(image(51, state))
    for broker_id, start in ((1, 2), (2, 3), (3, 1)):
        batch = make_batch(4, base_offset=0, leader_epoch=5)
        bench.replica(broker_id, batch, state=state).log.advance_start_offset(start)
    law = DeletedRecordsStayDeleted(CommittedMetadata(bench.cluster))
    assert not bench.broken(law)
    law.deleted(TOPIC, 0, 2)
    found = bench.broken(law)
    assert bool(found) is breaks
    assert all("begins at 1 on broker 3" in each for each in found)
