"""Asks transaction coordinators whether a partition is part of a transaction, before the leader of
the partition accepts the first records of the transaction (KIP-890).

Without this question, records that arrive late, after the end of their transaction, would begin
another one without an end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.coordinator.node_requests import NodeBatches, Nodes
from broker.coordinator.transaction.types import (
    AddPartitionsAnswer,
    AddPartitionsRequest,
    TransactionRef,
)
from broker.coordinator.transactions import TransactionCoordinators
from broker.replication.deadlines import DeadlineWheel
from metadata.image import MetadataImage
from metadata.internal_topics import TRANSACTION_TOPIC, coordinating_partition
from metadata.partitions import NO_LEADER
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.wire.kafka.messages import add_partitions_to_txn as wire
from stele.world import Clock

logger = logging.getLogger(__name__)

_VERSION: Final = 5
_PARTITIONS_A_REQUEST: Final = 5_000
_CLIENT_VERSION: Final = 2

AGAIN_MS: Final = 3.0
AGAIN_LONGEST_MS: Final = 20.0
AGAIN_FOR_MS: Final = 100.0
"""A producer of KIP-890 begins its next transaction when the last one is decided, but its markers
are not written. A short wait spares it a refusal. The pauses between the questions double from the
first value to the second, since markers take one replication, and a leader that is slow to write
them gets no more questions than Kafka's brokers ask, which pause for 20 ms each time."""

_SLOT_MS: Final = 2  # far less than the first pause

Done = Callable[[ErrorCode], None]


class _Question(NamedTuple):
    ref: TransactionRef
    add: bool
    partition: TopicPartition
    until_ms: float  # by the monotonic clock: how long it is asked again
    done: Done
    pause_ms: float = AGAIN_MS  # before it is asked again


class _Group(NamedTuple):
    """The questions about one transaction that are asked together."""

    ref: TransactionRef
    add: bool
    questions: list[_Question]


class Verification:
    """A ``TransactionVerifier`` for the replicas of this broker."""

    def __init__(
        self,
        coordinators: TransactionCoordinators,
        nodes: Nodes,
        *,
        broker_id: int,
        image: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self._coordinators = coordinators
        self._nodes = nodes
        self._broker_id = broker_id
        self._image = image
        self._clock = clock
        self._deadlines = DeadlineWheel(clock, slot_ms=_SLOT_MS)
        self._batches: NodeBatches[_Question] = NodeBatches(
            "verification",
            self._send,
            lambda questions: _tell(questions, ErrorCode.NETWORK_EXCEPTION),
        )
        self._here: list[tuple[int, _Question]] = []  # by partition of __transaction_state

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        done: Done,
    ) -> None:
        """``done`` gets, later, the coordinator's answer: NONE if the partition is part of the
        open transaction of this producer. ``add``: the coordinator makes it part of it."""
        ref = TransactionRef(transactional_id, producer_id, producer_epoch)
        until_ms = self._clock.monotonic() * 1000 + AGAIN_FOR_MS
        self._put(_Question(ref, add, partition, until_ms, done))

    def _put(self, question: _Question) -> None:
        topic = self._image().topic(TRANSACTION_TOPIC)
        leader = NO_LEADER
        if topic is not None:
            transactional_id = question.ref.transactional_id
            number = coordinating_partition(transactional_id, len(topic.partitions))
            leader = topic.partitions[number].leader
        if leader == self._broker_id:
            self._here.append((number, question))
            if len(self._here) == 1:
                asyncio.get_running_loop().call_soon(self._ask_here)
        elif leader == NO_LEADER:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
            asyncio.get_running_loop().call_soon(question.done, error)
        else:
            self._batches.add(leader, question)

    def _ask_here(self) -> None:
        """Ask all of one turn of the loop: one question for each transaction."""
        asked, self._here = self._here, []
        by_number: dict[int, list[_Question]] = {}
        for number, question in asked:
            by_number.setdefault(number, []).append(question)
        for number, questions in by_number.items():
            for group in _groups(questions):
                self._submit(number, group)

    def _submit(self, number: int, group: _Group) -> None:
        request = AddPartitionsRequest(
            group.ref,
            tuple(each.partition for each in group.questions),
            verify_only=not group.add,
            client_version=_CLIENT_VERSION,
        )
        self._coordinators.submit(number, request, _Waiter(group.questions, self._settle))

    async def _send(self, broker_id: int, questions: list[_Question]) -> list[_Question]:
        """Ask the coordinators on another broker, about each transactional id once."""
        some, rest = questions[:_PARTITIONS_A_REQUEST], questions[_PARTITIONS_A_REQUEST:]
        chosen: dict[str, _Group] = {}
        later: list[_Question] = []
        for group in _groups(some):
            if group.ref.transactional_id in chosen:
                later += group.questions
            else:
                chosen[group.ref.transactional_id] = group
        groups = list(chosen.values())
        try:
            answer = await self._nodes.ask(broker_id, wire.API, _VERSION, _request(groups))
            if answer.error_code != ErrorCode.NONE:
                raise ApiError(_error(answer.error_code), "AddPartitionsToTxn")
        except SteleError as error:
            logger.info("transactions are not verified by broker %d: %s", broker_id, error)
            for group in groups:
                _tell(group.questions, ErrorCode.NETWORK_EXCEPTION)
            return later + rest
        told = {
            (result.transactional_id, topic.name, each.partition_index): each.partition_error_code
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        for group in groups:
            transactional_id = group.ref.transactional_id
            for each in group.questions:
                self._settle(each, _error(told.get((transactional_id, *each.partition), missing)))
        return later + rest

    def _settle(self, question: _Question, error: ErrorCode) -> None:
        is_again = (
            error is ErrorCode.CONCURRENT_TRANSACTIONS
            and question.add
            and self._clock.monotonic() * 1000 < question.until_ms
        )
        if is_again:
            longer_ms = min(2 * question.pause_ms, AGAIN_LONGEST_MS)
            again = question._replace(pause_ms=longer_ms)
            self._deadlines.add(question.pause_ms, lambda: self._put(again))
        else:
            question.done(error)

    async def stop(self) -> None:
        self._deadlines.close()
        await self._batches.stop()
        self._nodes.close()


class _Waiter:
    """Passes the answer of a coordinator of this broker on."""

    def __init__(
        self, questions: Sequence[_Question], settle: Callable[[_Question, ErrorCode], None]
    ) -> None:
        self._questions = questions
        self._settle = settle

    def answer(self, answer: AddPartitionsAnswer) -> None:
        for question, error in zip(self._questions, answer.by_partition, strict=True):
            self._settle(question, error)

    def refuse(self, error: ErrorCode) -> None:
        _tell(self._questions, error)


def _tell(questions: Sequence[_Question], error: ErrorCode) -> None:
    for question in questions:
        question.done(error)


def _groups(questions: Sequence[_Question]) -> list[_Group]:
    found: dict[tuple[TransactionRef, bool], _Group] = {}
    for each in questions:
        key = each.ref, each.add
        group = found.get(key)
        if group is None:
            group = found[key] = _Group(each.ref, each.add, [])
        group.questions.append(each)
    return list(found.values())


def _request(groups: Sequence[_Group]) -> wire.AddPartitionsToTxnRequest:
    transactions = []
    for ref, add, questions in groups:
        topics: dict[str, wire.AddPartitionsToTxnTopic] = {}
        for each in questions:
            name, index = each.partition
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = wire.AddPartitionsToTxnTopic(name)
            if index not in topic.partitions:
                topic.partitions.append(index)
        transactions.append(
            wire.AddPartitionsToTxnTransaction(
                transactional_id=ref.transactional_id,
                producer_id=ref.producer_id,
                producer_epoch=ref.producer_epoch,
                verify_only=not add,
                topics=list(topics.values()),
            )
        )
    return wire.AddPartitionsToTxnRequest(transactions)


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
