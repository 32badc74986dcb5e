"""Requests to transaction coordinators and their answers, as values.

Fields have the same meaning as in Kafka's protocol. If an answer has an error, its other fields
have no meaning unless their comment says so. A producer that was replaced gets PRODUCER_FENCED. The
handler turns it into INVALID_PRODUCER_EPOCH for clients that do not know this error.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.coordinator.step import Request
from stele.errors import ErrorCode
from stele.ids import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of the transactions of a two-phase commit, which have none (KIP-939)."""


class TransactionState(enum.Enum):
    """The states of a transactional id, with Kafka's values on disk. ``label`` is Kafka's name."""

    EMPTY = 0  # no transaction since the last InitProducerId
    ONGOING = 1  # at least one partition was added
    PREPARE_COMMIT = 2  # decided; the markers are being written
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4  # all markers are written
    COMPLETE_ABORT = 5
    DEAD = 6  # is being forgotten; never recorded, and never in an answer
    # Kafka's state between two records; never recorded, and never in an answer
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and markers are not all written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_LABELS: Final = {
    state: "".join(word.capitalize() for word in state.name.split("_"))
    for state in TransactionState
}
STATES_BY_LABEL: Final = {label: state for state, label in _LABELS.items()}


class TransactionRef(NamedTuple):
    """The producer that acts in a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


# ------------------------------------------------------------------------------- producers


@dataclass(frozen=True, slots=True)
class InitRequest(Request["InitAnswer | NeedsProducerId"]):
    """A producer begins, or goes on after an error with a higher epoch (KIP-360)."""

    transactional_id: str
    transaction_timeout_ms: int  # without meaning in a two-phase commit
    expected_producer_id: int = NO_PRODUCER_ID  # of a producer that goes on
    expected_producer_epoch: int = NO_EPOCH
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False
    """Do not abort the open transaction, but return its producer id and epoch (KIP-939)."""
    fresh_producer_id: int = NO_PRODUCER_ID
    """A producer id that no client has. It may stay unused."""


@dataclass(frozen=True, slots=True)
class InitAnswer:
    """Errors: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS (a transaction is being finished: ask again),
    INVALID_TXN_STATE (the open transaction is not one of a two-phase commit).

    Whether a client may use two-phase commits at all is a question to the authorizer, which the
    service asks; whether this cluster allows them is asked here.
    """

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    ongoing_producer_id: int = NO_PRODUCER_ID  # of the transaction that was kept; -1: none
    ongoing_producer_epoch: int = NO_EPOCH


class NeedsProducerId(enum.Enum):
    """The answer to an InitRequest or an EndRequest that nothing was done for, since it needs a
    fresh producer id. The service takes one and asks again with it."""

    NEEDS_PRODUCER_ID = enum.auto()


NEEDS_PRODUCER_ID: Final = NeedsProducerId.NEEDS_PRODUCER_ID


# ------------------------------------------------------------------------------- transactions


@dataclass(frozen=True, slots=True)
class AddPartitionsRequest(Request["AddPartitionsAnswer"]):
    ref: TransactionRef
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    """Only say which partitions are in the transaction. A broker asks so before it appends."""
    client_version: int = 0
    """The transaction version that the client works with: 2 if a broker asks for a client that
    lets brokers add partitions (AddPartitionsToTxn v4 and later), else 0."""


@dataclass(frozen=True, slots=True)
class AddPartitionsAnswer:
    """Errors of the whole request: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
    CONCURRENT_TRANSACTIONS."""

    error: ErrorCode
    by_partition: tuple[ErrorCode, ...]
    """One for each partition of the request, in its order; with ``error`` all are that error.
    TRANSACTION_ABORTABLE: the partition is not in the transaction, and ``verify_only`` was set."""


@dataclass(frozen=True, slots=True)
class EndRequest(Request["EndAnswer | NeedsProducerId"]):
    ref: TransactionRef
    commit: bool
    client_version: int = 0
    """2: the client takes a new epoch with every transaction (EndTxn v5 and later), else 0."""
    fresh_producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class CompletionRequest(Request[None]):
    """Answered when no transaction of the transactional id has an outcome without having all of its
    markers, or at once if too many wait for that already."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class EndAnswer:
    """Errors: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE,
    CONCURRENT_TRANSACTIONS (the same was asked before and its markers are being written)."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    """The epoch with which a client of version 2 goes on; -1 for others."""
    producer_epoch: int = NO_EPOCH


# ------------------------------------------------------------------------------- markers


class MarkersDue(NamedTuple):
    """A transaction whose outcome is committed and whose markers have to be written."""

    ref: TransactionRef
    """The markers' producer and epoch. The epoch may be higher than the records' epoch."""
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


class MarkersWritten(NamedTuple):
    """News: these partitions have the marker of this producer id and epoch."""

    ref: TransactionRef
    partitions: tuple[TopicPartition, ...]


# ------------------------------------------------------------------------------- administration


@dataclass(frozen=True, slots=True)
class DescribeRequest(Request["DescribedTransaction"]):
    transactional_id: str


@dataclass(frozen=True, slots=True)
class ForgetRequest(Request[ErrorCode]):
    """Forget a transactional id that is in no transaction."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """Errors: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND."""

    error: ErrorCode
    transactional_id: str
    state: TransactionState = TransactionState.DEAD
    timeout_ms: int = 0
    start_time_ms: int = -1  # -1: no transaction
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ListRequest(Request["ListAnswer"]):
    """Answered at once, without waiting for commits. An empty filter passes all transactional
    ids."""

    states: tuple[str, ...] = ()  # Kafka's names
    producer_ids: tuple[int, ...] = ()
    duration_ms: int = -1
    """Only transactions that have been open for longer; -1: all."""
    matches: Callable[[str], bool] | None = None
    """The pattern of transactional ids, which the service has compiled (KIP-1152)."""


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class ListAnswer:
    transactions: tuple[ListedTransaction, ...]
    unknown_states: tuple[str, ...] = ()
    """The names of the request that are no states."""
