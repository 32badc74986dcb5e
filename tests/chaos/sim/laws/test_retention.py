"""The laws of deleted segments and of the claims of checkpoints: what breaks them, and what does
not."""

from types import SimpleNamespace
from typing import Any

import pytest

from broker.replication.replica import Replica
from chaos.sim.laws.checkpoints import CheckpointsClaimWhatIsThere
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.durable_segments import DurableIsDurable
from chaos.sim.laws.durable_starts import DurableStartsAreDurable
from chaos.sim.laws.log_memory import LogsRememberWhatTheyHold
from chaos.sim.laws.retention import RetentionTakesNoMore
from chaos.sim.laws.scene import Scene
from chaos.sim.world.clock import EPOCH_MS
from metadata.partitions import PartitionState
from storage.checkpoints import LOG_START_FILE, encode_offsets
from storage.config import NO_LIMIT, LogConfig
from tests.support.batches import make_batch
from tests.support.law_bench import PARTITION, LawBench, image

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)


def batch(offset: int, *, sequence: int | None = None) -> bytearray:
    """A batch of two old records."""
    producer = None if sequence is None else (7, 0, sequence)
    return make_batch(2, base_offset=offset, leader_epoch=5, producer=producer)


@pytest.fixture
def bench() -> LawBench:
    made = LawBench()
    made.commit(image(50, STATE))
    return made


def aged(bench: LawBench, **config: Any) -> Replica:
    """A replica with four committed records in segments of two. ``config`` says what may be
    deleted."""
    replica = bench.replica(1, batch(0), state=STATE, high_watermark=4)
    replica.log.config = LogConfig(segment_bytes=1, **config)
    replica.log.append_as_follower(batch(2))
    replica.log.sync_now()
    replica.machine.copied(replica.position, 4)
    return replica


@pytest.fixture
def committed(bench: LawBench) -> CommittedRecordsStay:
    return CommittedRecordsStay(CommittedMetadata(bench.cluster))


def retention(
    bench: LawBench, committed: CommittedRecordsStay, high_watermark: int
) -> RetentionTakesNoMore:
    """The law of a bench on which all brokers have run and the replicas exist already."""
    scene = Scene(bench.cluster, bench.report)
    scene.look_at_nodes(bench.cluster.brokers.values())
    scene.look_at_replicas()
    scene.high_watermarks[PARTITION] = high_watermark
    return RetentionTakesNoMore(scene, committed)


@pytest.mark.parametrize(
    ("config", "wrong"),
    [
        ({"retention_ms": 1000}, ""),
        ({"retention_ms": EPOCH_MS + 1000}, "offset 0 of 1000001 ms is gone"),
        ({"retention_ms": NO_LIMIT}, "nothing may go by its age"),
        ({"retention_ms": NO_LIMIT, "retention_bytes": 1}, ""),
        ({"retention_ms": NO_LIMIT, "retention_bytes": 10_000}, "nothing may go by its age"),
        ({"retention_ms": 1000, "delete_old": False}, "nothing may go by its age"),
    ],
)
def test_only_what_is_old_or_too_much_may_go(
    bench: LawBench, committed: CommittedRecordsStay, config: dict[str, Any], wrong: str
) -> None:
    replica = aged(bench, **config)
    law = retention(bench, committed, 4)
    assert not bench.broken(committed)
    assert not bench.broken(law)
    replica.log.advance_start_offset(2)
    replica.log.remove_dead_segments()
    found = bench.broken(law)
    assert bool(found) == bool(wrong)
    assert all(wrong in each for each in found)
    assert (law.deleted, law.starts) == (1, {PARTITION: 2})


def test_what_the_leader_took_is_judged_by_what_the_leader_has(
    bench: LawBench, committed: CommittedRecordsStay
) -> None:
    """A follower may hear of the new start before it has fetched the records that made it
    necessary."""
    config: dict[str, Any] = {"retention_ms": NO_LIMIT, "retention_bytes": 2 * len(batch(0))}
    follower = aged(bench, **config)
    leader = bench.replica(2, batch(0), state=STATE, high_watermark=4)
    leader.log.config = follower.log.config
    for offset in (2, 4):
        leader.log.append_as_follower(batch(offset))
    leader.log.sync_now()
    leader.machine.copied(leader.position, 4)
    law = retention(bench, committed, 4)
    assert not bench.broken(committed)
    assert not bench.broken(law)
    follower.log.advance_start_offset(2)
    leader.log.advance_start_offset(2)
    assert not bench.broken(law)


@pytest.mark.parametrize(
    ("second_ms", "wrong"), [(1_000_000, ""), (EPOCH_MS, f"offset 2 of {EPOCH_MS + 1} ms is gone")]
)
def test_a_young_segment_goes_by_size_before_one_that_goes_by_its_age(
    bench: LawBench, committed: CommittedRecordsStay, second_ms: int, wrong: str
) -> None:
    """There are three segments of the same size, and two must stay. The second is too old."""
    first = make_batch(2, leader_epoch=5, timestamp_ms=EPOCH_MS)
    replica = bench.replica(1, first, state=STATE, high_watermark=6)
    replica.log.config = LogConfig(
        segment_bytes=1, retention_ms=1000, retention_bytes=2 * len(first)
    )
    replica.log.append_as_follower(
        make_batch(2, base_offset=2, leader_epoch=5, timestamp_ms=second_ms)
    )
    replica.log.append_as_follower(
        make_batch(2, base_offset=4, leader_epoch=5, timestamp_ms=EPOCH_MS)
    )
    replica.log.sync_now()
    replica.machine.copied(replica.position, 6)
    law = retention(bench, committed, 6)
    assert not bench.broken(committed)
    assert not bench.broken(law)
    replica.log.advance_start_offset(4)
    found = bench.broken(law)
    assert bool(found) == bool(wrong)
    assert all(wrong in each for each in found)


@pytest.mark.parametrize("cut", [True, False])
def test_bytes_that_a_truncation_took_may_have_counted(
    bench: LawBench, committed: CommittedRecordsStay, cut: bool
) -> None:
    """Retention left enough bytes behind it. Then some that were not committed were truncated."""
    config: dict[str, Any] = {"retention_ms": NO_LIMIT, "retention_bytes": 2 * len(batch(0))}
    replica = aged(bench, **config)
    replica.log.append_as_follower(batch(4))
    law = retention(bench, committed, 4)
    assert not bench.broken(committed)
    assert not bench.broken(law)
    if not cut:
        replica.log.truncate_to(4)
        assert not bench.broken(law)
    replica.log.advance_start_offset(2)
    replica.log.truncate_to(4)
    assert bool(bench.broken(law)) != cut


def test_what_is_not_committed_may_not_go(bench: LawBench, committed: CommittedRecordsStay) -> None:
    replica = aged(bench, retention_ms=1000)
    law = retention(bench, committed, 1)
    replica.machine.high_watermark = 1
    replica.log.advance_start_offset(2)
    assert bench.broken(law) == ["t-0 begins at 2, and only 1 is committed"]


def test_a_log_that_was_cut_from_the_front_is_compared_from_there_on(
    bench: LawBench, committed: CommittedRecordsStay
) -> None:
    """It may know a producer whose records are deleted. Of other producers it knows what is in the
    log."""
    metadata = CommittedMetadata(bench.cluster)
    law = LogsRememberWhatTheyHold(bench.cluster, metadata, committed, bench.report)
    replica = bench.replica(2, batch(0, sequence=0), state=STATE)
    log = replica.log
    log.config = LogConfig(segment_bytes=1)
    for number in range(1, 4):
        log.append_as_follower(batch(2 * number, sequence=2 * number))
    log.advance_start_offset(4)
    log.remove_dead_segments()
    assert not bench.broken(law)
    log.append_as_follower(batch(8, sequence=8))
    assert not bench.broken(law)
    log.producers.clear()
    (report,) = bench.broken(law)
    assert "it knows the producers {}" in report


def test_a_segment_whose_entry_is_not_on_disk_is_not_durable(bench: LawBench) -> None:
    replica = aged(bench)
    assert not bench.broken(DurableIsDurable())
    replica.log.append_as_follower(batch(4))  # which rolls
    assert not bench.broken(DurableIsDurable())
    ticket = replica.log.begin_sync()
    replica.log.finish_sync(ticket)  # though nobody has synced
    (report,) = bench.broken(DurableIsDurable())
    assert "calls all below 6 synced" in report


def test_bytes_of_the_last_segment_that_are_not_on_disk_are_not_durable(bench: LawBench) -> None:
    replica = aged(bench)
    (*_, (_, inode)) = bench.nodes[1].machine.disk.files("/data/t-0", ".log")
    assert not bench.broken(DurableIsDurable())
    whole = bytes(inode.durable)
    inode.durable[-1] ^= 1
    (report,) = bench.broken(DurableIsDurable())
    assert "calls all below" in report
    inode.durable[:] = whole + b"what a truncation has removed"
    assert not bench.broken(DurableIsDurable())
    replica.log.append_as_follower(batch(4))
    assert not bench.broken(DurableIsDurable()), "a sync is still to come"


@pytest.mark.parametrize(("kept", "is_wrong"), [(None, True), (1, True), (2, False)])
def test_a_start_that_is_called_durable_is_on_disk(
    bench: LawBench, kept: int | None, is_wrong: bool
) -> None:
    replica = aged(bench)
    directory: Any = SimpleNamespace(durable_start_offset=lambda log: 2)
    replica.directory = directory
    if kept is not None:
        bench.put(1, f"/data/{LOG_START_FILE}", encode_offsets({replica.log.key: kept}))
    found = bench.broken(DurableStartsAreDurable())
    assert bool(found) == is_wrong
    assert all("calls the start 2 durable" in each for each in found)


@pytest.mark.parametrize(("claimed", "is_wrong"), [((4, 4, 0), False), ((5, 4, 0), True)])
def test_checkpoints_claim_no_more_than_there_is(
    bench: LawBench, claimed: tuple[int, int, int], is_wrong: bool
) -> None:
    replica = aged(bench)
    directory: Any = SimpleNamespace(checkpointed=lambda log: claimed)
    replica.directory = directory
    assert bool(bench.broken(CheckpointsClaimWhatIsThere())) == is_wrong
