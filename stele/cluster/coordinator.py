"""The coordinator of one group or one transactional id, which is looked up and may move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeVar

from stele.cluster.view import ClusterView, Message, error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.world import RpcError

MOVED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})

AnswerT = TypeVar("AnswerT")


class Found(NamedTuple):
    """What a broker answers to the question who coordinates."""

    error: int
    message: str
    broker_id: int


class MovingCoordinator:
    """``name`` says whose coordinator it is, in words. ``find`` asks any broker."""

    def __init__(
        self, view: ClusterView, name: str, find: Callable[[ClusterView], Awaitable[Found]]
    ) -> None:
        self._view = view
        self._name = name
        self._find = find
        self._broker_id: int | None = None
        self._why_unknown = "it was not looked up yet"

    @property
    def where(self) -> str:
        """Which broker it is, or why that is not known."""
        if self._broker_id is None:
            return f"the coordinator of {self._name} is not known: {self._why_unknown}"
        return f"the coordinator of {self._name} is broker {self._broker_id}"

    async def ask(
        self,
        method: str,
        request: Message,
        parse: Callable[[bytes], AnswerT],
        *,
        on_sending: Callable[[], None] = lambda: None,
    ) -> AnswerT:
        """Ask it once. ``on_sending`` is called before the request leaves.

        Raises UnreachableError without an answer, ApiError where no broker names a coordinator.
        Tell ``note`` the error in the answer.
        """
        broker_id = self._broker_id
        if broker_id is None:
            broker_id = self._broker_id = await self._look_up()
        on_sending()
        try:
            return await self._view.ask(
                broker_id, method, request, parse, timeout_s=self._view.attempt_s
            )
        except RpcError as error:
            self._lost(f"broker {broker_id}: {error}")
            raise UnreachableError(
                f"the coordinator of {self._name}, broker {broker_id}: {error}"
            ) from error

    def note(self, code: ErrorCode) -> None:
        """Look it up again before the next question, if the error says that it has moved."""
        if code in MOVED:
            self._lost(f"broker {self._broker_id} answers {code.name}")

    def _lost(self, why: str) -> None:
        self._broker_id = None
        self._why_unknown = why

    async def _look_up(self) -> int:
        found = await self._find(self._view)
        code = error_code(found.error)
        if code is not ErrorCode.NONE:
            self._why_unknown = found.message or explain(code)
            self._view.ask_another_first()  # that broker may be cut off from the controllers
            raise ApiError(code, f"{self._name}: {self._why_unknown}")
        if not self._view.knows(found.broker_id):
            await self._view.refresh()
        return found.broker_id
