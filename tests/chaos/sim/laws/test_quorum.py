"""The laws of the quorum's voters and answers: what breaks them, and what does not."""

import pytest

from chaos.sim.laws.reads import ReadsAreLinearizable
from chaos.sim.laws.voter_changes import VotersChangeOneByOne
from metadata.image import MetadataImage
from raft.quorum import VoterSet
from raft.ready import Role
from raft.voter_history import VoterHistory
from tests.support.law_bench import Core, LawBench, history, voter, voters

THREE = voters(101, 102, 103)


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


# ------------------------------------------------------------------------ neighbouring sets


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (THREE, THREE),
        (THREE, voters(101, 102, 103, 104)),
        (THREE, voters(101, 103)),
        (VoterSet.of_ids(101, 102, 103), THREE),  # their disks become known
        (THREE, VoterSet([*THREE.without(103).voters, voter(103, 103)])),
    ],
)
def test_sets_that_differ_by_one_voter_may_follow_each_other(
    bench: LawBench, before: VoterSet, after: VoterSet
) -> None:
    bench.core(102).history = history((3, before), (9, after))
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (THREE, voters(101)),
        (THREE, voters(101, 102, 103, 104, 105)),
        (THREE, voters(101, 102, 104)),  # one for another: {101, 103} and {102, 104} could decide
        (THREE, VoterSet([*THREE.without(103).voters, voter(103, 9)])),  # the same on another disk
    ],
)
def test_sets_that_differ_by_more_break_it(
    bench: LawBench, before: VoterSet, after: VoterSet
) -> None:
    bench.core(102).history = history((3, before), (9, after))
    (report,) = bench.broken(VotersChangeOneByOne(bench.scene))
    assert "in epoch 5: the voters went from" in report


def test_each_change_is_judged_by_itself(bench: LawBench) -> None:
    bench.core(101).history = history((3, THREE), (5, voters(101, 102)), (9, voters(101)))
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


def test_the_configured_voters_may_be_others(bench: LawBench) -> None:
    bench.core(101).history = history((0, THREE), base=voters(7))
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


def test_the_voters_of_a_snapshot_are_followed_as_well(bench: LawBench) -> None:
    found = VoterHistory(THREE, 40)
    found.append(45, voters(101))
    bench.core(101).history = found
    assert bench.broken(VotersChangeOneByOne(bench.scene))


def test_nodes_that_are_down_are_not_looked_at(bench: LawBench) -> None:
    bench.core(102).history = history((3, THREE), (9, voters(101)))
    bench.controllers[102].alive = False
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


# ------------------------------------------------------------------------ what a leader makes


def leading(bench: LawBench, *, start: int = 10, high_watermark: int = 20, at: int = 20) -> Core:
    """Let 101 lead from ``start`` on. At the offset ``at`` it has just removed 102 from the voters
    of offset 7. All nodes have everything on disk."""
    for node_id in bench.controllers:
        bench.core(node_id).durable_end_offset = at
    core = bench.core(101)
    core.role, core.epoch_start_offset, core.high_watermark = Role.LEADER, start, high_watermark
    core.history = history((7, THREE), (at, voters(101, 103)))
    return core


def test_a_leader_may_change_voters_once_its_epoch_and_the_earlier_voters_are_committed(
    bench: LawBench,
) -> None:
    leading(bench)
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


@pytest.mark.parametrize(
    ("start", "high_watermark"),
    [
        (10, 10),  # the record of its epoch is not committed: another leader's may be
        (10, 8),
        (3, 7),  # that is committed, but the record of the earlier voters is not
    ],
)
def test_a_leader_that_changes_them_sooner_breaks_it(
    bench: LawBench, start: int, high_watermark: int
) -> None:
    leading(bench, start=start, high_watermark=high_watermark)
    (report,) = bench.broken(VotersChangeOneByOne(bench.scene))
    assert report.startswith("c101 #1 in epoch 5 made ")
    assert report.endswith(f"committed to {high_watermark} only")


@pytest.mark.parametrize(("behind", "breaks"), [((), False), ((103,), False), ((102, 103), True)])
def test_a_majority_of_the_earlier_voters_must_have_it_whatever_the_leader_believes(
    bench: LawBench, behind: tuple[int, ...], breaks: bool
) -> None:
    leading(bench)
    for node_id in behind:
        bench.core(node_id).durable_end_offset = 7
    assert bool(bench.broken(VotersChangeOneByOne(bench.scene))) is breaks


def test_it_is_judged_when_it_is_new_and_once(bench: LawBench) -> None:
    law, other = VotersChangeOneByOne(bench.scene), VotersChangeOneByOne(bench.scene)
    leading(bench)
    assert not bench.broken(law)
    for node_id in (102, 103):  # both lose their disks later
        bench.core(node_id).durable_end_offset = 0
    assert not bench.broken(law)
    assert len(bench.broken(other)) == 1
    assert not bench.broken(other)


def test_the_next_set_is_judged_anew(bench: LawBench) -> None:
    law, core = VotersChangeOneByOne(bench.scene), leading(bench)
    assert not bench.broken(law)
    core.history.append(22, voters(101))
    assert bench.broken(law)  # the voters of offset 20 are not committed


def test_a_change_by_an_earlier_leader_is_not_judged_as_this_leaders(bench: LawBench) -> None:
    leading(bench, start=21, high_watermark=21)
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


def test_a_follower_makes_nothing(bench: LawBench) -> None:
    core = leading(bench, high_watermark=0)
    core.role, core.epoch_start_offset = Role.FOLLOWER, None
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


def test_the_first_record_says_what_the_configuration_said(bench: LawBench) -> None:
    core = leading(bench, start=0, high_watermark=0)
    core.history = history((1, THREE), base=VoterSet.of_ids(101, 102, 103))
    assert not bench.broken(VotersChangeOneByOne(bench.scene))


# ------------------------------------------------------------------------ reads


def answer(bench: LawBench, law: ReadsAreLinearizable, needed: int, offset: int) -> list[str]:
    law.answered("broker 1", needed, offset)
    return bench.broken()


def test_an_answer_may_be_as_new_as_its_question_or_newer(bench: LawBench) -> None:
    law = ReadsAreLinearizable(bench.cluster, bench.report)
    bench.commit(MetadataImage(offset=12))
    needed = law.asked()
    bench.commit(MetadataImage(offset=15))
    for offset in (12, 14, 15):
        assert not answer(bench, law, needed, offset)
    assert law.looked == 1  # one question


def test_an_answer_older_than_its_question_breaks_it(bench: LawBench) -> None:
    law = ReadsAreLinearizable(bench.cluster, bench.report)
    bench.commit(MetadataImage(offset=12))
    (report,) = answer(bench, law, law.asked(), 11)
    assert "with the metadata of 11, and 12 was committed" in report


def test_the_newest_that_any_controller_knows_as_committed_counts(bench: LawBench) -> None:
    law = ReadsAreLinearizable(bench.cluster, bench.report)
    bench.commit(MetadataImage(offset=9))
    bench.commit(MetadataImage(offset=12), 103)
    assert answer(bench, law, law.asked(), 9)


def test_committed_records_stay_committed_when_all_nodes_that_know_it_restart(
    bench: LawBench,
) -> None:
    law = ReadsAreLinearizable(bench.cluster, bench.report)
    bench.commit(MetadataImage(offset=12))
    assert not bench.broken(law)
    bench.commit(MetadataImage(offset=4))
    assert answer(bench, law, law.asked(), 4)


def test_before_the_first_commit_any_answer_is_new_enough(bench: LawBench) -> None:
    law = ReadsAreLinearizable(bench.cluster, bench.report)
    assert not answer(bench, law, law.asked(), -1)
