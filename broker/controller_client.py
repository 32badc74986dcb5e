"""The way to the active controller: finds it, asks it, follows it when it moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from raft.api import LeaderAndEpoch
from stele.errors import ApiError, ErrorCode
from stele.wire.v1.controller_pb2 import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from stele.world import Channel, Clock, Connector, RpcCode, RpcError, Stream

logger = logging.getLogger(__name__)

BACKOFF_MIN_S = 0.05
BACKOFF_MAX_S = 0.25

_CALL_TIMEOUT_S = 5.0
"""The longest wait for one attempt: a controller that went silent must not cost the deadline."""

_REQUEST_TIMEOUT_S = 30.0

# CANCELLED is what a call in flight ends with when the peer closes its port.
_RETRIED = (RpcCode.UNAVAILABLE, RpcCode.DEADLINE_EXCEEDED, RpcCode.CANCELLED)


T = TypeVar("T", bound=Message)


class ControllerClient:
    """Calls the active controller, retrying on another one until a deadline.

    A retried request may be carried out twice when an answer was lost; the controller's
    requests are made for that (compare-and-set, names and ids that exist once).
    """

    def __init__(
        self,
        *,
        network: Connector,
        clock: Clock,
        voters: Mapping[int, tuple[str, int]],
        leader: Callable[[], LeaderAndEpoch],
    ) -> None:
        """``voters``: (host, port) by controller id; ``leader``: the quorum's, as known here."""
        self._network = network
        self._clock = clock
        self._voters = dict(voters)
        self._leader = leader
        self._channels: dict[int, Channel] = {}
        self._leader_changed = asyncio.Event()

    # ------------------------------------------------------------------ the active one

    @property
    def active_controller(self) -> int | None:
        """The id of the active controller as far as this node knows."""
        leader_id = self._leader().leader_id
        return leader_id if leader_id in self._voters else None

    def on_leader_change(self) -> None:
        """Calls that wait for a controller try again at once."""
        self._leader_changed.set()
        self._leader_changed = asyncio.Event()

    async def wait_for_leader_change(self, timeout_s: float) -> None:
        """Return when the quorum's leader changed, after ``timeout_s`` at the latest."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._leader_changed.wait()
        except TimeoutError:
            return

    def stream(self, controller_id: int, method: str) -> Stream:
        """Open a bidirectional stream to one controller."""
        return self._channel(controller_id).stream(method)

    async def close(self) -> None:
        """Close every channel; calls in flight fail."""
        channels, self._channels = self._channels, {}
        for _, channel in sorted(channels.items()):
            await channel.close()

    # ------------------------------------------------------------------ requests

    async def register(
        self, request: RegisterBrokerRequest, *, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> RegisterBrokerResponse:
        return await self.call(
            "/stele.v1.Controller/RegisterBroker",
            request,
            RegisterBrokerResponse,
            timeout_s=timeout_s,
        )

    async def alter_partition(
        self, request: AlterPartitionRequest, *, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> AlterPartitionResponse:
        return await self.call(
            "/stele.v1.Controller/AlterPartition",
            request,
            AlterPartitionResponse,
            timeout_s=timeout_s,
        )

    async def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest, *, timeout_s: float = _REQUEST_TIMEOUT_S
    ) -> AllocateProducerIdsResponse:
        return await self.call(
            "/stele.v1.Controller/AllocateProducerIds",
            request,
            AllocateProducerIdsResponse,
            timeout_s=timeout_s,
        )

    async def call(
        self,
        method: str,
        request: Message,
        response_type: type[T],
        *,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> T:
        """Ask the active controller and return its answer, whose ``error`` may be any but
        NOT_CONTROLLER.

        Raises ApiError REQUEST_TIMED_OUT when no active controller answered in time, and
        RpcError when the controller refused the call itself (a bug, not a failure).
        """
        payload = request.SerializeToString()
        deadline = self._clock.monotonic() + timeout_s
        backoff_s = BACKOFF_MIN_S
        hint: int | None = None
        reason = "no controller leads the quorum"
        while (left_s := deadline - self._clock.monotonic()) > 0:
            hinted = hint is not None
            known = self.active_controller
            target = hint if hinted else known
            hint = None
            if target is not None:
                answer, reason = await self._attempt(target, method, payload, response_type, left_s)
                if answer is not None:
                    if _error(answer) != ErrorCode.NOT_CONTROLLER:
                        return answer
                    hint = self._hint(answer, target)
                    if hint is not None and not hinted:
                        continue  # asked at once, but two that name each other are not a loop
                if self.active_controller not in (None, known):
                    continue  # it moved while we asked
            left_s = deadline - self._clock.monotonic()
            await self.wait_for_leader_change(max(0.0, min(backoff_s, left_s)))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
        name = method.rsplit("/", 1)[-1]
        raise ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"{name} found no active controller within {timeout_s:g} s: {reason}",
        )

    async def _attempt(
        self, target: int, method: str, payload: bytes, response_type: type[T], left_s: float
    ) -> tuple[T | None, str]:
        """One call to one controller: its answer, or None and why there is none."""
        timeout_s = min(left_s, _CALL_TIMEOUT_S)
        try:
            raw = await self._channel(target).call(method, payload, timeout_s=timeout_s)
        except RpcError as error:
            if error.code not in _RETRIED:
                raise
            logger.debug("%s at controller %d: %s", method, target, error)
            return None, f"controller {target} is {error}"
        try:
            answer = response_type.FromString(raw)
        except DecodeError as error:
            raise RpcError(
                RpcCode.INTERNAL, f"controller {target} answered {method} with garbage"
            ) from error
        return answer, f"controller {target} is not the active one"

    def _hint(self, answer: Message, target: int) -> int | None:
        """The leader that a refusing controller names, if it is one worth asking at once."""
        leader_id: int = answer.leader_id  # type: ignore[attr-defined]
        return leader_id if leader_id != target and leader_id in self._voters else None

    def _channel(self, controller_id: int) -> Channel:
        channel = self._channels.get(controller_id)
        if channel is None:
            host, port = self._voters[controller_id]
            channel = self._channels[controller_id] = self._network.channel(host, port)
        return channel


def _error(answer: Message) -> int:
    error: int = answer.error  # type: ignore[attr-defined]
    return error
