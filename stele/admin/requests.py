"""How an administrator's requests are sent, repeated and given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from stele.admin.grpc_calls import Message, call, unknown_at
from stele.cluster.kafka_link import Question
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.config import ClientConfig
from stele.errors import ApiError, ConfigError, ErrorCode, OutcomeUnknownError, UnreachableError
from stele.wire.v1 import admin_pb2 as pb
from stele.world import RpcError

REQUEST_ID_BYTES = 16

AnswerT = TypeVar("AnswerT")


class AdminRequests:
    """Repeats requests that fail for a passing reason, for at most ``default_api_timeout_ms``."""

    def __init__(self, view: ClusterView, config: ClientConfig) -> None:
        self._view = view
        self._config = config
        # The metadata offset of this client's newest change. Descriptions are at least as new.
        self.changed_at = 0

    async def ask(
        self,
        method: str,
        request: Message,
        parse: Callable[[bytes], AnswerT],
        *,
        broker_id: int | None = None,
    ) -> AnswerT:
        """The answer to a request that may be carried out any number of times. ``broker_id``: the
        broker that must answer; None: any."""
        return await self._keep_asking(method, request, parse, lambda error: None, broker_id)

    async def brokers(self) -> list[int]:
        """The brokers in service. Raises UnreachableError."""

        async def attempt() -> list[int]:
            await self._view.refresh()
            return self._view.broker_ids()

        return await self._view.keep_asking(attempt, "finding the brokers", self._timeout_s)

    async def change(
        self,
        method: str,
        request: Any,
        parse: Callable[[bytes], AnswerT],
        request_id: bytes | None = None,
    ) -> AnswerT:
        """The answer to a request that takes effect at most once: all attempts carry one id.

        ``request_id``: the id of an earlier call whose outcome is unknown; None makes a new one.
        Raises OutcomeUnknownError if an attempt may have been carried out, or may still be. Every
        attempt after such a one is marked as a copy: if it is refused, no other copy is accepted.

        If the answer names brokers that have not applied the change, this waits for them. Raises
        ApiError REQUEST_TIMED_OUT if they have not in time; the change is made then.
        """
        if request_id is not None and len(request_id) != REQUEST_ID_BYTES:
            raise ConfigError(f"a request id has {REQUEST_ID_BYTES} bytes, not {len(request_id)}")
        request.request_id = request_id or self._view.world.rng.randbytes(REQUEST_ID_BYTES)
        if request_id is not None:
            request.on_behalf_of.repeats = True

        def lost(_: RpcError | ApiError) -> None:
            request.on_behalf_of.repeats = True

        deadline = self._view.world.clock.monotonic() + self._timeout_s
        try:
            answer = await self._keep_asking(method, request, parse, lost)
        except ApiError as error:
            if error.code is ErrorCode.REQUEST_TIMED_OUT and _names(error, request.request_id):
                raise OutcomeUnknownError(error.message, request.request_id) from error
            if not request.on_behalf_of.repeats or not error.code.retriable:
                raise
            raise OutcomeUnknownError.because(str(error), request.request_id) from error
        except UnreachableError as error:
            if not request.on_behalf_of.repeats:
                raise
            raise OutcomeUnknownError.because(str(error), request.request_id) from error
        lagging = list(getattr(answer, "lagging_brokers", ()))
        if lagging:
            left_s = max(0.0, deadline - self._view.world.clock.monotonic())
            await self._wait_until_applied(method, lagging, self.changed_at, left_s)
        return answer

    @property
    def _timeout_s(self) -> float:
        return self._config.default_api_timeout_ms / 1000

    async def _wait_until_applied(
        self, method: str, lagging: list[int], offset: int, timeout_s: float
    ) -> None:
        """Wait until each of the brokers has applied the metadata up to ``offset``, or is no longer
        in service."""
        request = pb.DescribeFeaturesRequest(min_metadata_offset=offset)  # open to every caller
        question = call(
            "/stele.v1.Admin/DescribeFeatures", request, pb.DescribeFeaturesResponse.FromString
        )

        async def attempt() -> None:
            await self._view.refresh()
            while lagging:
                if self._view.knows(lagging[0]):
                    await self._view.ask(lagging[0], question, timeout_s=self._view.attempt_s)
                del lagging[0]

        try:
            await self._view.keep_asking(attempt, f"{method}: broker {lagging[0]}", timeout_s)
        except (ApiError, UnreachableError) as error:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"{method}: the change is made, but brokers {', '.join(map(str, lagging))} have "
                f"not applied it: {error}",
            ) from error

    async def _keep_asking(
        self,
        method: str,
        request: Message,
        parse: Callable[[bytes], AnswerT],
        lost: Callable[[RpcError | ApiError], None],
        broker_id: int | None = None,
    ) -> AnswerT:
        """Repeat a request. ``lost`` is called for each attempt without a known outcome."""
        question = call(f"/stele.v1.Admin/{method}", request, parse)

        async def attempt() -> AnswerT:
            if broker_id is None:
                answer = await self._view.ask_any(question, on_lost=lost)
            else:
                answer = await self._ask_one(broker_id, question)
            code = error_code(getattr(answer, "error", 0))
            if code is not ErrorCode.NONE:
                said = getattr(answer, "message", "") or _WORDS.get(code, "the cluster refused")
                refusal = ApiError(code, f"{method}: {said}")
                if code is ErrorCode.REQUEST_TIMED_OUT:
                    lost(refusal)
                if code.retriable:
                    # This broker may be cut off from the controllers.
                    self._view.ask_another_first()
                raise refusal
            return answer

        what = method if broker_id is None else f"{method} of broker {broker_id}"
        answer = await self._view.keep_asking(attempt, what, self._timeout_s)
        self.changed_at = max(self.changed_at, getattr(answer, "metadata_offset", 0))
        return answer

    async def _ask_one(self, broker_id: int, question: Question[AnswerT]) -> AnswerT:
        if not self._view.knows(broker_id):
            await self._refresh_for(broker_id)
        try:
            return await self._view.ask(broker_id, question, timeout_s=self._view.attempt_s)
        except RpcError as error:
            refused = unknown_at(broker_id, question.what.rpartition("/")[2], error)
            if refused is not None:
                raise refused from error
            await self._refresh_for(broker_id)  # it may have left, and would never answer
            raise

    async def _refresh_for(self, broker_id: int) -> None:
        """Raises ApiError if the broker is not in service."""
        await self._view.refresh()
        if not self._view.knows(broker_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"only broker {broker_id} itself can answer, and there is none in service",
            )


def _names(error: ApiError, request_id: bytes) -> bool:
    """Whether the broker's message contains the request id, and so says already what to do."""
    return request_id.hex() in error.message


_WORDS = {
    ErrorCode.NOT_CONTROLLER: "there is no active controller at the moment",
    ErrorCode.REQUEST_TIMED_OUT: "the active controller did not answer in time",
    ErrorCode.KAFKA_STORAGE_ERROR: "the active controller's disk is full; free space there",
    ErrorCode.BROKER_NOT_AVAILABLE: "the broker cannot reach the active controller",
}
