"""The way to the active controller: finds it, asks it, follows it when it moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from raft.api import LeaderAndEpoch
from runtime.backoff import node_backoff
from runtime.config.addresses import NamedAddress
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError
from stele.wire.v1.controller_pb2 import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirectoriesRequest,
    AssignReplicasToDirectoriesResponse,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
)
from stele.world import Channel, Clock, Connector, RpcCode, RpcError, Stream

logger = logging.getLogger(__name__)


CALL_TIMEOUT_S = 5.0
"""The longest wait for one attempt: a controller that went silent must not cost the deadline."""

_REQUEST_TIMEOUT_S = 30.0

# A call in flight ends with CANCELLED when the peer closes its port.
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
        cluster_id: str,
        connectors: Mapping[str, Connector],
        clock: Clock,
        endpoint: Callable[[int], NamedAddress | None],
        leader: Callable[[], LeaderAndEpoch],
    ) -> None:
        """``connectors``: by the name of the controllers' listener. ``endpoint``: the listener of a
        controller, by its id, as long as it is known; ``leader``: the quorum's, as known here."""
        self._cluster_id = cluster_id
        self._connectors = connectors
        self._clock = clock
        self._endpoint = endpoint
        self._leader = leader
        self._channels: dict[int, tuple[NamedAddress, Channel]] = {}  # by controller id
        self._closing: set[asyncio.Task[None]] = set()  # held, or they could be collected
        self._leader_changed = asyncio.Event()

    # ------------------------------------------------------------------ the active one

    @property
    def active_controller(self) -> int | None:
        """The id of the active controller as far as this node knows."""
        leader_id = self._leader().leader_id
        return None if leader_id is None or self._endpoint(leader_id) is None else leader_id

    @property
    def leader(self) -> LeaderAndEpoch:
        """The quorum's leader as this node knows it, whether or not its address is known."""
        return self._leader()

    def on_leader_change(self) -> None:
        """Calls that wait for a controller try again at once."""
        for controller_id in sorted(self._channels):
            if self._endpoint(controller_id) != self._channels[controller_id][0]:
                self._drop(controller_id)  # it has left the quorum, or moved
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
        for controller_id in sorted(channels):
            await channels[controller_id][1].close()
        await asyncio.gather(*self._closing)

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

    async def assign_replicas(
        self,
        request: AssignReplicasToDirectoriesRequest,
        *,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> AssignReplicasToDirectoriesResponse:
        return await self.call(
            "/stele.v1.Controller/AssignReplicasToDirectories",
            request,
            AssignReplicasToDirectoriesResponse,
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
        attempt_s: float = CALL_TIMEOUT_S,
        repeat_unknown: bool = False,
    ) -> T:
        """Ask the active controller and return its answer. Its ``error`` may be any but
        NOT_CONTROLLER.

        A node of another cluster may have got a controller's address. Its refusal is no answer. One
        attempt takes at most ``attempt_s``. ``repeat_unknown``: ask again also if a controller does
        not know the outcome. After an attempt of unknown outcome, a client's request is marked as a
        copy.

        Raises ApiError REQUEST_TIMED_OUT if no active controller answered in time, as
        OutcomeUnknownError if one may have carried the request out. Raises RpcError if the
        controller refused the call itself (a bug, not a failure).
        """
        names_cluster = self._name_cluster(request)
        payload = request.SerializeToString()
        deadline = self._clock.monotonic() + timeout_s
        backoff = node_backoff()
        hint: int | None = None
        reason = "no controller leads the quorum"
        unanswered = False  # an attempt may have been carried out
        while (left_s := deadline - self._clock.monotonic()) > 0:
            hinted = hint is not None
            known = self.active_controller
            target = hint if hinted else known
            hint = None
            if target is not None:
                answer, reason = await self._attempt(
                    target, method, payload, response_type, min(left_s, attempt_s)
                )
                if answer is None:
                    unanswered = True
                    payload = _as_copy(request)
                else:
                    error = _error(answer)
                    foreign = names_cluster and error == ErrorCode.INCONSISTENT_CLUSTER_ID
                    if foreign:
                        reason = f"another cluster answers at the address of controller {target}"
                    elif error == ErrorCode.REQUEST_TIMED_OUT and repeat_unknown:
                        unanswered = True
                        payload = _as_copy(request)
                        reason = getattr(answer, "message", "") or reason
                    elif error != ErrorCode.NOT_CONTROLLER:
                        return answer
                    hint = None if foreign else self._hint(answer, target)
                    if hint is not None and not hinted:
                        continue  # asked at once, but two that name each other are not a loop
                if self.active_controller not in (None, known):
                    continue  # it moved while we asked
            left_s = deadline - self._clock.monotonic()
            await self.wait_for_leader_change(max(0.0, min(backoff.next_s(), left_s)))
        name = method.rsplit("/", 1)[-1]
        cause = f"{name} found no active controller within {timeout_s:g} s: {reason}"
        if unanswered:
            raise OutcomeUnknownError.because(cause)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, cause)

    def _name_cluster(self, request: Message) -> bool:
        """Write the cluster's id into a request, so that no other cluster carries it out. False if
        a client's request names another cluster."""
        fields = request.DESCRIPTOR.fields_by_name
        own = self._cluster_id
        if _is_forwarded(request):
            request.on_behalf_of.cluster_id = own  # type: ignore[attr-defined]
        elif "cluster_id" in fields and not request.cluster_id:  # type: ignore[attr-defined]
            request.cluster_id = own  # type: ignore[attr-defined]
        return getattr(request, "cluster_id", "") in ("", own)

    async def _attempt(
        self, target: int, method: str, payload: bytes, response_type: type[T], timeout_s: float
    ) -> tuple[T | None, str]:
        """One call to one controller: its answer, or None and the reason."""
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
                RpcCode.INTERNAL, f"controller {target} answered {method} with unreadable bytes"
            ) from error
        return answer, f"controller {target} is not the active one"

    def _hint(self, answer: Message, target: int) -> int | None:
        """The leader that a refusing controller names, if it is one worth asking at once."""
        leader_id: int = answer.leader_id  # type: ignore[attr-defined]
        return leader_id if leader_id != target and self._endpoint(leader_id) else None

    def _channel(self, controller_id: int) -> Channel:
        """Raises RpcError if the address of that controller is not known."""
        address = self._endpoint(controller_id)
        if address is None:
            raise RpcError(
                RpcCode.UNAVAILABLE, f"no address is known for controller {controller_id}"
            )
        known = self._channels.get(controller_id)
        if known is not None and known[0] == address:
            return known[1]
        if known is not None:
            self._drop(controller_id)
        channel = self._connectors[address.name].channel(address.address)
        self._channels[controller_id] = address, channel
        return channel

    def _drop(self, controller_id: int) -> None:
        _, channel = self._channels.pop(controller_id)
        task = asyncio.get_running_loop().create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _as_copy(request: Message) -> bytes:
    """The bytes of a request that may still arrive at a controller in an earlier copy, too."""
    if _is_forwarded(request):
        request.on_behalf_of.repeats = True  # type: ignore[attr-defined]
    return request.SerializeToString()


def _is_forwarded(request: Message) -> bool:
    """Whether the request is a client's."""
    named = "on_behalf_of" in request.DESCRIPTOR.fields_by_name
    return named and request.HasField("on_behalf_of")


def _error(answer: Message) -> int:
    error: int = answer.error  # type: ignore[attr-defined]
    return error
