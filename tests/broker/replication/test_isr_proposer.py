"""ISR proposals on their way to the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker.partition.effects import IsrAnswer, Member, Proposed
from broker.replication.isr_proposer import IsrProposer
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.v1.controller_pb2 import AlterPartitionRequest, AlterPartitionResponse
from stele.wire.v1.metadata_pb2 import RECOVERED
from stele.world import RpcCode, RpcError
from tests.support.timing import run_virtual
from tests.support.worlds import virtual


def partition(number: int) -> PartitionId:
    return PartitionId(b"t" * 16, number)


def proposal(epoch: int = 3) -> Proposed:
    return Proposed(5, epoch, (Member(1, -1), Member(2, 102), Member(3, -1)))


class Controller:
    """Answers after a while with the answers that a test has prepared."""

    def __init__(self) -> None:
        self.requests: list[AlterPartitionRequest] = []
        self.failures: list[Exception | ErrorCode] = []
        self.errors: dict[int, list[ErrorCode]] = {}  # by partition
        self.answers: list[tuple[int, IsrAnswer]] = []
        self.unwanted: set[int] = set()
        self.unasked: list[int] = []  # partitions that the next answer names as well
        self.proposer = IsrProposer(
            broker_id=1,
            alter_partition=self.alter_partition,
            broker_epoch=lambda: 101,
            registered_epoch=lambda broker_id: 100 + broker_id,
            still_wanted=lambda each, _: each.partition not in self.unwanted,
            answered=lambda each, _, answer: self.answers.append((each.partition, answer)),
        )

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        self.requests.append(request)
        await asyncio.sleep(0.01)
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return AlterPartitionResponse(error=failure)
        response = AlterPartitionResponse()
        for number in self.unasked:
            response.partitions.add(topic_id=b"t" * 16, partition=number)
        self.unasked.clear()
        for asked in request.partitions:
            errors = self.errors.get(asked.partition)
            response.partitions.add(
                topic_id=asked.topic_id,
                partition=asked.partition,
                error=errors.pop(0) if errors else 0,
                leader_epoch=asked.leader_epoch,
                partition_epoch=asked.partition_epoch + 1,
                isr=[member.broker_id for member in asked.isr],
            )
        return response


def scenario(act: Callable[[Controller], None], *, for_s: float = 5.0) -> Controller:
    async def run() -> Controller:
        controller = Controller()
        act(controller)
        await asyncio.sleep(for_s)
        await controller.proposer.stop()
        return controller

    return run_virtual(run())


TAKEN = IsrAnswer(ErrorCode.NONE, 4)


def test_a_proposal_is_sent_with_every_epoch_and_its_answer_given_back() -> None:
    controller = scenario(lambda c: c.proposer.propose(partition(0), proposal()))
    (request,) = controller.requests
    assert (request.broker_id, request.broker_epoch) == (1, 101)
    (asked,) = request.partitions
    assert (asked.leader_epoch, asked.partition_epoch) == (5, 3)
    assert asked.leader_recovery_state == RECOVERED
    assert [(m.broker_id, m.broker_epoch) for m in asked.isr] == [(1, 101), (2, 102), (3, 103)]
    assert controller.answers == [(0, TAKEN)]


def test_what_comes_while_a_request_is_under_way_goes_with_the_next() -> None:
    def act(controller: Controller) -> None:
        controller.proposer.propose(partition(0), proposal())
        loop = asyncio.get_running_loop()
        for number in (1, 2, 3):
            due_s = 0.002 * number
            loop.call_later(due_s, controller.proposer.propose, partition(number), proposal())

    controller = scenario(act)
    assert [[p.partition for p in r.partitions] for r in controller.requests] == [[0], [1, 2, 3]]
    assert [number for number, _ in controller.answers] == [0, 1, 2, 3]


def test_failures_of_the_call_are_tried_again() -> None:
    def act(controller: Controller) -> None:
        controller.failures = [
            RpcError(RpcCode.UNAVAILABLE),
            ErrorCode.STALE_BROKER_EPOCH,
            ErrorCode.NOT_CONTROLLER,
        ]
        controller.proposer.propose(partition(0), proposal())

    controller = scenario(act)
    assert len(controller.requests) == 4
    assert controller.answers == [(0, TAKEN)]


def test_one_partition_is_tried_again_without_the_others() -> None:
    def act(controller: Controller) -> None:
        controller.errors = {1: [ErrorCode.NOT_CONTROLLER]}
        for number in (0, 1):
            controller.proposer.propose(partition(number), proposal())

    controller = scenario(act)
    assert [[p.partition for p in r.partitions] for r in controller.requests] == [[0, 1], [1]]


def test_a_refusal_is_an_answer() -> None:
    def act(controller: Controller) -> None:
        controller.errors = {0: [ErrorCode.INELIGIBLE_REPLICA]}
        controller.proposer.propose(partition(0), proposal())

    controller = scenario(act)
    assert controller.answers == [(0, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA))]
    assert len(controller.requests) == 1


def test_answers_to_what_was_not_asked_are_passed_over() -> None:
    def act(controller: Controller) -> None:
        controller.unasked = [7, 8]
        controller.proposer.propose(partition(0), proposal())

    controller = scenario(act)
    assert controller.answers == [(0, TAKEN)]
    assert len(controller.requests) == 1


def test_what_its_partition_gave_up_is_not_sent_again() -> None:
    def act(controller: Controller) -> None:
        controller.failures = [RpcError(RpcCode.UNAVAILABLE)]
        controller.proposer.propose(partition(0), proposal())
        asyncio.get_running_loop().call_later(0.02, controller.unwanted.add, 0)

    controller = scenario(act)
    assert len(controller.requests) == 1
    assert controller.answers == []


def test_a_newer_proposal_takes_the_place_of_one_that_is_tried_again() -> None:
    def act(controller: Controller) -> None:
        controller.failures = [RpcError(RpcCode.UNAVAILABLE)]
        controller.proposer.propose(partition(0), proposal(3))
        loop = asyncio.get_running_loop()
        loop.call_later(0.005, controller.proposer.propose, partition(0), proposal(4))

    controller = scenario(act)
    assert [r.partitions[0].partition_epoch for r in controller.requests] == [3, 4]


@virtual
async def test_after_stopping_nothing_is_sent() -> None:
    controller = Controller()
    controller.proposer.propose(partition(0), proposal())
    await controller.proposer.stop()
    controller.proposer.propose(partition(1), proposal())
    await asyncio.sleep(1)
    assert controller.answers == []
