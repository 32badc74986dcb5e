"""The ISR that a leader reckons with, one event at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.partition.effects import IsrAnswer, Member, Proposed
from broker.partition.maximal_isr import PROPOSAL_BACKOFF_MS, MaximalIsr
from stele.errors import ErrorCode
from tests.support.broker import state

NOW_MS = 1_000.0
KNOWN = state(isr=(1, 2), epoch=5, partition_epoch=10)


def proposing() -> tuple[MaximalIsr, Proposed]:
    maximal = MaximalIsr()
    assert maximal.may_propose(NOW_MS)
    return maximal, maximal.propose(KNOWN, [Member(1, -1), Member(3, 7)])


def test_until_the_outcome_is_known_both_isrs_count() -> None:
    maximal, proposal = proposing()
    assert proposal == Proposed(5, 10, (Member(1, -1), Member(3, 7)))
    assert maximal.members == {1, 2, 3}
    assert not maximal.may_propose(NOW_MS + 1_000_000)


@pytest.mark.parametrize(
    ("error", "partition_epoch", "ends"),
    [
        (ErrorCode.NONE, 11, False),  # it was taken: the metadata tell
        (ErrorCode.NONE, 10, True),  # it was so already
        (ErrorCode.INELIGIBLE_REPLICA, -1, True),
        (ErrorCode.REQUEST_TIMED_OUT, -1, False),
    ],
)
def test_an_answer_that_changes_nothing_ends_it(
    error: ErrorCode, partition_epoch: int, ends: bool
) -> None:
    maximal, proposal = proposing()
    answer = IsrAnswer(error, partition_epoch)
    assert maximal.answered(proposal, answer, KNOWN, NOW_MS) is ends
    assert maximal.members == ({1, 2} if ends else {1, 2, 3})
    assert not maximal.may_propose(NOW_MS + PROPOSAL_BACKOFF_MS - 1)
    assert maximal.may_propose(NOW_MS + PROPOSAL_BACKOFF_MS) is ends


def test_an_answer_to_another_proposal_ends_nothing() -> None:
    maximal, proposal = proposing()
    refused = IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
    other = replace(proposal, partition_epoch=9)
    assert not maximal.answered(other, refused, KNOWN, NOW_MS)
    assert maximal.proposal == proposal
    assert not MaximalIsr().answered(proposal, refused, KNOWN, NOW_MS)


@pytest.mark.parametrize(
    ("partition_epoch", "isr", "members", "may_propose"),
    [
        (10, (1, 2), {1, 2, 3}, False),  # the metadata of before
        (11, (1, 3), {1, 3}, True),  # it was taken, or another one was
        (11, (1, 2), {1, 2}, False),  # nothing but the epoch has changed: it was refused
    ],
)
def test_later_metadata_end_it(
    partition_epoch: int, isr: tuple[int, ...], members: set[int], may_propose: bool
) -> None:
    maximal, _ = proposing()
    told = state(isr=isr, epoch=5, partition_epoch=partition_epoch)
    maximal.committed(KNOWN, told, NOW_MS)
    assert maximal.members == members
    assert maximal.may_propose(NOW_MS) is may_propose
    assert maximal.may_propose(NOW_MS + PROPOSAL_BACKOFF_MS) is (partition_epoch > 10)


def test_a_later_leader_epoch_is_no_refusal() -> None:
    maximal, _ = proposing()
    maximal.committed(KNOWN, state(isr=(1, 2), epoch=6, partition_epoch=11), NOW_MS)
    assert maximal.may_propose(NOW_MS)


def test_metadata_that_no_proposal_waits_for_are_taken_over() -> None:
    maximal = MaximalIsr()
    maximal.committed(KNOWN, state(isr=(1, 2), partition_epoch=11), NOW_MS)
    assert maximal.members == {1, 2}
    assert maximal.may_propose(NOW_MS)
