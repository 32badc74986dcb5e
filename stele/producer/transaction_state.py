"""The state of a transactional producer, and its questions to its coordinator. There is no IO here.

A :class:`Transactions` gets the calls of the application, the refusals and the coordinator's
answers. It gives the identity with which records are written, and the next question to the
coordinator. These rules hold:

- A transaction is committed only if every record and every offset of it was acknowledged.
- If the answer to a commit is lost, the producer asks again until it has one: the coordinator
  recognizes the same question. The producer never aborts after a commit without an answer, since
  the commit may have taken effect.
- With every end the coordinator gives the identity with which the producer goes on (KIP-890: a new
  epoch for every transaction). Late requests of the earlier epoch can then belong to no later
  transaction.
- After a failure, the contents of the partitions or the producer's identity may be unclear. Then
  the transaction is ended by InitTransactions with the producer's own id and epoch (KIP-360). This
  aborts it and raises the epoch, unless another producer has taken over.
- Two-phase commit (KIP-939): a process that holds the :class:`PreparedTransaction` of a prepared
  transaction ends it. It may be another process.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from stele.errors import (
    ApiError,
    ErrorCode,
    ProducerFencedError,
    SteleError,
    TransactionAbortableError,
    TransactionFatalError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
)
from stele.producer.idempotence import Identity


class State(enum.Enum):
    """The states of a transactional producer, with the words of messages."""

    UNINITIALIZED = "has not taken over its transactional id yet"
    READY = "is in no transaction"
    IN_TRANSACTION = "is in a transaction"
    PREPARED = "has prepared its transaction"
    COMMITTING = "is committing its transaction"
    ABORTING = "is aborting its transaction"
    ABORTABLE_ERROR = "has a transaction that must be aborted"
    FATAL_ERROR = "has failed for good"


class PreparedTransaction(NamedTuple):
    """Which transaction was prepared. Its text can be stored, and read by ``parse``."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Raises ValueError."""
        producer_id, colon, epoch = text.partition(":")
        if not colon:
            raise ValueError(f"{text!r} is no prepared transaction: it has the form 4711:3")
        return cls(int(producer_id), int(epoch))


@dataclass(frozen=True, slots=True)
class Init:
    """Take the transactional id over, or go on with a higher epoch (``identity``).

    No named tuple: it would equal an ``End`` that aborts, with the same identity.
    """

    identity: Identity | None
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True)
class End:
    identity: Identity
    is_commit: bool


CoordinatorQuestion = Init | End


class CoordinatorAnswer(NamedTuple):
    """The coordinator's answer. Without an error it has the identity with which the producer goes
    on, and the transaction that was kept.
    """

    code: ErrorCode
    message: str = ""
    identity: Identity | None = None
    ongoing: PreparedTransaction | None = None


FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_IN_DOUBT: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors after which the producer's identity, or the contents of partitions, are not known."""


class Transactions:
    """One producer and its transactional id."""

    def __init__(self, transactional_id: str, *, has_two_phases: bool = False) -> None:
        self.transactional_id = transactional_id
        self._has_two_phases = has_two_phases
        self.state = State.UNINITIALIZED
        # The identity for records and questions. None before the first answer.
        self.identity: Identity | None = None
        self.error: SteleError | None = None  # of the error states
        # The transaction that an earlier process has prepared, while the state is PREPARED.
        self.kept: PreparedTransaction | None = None
        self.number = 0  # of the transaction: how many have begun
        self.question: CoordinatorQuestion | None = None
        # Whether the coordinator may know of the transaction: a record or an offset was sent.
        self.is_used = False
        # Nothing more is taken for the transaction: it is about to end.
        self.is_closed = False
        # Whether an attempt at the present commit may have taken effect, and one before the last.
        self._maybe_committed = False
        self._maybe_committed_before = False
        # Whether the transaction has to be ended by InitTransactions.
        self._is_in_doubt = False

    # -------------------------------------------------------------- what the application calls

    @property
    def may_send(self) -> bool:
        """Whether batches may be sent."""
        return self.state is State.IN_TRANSACTION

    def check_may_send(self) -> None:
        """Raises TransactionStateError outside of a transaction, and what makes it impossible."""
        if self.state is not State.IN_TRANSACTION or self.is_closed:
            self._raise_error()
            raise self._wrong("records and offsets are sent within a transaction")

    def init(self, *, keep_prepared: bool = False) -> None:
        """Take the transactional id over, unless that was done."""
        self._raise_fatal()
        if self.state is State.UNINITIALIZED:
            self.question = Init(None, keep_prepared)

    def begin(self) -> None:
        if self.state is not State.READY:
            self._raise_error()
            raise self._wrong("a transaction begins when the one before has ended")
        self.state = State.IN_TRANSACTION
        self.number += 1

    def close(self) -> None:
        """Accept no more records: the accepted ones are delivered, and then the transaction
        ends."""
        if self.state is not State.IN_TRANSACTION:
            self._raise_error()
            raise self._wrong("only an open transaction is ended")
        self.is_closed = True

    def used(self) -> None:
        """A record or an offset is being sent."""
        self.is_used = True

    def prepare(self) -> PreparedTransaction:
        """Everything is acknowledged: promise to send nothing more."""
        if self.state is not State.IN_TRANSACTION:
            self._raise_error()
            raise self._wrong("a transaction is prepared once, while it is open")
        assert self.identity is not None
        self.state = State.PREPARED
        return PreparedTransaction(*self.identity)

    def complete(self, prepared: PreparedTransaction | None) -> None:
        """Commit ``prepared`` if it is what the transactional id has prepared, and otherwise abort
        that. The question whose answer was lost is asked again, and no other one instead of it."""
        if self.state not in (State.PREPARED, State.COMMITTING, State.ABORTING):
            self._raise_error()
            # Records of an open transaction may be under way.
            raise self._wrong("only a prepared transaction is completed")
        if prepared == (self.kept or self.identity):
            self.commit()
        else:
            self.abort(is_in_doubt=False)

    def commit(self) -> None:
        """Everything is acknowledged: commit it. In COMMITTING the question is asked again."""
        if self.state is State.COMMITTING:
            return
        if self.state not in (State.IN_TRANSACTION, State.PREPARED):
            self._raise_error()
            raise self._wrong("there is nothing to commit")
        self._end(is_commit=True)

    def abort(self, *, is_in_doubt: bool) -> None:
        """``is_in_doubt``: there are batches without an answer. In ABORTING the question is asked
        again."""
        if self.state is State.ABORTING:
            return
        self._raise_fatal()
        self._is_in_doubt |= is_in_doubt
        if self.state not in (State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR):
            raise self._wrong("there is nothing to abort")
        self._end(is_commit=False)

    def _end(self, *, is_commit: bool) -> None:
        assert self.identity is not None
        if not self.is_used and self.kept is None and not self._is_in_doubt:
            self._ended()  # no other process knows of it
            return
        self.state = State.COMMITTING if is_commit else State.ABORTING
        self.question = Init(self.identity) if self._is_in_doubt else End(self.identity, is_commit)

    def failed(self, cause: SteleError, *, is_in_doubt: bool) -> None:
        """Something of the open transaction was not, or not surely, done.

        ``is_in_doubt``: the partitions may have more of it, or less, than was acknowledged.
        """
        if self.state not in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            return
        code = cause.code if isinstance(cause, ApiError) else ErrorCode.TRANSACTION_ABORTABLE
        self._is_in_doubt |= is_in_doubt or code in _IN_DOUBT
        if self.state is State.ABORTABLE_ERROR:
            return
        if code is ErrorCode.PRODUCER_FENCED:
            self._fail(ProducerFencedError(code, f"{self._name}: {_text(cause)}"))
            return
        self.state = State.ABORTABLE_ERROR
        self.error = TransactionAbortableError(
            code, f"{self._name} must be aborted, and can then be tried again: {_text(cause)}"
        )
        self.error.__cause__ = cause

    # ------------------------------------------------------------- what the coordinator answers

    def asked(self, question: CoordinatorQuestion) -> None:
        """The question is on its way: it may take effect."""
        if isinstance(question, End) and question.is_commit:
            self._maybe_committed_before = self._maybe_committed
            self._maybe_committed = True

    def answered(self, question: CoordinatorQuestion, answer: CoordinatorAnswer) -> None:
        """The question stays while it is to be asked again."""
        if answer.code is ErrorCode.NONE:
            self._take(answer)
        elif not answer.code.retriable:
            self._refused(question, answer)
        elif answer.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._maybe_committed = self._maybe_committed_before  # it was surely not done

    def _take(self, answer: CoordinatorAnswer) -> None:
        if answer.identity is not None:
            self.identity = answer.identity
        if answer.ongoing is not None:  # only an Init that keeps a prepared transaction has it
            self.question, self.state, self.kept = None, State.PREPARED, answer.ongoing
        else:
            self._ended()

    def _ended(self) -> None:
        self.state = State.READY
        self.question = self.error = self.kept = None
        self.is_used = self.is_closed = self._is_in_doubt = False
        self._maybe_committed = self._maybe_committed_before = False

    def _refused(self, question: CoordinatorQuestion, answer: CoordinatorAnswer) -> None:
        code = answer.code
        text = f"{self._name}: {answer.message or code.name}"
        if self._has_two_phases and code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            text += f"; {_TWO_PHASES_NEED}"
        if isinstance(question, End) and question.is_commit and self._maybe_committed_before:
            # Example: the commit took effect, its answer was lost, and another producer took over.
            self._fail(
                TransactionOutcomeUnknownError(
                    f"{text}; an earlier attempt at the commit had no answer, and may have taken "
                    f"effect: {_HOW_TO_FIND_OUT}",
                    self.transactional_id,
                    *question.identity,
                )
            )
        elif code is ErrorCode.PRODUCER_FENCED or (isinstance(question, Init) and code in FENCED):
            self._fail(ProducerFencedError(code, f"{text}; it was aborted, or will be"))
        elif isinstance(question, End) and (
            code in _IN_DOUBT or code is ErrorCode.TRANSACTION_ABORTABLE
        ):
            self._must_recover(question, ApiError(code, answer.message))
        else:
            self._fail(TransactionFatalError(code, text))

    def _must_recover(self, question: End, cause: ApiError) -> None:
        self._is_in_doubt = True
        if question.is_commit:
            self.question, self.state = None, State.IN_TRANSACTION
            self.failed(cause, is_in_doubt=True)
        else:
            self.question = Init(self.identity)

    def _fail(self, error: SteleError) -> None:
        self.state, self.error, self.question = State.FATAL_ERROR, error, None

    # ------------------------------------------------------------------------------ messages

    @property
    def _name(self) -> str:
        return f"the transaction of {self.transactional_id!r}"

    def unknown_outcome(self, cause: SteleError) -> SteleError:
        """What to raise when the time is over and the question has no answer."""
        question = self.question
        if isinstance(question, End) and question.is_commit and self._maybe_committed:
            return TransactionOutcomeUnknownError(
                f"{self._name} may or may not be committed: {_text(cause)}. commit_transaction() "
                f"asks again; {_HOW_TO_FIND_OUT}",
                self.transactional_id,
                *question.identity,
            )
        return cause

    def _wrong(self, rule: str) -> TransactionStateError:
        what = f"producer {self.transactional_id!r} {self.state.value}"
        return TransactionStateError(f"{what}: {rule}{_NEXT.get(self.state, '')}")

    def _raise_fatal(self) -> None:
        if self.state is State.FATAL_ERROR:
            self._raise_error()

    def _raise_error(self) -> None:
        """The error of an error state."""
        if self.error is not None:
            raise self.error


_HOW_TO_FIND_OUT: Final = "stele transaction describe shows what the coordinator knows"
_TWO_PHASES_NEED: Final = (
    "two-phase commits need transaction.two.phase.commit.enable=true on the brokers and, with an "
    "authorizer, the operation TWO_PHASE_COMMIT on the transactional id"
)
_NEXT: Final = {
    State.UNINITIALIZED: "; begin_transaction() comes first",
    State.READY: "; begin_transaction() begins one",
    State.IN_TRANSACTION: "; commit_transaction() or abort_transaction() ends it",
    State.PREPARED: "; commit_transaction() or abort_transaction() ends it",
    State.COMMITTING: "; commit_transaction() asks for its outcome again",
    State.ABORTING: "; abort_transaction() asks once more",
}


def _text(cause: SteleError) -> str:
    return str(cause)
