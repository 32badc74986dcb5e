"""AddPartitionsToTxn and AddOffsetsToTxn: the partitions of a transaction."""

from __future__ import annotations

from typing import Final

from broker.coordinator.transaction.decision import Decision
from broker.coordinator.transaction.identity import Identity, identity_of, is_client
from broker.coordinator.transaction.records import RecordedTransaction
from broker.coordinator.transaction.types import (
    NO_PRODUCER_ID,
    AddPartitionsAnswer,
    AddPartitionsRequest,
    TransactionState,
)
from stele.errors import ErrorCode

PARTITION_BYTES_MAX: Final = 780_000
"""The names and numbers of all partitions of a transaction. The record that ends it is somewhat
longer than the one that adds the last partition, and must fit into a batch, too."""


def add(value: RecordedTransaction | None, request: AddPartitionsRequest, now_ms: int) -> Decision:
    """A request that adds, or one that only asks (``verify_only``)."""
    if not request.ref.transactional_id:
        return _refuse(request, ErrorCode.INVALID_REQUEST)
    if value is None:
        return _refuse(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    error = _check(value, request)
    if error is not ErrorCode.NONE:
        return _refuse(request, error)
    is_open = value.state is TransactionState.ONGOING
    present = value.partitions
    if request.verify_only:
        errors = (
            ErrorCode.NONE if each in present else ErrorCode.TRANSACTION_ABORTABLE
            for each in request.partitions
        )
        return Decision(AddPartitionsAnswer(ErrorCode.NONE, tuple(errors)))
    answer = AddPartitionsAnswer(ErrorCode.NONE, (ErrorCode.NONE,) * len(request.partitions))
    new = [each for each in request.partitions if each not in present]
    if not new:
        return Decision(answer)
    partitions = present.with_all(new)
    if partitions.name_bytes + 12 * len(partitions) > PARTITION_BYTES_MAX:
        return _refuse(request, ErrorCode.INVALID_REQUEST)
    added = value._replace(
        state=TransactionState.ONGOING,
        partitions=partitions,
        update_time_ms=now_ms,
        start_time_ms=value.start_time_ms if is_open else now_ms,
        client_version=request.client_version,
    )
    return Decision(answer, added)


def _refuse(request: AddPartitionsRequest, error: ErrorCode) -> Decision:
    return Decision(AddPartitionsAnswer(error, (error,) * len(request.partitions)))


def _check(value: RecordedTransaction, request: AddPartitionsRequest) -> ErrorCode:
    asked = Identity(request.ref.producer_id, request.ref.producer_epoch)
    if value.state is TransactionState.ONGOING and value.next_producer_id != NO_PRODUCER_ID:
        return _check_kept(value, asked)
    if asked.producer_id != identity_of(value).producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if not is_client(value, asked):
        return ErrorCode.PRODUCER_FENCED
    if value.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def _check_kept(value: RecordedTransaction, asked: Identity) -> ErrorCode:
    """The transaction is prepared: nothing is added to it any more. Its client has come back, and
    may only end it."""
    if is_client(value, asked):
        return ErrorCode.INVALID_TXN_STATE
    if asked.producer_id in (identity_of(value).producer_id, value.producer_id):
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING
