"""EndTxn: a client commits or aborts.

Old clients keep their epoch. From transaction version 2 on a client gets a new epoch with every
end (KIP-890), so the epoch tells whether a request is repeated or is about the next transaction.
"""

from __future__ import annotations

from broker.coordinator.transaction.decision import EPOCH_BUMP_VERSION, Decision
from broker.coordinator.transaction.identity import (
    EPOCH_MAX,
    Identity,
    identity_of,
    is_client,
    is_repeated,
)
from broker.coordinator.transaction.records import RecordedTransaction
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    EndAnswer,
    EndRequest,
    TransactionState,
)
from stele.errors import ErrorCode


def end(value: RecordedTransaction | None, request: EndRequest, now_ms: int) -> Decision:
    if not request.ref.transactional_id:
        return _refuse(ErrorCode.INVALID_REQUEST)
    if value is None:
        return _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    error = _check(value, request)
    if error is not ErrorCode.NONE:
        return _refuse(error)
    if value.state is TransactionState.ONGOING:
        return _prepare(value, request, now_ms)
    if request.client_version < EPOCH_BUMP_VERSION:
        return _end_again(value, request)
    asked = Identity(request.ref.producer_id, request.ref.producer_epoch)
    if is_client(value, asked):
        return _end_next(value, request, now_ms)
    return _end_repeated(value, request, now_ms)


def _refuse(error: ErrorCode) -> Decision:
    return Decision(EndAnswer(error))


def _check(value: RecordedTransaction, request: EndRequest) -> ErrorCode:
    """Whether the client may speak for the transactional id."""
    asked = Identity(request.ref.producer_id, request.ref.producer_epoch)
    may_repeat = (
        request.client_version >= EPOCH_BUMP_VERSION
        and value.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    )  # fmt: skip
    if is_client(value, asked) or (may_repeat and is_repeated(value, asked)):
        return ErrorCode.NONE
    # The client that began a kept transaction may have an id of its own.
    if asked.producer_id in (identity_of(value).producer_id, value.producer_id):
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_ID_MAPPING


def _is_same(value: RecordedTransaction, commit: bool) -> bool:
    """Whether the transaction ends, or has ended, as the client wants it."""
    if commit:
        outcomes = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    else:
        outcomes = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    return value.state in outcomes


def _prepare(value: RecordedTransaction, request: EndRequest, now_ms: int) -> Decision:
    """Decide the outcome. It is certain when the record is committed. Then the client gets it,
    before the markers are written."""
    has_epoch_bump = request.client_version >= EPOCH_BUMP_VERSION
    client = identity_of(value)
    is_kept = value.next_producer_id != NO_PRODUCER_ID
    prepared = value._replace(
        state=TransactionState.PREPARE_COMMIT if request.commit else TransactionState.PREPARE_ABORT,
        update_time_ms=now_ms,
        client_version=EPOCH_BUMP_VERSION if has_epoch_bump else 0,
        # The client that began a kept transaction is fenced at the partitions in any case.
        producer_epoch=value.producer_epoch + (has_epoch_bump or is_kept),
    )
    if not has_epoch_bump:
        return Decision(EndAnswer(ErrorCode.NONE), prepared)
    renewed = client.next(request.fresh_producer_id)
    if renewed is None:
        return Decision(NEEDS_PRODUCER_ID)
    has_next = is_kept or renewed.producer_id != client.producer_id
    prepared = prepared._replace(
        previous_producer_id=client.producer_id,
        next_producer_id=renewed.producer_id if has_next else NO_PRODUCER_ID,
        next_producer_epoch=renewed.producer_epoch if has_next else NO_EPOCH,
    )
    return Decision(EndAnswer(ErrorCode.NONE, *renewed), prepared)


def _end_again(value: RecordedTransaction, request: EndRequest) -> Decision:
    """No transaction is open, and a client keeps its epoch: it repeats its request."""
    if not _is_same(value, request.commit):
        return _refuse(ErrorCode.INVALID_TXN_STATE)
    if value.state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    return Decision(EndAnswer(ErrorCode.NONE))


def _end_repeated(value: RecordedTransaction, request: EndRequest, now_ms: int) -> Decision:
    """The client has not heard that its transaction has ended, or the coordinator has aborted
    it meanwhile."""
    if not _is_same(value, request.commit):
        return _refuse(ErrorCode.INVALID_TXN_STATE)
    if value.state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    current = identity_of(value)
    if current.producer_epoch < EPOCH_MAX:
        return Decision(EndAnswer(ErrorCode.NONE, *current))
    # The coordinator has aborted with the epoch that no client may have.
    renewed = current.next(request.fresh_producer_id)
    if renewed is None:
        return Decision(NEEDS_PRODUCER_ID)
    rotated = value._replace(
        producer_id=renewed.producer_id,
        producer_epoch=renewed.producer_epoch,
        update_time_ms=now_ms,
    )
    return Decision(EndAnswer(ErrorCode.NONE, *renewed), rotated)


def _end_next(value: RecordedTransaction, request: EndRequest, now_ms: int) -> Decision:
    """The client ends a transaction to which nothing was added yet, as far as this coordinator
    knows.

    It may abort, since it cannot know whether something was added. Its epoch rises, so late
    requests of the former epoch have no effect. It had nothing to commit. But an outside
    coordinator that came back may commit again what was committed (KIP-939).
    """
    if value.state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if request.commit:
        is_outside = value.timeout_ms == NO_TIMEOUT_MS
        if is_outside and value.state is TransactionState.COMPLETE_COMMIT:
            return Decision(EndAnswer(ErrorCode.NONE, *identity_of(value)))
        return _refuse(ErrorCode.INVALID_TXN_STATE)
    return _prepare(value._replace(start_time_ms=now_ms), request, now_ms)
