"""The laws of leaders of partitions that are chosen or asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.sim.laws.asked_elections import ElectionsAreAsAsked
from chaos.sim.laws.leader_choices import LeadersAreChosenInOrder, wrong_choice
from chaos.sim.world.wire import Said, Stage
from metadata.brokers import Brokers
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from metadata.records import encode
from runtime.administration.changes import ELECT_LEADERS
from stele.errors import ErrorCode
from stele.wire.batch import BatchBuilder
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.admin_pb2 import ElectLeadersRequest, ElectLeadersResponse
from tests.support.law_bench import METADATA_LOG, PARTITION, TOPIC, LawBench, image

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=2, leader_epoch=5, partition_epoch=10)
ELECTED = replace(STATE, leader=1, leader_epoch=6, partition_epoch=11)


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


def full(found: MetadataImage, *brokers: int) -> MetadataImage:
    """The same with brokers that have no room."""
    registrations = {
        each.broker_id: replace(each, out_of_room=each.broker_id in brokers)
        for each in found.brokers.values()
    }
    return replace(found, brokers=Brokers(registrations))


# ------------------------------------------------------------------------ as asked


def asked(*, unclean: bool = False, is_named: bool = True) -> Said:
    request = ElectLeadersRequest(unclean=unclean)
    if is_named:
        request.partitions.add(topic=TOPIC)
    return Said("client", "c101", ELECT_LEADERS.method, request.SerializeToString())


def answered(
    bench: LawBench,
    then: MetadataImage,
    now: MetadataImage,
    error: ErrorCode = ErrorCode.NONE,
    *,
    unclean: bool = False,
    **more: Any,
) -> list[str]:
    law = ElectionsAreAsAsked(bench.cluster, bench.report)
    said = asked(unclean=unclean)
    bench.commit(then)
    law.hear(Stage.ARRIVED, said)
    bench.commit(now)
    partition = ElectLeadersResponse.Partition(topic=TOPIC, error=error)
    response = ElectLeadersResponse(partitions=[partition], **more)
    law.hear(Stage.ANSWERED, said._replace(answer=response.SerializeToString()))
    return bench.broken()


def test_an_election_that_is_confirmed_has_elected(bench: LawBench) -> None:
    before = image(1, STATE)
    assert not answered(bench, before, image(2, ELECTED))
    assert answered(bench, before, before)
    assert answered(bench, before, image(2, replace(ELECTED, leader=3)))
    assert answered(bench, before, image(2, replace(STATE, isr=(1, 2), partition_epoch=11)))


@pytest.mark.parametrize(("led_by", "breaks"), [(1, False), (2, True)])
def test_an_answer_for_all_leaves_out_only_what_needs_no_election(
    bench: LawBench, led_by: int, breaks: bool
) -> None:
    law = ElectionsAreAsAsked(bench.cluster, bench.report)
    said, response = asked(is_named=False), ElectLeadersResponse()
    bench.commit(image(1, replace(STATE, leader=led_by)))
    law.hear(Stage.ARRIVED, said)
    law.hear(Stage.ANSWERED, said._replace(answer=response.SerializeToString()))
    assert bool(bench.broken()) is breaks
    assert law.looked == 1


def test_another_election_may_have_followed(bench: LawBench) -> None:
    later = replace(ELECTED, leader=3, leader_epoch=7, partition_epoch=12)
    assert not answered(bench, image(1, STATE), image(3, later))


@pytest.mark.parametrize(
    ("error", "led_by", "unclean", "breaks"),
    [
        (ErrorCode.ELECTION_NOT_NEEDED, 1, False, False),
        (ErrorCode.ELECTION_NOT_NEEDED, 2, False, True),
        (ErrorCode.ELECTION_NOT_NEEDED, 2, True, False),
        (ErrorCode.ELECTION_NOT_NEEDED, NO_LEADER, True, True),
        (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER, True, False),
        (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, 2, True, True),
        (ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, NO_LEADER, False, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2, False, True),
        (ErrorCode.POLICY_VIOLATION, 2, False, False),
    ],
)
def test_a_refusal_has_its_reason(
    bench: LawBench, error: ErrorCode, led_by: int, unclean: bool, breaks: bool
) -> None:
    found = image(1, replace(STATE, leader=led_by))
    assert bool(answered(bench, found, found, error, unclean=unclean)) is breaks


def test_a_preferred_leader_is_not_available_while_it_cannot_lead(bench: LawBench) -> None:
    error, ready = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, image(1, STATE)
    for reason in (
        image(1, STATE, fenced=[1]),
        full(image(1, STATE), 1),
        image(1, replace(STATE, isr=(2, 3))),
    ):
        assert not answered(bench, reason, reason, error)
    assert answered(bench, ready, ready, error)
    assert not answered(bench, image(1, STATE, fenced=[1]), ready, error)


def test_what_was_not_decided_here_says_nothing(bench: LawBench) -> None:
    found = image(1, STATE)
    assert not answered(bench, found, found, already_done=True)
    controller = int(ErrorCode.NOT_CONTROLLER)
    response = ElectLeadersResponse(error=controller)
    law = ElectionsAreAsAsked(bench.cluster, bench.report)
    law.hear(Stage.ARRIVED, asked())
    law.hear(Stage.ANSWERED, asked()._replace(answer=response.SerializeToString()))
    assert not bench.broken()
    assert law.looked == 0


def test_a_controller_that_hands_on_may_lag(bench: LawBench) -> None:
    law = ElectionsAreAsAsked(bench.cluster, bench.report)
    bench.commit(image(1, STATE))
    bench.controllers[101].node.controller.active = False
    law.hear(Stage.ARRIVED, asked())
    response = ElectLeadersResponse(partitions=[ElectLeadersResponse.Partition(topic=TOPIC)])
    law.hear(Stage.ANSWERED, asked()._replace(answer=response.SerializeToString()))
    assert not bench.broken()
    assert law.looked == 0


# ------------------------------------------------------------------------ chosen


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, ""),
        ({"leader": 1}, ""),  # the preferred one, and nothing else
        ({"leader": 3}, "3 replaces 2, which can lead"),
        ({"leader": 1, "isr": (1, 2)}, "1 replaces 2, which can lead"),
        ({"leader": 1, "isr": (1, 3)}, ""),
        ({"leader": 3, "isr": (1, 3)}, "3 leads, and 1 comes first"),
        ({"leader": NO_LEADER, "isr": (1, 3)}, "nobody leads, and 1 can"),
        ({"leader": 1, "replicas": (1, 3, 2)}, "1 replaces 2, which can lead"),
    ],
)
def test_who_can_lead_stays_and_else_the_first_in_order_leads(
    change: dict[str, Any], wrong: str
) -> None:
    assert wrong_choice(STATE, replace(ELECTED, **{"leader": 2, **change}), image(2)) == wrong


@pytest.mark.parametrize(
    ("fenced", "without_room", "chosen", "wrong"),
    [
        ([2], [], 1, ""),
        ([2], [], 3, "3 leads, and 1 comes first"),
        ([2, 1], [], 3, ""),
        ([2], [1], 3, ""),
        ([2], [1], 1, "1 leads, and 3 comes first"),
        ([], [2], 1, ""),
        ([2], [1, 3], 1, ""),
        ([1, 2, 3], [], NO_LEADER, ""),
        ([1, 2], [], NO_LEADER, "nobody leads, and 3 can"),
    ],
)
def test_only_an_active_broker_can_lead_and_one_with_room_leads_first(
    fenced: list[int], without_room: list[int], chosen: int, wrong: str
) -> None:
    found = full(image(2, fenced=fenced), *without_room)
    assert wrong_choice(STATE, replace(ELECTED, leader=chosen), found) == wrong


def topic_records() -> list[pb.MetadataRecord]:
    registrations = [
        pb.MetadataRecord(
            register_broker=pb.RegisterBrokerRecord(
                broker_id=each, broker_epoch=100 + each, incarnation_id=bytes(16)
            )
        )
        for each in (1, 2, 3)
    ]
    unfenced = [
        pb.MetadataRecord(
            broker_state=pb.BrokerStateRecord(broker_id=each, broker_epoch=100 + each, fenced=False)
        )
        for each in (1, 2, 3)
    ]
    topic = pb.TopicRecord(name=TOPIC, topic_id=PARTITION.topic_id)
    partition = pb.PartitionRecord(
        topic_id=PARTITION.topic_id, replicas=(1, 2, 3), isr=(1, 2, 3), leader=2
    )
    return [
        *registrations,
        *unfenced,
        pb.MetadataRecord(topic=topic),
        pb.MetadataRecord(partition=partition),
    ]


def put_decisions(bench: LawBench, *decisions: list[pb.MetadataRecord]) -> list[MetadataImage]:
    """A metadata log with these batches. Returns the metadata after each."""
    log, offset, images = b"", 0, [MetadataImage()]
    for records in decisions:
        values = [encode(record) for record in records]
        builder = BatchBuilder(offset)
        for value in values:
            builder.append(None, value, timestamp_ms=0)
        log += builder.build(leader_epoch=1)
        delta = MetadataDelta(images[-1])
        delta.replay_values(offset, values)
        images.append(delta.apply())
        offset += len(values)
    bench.put(101, f"{METADATA_LOG}/{0:020d}.log", log)
    return images[1:]


@pytest.mark.parametrize(("leader", "breaks"), [(1, False), (3, True)])
def test_committed_decisions_are_judged_one_by_one(
    bench: LawBench, leader: int, breaks: bool
) -> None:
    change = pb.PartitionChangeRecord(topic_id=PARTITION.topic_id, leader=leader)
    first, *_, last = put_decisions(
        bench,
        topic_records(),
        [pb.MetadataRecord(partition_change=change)],
        [pb.MetadataRecord(producer_ids=pb.ProducerIdsRecord(next_producer_id=1000))],
    )
    law = LeadersAreChosenInOrder(bench.scene)
    bench.commit(first, 101)
    bench.scene.image = first
    assert not bench.broken(law)
    bench.commit(last, 101)
    bench.scene.image = last
    assert bool(bench.broken(law)) is breaks
    assert law.looked == 1
    assert not bench.broken(law)
