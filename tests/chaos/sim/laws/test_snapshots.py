"""The law of snapshots, if the log was damaged after the snapshot was made."""

import pytest

from chaos.sim.laws.snapshots import SnapshotsEqualTheLog
from metadata.records import encode
from raft.messages import SnapshotId
from runtime.quorum import snapshots as quorum_snapshots
from stele.wire.batch import HEADER_SIZE, BatchBuilder
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.law_bench import METADATA_LOG, LawBench

LOG = f"{METADATA_LOG}/{0:020d}.log"
SNAPSHOT = SnapshotId(end_offset=2, epoch=5)
UNTOLD = "b1: the snapshot SnapshotId(end_offset=2, epoch=5) is not what the log says"


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


def producer_ids(following: int) -> bytes:
    return encode(pb.MetadataRecord(producer_ids=pb.ProducerIdsRecord(next_producer_id=following)))


def put_log(bench: LawBench, node_id: int, *, last_epoch: int = SNAPSHOT.epoch) -> None:
    """A log of two batches. The second one has the value 2000."""
    log = b""
    for offset, epoch in enumerate((4, last_epoch)):
        builder = BatchBuilder(offset)
        builder.append(None, producer_ids(1000 * (offset + 1)), timestamp_ms=0)
        log += builder.build(leader_epoch=epoch)
    bench.put(node_id, LOG, log)


def put_snapshot(bench: LawBench, node_id: int, following: int) -> None:
    batches = quorum_snapshots.encode(SNAPSHOT, bench.cluster_id, 0, [producer_ids(following)])
    name = quorum_snapshots.file_name(SNAPSHOT)
    bench.put(node_id, f"{METADATA_LOG}/{name}", b"".join(batches))


def damage_log(bench: LawBench, node_id: int) -> None:
    disk = bench.simulation.machine(bench.nodes[node_id].host).disk
    disk.flip_bit(LOG, HEADER_SIZE + 2)


@pytest.mark.parametrize(("following", "reports"), [(2000, []), (1000, [UNTOLD])])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_snapshot_is_held_against_its_log_or_else_against_another_that_is_whole(
    bench: LawBench, damaged: bool, following: int, reports: list[str]
) -> None:
    law = SnapshotsEqualTheLog()
    put_log(bench, 1)
    put_snapshot(bench, 1, following)
    if damaged:
        damage_log(bench, 1)
        put_log(bench, 2)
        damage_log(bench, 2)
        put_log(bench, 101)
    assert bench.broken(law) == reports
    assert law.looked == 1


def test_a_log_with_another_last_record_says_nothing_of_it(bench: LawBench) -> None:
    law = SnapshotsEqualTheLog()
    put_log(bench, 1)
    put_snapshot(bench, 1, 1000)
    damage_log(bench, 1)
    put_log(bench, 2, last_epoch=4)
    assert not bench.broken(law)
    assert law.looked == 0
