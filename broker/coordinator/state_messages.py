"""Requests about the states of share partitions as messages of Kafka's protocol (KIP-932), APIs 83
to 87, and back.

A message has requests of one type, about share partitions of one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from broker.coordinator.share.letter_plans import decode_letters, encode_letters
from broker.coordinator.share.types import (
    NO_COUNT,
    ForgetRequest,
    InitializeRequest,
    ReadRequest,
    ShareState,
    StateAnswer,
    StateKey,
    StateRequest,
    SummaryRequest,
    WriteRequest,
)
from broker.share.values import LetterPlan, RecordState, StateBatch
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka import Api, Struct
from stele.wire.kafka.messages import delete_share_group_state as delete
from stele.wire.kafka.messages import initialize_share_group_state as initialize
from stele.wire.kafka.messages import read_share_group_state as read
from stele.wire.kafka.messages import read_share_group_state_summary as summary
from stele.wire.kafka.messages import write_share_group_state as write
from storage.turns import SLICE_STEPS, Slices


class StateApi(NamedTuple):
    """One of the APIs, and how one request and one answer are written in it."""

    api: Api[Any, Any]
    topic: type[Any]
    partition: Callable[[Any], Struct]
    """Makes a partition of a request."""
    request: Callable[[StateKey, Any, tuple[StateBatch, ...]], StateRequest]
    """Reads the request in a partition of a message, and its batches."""
    result_topic: type[Any]
    result: Callable[[int, StateAnswer], Struct]
    """Makes the result for the partition with this number."""
    answer: Callable[[Any], StateAnswer]
    """Reads the answer in a partition of a response."""

    @property
    def version(self) -> int:
        return self.api.max_version

    def encode(self, requests: Sequence[StateRequest]) -> Struct:
        topics: dict[bytes, Any] = {}
        for each in requests:
            topic = topics.get(each.key.topic_id)
            if topic is None:
                topic = topics[each.key.topic_id] = self.topic(each.key.topic_id)
            topic.partitions.append(self.partition(each))
        message: Struct = self.api.request(requests[0].key.group_id, list(topics.values()))
        return message

    async def requests(self, message: Any) -> list[StateRequest]:
        """What a message asks, in its order."""
        slices = Slices(SLICE_STEPS)
        found = []
        for topic in message.topics:
            for each in topic.partitions:
                key = StateKey(message.group_id, topic.topic_id, each.partition)
                batches = await slices.map(_batch, getattr(each, "state_batches", ()))
                found.append(self.request(key, each, tuple(batches)))
                await slices.step()
            await slices.step()
        return found

    async def response(self, message: Any, answers: Iterable[StateAnswer]) -> Struct:
        """``answers``: in the order of ``requests``."""
        slices = Slices(SLICE_STEPS)
        told = iter(answers)
        topics = []
        for topic in message.topics:
            results = []
            for each in topic.partitions:
                results.append(self.result(each.partition, next(told)))
                await slices.step()
            topics.append(self.result_topic(topic.topic_id, results))
            await slices.step()
        response: Struct = self.api.response(topics)
        return response

    def answers(self, response: Any) -> dict[tuple[bytes, int], StateAnswer]:
        """By topic id and partition."""
        return {
            (topic.topic_id, each.partition): self.answer(each)
            for topic in response.results
            for each in topic.partitions
        }


_STATES: Final = {int(each): each for each in RecordState if each is each.kafka_state}


def _outcome(result: Any) -> StateAnswer:
    try:
        error = ErrorCode(result.error_code)
    except ValueError:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    return StateAnswer(error, result.error_message)


def _batch(told: Any) -> StateBatch:
    state = _state(told.delivery_state)
    if told.rejected and state is RecordState.ARCHIVING:
        state = RecordState.ARCHIVING_REJECTED
    return StateBatch(told.first_offset, told.last_offset, state, told.delivery_count)


def _fields(batch: StateBatch) -> tuple[int, int, int, int, bool]:
    """The fields of a batch in a message."""
    first, last, state, count = batch
    is_rejected = state is RecordState.ARCHIVING_REJECTED
    return first, last, RecordState.ARCHIVING if is_rejected else state, count, is_rejected


def _letters(told: write.PartitionData | read.PartitionResult) -> LetterPlan | None:
    """Raises ApiError INVALID_REQUEST."""
    try:
        return decode_letters(bytes(told.letters)) if told.letters else None
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _state(number: int) -> RecordState:
    """An unknown number becomes a state that is never persisted, so the coordinator refuses it."""
    return _STATES.get(number, RecordState.ACQUIRED)


# ------------------------------------------------------------------------------- the five of them


def _initialization(
    key: StateKey, told: initialize.PartitionData, _: tuple[StateBatch, ...]
) -> InitializeRequest:
    return InitializeRequest(key, told.state_epoch, told.start_offset)


def _write(
    key: StateKey, told: write.PartitionData, batches: tuple[StateBatch, ...]
) -> WriteRequest:
    return WriteRequest(
        key,
        told.state_epoch,
        told.leader_epoch,
        told.start_offset,
        told.delivery_complete_count,
        batches,
        _letters(told),
    )


def _write_partition(request: WriteRequest) -> write.PartitionData:
    return write.PartitionData(
        request.key.partition,
        request.state_epoch,
        request.leader_epoch,
        request.start_offset,
        request.complete_count,
        [write.StateBatch(*_fields(each)) for each in request.batches],
        b"" if request.letters is None else encode_letters(request.letters),
    )


def _read_result(number: int, answer: StateAnswer) -> read.PartitionResult:
    result = read.PartitionResult(number, answer.error, answer.message)
    if answer.state is not None:
        result.state_epoch = answer.state.state_epoch
        result.start_offset = answer.state.start_offset
        result.state_batches = [read.StateBatch(*_fields(each)) for each in answer.state.batches]
        if answer.state.letters is not None:
            result.letters = encode_letters(answer.state.letters)
    return result


def _read_answer(result: read.PartitionResult) -> StateAnswer:
    state = ShareState(
        0,
        result.state_epoch,
        start_offset=result.start_offset,
        batches=tuple(map(_batch, result.state_batches)),
        letters=_letters(result),
    )
    return _outcome(result) if result.error_code else StateAnswer(ErrorCode.NONE, None, state)


def _summary_result(number: int, answer: StateAnswer) -> summary.PartitionResult:
    result = summary.PartitionResult(number, answer.error, answer.message)
    result.delivery_complete_count = NO_COUNT
    if answer.state is not None:
        result.state_epoch = answer.state.state_epoch
        result.leader_epoch = answer.state.leader_epoch
        result.start_offset = answer.state.start_offset
        result.delivery_complete_count = answer.state.complete_count
    return result


def _summary_answer(result: summary.PartitionResult) -> StateAnswer:
    state = ShareState(
        0,
        result.state_epoch,
        result.leader_epoch,
        result.start_offset,
        result.delivery_complete_count,
    )
    return _outcome(result) if result.error_code else StateAnswer(ErrorCode.NONE, None, state)


INITIALIZE: Final = StateApi(
    initialize.API,
    initialize.InitializeStateData,
    lambda told: initialize.PartitionData(told.key.partition, told.state_epoch, told.start_offset),
    _initialization,
    initialize.InitializeStateResult,
    lambda number, told: initialize.PartitionResult(number, told.error, told.message),
    _outcome,
)
READ: Final = StateApi(
    read.API,
    read.ReadStateData,
    lambda told: read.PartitionData(told.key.partition, told.leader_epoch),
    lambda key, told, _: ReadRequest(key, told.leader_epoch),
    read.ReadStateResult,
    _read_result,
    _read_answer,
)
WRITE: Final = StateApi(
    write.API,
    write.WriteStateData,
    _write_partition,
    _write,
    write.WriteStateResult,
    lambda number, told: write.PartitionResult(number, told.error, told.message),
    _outcome,
)
DELETE: Final = StateApi(
    delete.API,
    delete.DeleteStateData,
    lambda told: delete.PartitionData(told.key.partition),
    lambda key, told, _: ForgetRequest(key),
    delete.DeleteStateResult,
    lambda number, told: delete.PartitionResult(number, told.error, told.message),
    _outcome,
)
SUMMARY: Final = StateApi(
    summary.API,
    summary.ReadStateSummaryData,
    lambda told: summary.PartitionData(told.key.partition),
    lambda key, told, _: SummaryRequest(key),
    summary.ReadStateSummaryResult,
    _summary_result,
    _summary_answer,
)

API_OF: Final[dict[type[StateRequest], StateApi]] = {
    InitializeRequest: INITIALIZE,
    ReadRequest: READ,
    WriteRequest: WRITE,
    ForgetRequest: DELETE,
    SummaryRequest: SUMMARY,
}
