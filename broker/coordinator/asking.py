"""How a coordinator on this broker is asked by somebody who awaits its answer."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from broker.coordinator.runtime import CoordinatorRuntime
from broker.coordinator.step import Machine, Request, Transaction
from stele.errors import ApiError, ErrorCode

A = TypeVar("A")
M = TypeVar("M", bound=Machine)


class _Awaited:
    """A waiter that a handler awaits."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answer(self, answer: Any) -> None:
        if not self.future.done():  # otherwise no caller waits any more
            self.future.set_result(answer)

    def refuse(self, error: ErrorCode) -> None:
        if not self.future.done():
            self.future.set_exception(ApiError(error))


async def ask_coordinator(
    coordinators: CoordinatorRuntime[M],
    number: int,
    request: Request[A],
    transaction: Transaction | None = None,
) -> A:
    """What the coordinator of a partition answers to a request, whose records may be part of a
    transaction.

    Raises ApiError NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE; with a
    transaction also what ``TransactionVerifier`` says.
    """
    awaited = _Awaited()
    if transaction is None:
        coordinators.submit(number, request, awaited)
    else:
        coordinators.submit_in_transaction(number, transaction, request, awaited)
    answer: A = await awaited.future
    return answer
