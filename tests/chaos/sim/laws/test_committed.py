"""The laws of votes, commits and committed records: what breaks them, and what does not."""

from dataclasses import replace

import pytest

from chaos.sim.laws.committed_metadata import CommittedMetadata
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.holders import SomeoneHasEverything
from chaos.sim.laws.partition_epochs import EpochsOnlyGrow
from chaos.sim.laws.quorum_commits import MajorityHolds
from chaos.sim.laws.votes import OneVotePerEpoch
from metadata.partitions import PartitionState
from raft.quorum import ReplicaKey
from raft.ready import Role
from tests.support.batches import make_batch
from tests.support.law_bench import CONTROLLERS, LawBench, disk_id, history, image, voters

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)
UNCLEAN = replace(STATE, isr=(1,), leader_epoch=6, partition_epoch=11, unclean_elections=1)


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


# ------------------------------------------------------------------------ one vote per epoch


def test_a_voter_may_keep_its_vote_and_vote_anew_in_another_epoch(bench: LawBench) -> None:
    law, core = OneVotePerEpoch(bench.scene), bench.core(101)
    core.vote = ReplicaKey(102)
    assert not bench.broken(law)
    assert not bench.broken(law)
    core.epoch, core.vote = 6, ReplicaKey(103)
    assert not bench.broken(law)


def test_another_vote_in_the_epoch_breaks_it_also_after_a_crash(bench: LawBench) -> None:
    law, core = OneVotePerEpoch(bench.scene), bench.core(101)
    core.vote = ReplicaKey(102)
    assert not bench.broken(law)
    bench.controllers[101].restart()
    core.vote = ReplicaKey(103)
    assert bench.broken(law) == ["controller 101 voted for 102 and for 103 in epoch 5"]


def test_a_vote_that_is_not_durable_has_promised_nothing(bench: LawBench) -> None:
    law, core = OneVotePerEpoch(bench.scene), bench.core(101)
    core.vote, core.promises_durable = ReplicaKey(102), False
    assert not bench.broken(law)
    core.vote, core.promises_durable = ReplicaKey(103), True
    assert not bench.broken(law)


def test_on_another_disk_it_is_another_voter(bench: LawBench) -> None:
    law, core = OneVotePerEpoch(bench.scene), bench.core(101)
    core.vote = ReplicaKey(102)
    assert not bench.broken(law)
    core.local, core.vote = ReplicaKey(101, disk_id(9)), ReplicaKey(103)
    assert not bench.broken(law)


# ------------------------------------------------------------------------ a majority holds


def committed_to(bench: LawBench, high_watermark: int, *ends: int) -> None:
    """Let 101 lead. The voters have so much on disk."""
    for node_id, end in zip(bench.controllers, ends, strict=True):
        core = bench.core(node_id)
        core.durable_end_offset = end
        core.history = history((0, voters(101, 102, 103)))
    bench.core(101).role = Role.LEADER
    bench.core(101).high_watermark = high_watermark


@pytest.mark.parametrize(
    ("ends", "breaks"),
    [((9, 9, 0), False), ((0, 9, 12), False), ((9, 8, 8), True), ((12, 8, 0), True)],
)
def test_what_a_leader_commits_is_on_a_majority(
    bench: LawBench, ends: tuple[int, int, int], breaks: bool
) -> None:
    committed_to(bench, 9, *ends)
    assert bool(bench.broken(MajorityHolds(bench.scene))) is breaks


def test_of_a_voter_that_is_down_nothing_is_known(bench: LawBench) -> None:
    committed_to(bench, 9, 9, 0, 0)
    bench.controllers[103].alive = False
    assert not bench.broken(MajorityHolds(bench.scene))


def test_until_the_newest_voters_are_committed_the_earlier_ones_may_have_decided(
    bench: LawBench,
) -> None:
    committed_to(bench, 9, 9, 0, 9)
    bench.core(101).history = history((0, voters(101, 102, 103)), (9, voters(101, 102)))
    assert not bench.broken(MajorityHolds(bench.scene))
    bench.core(101).high_watermark = 10
    for node_id in (101, 103):
        bench.core(node_id).durable_end_offset = 10
    bench.core(101).durable_end_offset = 0
    assert bench.broken(MajorityHolds(bench.scene))  # none of 101 and 102 has it


def test_a_high_watermark_that_goes_back_breaks_it_but_for_a_new_process(bench: LawBench) -> None:
    law = MajorityHolds(bench.scene)
    committed_to(bench, 9, 9, 9, 9)
    assert not bench.broken(law)
    committed_to(bench, 8, 9, 9, 9)
    assert bench.broken(law) == ["c101 #1: the quorum's high watermark went 9 to 8"]
    bench.controllers[101].restart()
    bench.core(101).high_watermark = 0
    assert not bench.broken(law)


# ------------------------------------------------------------------------ epochs


@pytest.mark.parametrize(
    ("now", "breaks"),
    [
        (STATE, False),
        (replace(STATE, partition_epoch=11, isr=(1, 2)), False),
        (replace(STATE, partition_epoch=11, leader=2, leader_epoch=6), False),
        (replace(STATE, partition_epoch=10, isr=(1, 2)), True),
        (replace(STATE, partition_epoch=9), True),
        (replace(STATE, partition_epoch=11, leader_epoch=4), True),
        (replace(STATE, partition_epoch=11, leader=2), True),
        (replace(STATE, partition_epoch=11, leader=-1), True),
    ],
)
def test_epochs_only_grow(bench: LawBench, now: PartitionState, breaks: bool) -> None:
    law = EpochsOnlyGrow()
    bench.commit(image(50, STATE))
    assert not bench.broken(law)
    bench.commit(image(51, now))
    assert bool(bench.broken(law)) is breaks


def test_an_older_image_tells_nothing(bench: LawBench) -> None:
    law = EpochsOnlyGrow()
    bench.commit(image(50, STATE))
    assert not bench.broken(law)
    bench.commit(image(49, replace(STATE, partition_epoch=9)))
    assert not bench.broken(law)


# ------------------------------------------------------------------------ committed records


def batch(base_offset: int, epoch: int = 5, value: bytes = b"v") -> bytearray:
    return make_batch(2, base_offset=base_offset, leader_epoch=epoch, value=value)


def hold(
    bench: LawBench,
    broker_id: int,
    *batches: bytearray,
    upto: int = 4,
    state: PartitionState = STATE,
) -> None:
    """Give the broker these batches, committed up to an offset."""
    bench.replica(broker_id, *batches, state=state, high_watermark=upto)


@pytest.fixture
def committed(bench: LawBench) -> CommittedRecordsStay:
    """Brokers 1 and 2 have two batches, which are committed. Broker 1 has another one, which is
    not."""
    bench.commit(image(50, STATE))
    law = CommittedRecordsStay(CommittedMetadata(bench.cluster))
    hold(bench, 1, batch(0), batch(2), batch(4))
    hold(bench, 2, batch(0), batch(2))
    assert not bench.broken(law)
    assert law.looked == 8
    return law


def test_who_has_less_or_other_records_that_are_not_committed_breaks_nothing(
    bench: LawBench, committed: CommittedRecordsStay
) -> None:
    hold(bench, 2, batch(0), upto=2)
    hold(bench, 3, batch(0), batch(2), batch(4, value=b"w"))
    assert not bench.broken(committed)


@pytest.mark.parametrize("other", [batch(2, value=b"w"), batch(2, epoch=6)])
def test_other_records_where_some_were_committed_break_it(
    bench: LawBench, committed: CommittedRecordsStay, other: bytearray
) -> None:
    hold(bench, 3, batch(0), other)
    (report,) = bench.broken(committed)
    assert "where" in report
    assert report.endswith("was committed")


def test_a_leader_without_something_committed_breaks_it(
    bench: LawBench, committed: CommittedRecordsStay
) -> None:
    hold(bench, 1, batch(0), upto=2)
    assert bench.broken(committed) == ["t-0: its leader 1 ends at 2, and 4 was committed"]


def test_a_leader_of_before_may_be_without_it(
    bench: LawBench, committed: CommittedRecordsStay
) -> None:
    bench.commit(image(51, replace(STATE, leader=2, leader_epoch=6, partition_epoch=11)))
    hold(bench, 1, batch(0), upto=2)
    assert not bench.broken(committed)


def test_an_epoch_cache_that_says_otherwise_than_the_log_breaks_it(
    bench: LawBench, committed: CommittedRecordsStay
) -> None:
    replica = bench.replica(3, batch(0), state=STATE, high_watermark=2)
    replica.log.epochs.clear()
    (report,) = bench.broken(committed)
    assert "its epochs say" in report


def test_what_an_unclean_election_has_cut_may_go(
    bench: LawBench, committed: CommittedRecordsStay
) -> None:
    bench.commit(image(51, UNCLEAN))
    hold(bench, 1, batch(0), batch(2, epoch=6), state=UNCLEAN)
    assert not bench.broken(committed)  # 2 has other records, and does not know of it yet
    hold(bench, 2, batch(0), batch(2), state=UNCLEAN)
    assert not bench.broken(committed)  # it is not in the ISR
    hold(bench, 2, batch(0), batch(2), state=replace(UNCLEAN, isr=(1, 2), partition_epoch=12))
    assert bench.broken(committed)


def test_what_it_has_left_stays_committed(bench: LawBench, committed: CommittedRecordsStay) -> None:
    bench.commit(image(51, UNCLEAN))
    hold(bench, 1, batch(0), upto=2, state=UNCLEAN)
    assert not bench.broken(committed)
    hold(bench, 1, upto=0, state=UNCLEAN)
    assert bench.broken(committed) == ["t-0: its leader 1 ends at 0, and 2 was committed"]


# ------------------------------------------------------------------------ someone has everything


@pytest.fixture
def everything(bench: LawBench, committed: CommittedRecordsStay) -> SomeoneHasEverything:
    return SomeoneHasEverything(committed)


@pytest.mark.parametrize(
    ("isr", "elr", "breaks"), [((1,), (), False), ((), (2,), False), ((3,), (), True)]
)
def test_isr_or_elr_hold_what_is_committed(
    bench: LawBench,
    everything: SomeoneHasEverything,
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    breaks: bool,
) -> None:
    bench.commit(image(51, replace(STATE, isr=isr, elr=elr)))
    hold(bench, 3, batch(0), upto=2)
    assert bool(bench.broken(everything)) is breaks


def test_other_records_there_are_not_what_is_committed(
    bench: LawBench, everything: SomeoneHasEverything
) -> None:
    bench.commit(image(51, replace(STATE, isr=(3,))))
    hold(bench, 3, batch(0), batch(2, value=b"w"))
    assert bench.broken(everything) == ["t-0: none of [3] has the batch committed at 2"]


def test_a_controller_that_lacks_committed_metadata_judges_nobody(
    bench: LawBench, everything: SomeoneHasEverything
) -> None:
    """It has just been elected. The topic may have been deleted together with its logs."""
    outdated = image(51, replace(STATE, isr=(3,)))
    bench.commit(image(52, STATE), *CONTROLLERS[1:])
    bench.commit(outdated, CONTROLLERS[0])
    assert not bench.broken(everything)
    bench.commit(outdated)
    assert bench.broken(everything)


def test_a_controller_that_lacks_what_a_broker_has_applied_judges_nobody(
    bench: LawBench, everything: SomeoneHasEverything
) -> None:
    """The node is about to apply metadata that its broker has already."""
    bench.commit(image(51, replace(STATE, isr=(3,))))
    broker = bench.brokers[1].broker
    broker.image = image(52, STATE)
    assert not bench.broken(everything)
    broker.image = image(51, STATE)
    assert bench.broken(everything)


def test_a_batch_that_is_gone_is_not_taken_for_there_where_it_was(
    bench: LawBench, everything: SomeoneHasEverything
) -> None:
    bench.commit(image(51, replace(STATE, isr=(3,))))
    hold(bench, 3, batch(0), batch(2))
    assert not bench.broken(everything)
    hold(bench, 3, batch(0))
    assert bench.broken(everything) == ["t-0: none of [3] has the batch committed at 2"]
    hold(bench, 3, batch(2))  # what was before it has gone
    assert not bench.broken(everything)


def test_what_was_damaged_on_purpose_does_not_count(
    bench: LawBench, everything: SomeoneHasEverything
) -> None:
    bench.commit(image(51, replace(STATE, isr=(3,))))
    everything.damaged.add("t-0")
    assert not bench.broken(everything)
