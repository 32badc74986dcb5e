"""Requests to the coordinators of groups and of transactional ids, which move now and then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from stele.admin.grpc_calls import Message, call, unknown_at
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode, UnreachableError
from stele.wire.v1 import groups_pb2, transactions_pb2
from stele.world import RpcError

MOVING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Errors after which the same request is sent again. Every request here may be sent twice."""


IDS_A_REQUEST: Final = 1000
"""More are asked for one after the other, which bounds the answers."""

MOST_KNOWN: Final = 10_000
"""A client that asks about more ids looks their coordinators up again. Without this bound a client
that lives long, and asks about each id only once, would remember more and more of them."""


class Coordinator(NamedTuple):
    """The broker that coordinates a group or a transactional id, and its gRPC address."""

    broker_id: int
    host: str
    port: int


class Told(Protocol):
    """The part of an answer about one group or transactional id, or about all of them."""

    @property
    def error(self) -> int: ...

    @property
    def message(self) -> str: ...


class Located(Told, Protocol):
    """Where the coordinator of one group or transactional id is."""

    @property
    def broker_id(self) -> int: ...

    @property
    def grpc_host(self) -> str: ...

    @property
    def grpc_port(self) -> int: ...


class Kind(NamedTuple):
    """A kind of coordinated ids, and the request that finds their coordinators."""

    noun: str
    service: str
    find: Callable[[ClusterView, Sequence[str]], Awaitable[Iterable[Located]]]
    """Where the coordinators are, in the order of the ids. Raises UnreachableError."""


async def _find_groups(view: ClusterView, groups: Sequence[str]) -> Iterable[Located]:
    response = await view.ask_any(
        call(
            "/stele.v1.Groups/FindCoordinator",
            groups_pb2.FindCoordinatorRequest(groups=groups),
            groups_pb2.FindCoordinatorResponse.FromString,
        )
    )
    return response.coordinators


async def _find_transactions(view: ClusterView, ids: Sequence[str]) -> Iterable[Located]:
    response = await view.ask_any(
        call(
            "/stele.v1.Transactions/FindTransactionCoordinators",
            transactions_pb2.FindTransactionCoordinatorsRequest(transactional_ids=ids),
            transactions_pb2.FindTransactionCoordinatorsResponse.FromString,
        )
    )
    return response.coordinators


GROUPS: Final = Kind("group", "/stele.v1.Groups/", _find_groups)
TRANSACTIONS: Final = Kind("transactional id", "/stele.v1.Transactions/", _find_transactions)

AnswerT = TypeVar("AnswerT")
ToldT = TypeVar("ToldT", bound=Told)
ToldT_co = TypeVar("ToldT_co", bound=Told, covariant=True)


class Answered(NamedTuple, Generic[ToldT_co]):
    """The part of a coordinator's answer about one group or transactional id."""

    coordinator: Coordinator
    told: ToldT_co


class Coordinators:
    """Asks the coordinators of groups, or of transactional ids. A call is repeated for at most
    ``default_api_timeout_ms`` while coordinators move, load or cannot be reached."""

    def __init__(self, view: ClusterView, kind: Kind = GROUPS) -> None:
        self._view = view
        self._kind = kind
        self._known: dict[str, Coordinator] = {}
        # Whether a broker failed since the view was refreshed.
        self._is_suspect = False

    async def ask_each(
        self,
        ids: Iterable[str],
        method: str,
        request: Callable[[Sequence[str]], Message],
        parse: Callable[[bytes], AnswerT],
        told: Callable[[AnswerT], Iterable[ToldT]],
    ) -> dict[str, Answered[ToldT] | ApiError]:
        """The answers about the ids, in their order.

        Ids of one coordinator share a request. ``told`` takes the parts of an answer, in the order
        of the request. Raises ApiError, or UnreachableError if some ids have no answer in time.
        """
        found: dict[str, Answered[ToldT] | ApiError] = {}
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), IDS_A_REQUEST):
            some = wanted[start : start + IDS_A_REQUEST]
            await self._ask_some(some, found, method, request, parse, told)
        return {each: found[each] for each in wanted}

    async def _ask_some(
        self,
        ids: Sequence[str],
        found: dict[str, Answered[ToldT] | ApiError],
        method: str,
        request: Callable[[Sequence[str]], Message],
        parse: Callable[[bytes], AnswerT],
        told: Callable[[AnswerT], Iterable[ToldT]],
    ) -> None:
        async def attempt() -> None:
            missing = [each for each in ids if each not in found]
            problem: ApiError | None = None
            by_coordinator: dict[Coordinator, list[str]] = {}
            for name, coordinator in (await self._find(missing)).items():
                if isinstance(coordinator, Coordinator):
                    by_coordinator.setdefault(coordinator, []).append(name)
                elif coordinator.code in MOVING:
                    problem = coordinator
                else:
                    found[name] = coordinator
            for coordinator, names in by_coordinator.items():
                answer = await self._ask(coordinator, names, method, request(names), parse)
                for name, each in zip(names, told(answer), strict=True):
                    error = refusal(each, method, f"{self._kind.noun} {name!r}")
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
        self, name: str, method: str, request: Message, parse: Callable[[bytes], ToldT]
    ) -> ToldT:
        """The answer of one id's coordinator. Raises ApiError, UnreachableError."""
        answers = await self.ask_each(
            [name], method, lambda names: request, parse, lambda answer: [answer]
        )
        answer = answers[name]
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
                    broker_id,
                    call(self._kind.service + method, request, parse),
                    timeout_s=self._view.attempt_s,
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
        ids: Sequence[str],
        method: str,
        request: Message,
        parse: Callable[[bytes], AnswerT],
    ) -> AnswerT:
        try:
            return await self._view.ask(
                coordinator.broker_id,
                call(self._kind.service + method, request, parse),
                timeout_s=self._view.attempt_s,
            )
        except RpcError as error:
            refused = unknown_at(coordinator.broker_id, method, error)
            if refused is not None:
                raise refused from error
            self._is_suspect = True
            for name in ids:
                self._known.pop(name, None)
            raise UnreachableError(f"broker {coordinator.broker_id}: {error}") from error

    async def _find(self, ids: Sequence[str]) -> Mapping[str, Coordinator | ApiError]:
        """The coordinator of each id. Raises UnreachableError."""
        if self._is_suspect:
            await self._view.refresh()
            self._is_suspect = False
        unknown = [each for each in ids if each not in self._known]
        found: dict[str, Coordinator | ApiError] = {}
        if unknown:
            located = await self._kind.find(self._view, unknown)
            if len(self._known) + len(unknown) > MOST_KNOWN:
                self._known = {each: self._known[each] for each in ids if each in self._known}
            for name, each in zip(unknown, located, strict=True):
                error = refusal(each, "FindCoordinator", f"{self._kind.noun} {name!r}")
                if error is not None:
                    found[name] = error
                    continue
                self._known[name] = Coordinator(each.broker_id, each.grpc_host, each.grpc_port)
            if any(isinstance(each, ApiError) for each in found.values()):
                # This broker may be cut off from the controllers.
                self._view.ask_another_first()
        return {each: found.get(each) or self._known[each] for each in ids}


def refusal(told: Told, method: str, what: str) -> ApiError | None:
    """The error of an answer about a group, transactional id or broker."""
    code = error_code(told.error)
    if code is ErrorCode.NONE:
        return None
    return ApiError(code, f"{method}: {what}: {told.message or explain(code)}")
