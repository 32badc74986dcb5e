"""The state of one transactional producer, answer by answer."""

from __future__ import annotations

import pytest

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
from stele.producer.transaction_state import (
    CoordinatorAnswer,
    CoordinatorQuestion,
    End,
    Init,
    PreparedTransaction,
    State,
    Transactions,
)

ONE, TWO = Identity(7, 0), Identity(7, 1)


def started(*, ongoing: PreparedTransaction | None = None) -> Transactions:
    machine = Transactions("tx")
    machine.init(keep_prepared=ongoing is not None)
    answer = CoordinatorAnswer(ErrorCode.NONE, identity=ONE, ongoing=ongoing)
    machine.answered(asked(machine), answer)
    return machine


def in_transaction() -> Transactions:
    machine = started()
    machine.begin()
    machine.used()
    return machine


def settled(machine: Transactions) -> bool:
    """Whether the producer goes on with the second identity."""
    what = machine.state, machine.identity, machine.question, machine.error
    return what == (State.READY, TWO, None, None)


def asked(machine: Transactions) -> CoordinatorQuestion:
    """The question, on its way."""
    assert machine.question is not None
    machine.asked(machine.question)
    return machine.question


@pytest.mark.parametrize(
    ("code", "is_unknown"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),  # it has not looked at the question
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
    ],
)
def test_a_commit_that_is_to_be_asked_again_may_have_taken_effect(
    code: ErrorCode, is_unknown: bool
) -> None:
    machine = in_transaction()
    machine.commit()
    question = asked(machine)
    machine.answered(question, CoordinatorAnswer(code))
    assert machine.question == question == End(ONE, is_commit=True)
    cause = ApiError(code, "so")
    found = machine.unknown_outcome(cause)
    assert isinstance(found, TransactionOutcomeUnknownError) is is_unknown
    assert is_unknown or found is cause
    machine.answered(asked(machine), CoordinatorAnswer(ErrorCode.NONE, identity=TWO))
    assert settled(machine)


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_fenced_commit_is_of_unknown_outcome_if_an_attempt_had_no_answer(attempts: int) -> None:
    machine = in_transaction()
    machine.commit()
    for _ in range(attempts):
        question = asked(machine)
    machine.answered(question, CoordinatorAnswer(ErrorCode.PRODUCER_FENCED))
    assert machine.state is State.FATAL_ERROR
    kind = ProducerFencedError if attempts == 1 else TransactionOutcomeUnknownError
    assert type(machine.error) is kind
    assert "PRODUCER_FENCED" in str(machine.error)
    for call in (machine.begin, machine.init, machine.check_may_send, machine.commit):
        with pytest.raises(kind):
            call()
    with pytest.raises(kind):
        machine.abort(is_in_doubt=False)


def test_an_abort_that_takes_two_attempts_is_no_commit_in_doubt() -> None:
    machine = in_transaction()
    machine.abort(is_in_doubt=False)
    for _ in range(2):
        question = asked(machine)
    cause = SteleError("no answer")
    assert machine.unknown_outcome(cause) is cause
    machine.answered(question, CoordinatorAnswer(ErrorCode.PRODUCER_FENCED))
    assert type(machine.error) is ProducerFencedError


@pytest.mark.parametrize(
    ("causes", "question"),
    [
        ([(ErrorCode.MESSAGE_TOO_LARGE, False)], End(ONE, is_commit=False)),
        ([(ErrorCode.MESSAGE_TOO_LARGE, True)], Init(ONE)),
        ([(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False)], Init(ONE)),
        ([(ErrorCode.MESSAGE_TOO_LARGE, False), (ErrorCode.REQUEST_TIMED_OUT, True)], Init(ONE)),
        ([(ErrorCode.MESSAGE_TOO_LARGE, False), (ErrorCode.INVALID_TXN_STATE, False)], Init(ONE)),
    ],
)
def test_a_failed_transaction_is_ended_with_a_higher_epoch_if_anything_is_in_doubt(
    causes: list[tuple[ErrorCode, bool]], question: CoordinatorQuestion
) -> None:
    machine = in_transaction()
    for code, is_in_doubt in causes:
        machine.failed(ApiError(code, "so"), is_in_doubt=is_in_doubt)
    assert machine.state is State.ABORTABLE_ERROR
    assert isinstance(machine.error, TransactionAbortableError)
    assert machine.error.code is causes[0][0], "the first failure is told"
    with pytest.raises(TransactionAbortableError):
        machine.commit()
    machine.abort(is_in_doubt=False)
    assert machine.question == question
    machine.answered(asked(machine), CoordinatorAnswer(ErrorCode.NONE, identity=TWO))
    assert settled(machine)


def test_what_is_in_doubt_is_ended_with_a_higher_epoch_though_nothing_was_sent() -> None:
    """The sequences of a partition under this epoch are not certain any more."""
    machine = started()
    machine.begin()
    machine.failed(SteleError("the topic was made anew"), is_in_doubt=True)
    machine.abort(is_in_doubt=False)
    assert machine.question == Init(ONE)


def test_a_refused_commit_is_aborted_with_a_higher_epoch() -> None:
    machine = in_transaction()
    machine.commit()
    refused = CoordinatorAnswer(ErrorCode.INVALID_TXN_STATE, "so")
    machine.answered(asked(machine), refused)
    assert (machine.state, machine.question) == (State.ABORTABLE_ERROR, None)
    machine.abort(is_in_doubt=False)
    assert machine.question == Init(ONE)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    ],
)
def test_a_refused_abort_is_asked_for_with_a_higher_epoch(code: ErrorCode) -> None:
    machine = in_transaction()
    machine.abort(is_in_doubt=False)
    machine.answered(asked(machine), CoordinatorAnswer(code))
    assert (machine.state, machine.question) == (State.ABORTING, Init(ONE))


@pytest.mark.parametrize(
    ("code", "is_in_doubt"),
    [
        (ErrorCode.INVALID_RECORD, False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.UNKNOWN_PRODUCER_ID, True),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True),
    ],
)
def test_an_error_of_a_record_decides_what_the_abort_asks_for(
    code: ErrorCode, *, is_in_doubt: bool
) -> None:
    """A higher epoch keeps out the batches that may be under way."""
    machine = in_transaction()
    machine.failed(ApiError(code, "so"), is_in_doubt=False)
    machine.abort(is_in_doubt=False)
    assert machine.question == (Init(ONE) if is_in_doubt else End(ONE, is_commit=False))


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("message", ["", "because"])
def test_an_end_that_is_refused_for_good_fails_the_producer_with_the_reason(
    *, is_commit: bool, message: str
) -> None:
    machine = in_transaction()
    machine.commit() if is_commit else machine.abort(is_in_doubt=False)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    machine.answered(asked(machine), CoordinatorAnswer(code, message))
    assert machine.state is State.FATAL_ERROR
    assert type(machine.error) is TransactionFatalError
    assert (message or code.name) in str(machine.error)


@pytest.mark.parametrize(
    "code", [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.TRANSACTION_ABORTABLE]
)
def test_a_producer_that_cannot_take_its_id_over_fails_for_good(code: ErrorCode) -> None:
    machine = Transactions("tx")
    machine.init()
    machine.answered(asked(machine), CoordinatorAnswer(code))
    assert (machine.state, machine.question) == (State.FATAL_ERROR, None)
    assert type(machine.error) is TransactionFatalError


def test_the_text_of_a_prepared_transaction_is_read_again() -> None:
    prepared = PreparedTransaction(4711, 3)
    assert PreparedTransaction.parse(str(prepared)) == prepared
    with pytest.raises(ValueError, match="'4711' is no prepared transaction: it has the form"):
        PreparedTransaction.parse("4711")


@pytest.mark.parametrize("has_two_phases", [False, True])
@pytest.mark.parametrize(
    "code",
    [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.INVALID_TRANSACTION_TIMEOUT],
)
def test_only_a_denial_of_two_phase_commits_names_what_these_need(
    code: ErrorCode, *, has_two_phases: bool
) -> None:
    machine = Transactions("tx", has_two_phases=has_two_phases)
    machine.init()
    machine.answered(asked(machine), CoordinatorAnswer(code))
    is_denied = code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    names = "transaction.two.phase.commit.enable=true on the brokers" in str(machine.error)
    assert names == (has_two_phases and is_denied)


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_producer_that_asks_for_a_higher_epoch_may_learn_that_it_is_fenced(
    code: ErrorCode,
) -> None:
    machine = in_transaction()
    machine.abort(is_in_doubt=True)
    assert machine.question == Init(ONE)
    machine.answered(asked(machine), CoordinatorAnswer(code))
    assert isinstance(machine.error, ProducerFencedError)


def test_a_failure_outside_of_a_transaction_is_no_failure_of_the_next_one() -> None:
    machine = started()
    machine.failed(SteleError("late"), is_in_doubt=True)
    assert (machine.state, machine.error) == (State.READY, None)
    machine.begin()
    machine.abort(is_in_doubt=False)
    assert (machine.state, machine.question) == (State.READY, None), "nobody knows of it"


def test_a_fenced_record_fails_the_producer_for_good() -> None:
    machine = in_transaction()
    machine.failed(ApiError(ErrorCode.PRODUCER_FENCED, "so"), is_in_doubt=False)
    assert machine.state is State.FATAL_ERROR
    assert isinstance(machine.error, ProducerFencedError)


def test_calls_that_do_not_fit_say_what_comes_next() -> None:
    machine = Transactions("tx")
    for call in (machine.begin, machine.check_may_send, machine.close, machine.prepare):
        with pytest.raises(TransactionStateError, match=r"begin_transaction\(\) comes first"):
            call()
    machine = started()
    with pytest.raises(TransactionStateError, match="there is nothing to abort"):
        machine.abort(is_in_doubt=False)
    machine.begin()
    machine.check_may_send()
    machine.close()
    with pytest.raises(TransactionStateError, match="is in a transaction"):
        machine.check_may_send()
    with pytest.raises(TransactionStateError, match="when the one before has ended"):
        machine.begin()


def test_a_transaction_of_an_earlier_process_is_kept_until_it_is_ended() -> None:
    kept = PreparedTransaction(5, 2)
    machine = started(ongoing=kept)
    assert (machine.state, machine.kept, machine.question) == (State.PREPARED, kept, None)
    machine.commit()
    assert machine.question == End(ONE, is_commit=True)
    machine.answered(asked(machine), CoordinatorAnswer(ErrorCode.NONE, identity=TWO))
    assert (machine.state, machine.kept) == (State.READY, None)
