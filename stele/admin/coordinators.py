"""Requests to the coordinators of groups, which are looked up and may move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from stele.cluster.view import ClusterView, Message, error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.wire.v1 import groups_pb2 as pb
from stele.world import RpcError

SERVICE: Final = "/stele.v1.Groups/"

MOVING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the same request is sent again. Every request here may be sent twice."""


GROUPS_A_REQUEST: Final = 1000
"""More are asked for one after the other, which bounds the answers."""


class Coordinator(NamedTuple):
    """The broker that coordinates a group, and its gRPC address."""

    broker_id: int
    host: str
    port: int


class Told(Protocol):
    """What an answer tells of one group, or of everything in it."""

    @property
    def error(self) -> int: ...

    @property
    def message(self) -> str: ...


AnswerT = TypeVar("AnswerT")
ToldT = TypeVar("ToldT", bound=Told)
ToldT_co = TypeVar("ToldT_co", bound=Told, covariant=True)


class Answered(NamedTuple, Generic[ToldT_co]):
    """What the coordinator of a group tells of it."""

    coordinator: Coordinator
    told: ToldT_co


class Coordinators:
    """Asks the coordinators of groups. A call is repeated for at most ``default_api_timeout_ms``
    while coordinators move, load their groups or cannot be reached."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._known: dict[str, Coordinator] = {}
        # Whether a broker failed since the view was refreshed.
        self._is_suspect = False

    async def ask_each(
        self,
        groups: Iterable[str],
        method: str,
        request: Callable[[Sequence[str]], Message],
        parse: Callable[[bytes], AnswerT],
        told: Callable[[AnswerT], Iterable[ToldT]],
    ) -> dict[str, Answered[ToldT] | ApiError]:
        """What is told of each group, in their order. Groups of one coordinator share a request,
        and ``told`` gives their parts of the answer in the order of the request.

        Raises ApiError, UnreachableError if not all have an answer in time.
        """
        found: dict[str, Answered[ToldT] | ApiError] = {}
        wanted = list(dict.fromkeys(groups))
        for start in range(0, len(wanted), GROUPS_A_REQUEST):
            some = wanted[start : start + GROUPS_A_REQUEST]
            await self._ask_some(some, found, method, request, parse, told)
        return {each: found[each] for each in wanted}

    async def _ask_some(
        self,
        groups: Sequence[str],
        found: dict[str, Answered[ToldT] | ApiError],
        method: str,
        request: Callable[[Sequence[str]], Message],
        parse: Callable[[bytes], AnswerT],
        told: Callable[[AnswerT], Iterable[ToldT]],
    ) -> None:
        async def attempt() -> None:
            missing = [each for each in groups if each not in found]
            problem: ApiError | None = None
            by_coordinator: dict[Coordinator, list[str]] = {}
            for group, coordinator in (await self._find(missing)).items():
                if isinstance(coordinator, Coordinator):
                    by_coordinator.setdefault(coordinator, []).append(group)
                elif coordinator.code in MOVING:
                    problem = coordinator
                else:
                    found[group] = coordinator
            for coordinator, names in by_coordinator.items():
                answer = await self._ask(coordinator, names, method, request(names), parse)
                for name, each in zip(names, told(answer), strict=True):
                    error = refusal(each, method, f"group {name!r}")
                    if error is None:
                        found[name] = Answered(coordinator, each)
                    elif error.code in MOVING:
                        self._known.pop(name, None)
                        problem = error
                    else:
                        found[name] = error
            if problem is not None:
                raise problem

        await self._keep_asking(attempt, method)

    async def ask(
        self, group: str, method: str, request: Message, parse: Callable[[bytes], ToldT]
    ) -> ToldT:
        """The answer of one group's coordinator. Raises ApiError, UnreachableError."""
        answers = await self.ask_each(
            [group], method, lambda names: request, parse, lambda answer: [answer]
        )
        answer = answers[group]
        if isinstance(answer, ApiError):
            raise answer
        return answer.told

    async def ask_all_brokers(
        self, method: str, request: Message, parse: Callable[[bytes], ToldT]
    ) -> list[ToldT]:
        """The answers of all brokers in service. Raises ApiError, UnreachableError."""

        async def attempt() -> list[ToldT]:
            await self._view.refresh()
            answers = []
            for broker_id in self._view.broker_ids():
                answer = await self._view.ask(
                    broker_id, SERVICE + method, request, parse, timeout_s=self._view.attempt_s
                )
                error = refusal(answer, method, f"broker {broker_id}")
                if error is not None:
                    raise error
                answers.append(answer)
            return answers

        return await self._keep_asking(attempt, method)

    async def _keep_asking(self, attempt: Callable[[], Awaitable[AnswerT]], method: str) -> AnswerT:
        timeout_s = self._view.config.default_api_timeout_ms / 1000
        return await self._view.keep_asking(attempt, method, timeout_s)

    async def _ask(
        self,
        coordinator: Coordinator,
        groups: Sequence[str],
        method: str,
        request: Message,
        parse: Callable[[bytes], AnswerT],
    ) -> AnswerT:
        try:
            return await self._view.ask(
                coordinator.broker_id,
                SERVICE + method,
                request,
                parse,
                timeout_s=self._view.attempt_s,
            )
        except RpcError as error:
            self._is_suspect = True
            for group in groups:
                self._known.pop(group, None)
            raise UnreachableError(f"broker {coordinator.broker_id}: {error}") from error

    async def _find(self, groups: Sequence[str]) -> Mapping[str, Coordinator | ApiError]:
        """The coordinator of each group. Raises UnreachableError."""
        if self._is_suspect:
            await self._view.refresh()
            self._is_suspect = False
        unknown = [each for each in groups if each not in self._known]
        found: dict[str, Coordinator | ApiError] = {}
        if unknown:
            response = await self._view.ask_any(
                SERVICE + "FindCoordinator",
                pb.FindCoordinatorRequest(groups=unknown),
                pb.FindCoordinatorResponse.FromString,
            )
            for each in response.coordinators:
                error = refusal(each, "FindCoordinator", f"group {each.group!r}")
                if error is not None:
                    found[each.group] = error
                    continue
                self._known[each.group] = Coordinator(
                    each.broker_id, each.grpc_host, each.grpc_port
                )
            if any(isinstance(each, ApiError) for each in found.values()):
                # This broker may be cut off from the controllers.
                self._view.ask_another_first()
        return {each: found.get(each) or self._known[each] for each in groups}


def refusal(told: Told, method: str, what: str) -> ApiError | None:
    """The error that an answer tells of a group or broker."""
    code = error_code(told.error)
    if code is ErrorCode.NONE:
        return None
    return ApiError(code, f"{method}: {what}: {told.message or explain(code)}")
