"""Producer ids, taken from the controller a block at a time (KIP-730)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from stele.errors import ApiError, ErrorCode
from stele.wire.v1.controller_pb2 import AllocateProducerIdsRequest, AllocateProducerIdsResponse


class ProducerIds:
    """Hands out ids that no other broker ever hands out.

    The rest of a block is lost at a restart; there are 2^63 ids.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        broker_epoch: Callable[[], int],
        allocate: Callable[[AllocateProducerIdsRequest], Awaitable[AllocateProducerIdsResponse]],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._allocate = allocate
        self._next = 0
        self._end = 0  # ids from `_next` up to here, itself excluded, are ours
        self._allocating = asyncio.Lock()

    async def take(self) -> int:
        """One new producer id.

        Raises ApiError, COORDINATOR_LOAD_IN_PROGRESS where no controller can be asked: the
        code that makes Kafka's clients try again.
        """
        while self._next == self._end:
            async with self._allocating:
                if self._next == self._end:
                    await self._fill()
        taken = self._next
        self._next += 1
        return taken

    async def _fill(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch()
        )
        try:
            answer = await self._allocate(request)
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        if answer.error != ErrorCode.NONE or answer.count <= 0:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the controller gave no producer ids (error {answer.error})",
            )
        self._next = answer.first
        self._end = answer.first + answer.count
