"""How the tasks of an application are told apart."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pyspark import TaskContext

from stele.spark.exactly_once_sink import Attempt


@dataclass(frozen=True)
class Context:
    """A task as Spark describes it. A repeated stage counts the attempts of a task anew."""

    partition: int
    attempt_in_stage: int
    attempt_in_application: int

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.partition

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt_in_stage

    def taskAttemptId(self) -> int:  # noqa: N802
        return self.attempt_in_application


def test_copies_of_a_task_are_different_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts with one transactional id would abort each other."""
    copies = [Context(3, 0, 7), Context(3, 1, 9), Context(3, 0, 7 + 256)]  # the last: a new stage
    attempts = []
    for context in copies:
        monkeypatch.setattr(TaskContext, "get", lambda context=context: context)
        attempts.append(Attempt.current())
    assert len(set(attempts)) == len(copies)
    assert {attempt.partition for attempt in attempts} == {3}


def test_outside_of_a_task_there_is_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    assert Attempt.current() == Attempt(0, 0)
