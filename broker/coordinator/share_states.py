"""The way of this broker's requests to the share coordinators, here or on other brokers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from broker.coordinator.asking import ask_coordinator
from broker.coordinator.node_requests import NodeBatches, Nodes
from broker.coordinator.share.types import StateAnswer, StateRequest
from broker.coordinator.shares import ShareCoordinators
from broker.coordinator.state_messages import API_OF
from metadata.image import MetadataImage
from metadata.internal_topics import SHARE_TOPIC, coordinating_partition
from metadata.partitions import NO_LEADER
from stele.errors import ApiError, ErrorCode, SteleError
from stele.world import Clock

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.1
"""The pause before a request is sent again."""

_PARTITIONS_A_REQUEST: Final = 1_000

_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these, the same request may succeed: with the next coordinator, or when it is loaded."""


class _Item(NamedTuple):
    """One request on its way to another broker."""

    request: StateRequest
    answer: asyncio.Future[StateAnswer]

    def settle(self, answer: StateAnswer) -> None:
        if not self.answer.done():  # otherwise nobody waits for it any more
            self.answer.set_result(answer)


class ShareStates:
    """Requests of the same type about the same group travel together, if they go to the same
    broker. Every request may be sent twice: the coordinator's state is the same then."""

    def __init__(
        self,
        coordinators: ShareCoordinators,
        nodes: Nodes,
        *,
        broker_id: int,
        image: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self._coordinators = coordinators
        self._nodes = nodes
        self._broker_id = broker_id
        self._image = image
        self._clock = clock
        self._batches: NodeBatches[_Item] = NodeBatches("share-states", self._send, _fail)

    async def ask(self, request: StateRequest, timeout_s: float) -> StateAnswer:
        """What the coordinator answers. It is asked again while it moves or cannot be reached. If
        that takes longer than ``timeout_s``, the answer has the last error, and whether the request
        took effect is unknown."""
        deadline_s = self._clock.monotonic() + timeout_s
        while True:
            answer = await self._ask_once(request)
            is_late = self._clock.monotonic() + RETRY_S >= deadline_s
            if answer.error not in _PASSING or is_late:
                return answer
            await asyncio.sleep(RETRY_S)

    async def _ask_once(self, request: StateRequest) -> StateAnswer:
        key = request.key
        topic = self._image().topic(SHARE_TOPIC)
        if topic is None:
            why = f"there is no topic {SHARE_TOPIC} yet"
            return StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
        number = coordinating_partition(key.coordinator_key, len(topic.partitions))
        leader = topic.partitions[number].leader
        if leader == NO_LEADER:
            why = f"{SHARE_TOPIC}-{number} has no leader"
            return StateAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE, why)
        if leader == self._broker_id:
            try:
                return await ask_coordinator(self._coordinators, number, request)
            except ApiError as error:
                return StateAnswer(error.code, error.message)
        item = _Item(request, asyncio.get_running_loop().create_future())
        self._batches.add(leader, item)
        return await item.answer

    async def _send(self, broker_id: int, items: list[_Item]) -> list[_Item]:
        """Send those that are like the first one. The others come next."""
        first = items[0].request
        kind = type(first), first.key.group_id
        some: list[_Item] = []
        rest: list[_Item] = []
        keys = set()
        for each in items:
            is_like = (type(each.request), each.request.key.group_id) == kind
            # A second request about a share partition waits for the outcome of the first one.
            is_new = each.request.key not in keys
            fits = is_like and is_new and len(some) < _PARTITIONS_A_REQUEST
            (some if fits else rest).append(each)
            keys.add(each.request.key)
        api = API_OF[type(first)]
        message = api.encode([each.request for each in some])
        try:
            response = await self._nodes.ask(broker_id, api.api, api.version, message)
        except SteleError as error:
            code = error.code if isinstance(error, ApiError) else ErrorCode.NETWORK_EXCEPTION
            logger.info("%s for broker %d: %s", api.api.key.name, broker_id, error)
            for each in some:
                each.settle(StateAnswer(code, str(error)))
            return rest
        told = api.answers(response)
        missing = StateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer lacks the partition")
        for each in some:
            key = each.request.key
            each.settle(told.get((key.topic_id, key.partition), missing))
        return rest

    async def stop(self) -> None:
        await self._batches.stop()
        self._nodes.close()


def _fail(items: list[_Item]) -> None:
    for each in items:
        each.settle(StateAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, "the request was not sent"))
