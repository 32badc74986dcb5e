"""The coordinator of one group or one transactional id, which is looked up and may move."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from stele.cluster.kafka_link import Question
from stele.cluster.messages import CoordinatorKind
from stele.cluster.view import ClusterView
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.world import RpcError

LOOK_AGAIN_S: Final = 5.0
"""While a question waits at the coordinator, it is looked up again as often. A host that vanishes
breaks no connection, and the answer may be allowed to take minutes."""

MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Errors after which the coordinator is looked up again."""

AnswerT = TypeVar("AnswerT")


class MovingCoordinator:
    """``key`` is the group or the transactional id, and ``name`` says in words whose coordinator it
    is."""

    def __init__(self, view: ClusterView, kind: CoordinatorKind, key: str, name: str) -> None:
        self._view = view
        self._kind = kind
        self._key = key
        self._name = name
        self._broker_id: int | None = None
        self._why_unknown = "it was not looked up yet"
        self._turn = asyncio.Lock()  # all questions share one look-up

    @property
    def where(self) -> str:
        """Which broker it is, or why that is not known."""
        if self._broker_id is None:
            return f"the coordinator of {self._name} is not known: {self._why_unknown}"
        return f"the coordinator of {self._name} is broker {self._broker_id}"

    async def ask(
        self,
        question: Question[AnswerT],
        *,
        timeout_s: float | None = None,
        waits: bool = False,
        on_sending: Callable[[], None] = lambda: None,
    ) -> AnswerT:
        """Ask it once. ``on_sending`` is called before the request leaves. ``timeout_s``: None: as
        long as an attempt may take. ``waits``: the coordinator answers when something happens, so
        silence tells nothing about it.

        Raises UnreachableError without an answer, ApiError where no broker names a coordinator, or
        it cannot be asked this. Tell ``note`` the errors in the answer.
        """
        broker_id = await self._find()
        on_sending()
        asked = self._view.ask(broker_id, question, timeout_s=timeout_s or self._view.attempt_s)
        try:
            return await (self._while_it_stays(broker_id, asked) if waits else asked)
        except RpcError as error:
            self._lost(broker_id, f"broker {broker_id}: {error}")
            raise UnreachableError(
                f"the coordinator of {self._name}, broker {broker_id}: {error}"
            ) from error

    async def _while_it_stays(self, broker_id: int, asked: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        """The answer. Raises UnreachableError if the coordinator is another broker meanwhile."""
        asking = asyncio.get_running_loop().create_task(asked)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_AGAIN_S):
                        await asyncio.shield(asking)
                if asking.done():
                    return asking.result()
                if (now_id := await self._now(broker_id)) != broker_id:
                    self._lost(broker_id, f"it has moved to broker {now_id}")
                    raise UnreachableError(
                        f"the coordinator of {self._name} has moved from broker {broker_id} to "
                        f"{now_id}"
                    )
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _now(self, known_id: int) -> int:
        """Which broker it is now: the known one if nobody knows better."""
        try:
            return await self._look_up()
        except (ApiError, UnreachableError):
            return known_id

    def note(self, code: ErrorCode) -> None:
        """Look it up again before the next question, if the error says that it has moved."""
        if code in MOVED and self._broker_id is not None:
            self._lost(self._broker_id, f"broker {self._broker_id} answers {code.name}")

    def _lost(self, broker_id: int, why: str) -> None:
        if self._broker_id == broker_id:
            self._broker_id = None
            self._why_unknown = why

    async def _find(self) -> int:
        async with self._turn:
            if self._broker_id is None:
                self._broker_id = await self._look_up()
            return self._broker_id

    async def _look_up(self) -> int:
        view = self._view
        code, message, broker_id = await view.ask_any(
            view.plane.find_coordinator(self._kind, self._key)
        )
        if code is not ErrorCode.NONE:
            self._why_unknown = message or explain(code)
            view.ask_another_first()  # that broker may be cut off from the controllers
            raise ApiError(code, f"{self._name}: {self._why_unknown}")
        if not view.knows(broker_id):
            await view.refresh()
        return broker_id


def group_coordinator(view: ClusterView, group_id: str) -> MovingCoordinator:
    return MovingCoordinator(view, CoordinatorKind.GROUP, group_id, f"group {group_id!r}")


def transaction_coordinator(view: ClusterView, transactional_id: str) -> MovingCoordinator:
    return MovingCoordinator(
        view, CoordinatorKind.TRANSACTION, transactional_id, repr(transactional_id)
    )
