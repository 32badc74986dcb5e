"""InitProducerId: a producer begins, comes back, or goes on after an error (KIP-360, KIP-939)."""

from __future__ import annotations

from broker.coordinator.layout import is_too_long
from broker.coordinator.transaction.config import TransactionConfig
from broker.coordinator.transaction.decision import Decision, abort
from broker.coordinator.transaction.identity import (
    EPOCH_MAX,
    Identity,
    identity_of,
    is_client,
    is_repeated,
)
from broker.coordinator.transaction.partitions import NO_PARTITIONS
from broker.coordinator.transaction.records import RecordedTransaction
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    InitAnswer,
    InitRequest,
    TransactionState,
)
from stele.errors import ErrorCode


def check(request: InitRequest, config: TransactionConfig) -> ErrorCode:
    """The fault of a request, whatever the state of the transactional id."""
    if not request.transactional_id or is_too_long(request.transactional_id):
        return ErrorCode.INVALID_REQUEST
    has_id = request.expected_producer_id != NO_PRODUCER_ID
    has_epoch = request.expected_producer_epoch != NO_EPOCH
    if has_id is not has_epoch or (has_id and request.keep_prepared):
        return ErrorCode.INVALID_REQUEST
    if request.enable_two_phase_commit:
        if not config.transaction_two_phase_commit_enable:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not 0 < request.transaction_timeout_ms <= config.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def initialize(
    value: RecordedTransaction | None,
    request: InitRequest,
    transaction_version: int,
    now_ms: int,
) -> Decision:
    """A request that ``check`` has nothing to say against."""
    if value is None:
        return _begin(request, now_ms)
    expected = Identity(request.expected_producer_id, request.expected_producer_epoch)
    goes_on = request.expected_producer_id != NO_PRODUCER_ID
    is_present = is_client(value, expected)
    if goes_on and not is_present and not is_repeated(value, expected):
        return _refuse(ErrorCode.PRODUCER_FENCED)
    if value.state.is_prepared:
        return _refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
    if value.state is TransactionState.ONGOING:
        if request.keep_prepared:
            return _keep(value, request, now_ms)
        if goes_on and not is_present:
            # Its client has gone on already. An old copy of its request must not abort a later
            # transaction.
            return _refuse(ErrorCode.PRODUCER_FENCED)
        aborted = abort(value, transaction_version, now_ms)
        return Decision(InitAnswer(ErrorCode.CONCURRENT_TRANSACTIONS), aborted)
    return _renew(value, request, now_ms)


def _refuse(error: ErrorCode) -> Decision:
    return Decision(InitAnswer(error))


def _timeout_ms(request: InitRequest) -> int:
    return NO_TIMEOUT_MS if request.enable_two_phase_commit else request.transaction_timeout_ms


def _begin(request: InitRequest, now_ms: int) -> Decision:
    """The transactional id was never used, or it was forgotten. A producer that expects a former id
    gets another one: nothing from that time is open."""
    fresh_id = request.fresh_producer_id
    if fresh_id == NO_PRODUCER_ID:
        return Decision(NEEDS_PRODUCER_ID)
    value = RecordedTransaction(
        producer_id=fresh_id,
        producer_epoch=0,
        timeout_ms=_timeout_ms(request),
        state=TransactionState.EMPTY,
        partitions=NO_PARTITIONS,
        update_time_ms=now_ms,
    )
    return Decision(InitAnswer(ErrorCode.NONE, fresh_id, 0), value)


def _keep(value: RecordedTransaction, request: InitRequest, now_ms: int) -> Decision:
    """Give the client another epoch, and leave the open transaction as it is (KIP-939)."""
    if value.timeout_ms != NO_TIMEOUT_MS:
        return _refuse(ErrorCode.INVALID_TXN_STATE)
    renewed = identity_of(value).next(request.fresh_producer_id)
    if renewed is None:
        return Decision(NEEDS_PRODUCER_ID)
    answer = InitAnswer(
        ErrorCode.NONE,
        renewed.producer_id,
        renewed.producer_epoch,
        ongoing_producer_id=value.producer_id,
        ongoing_producer_epoch=value.producer_epoch,
    )
    kept = value._replace(
        update_time_ms=now_ms,
        previous_producer_id=NO_PRODUCER_ID,
        next_producer_id=renewed.producer_id,
        next_producer_epoch=renewed.producer_epoch,
    )
    return Decision(answer, kept)


def _renew(value: RecordedTransaction, request: InitRequest, now_ms: int) -> Decision:
    """No transaction is open. A new client replaces the former one, whose repeated requests never
    get a later epoch. A client that goes on may repeat its request."""
    current = identity_of(value)
    expected = Identity(request.expected_producer_id, request.expected_producer_epoch)
    goes_on = request.expected_producer_id != NO_PRODUCER_ID
    renewed: Identity | None = current
    if not goes_on or expected == current or current.producer_epoch == EPOCH_MAX:
        renewed = current.next(request.fresh_producer_id)
    if renewed is None:
        return Decision(NEEDS_PRODUCER_ID)
    # An outside coordinator that comes back must be able to find how its transaction ended.
    state = value.state if request.keep_prepared else TransactionState.EMPTY
    renewed_value = value._replace(
        producer_id=renewed.producer_id,
        producer_epoch=renewed.producer_epoch,
        timeout_ms=_timeout_ms(request),
        state=state,
        update_time_ms=now_ms,
        start_time_ms=-1,
        previous_producer_id=expected.producer_id,  # -1 if a new client asks
    )
    answer = InitAnswer(ErrorCode.NONE, renewed.producer_id, renewed.producer_epoch)
    return Decision(answer, renewed_value)
