"""What the administrator who asks twice takes for a broken promise."""

from __future__ import annotations

import pytest

from chaos.sim.work.habits import contradiction
from stele.errors import ErrorCode
from stele.wire.v1.admin_pb2 import CreateTopicsResponse

REFUSED = ErrorCode.INVALID_REPLICATION_FACTOR
EXISTS = ErrorCode.TOPIC_ALREADY_EXISTS


def answer(error: ErrorCode, *, already_done: bool = False) -> CreateTopicsResponse:
    topic = CreateTopicsResponse.Topic(name="t", error=error)
    return CreateTopicsResponse(topics=[topic], already_done=already_done)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (answer(ErrorCode.NONE), answer(ErrorCode.NONE, already_done=True)),
        (answer(REFUSED), answer(REFUSED, already_done=True)),
        (answer(REFUSED), answer(REFUSED)),
        (answer(REFUSED), answer(EXISTS)),
        (answer(REFUSED), answer(ErrorCode.NONE)),
    ],
)
def test_a_success_is_repeated_and_a_refusal_may_be_decided_anew(
    earlier: CreateTopicsResponse, later: CreateTopicsResponse
) -> None:
    assert contradiction(earlier, later, was_copy=False) is None


@pytest.mark.parametrize(
    "later",
    [
        answer(ErrorCode.NONE),
        answer(EXISTS),
        answer(REFUSED, already_done=True),
    ],
)
def test_a_success_that_is_not_repeated_is_a_contradiction(later: CreateTopicsResponse) -> None:
    assert contradiction(answer(ErrorCode.NONE), later, was_copy=False) is not None


def test_the_refusal_of_a_copy_is_repeated() -> None:
    earlier = answer(REFUSED)
    again = answer(REFUSED, already_done=True)
    assert contradiction(earlier, again, was_copy=True) is None
    for later in (answer(ErrorCode.NONE), answer(EXISTS, already_done=True), answer(REFUSED)):
        assert contradiction(earlier, later, was_copy=True) is not None
