"""The way of dead letters to the leader of their partition, here or on another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from broker.coordinator.node_requests import Nodes
from broker.replication.produce import ACKS_ALL
from broker.replication.types import ProduceEntry, ProduceResult
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import produce as wire

_TIMEOUT_MS: Final = 10_000
_VERSION: Final = wire.API.max_version


class Appends(Protocol):
    """``broker.replication.produce.ProduceRequests``."""

    def begin(
        self,
        entries: list[ProduceEntry],
        acks: int,
        timeout_ms: int,
        done: Callable[[list[ProduceResult]], None],
    ) -> None: ...


class LetterWriter:
    """Writes batches of letters as acks=all. A batch may be sent twice: its producer is
    idempotent."""

    def __init__(
        self,
        appends: Appends,
        nodes: Nodes,
        *,
        broker_id: int,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._appends = appends
        self._nodes = nodes
        self._broker_id = broker_id
        self._image = image

    async def write(self, partition: PartitionId, batch: bytearray) -> None:
        """Raises ApiError: whether the topic has the batch is unknown."""
        state = self._image().partition(*partition)
        if state is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
        if state.leader == NO_LEADER:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
        if state.leader == self._broker_id:
            await self._write_here(partition, batch)
        else:
            await self._send(state.leader, partition, batch)

    async def _write_here(self, partition: PartitionId, batch: bytearray) -> None:
        written: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()

        def done(results: list[ProduceResult]) -> None:
            if not written.done():  # otherwise the share partition was dropped meanwhile
                written.set_result(results[0])

        self._appends.begin([ProduceEntry(partition, batch)], ACKS_ALL, _TIMEOUT_MS, done)
        result = await written
        if result.error is not ErrorCode.NONE:
            raise ApiError(result.error, result.message or result.error.name)

    async def _send(self, leader: int, partition: PartitionId, batch: bytearray) -> None:
        data = wire.PartitionProduceData(partition.partition, batch)
        topic = wire.TopicProduceData(topic_id=partition.topic_id, partition_data=[data])
        request = wire.ProduceRequest(None, ACKS_ALL, _TIMEOUT_MS, [topic])
        response = await self._nodes.ask(leader, wire.API, _VERSION, request)
        answers = [each for told in response.responses for each in told.partition_responses]
        if len(answers) != 1:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer lacks the partition")
        (answer,) = answers
        if answer.error_code:
            code = _code(answer.error_code)
            raise ApiError(code, answer.error_message or code.name)

    def close(self) -> None:
        self._nodes.close()


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
