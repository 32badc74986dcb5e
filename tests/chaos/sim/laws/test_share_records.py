"""The laws of records that share groups share: who has one, who gets it again, and for how long."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.share_holders import Hold, SharedRecordsHaveOneHolder
from chaos.sim.laws.share_members import ShareMembersKeepTheirEpochs
from chaos.sim.laws.shared_records import ON_THE_WAY_S, RecordName, Told
from metadata.partitions import PartitionState
from stele.errors import ErrorCode
from tests.support.law_bench import TOPIC, LawBench, image

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)
PLACE = TOPIC, 0
RECORD = RecordName("g", PLACE, 7)
SESSION = 4


class Bench(LawBench):
    """A partition that broker 1 leads. Its records are delivered twice at most."""

    def __init__(self) -> None:
        super().__init__()
        self.decided = DecidedRecordsStayDecided.of(self.scene)
        self.scene.add(self.decided)
        self.records = self.decided.records
        self.records.delivery_limits["g"] = 2
        self.holders = SharedRecordsHaveOneHolder.of(self.scene)
        self.replica(1, state=STATE)
        self.commit(image(50, STATE))

    def deliver(self, member: str, asked_s: float, told_s: float, count: int = 1) -> Hold:
        tenure = self.holders.tenure(1, PLACE)
        told = Told(member, asked_s, told_s, tenure is not None)
        self.decided.delivered(RECORD, told, count)
        return Hold(RECORD, told, SESSION, tenure, 1.0, asked_s + 1.0)

    def answer(self, hold: Hold, error: ErrorCode, *, session: int = SESSION) -> None:
        """The member says something 0.5 s after it has sent the fetch."""
        sent_s = hold.told.asked_s + 0.5
        self.holders.answered([hold], session, 1, error, sent_s=sent_s, now_s=sent_s + 0.1)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_decided_record_is_not_delivered_again(bench: Bench) -> None:
    law = bench.decided
    bench.deliver("one", 1.0, 1.1)
    law.decided(RECORD, 2.0)
    law.decided(RECORD, 9.0)  # a later answer says nothing new
    bench.deliver("other", 1.9, 2.5)  # it may have been given before the decision
    assert not bench.broken()
    bench.deliver("other", 2.1, 2.5)
    (report,) = bench.broken()
    assert "decision was answered at 2.0" in report


@pytest.mark.parametrize(("count", "is_wrong"), [(0, True), (1, False), (2, False), (3, True)])
def test_a_record_is_delivered_as_often_as_the_limit_allows(
    bench: Bench, count: int, is_wrong: bool
) -> None:
    bench.deliver("one", 1.0, 1.1, count)
    assert bool(bench.broken()) is is_wrong


def test_a_record_is_done_when_it_is_decided_or_was_often_delivered(bench: Bench) -> None:
    records = bench.records
    assert not records.may_be_done(RECORD)
    bench.deliver("one", 1.0, 1.1)
    assert not records.may_be_done(RECORD)
    bench.deliver("one", 2.0, 2.1, 2)
    assert records.may_be_done(RECORD)
    other = RECORD._replace(offset=8)
    bench.decided.decides(other, accepts=True)
    assert records.may_be_done(other)


def test_fetches_without_an_answer_may_have_delivered_a_record(bench: Bench) -> None:
    records = bench.records
    for _ in range(2):
        records.asking("g", PLACE)
    assert records.may_be_done(RECORD)
    records.answered("g", PLACE)
    records.lost("g", PLACE, 30.0)
    assert not records.may_be_done(RECORD)
    bench.deliver("one", 31.0, 31.1)
    assert records.may_be_done(RECORD)
    records.of(RECORD).born_s = 30.0 + ON_THE_WAY_S
    assert records.may_be_done(RECORD)
    records.of(RECORD).born_s = 30.1 + ON_THE_WAY_S  # nothing could deliver it so early
    assert not records.may_be_done(RECORD)


def test_an_acknowledgement_within_the_lock_is_refused_for_no_reason(bench: Bench) -> None:
    hold = bench.deliver("one", 1.0, 1.1)
    bench.answer(hold, ErrorCode.NONE)
    bench.answer(hold, ErrorCode.NETWORK_EXCEPTION)
    assert not bench.broken()
    bench.answer(hold, ErrorCode.INVALID_RECORD_STATE)
    (report,) = bench.broken()
    assert "one has it until 2.0" in report


def test_a_refusal_has_a_reason_if_the_member_may_have_lost_a_record(bench: Bench) -> None:
    refused = ErrorCode.INVALID_RECORD_STATE
    hold = bench.deliver("one", 1.0, 1.1)
    bench.answer(replace(hold, until_s=1.55), refused)
    bench.answer(replace(hold, is_certain=False), refused)
    bench.answer(hold, refused, session=SESSION + 1)
    bench.answer(replace(hold, tenure=None), refused)
    lost = replace(hold, is_certain=False)
    bench.holders.answered([hold, lost], SESSION, 1, refused, sent_s=1.5, now_s=1.6)
    assert not bench.broken()


@pytest.mark.parametrize("what", ["restart", "epoch", "log", "leader"])
def test_a_refusal_has_a_reason_after_a_change_of_the_leader(bench: Bench, what: str) -> None:
    hold = bench.deliver("one", 1.0, 1.1)
    if what == "restart":
        bench.brokers[1].restart()
    elif what == "log":
        bench.replica(1, state=STATE)
    elif what == "epoch":
        bench.commit(image(51, changed(leader_epoch=6)))
    else:
        bench.replica(1, state=changed(leader=2))
    bench.answer(hold, ErrorCode.INVALID_RECORD_STATE)
    assert not bench.broken()


def changed(*, leader: int = 1, leader_epoch: int = 5) -> PartitionState:
    return PartitionState(
        (1, 2, 3), isr=(1, 2, 3), leader=leader, leader_epoch=leader_epoch, partition_epoch=11
    )


def test_nobody_else_gets_a_record_that_a_member_has(bench: Bench) -> None:
    hold = bench.deliver("one", 1.0, 1.1)
    bench.deliver("other", 1.05, 1.3)  # it may have come before
    bench.deliver("other", 1.3, 1.55)  # or after the acknowledgement
    bench.answer(hold, ErrorCode.NONE)
    assert not bench.broken()
    bench.deliver("other", 1.2, 1.4)
    bench.answer(replace(hold, is_certain=False), ErrorCode.NONE)
    assert not bench.broken()
    bench.answer(hold, ErrorCode.NONE)
    (report,) = bench.broken()
    assert "other gets it at 1.4" in report


def test_a_broker_that_has_lost_the_leadership_may_deliver_a_record_again(bench: Bench) -> None:
    hold = bench.deliver("one", 1.0, 1.1)
    bench.commit(image(51, changed(leader=2, leader_epoch=6)))
    bench.deliver("other", 1.2, 1.4)
    bench.commit(image(52, STATE))
    bench.answer(hold, ErrorCode.NONE)
    bench.decided.decided(RECORD, 2.0)
    bench.commit(image(53, changed(leader=2, leader_epoch=6)))
    bench.deliver("other", 2.1, 2.5)
    assert not bench.broken()


def test_a_member_keeps_its_epochs_and_its_assignment_in_each() -> None:
    bench = LawBench()
    law = ShareMembersKeepTheirEpochs.of(bench.scene)
    law.told("m", 3, [PLACE], joins=True)
    law.told("m", 3, None, joins=False)
    law.told("m", 3, [PLACE], joins=False)
    law.told("n", 2, [], joins=True)
    law.told("m", 4, [], joins=False)
    assert not bench.broken()
    law.told("m", 4, [PLACE], joins=False)
    law.told("m", 3, None, joins=False)
    assert len(bench.broken()) == 2


def test_a_member_joins_again_with_nothing_and_is_gone_when_it_has_left() -> None:
    bench = LawBench()
    law = ShareMembersKeepTheirEpochs.of(bench.scene)
    law.told("m", 3, [PLACE], joins=True)
    law.told("m", 3, [], joins=True)
    law.told("m", 2, None, joins=True)
    law.left("m")
    assert not bench.broken()
    law.told("m", 4, None, joins=False)
    assert len(bench.broken()) == 1
