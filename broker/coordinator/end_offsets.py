"""The ends of partitions, which their leaders know: this broker or others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.coordinator.node_requests import NodeBatches, Nodes
from broker.replication.types import LATEST_TIMESTAMP
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from stele.errors import ErrorCode, SteleError
from stele.ids import PartitionId
from stele.wire.kafka.messages import list_offsets
from stele.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from storage.turns import gather_in_slices

logger = logging.getLogger(__name__)

_CONSUMER: Final = -1
_VERSION: Final = 7
_PARTITIONS_A_REQUEST: Final = 1_000


class LedLog(Protocol):
    @property
    def refusal(self) -> ErrorCode: ...

    def end_offset(self, *, read_committed: bool) -> int: ...


class LedLogs(Protocol):
    """``broker.replication.hosted.Hosting``."""

    def share(self, partition: PartitionId) -> LedLog | None: ...


class _Item(NamedTuple):
    """One partition on its way to another broker."""

    topic: str
    partition: int
    end: asyncio.Future[int | None]

    def settle(self, end: int | None) -> None:
        if not self.end.done():  # otherwise nobody waits for it any more
            self.end.set_result(end)


class EndOffsets:
    """Asks each leader once for all partitions that wait for it. Nobody is asked again: an end is
    shown beside other figures, which are worth something without it."""

    def __init__(
        self,
        logs: LedLogs,
        nodes: Nodes,
        *,
        broker_id: int,
        image: Callable[[], MetadataImage],
    ) -> None:
        self._logs = logs
        self._nodes = nodes
        self._broker_id = broker_id
        self._image = image
        self._batches: NodeBatches[_Item] = NodeBatches("end-offsets", self._send, _fail)

    async def of(self, partitions: Sequence[PartitionId]) -> list[int | None]:
        """The high watermark of each partition; None where its leader does not tell it."""
        return await gather_in_slices(self._end, partitions)

    async def _end(self, partition: PartitionId) -> int | None:
        topic = self._image().topic_by_id(partition.topic_id)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        leader = topic.partitions[partition.partition].leader
        if leader == NO_LEADER:
            return None
        if leader == self._broker_id:
            log = self._logs.share(partition)
            if log is None or log.refusal is not ErrorCode.NONE:
                return None
            return log.end_offset(read_committed=False)
        item = _Item(topic.name, partition.partition, asyncio.get_running_loop().create_future())
        self._batches.add(leader, item)
        return await item.end

    async def _send(self, broker_id: int, items: list[_Item]) -> list[_Item]:
        # A second question about a partition is asked later, and gets an answer that is as new.
        some: dict[tuple[str, int], _Item] = {}
        rest: list[_Item] = []
        for each in items:
            key = each.topic, each.partition
            if key in some or len(some) >= _PARTITIONS_A_REQUEST:
                rest.append(each)
            else:
                some[key] = each
        ends: dict[tuple[str, int], int] = {}
        request = list_offsets.ListOffsetsRequest(_CONSUMER, 0, _topics(some))
        try:
            answer = await self._nodes.ask(broker_id, list_offsets.API, _VERSION, request)
            ends = {
                (topic.name, each.partition_index): each.offset
                for topic in answer.topics
                for each in topic.partitions
                if each.error_code == ErrorCode.NONE
            }
        except SteleError as error:
            logger.info("the ends of %d partitions of broker %d: %s", len(some), broker_id, error)
        for key, item in some.items():
            item.settle(ends.get(key))
        return rest

    async def stop(self) -> None:
        await self._batches.stop()


def _topics(items: dict[tuple[str, int], _Item]) -> list[ListOffsetsTopic]:
    topics: dict[str, ListOffsetsTopic] = {}
    for name, number in items:
        topic = topics.setdefault(name, ListOffsetsTopic(name))
        topic.partitions.append(ListOffsetsPartition(number, timestamp=LATEST_TIMESTAMP))
    return list(topics.values())


def _fail(items: list[_Item]) -> None:
    for each in items:
        each.settle(None)
