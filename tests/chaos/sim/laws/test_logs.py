"""The laws of what logs remember and of what is on disks: what breaks them, and what does not."""

import asyncio
from dataclasses import replace

import pytest

from chaos.sim.laws.acknowledgements import Acknowledged
from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.follower_epochs import FollowersKnowTheEpoch
from chaos.sim.laws.log_memory import LogsRememberWhatTheyHold
from chaos.sim.laws.members import MembersHaveEverything
from metadata.partitions import PartitionState
from storage.config import LogConfig
from storage.log import PartitionLog
from tests.support.batches import header_of, make_batch
from tests.support.law_bench import BROKERS, PARTITION, LawBench, image

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)
PRODUCER = 7
DIRECTORY = f"/data/t-{PARTITION.partition}"
SEGMENT = f"{DIRECTORY}/{0:020d}.log"


def batch(
    offset: int, *, sequence: int | None = None, producer_epoch: int = 0, epoch: int = 5
) -> bytearray:
    """A batch of two records, by ``PRODUCER`` if they have a sequence."""
    return make_batch(
        2,
        base_offset=offset,
        leader_epoch=epoch,
        producer=None if sequence is None else (PRODUCER, producer_epoch, sequence),
    )


SEQUENCE_AT = 53
"""Of a batch: the first byte of its base sequence."""


@pytest.fixture
def bench() -> LawBench:
    made = LawBench()
    made.commit(image(50, STATE))
    return made


# ------------------------------------------------------------------------ logs remember


@pytest.fixture
def committed(bench: LawBench) -> CommittedRecordsStay:
    return CommittedRecordsStay(CommittedMetadata(bench.cluster))


@pytest.fixture
def remember(bench: LawBench, committed: CommittedRecordsStay) -> LogsRememberWhatTheyHold:
    metadata = CommittedMetadata(bench.cluster)
    return LogsRememberWhatTheyHold(bench.cluster, metadata, committed, bench.report)


def test_a_log_that_knows_its_producers_and_epochs_breaks_nothing(
    bench: LawBench, remember: LogsRememberWhatTheyHold
) -> None:
    replica = bench.replica(1, batch(0, sequence=0), batch(2), batch(4, sequence=2), state=STATE)
    assert not bench.broken(remember)
    replica.log.append_as_follower(batch(6, sequence=4, epoch=6))
    assert not bench.broken(remember)
    replica.log.append_as_follower(batch(8, sequence=0, producer_epoch=1, epoch=6))
    assert not bench.broken(remember)


def test_a_batch_that_was_damaged_on_purpose_says_nothing(
    bench: LawBench, remember: LogsRememberWhatTheyHold
) -> None:
    """No process may have read it since then."""
    first = batch(0, sequence=0)
    bench.replica(1, first, batch(2, sequence=2), state=STATE)
    path = "/data/t-0/00000000000000000000.log"
    disk = bench.simulation.machine("b1").disk
    disk.flip_bit(path, len(first) + SEQUENCE_AT)
    assert not bench.broken(remember)


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        (batch(2, sequence=0), "has sequence 0 (epoch 0) at 2 after 1 (0)"),  # it came twice
        (batch(2, sequence=4), "has sequence 4 (epoch 0) at 2 after 1 (0)"),
        (batch(2, sequence=1, producer_epoch=1), "has sequence 1 (epoch 1) at 2 after 1 (0)"),
    ],
)
def test_sequences_that_do_not_follow_each_other_break_it(
    bench: LawBench, remember: LogsRememberWhatTheyHold, second: bytearray, wrong: str
) -> None:
    bench.replica(1, batch(0, sequence=0), second, state=STATE)
    assert bench.broken(remember) == [f"t-0 on broker 1: producer {PRODUCER} {wrong}"]


def test_a_producer_that_is_forgotten_breaks_it(
    bench: LawBench, remember: LogsRememberWhatTheyHold
) -> None:
    replica = bench.replica(1, batch(0, sequence=0), state=STATE)
    replica.log.producers.clear()
    (report,) = bench.broken(remember)
    assert report == "t-0 on broker 1 ends at 2: it knows the producers {}, its batches say " + str(
        {PRODUCER: (0, 1)}
    )


def test_an_epoch_that_is_forgotten_breaks_it(
    bench: LawBench, remember: LogsRememberWhatTheyHold
) -> None:
    replica = bench.replica(1, batch(0), batch(2, epoch=6), state=STATE)
    replica.log.epochs.truncate_from(2)
    assert bench.broken(remember) == [
        "t-0 on broker 1 ends at 4: its epochs say [(5, 0)], its batches [(5, 0), (6, 2)]"
    ]


@pytest.fixture
def rolled(bench: LawBench) -> PartitionLog:
    """A log of three segments with one batch each."""
    batches = batch(0, sequence=0), batch(2, sequence=2), batch(4, sequence=4, epoch=6)
    config = LogConfig(segment_bytes=len(batches[0]))
    log = bench.replica(1, *batches, state=STATE, config=config).log
    assert log.segments.bases == [0, 2, 4]
    return log


def test_a_log_that_has_rolled_is_read_to_its_end(
    bench: LawBench, remember: LogsRememberWhatTheyHold, rolled: PartitionLog
) -> None:
    assert not bench.broken(remember)
    rolled.append_as_follower(batch(6, sequence=6, epoch=6))
    assert not bench.broken(remember)
    assert remember.looked == remember.rolled == 2


def test_a_log_whose_beginning_retention_has_taken_is_checked_as_well(
    bench: LawBench, remember: LogsRememberWhatTheyHold, rolled: PartitionLog
) -> None:
    rolled.advance_start_offset(2)
    assert not bench.broken(remember)
    rolled.epochs.truncate_from(4)
    (report,) = bench.broken(remember)
    assert "its epochs say [(5, 2)], its batches [(5, 2), (6, 4)]" in report


def test_a_producer_that_is_forgotten_breaks_it_in_the_last_of_several_segments(
    bench: LawBench, remember: LogsRememberWhatTheyHold, rolled: PartitionLog
) -> None:
    assert not bench.broken(remember)
    rolled.producers.clear()
    (report,) = bench.broken(remember)
    assert "it knows the producers {}, its batches say " + str({PRODUCER: (0, 5)}) in report


def test_a_batch_that_came_twice_across_segments_breaks_it(
    bench: LawBench, remember: LogsRememberWhatTheyHold, rolled: PartitionLog
) -> None:
    rolled.append_as_follower(batch(6, sequence=4, epoch=6))
    (report, *_) = bench.broken(remember)
    assert "has sequence 4 (epoch 0) at 6 after 5 (0)" in report


def test_a_leader_that_has_written_nothing_yet_has_its_epoch_already(
    bench: LawBench, remember: LogsRememberWhatTheyHold
) -> None:
    replica = bench.replica(1, batch(0), state=STATE)
    replica.log.assign_leader_epoch(6)
    assert not bench.broken(remember)


def cut(bench: LawBench, broker_id: int, offset: int) -> None:
    """Truncate a replica's log, and let time pass."""
    bench.brokers[broker_id].node.broker.replicas[0].log.truncate_to(offset)
    bench.simulation.scheduler.run(asyncio.sleep(0.001))


def test_a_cut_of_what_is_not_committed_breaks_nothing(
    bench: LawBench, committed: CommittedRecordsStay, remember: LogsRememberWhatTheyHold
) -> None:
    bench.replica(2, batch(0, sequence=0), batch(2, sequence=2), state=STATE, high_watermark=2)
    assert not bench.broken(committed)
    assert not bench.broken(remember)
    cut(bench, 2, 2)
    assert not bench.broken(remember)


def test_a_cut_of_what_is_committed_breaks_it(
    bench: LawBench, committed: CommittedRecordsStay, remember: LogsRememberWhatTheyHold
) -> None:
    bench.replica(1, batch(0), batch(2), state=STATE, high_watermark=4)
    bench.replica(2, batch(0), batch(2), state=STATE, high_watermark=2)
    assert not bench.broken(committed)
    cut(bench, 2, 2)
    assert bench.broken() == ["t-0 on broker 2 cuts off offset 2, which is committed"]


def test_an_unclean_election_may_cut_it(
    bench: LawBench, committed: CommittedRecordsStay, remember: LogsRememberWhatTheyHold
) -> None:
    unclean = replace(STATE, isr=(1,), leader_epoch=6, partition_epoch=11, unclean_elections=1)
    bench.replica(1, batch(0), batch(2), state=STATE, high_watermark=4)
    bench.replica(2, batch(0), batch(2), state=unclean, high_watermark=2)
    assert not bench.broken(committed)
    cut(bench, 2, 2)
    assert not bench.broken()


def test_a_producer_that_outlives_its_records_breaks_it_at_the_cut(
    bench: LawBench, remember: LogsRememberWhatTheyHold
) -> None:
    replica = bench.replica(2, batch(0), batch(2, sequence=0), state=STATE)
    assert not bench.broken(remember)
    header = header_of(batch(2, sequence=0))
    bench.simulation.scheduler.at(0.0, lambda: replica.log.producers.update(header, 0, 0))
    cut(bench, 2, 2)
    (report,) = bench.broken()
    assert "it knows the producers {7: (0, 1)}, its batches say {}" in report


# ------------------------------------------------------------------------ members


@pytest.fixture
def members(bench: LawBench) -> MembersHaveEverything:
    """Let the law see that four records of the partition are committed."""
    metadata = CommittedMetadata(bench.cluster)
    return MembersHaveEverything(bench.cluster, metadata, {PARTITION: 4}, bench.report)


@pytest.mark.parametrize(
    ("state", "breaks"),
    [
        (STATE, True),
        (replace(STATE, isr=(1, 2), elr=(3,)), True),
        (replace(STATE, isr=(1, 2)), False),
        (replace(STATE, unclean_elections=1), False),  # it may have cut what was committed
    ],
)
def test_who_is_in_the_isr_or_eligible_has_what_was_committed(
    bench: LawBench, members: MembersHaveEverything, state: PartitionState, breaks: bool
) -> None:
    bench.commit(image(51, state))
    for broker_id in (1, 2):
        bench.replica(broker_id, batch(0), batch(2), state=state)
    bench.replica(3, batch(0), state=state)
    found = bench.broken(members)
    assert bool(found) is breaks
    assert all(each.startswith("t-0: broker 3 is in the ISR") for each in found)


def test_it_counts_what_is_on_disk(bench: LawBench, members: MembersHaveEverything) -> None:
    replica = bench.replica(2, batch(0), state=STATE)
    replica.log.append_as_follower(batch(2))
    assert bench.broken(members)
    replica.log.sync_now()
    assert not bench.broken(members)


def test_what_a_consumer_is_shown_is_on_the_disks_of_all_members(
    bench: LawBench, members: MembersHaveEverything
) -> None:
    bench.commit(image(51, STATE))
    for broker_id in (1, 2):
        bench.replica(broker_id, batch(0), batch(2), state=STATE)
    bench.replica(3, batch(0), state=STATE)
    members.shown("t", 0, 2)
    members.shown("another", 0, 4)
    assert not bench.broken()
    members.shown("t", 0, 4)
    assert bench.broken() == [
        "t-0: broker 3 is in the ISR (1, 2, 3) or eligible (), has 2 on disk, and 4 is committed"
    ]


def test_a_replica_may_know_of_a_change_before_the_controllers_are_seen_with_it(
    bench: LawBench, members: MembersHaveEverything
) -> None:
    bench.replica(1, batch(0), batch(2), state=replace(STATE, isr=(1,), partition_epoch=11))
    bench.replica(3, batch(0), state=STATE)
    assert not bench.broken(members)


# ------------------------------------------------------------------------ followers


@pytest.mark.parametrize(("follows", "breaks"), [(5, False), (6, False), (4, True)])
def test_a_leader_counts_followers_of_its_epoch(
    bench: LawBench, follows: int, breaks: bool
) -> None:
    leading = bench.replica(1, batch(0), state=STATE)
    bench.fetched(leading, 2, 2)
    bench.replica(2, batch(0), state=replace(STATE, leader_epoch=follows))
    found = bench.broken(FollowersKnowTheEpoch())
    assert bool(found) is breaks
    assert all(each.endswith("broker 2, which knows of 4") for each in found)


def test_a_position_of_an_earlier_process_says_nothing(bench: LawBench) -> None:
    leading = bench.replica(1, batch(0), state=STATE)
    bench.fetched(leading, 2, 2)
    bench.replica(2, batch(0), state=replace(STATE, leader_epoch=4))
    bench.brokers[2].node.broker.replicas.broker_epoch += 1
    assert not bench.broken(FollowersKnowTheEpoch())


# ------------------------------------------------------------------------ acknowledged


def acknowledged(bench: LawBench, needed: int) -> list[str]:
    Acknowledged().check_record(bench.cluster, "t-0", b"v" * 10, needed, bench.report)
    return bench.broken()


@pytest.mark.parametrize(("holders", "breaks"), [((), True), ((2,), True), ((1, 3), False)])
def test_what_is_acknowledged_is_on_as_many_disks_as_promised(
    bench: LawBench, holders: tuple[int, ...], breaks: bool
) -> None:
    for broker_id in BROKERS:
        held = [batch(0)] if broker_id in holders else []
        bench.replica(broker_id, *held, state=STATE)
    assert bool(acknowledged(bench, 2)) is breaks


def test_what_is_written_and_not_synced_is_not_on_disk(bench: LawBench) -> None:
    bench.replica(1, batch(0), state=STATE)
    replica = bench.replica(2, state=STATE)
    replica.log.append_as_follower(batch(0))
    (report,) = acknowledged(bench, 2)
    assert "is on the disks of [1] only; 2 were promised" in report
    replica.log.sync_now()
    assert not acknowledged(bench, 2)


def test_a_log_without_its_topic_id_on_disk_holds_nothing(bench: LawBench) -> None:
    for broker_id in (1, 2):
        bench.replica(broker_id, batch(0), state=STATE)
    assert not acknowledged(bench, 2)
    disk = bench.disk(2)
    disk.remove(f"{DIRECTORY}/partition.metadata")
    disk.sync_now(DIRECTORY)
    (report,) = acknowledged(bench, 2)
    assert "is on the disks of [1] only; 2 were promised" in report


def test_a_topic_id_that_was_lost_since_had_been_on_disk(bench: LawBench) -> None:
    for broker_id in (1, 2):
        bench.replica(broker_id, batch(0), state=STATE)
    bench.simulation.machine("b2").disk.lose(f"{DIRECTORY}/partition.metadata")
    assert not acknowledged(bench, 2)


def test_a_disk_that_was_damaged_since_had_it(bench: LawBench) -> None:
    for broker_id in (1, 2):
        bench.replica(broker_id, batch(0), state=STATE)
    bench.simulation.machine("b2").disk.lose(SEGMENT)
    assert not acknowledged(bench, 2)
    bench.simulation.machine("b1").disk.lose(DIRECTORY)
    assert not acknowledged(bench, 2)
    assert acknowledged(bench, 3)
