"""The way of markers from transaction coordinators to the leaders of partitions.

When the outcome of a transaction is committed, each of its partitions gets a marker from its
leader. A replica of this broker is written directly, other leaders are asked by WriteTxnMarkers. A
marker without a confirmation is sent again, to the present leader of the partition, for as long as
this broker has the coordinator. The next coordinator begins anew with all of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from broker.coordinator.node_requests import NodeBatches, Nodes
from broker.coordinator.transaction.types import MarkersDue, MarkersWritten, TransactionRef
from broker.coordinator.transactions import TransactionCoordinators
from broker.replication.deadlines import Deadline, DeadlineWheel
from broker.replication.types import Marker
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER
from stele.errors import ErrorCode, SteleError
from stele.ids import PartitionId, TopicPartition
from stele.wire.kafka.messages import write_txn_markers as wire
from stele.world import Clock

logger = logging.getLogger(__name__)

RETRY_MS: Final = 100.0
"""The pause before a marker is sent again. New metadata end it early."""

_VERSION: Final = 2
_MARKERS_A_REQUEST: Final = 5_000
_MARKERS_A_TURN: Final = 200


class MarkerWriter(Protocol):
    """``broker.replication.markers.MarkerRequests``."""

    def write(self, markers: Sequence[Marker], done: Callable[[list[ErrorCode]], None]) -> None:
        """``done`` gets an error for each, in order, when all of them are committed or refused."""
        ...


class _Item(NamedTuple):
    """One marker that is to be written to one partition."""

    number: int  # of the partition of __transaction_state
    coordinator_epoch: int
    due: MarkersDue
    partition: TopicPartition


class MarkerSender:
    """Subscribes to the metadata behind the coordinators."""

    def __init__(
        self,
        coordinators: TransactionCoordinators,
        writer: MarkerWriter,
        nodes: Nodes,
        *,
        broker_id: int,
        image: Callable[[], MetadataImage],
        clock: Clock,
    ) -> None:
        self._coordinators = coordinators
        self._writer = writer
        self._nodes = nodes
        self._broker_id = broker_id
        self._image = image
        self._deadlines = DeadlineWheel(clock)
        self._batches: NodeBatches[_Item] = NodeBatches("markers", self._send, self._rest_all)
        self._is_scheduled = False
        self._is_stopped = False
        self._here: list[_Item] = []  # for replicas of this broker, in order
        self._later: list[_Item] = []  # those that rest after an error
        self._retry: Deadline | None = None  # there exactly while some rest
        self.pending = 0
        """Markers that are due and not confirmed."""
        coordinators.on_markers_due = self._schedule

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Leaders may have changed."""
        self._try_again()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        if self._is_stopped:
            return
        found = [
            _Item(number, epoch, due, partition)
            for number, epoch, machine in self._coordinators.each_active()
            for due in machine.due_markers()
            for partition in due.partitions
        ]
        self.pending += len(found)
        self._route(found)
        self._write_here()

    # ------------------------------------------------------------------ ways

    def _route(self, items: Iterable[_Item]) -> None:
        """Find out who leads each partition."""
        image = self._image()
        gone = []
        for item in items:
            if not self._coordinators.is_active(item.number, item.coordinator_epoch):
                self.pending -= 1  # the next coordinator has it
                continue
            leader = _leader_of(image, item.partition)
            if leader is None:
                gone.append(item)
            elif leader == NO_LEADER:
                self._rest(item)
            elif leader == self._broker_id:
                self._here.append(item)
            else:
                self._batches.add(leader, item)
        # A coordinator is never behind the metadata by which its transaction got the partition:
        # the topic was deleted.
        self._written(gone)
        if self._here:
            self._schedule()

    def _write_here(self) -> None:
        some, self._here = self._here[:_MARKERS_A_TURN], self._here[_MARKERS_A_TURN:]
        image = self._image()
        items, markers = [], []
        for item in some:
            topic = image.topic(item.partition.topic)
            if topic is None:
                self._route([item])
                continue
            items.append(item)
            markers.append(_marker(item, PartitionId(topic.topic_id, item.partition.partition)))
        if markers:
            self._writer.write(markers, lambda errors: self._settle(items, errors))
        if self._here:
            self._schedule()

    async def _send(self, broker_id: int, items: list[_Item]) -> list[_Item]:
        """Ask the leader of these partitions to write their markers."""
        image = self._image()
        led = [each for each in items if _leader_of(image, each.partition) == broker_id]
        self._route(each for each in items if _leader_of(image, each.partition) != broker_id)
        some, rest = led[:_MARKERS_A_REQUEST], led[_MARKERS_A_REQUEST:]
        if not some:
            return rest
        try:
            answer = await self._nodes.ask(broker_id, wire.API, _VERSION, _request(some))
        except SteleError as error:
            logger.info("markers for broker %d: %s", broker_id, error)
            self._rest_all(some)
            return rest
        told = {
            (marker.producer_id, topic.name, each.partition_index): each.error_code
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        }
        missing = ErrorCode.UNKNOWN_SERVER_ERROR
        self._settle(
            some, [told.get((each.due.ref.producer_id, *each.partition), missing) for each in some]
        )
        return rest

    # ------------------------------------------------------------------ outcomes

    def _settle(self, items: Sequence[_Item], errors: Sequence[int]) -> None:
        written = []
        for item, error in zip(items, errors, strict=True):
            # A log whose producer has this epoch or a later one has the marker: nothing else
            # raises the epoch while the transaction is open.
            if error in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH):
                written.append(item)
            elif error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                logger.info("%s has another coordinator, which writes its markers", item.due.ref)
                self.pending -= 1
            else:
                self._rest(item)
        self._written(written)

    def _written(self, items: Sequence[_Item]) -> None:
        """Report to the coordinators, for each transaction once."""
        self.pending -= len(items)
        told: dict[tuple[int, int, TransactionRef], list[TopicPartition]] = {}
        for number, epoch, due, partition in items:
            told.setdefault((number, epoch, due.ref), []).append(partition)
        for (number, epoch, ref), partitions in told.items():
            self._tell(number, epoch, ref, partitions)

    def _tell(
        self, number: int, epoch: int, ref: TransactionRef, partitions: list[TopicPartition]
    ) -> None:
        self._coordinators.inform_one(number, epoch, MarkersWritten(ref, tuple(partitions)))

    def _rest(self, item: _Item) -> None:
        self._later.append(item)
        if self._retry is None and not self._is_stopped:
            self._retry = self._deadlines.add(RETRY_MS, self._try_again)

    def _rest_all(self, items: Iterable[_Item]) -> None:
        for item in items:
            self._rest(item)

    def _try_again(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        later, self._later = self._later, []
        self._route(later)

    async def stop(self) -> None:
        self._is_stopped = True
        self._deadlines.close()
        await self._batches.stop()
        self._nodes.close()


def _leader_of(image: MetadataImage, partition: TopicPartition) -> int | None:
    """None: there is no such partition."""
    state = image.named_partition(partition)
    return None if state is None else state.leader


def _marker(item: _Item, partition: PartitionId) -> Marker:
    due = item.due
    return Marker(
        partition,
        due.ref.producer_id,
        due.ref.producer_epoch,
        due.commit,
        item.coordinator_epoch,
        due.transaction_version,
    )


def _request(items: Iterable[_Item]) -> wire.WriteTxnMarkersRequest:
    markers: dict[tuple[int, TransactionRef], wire.WritableTxnMarker] = {}
    topics: dict[tuple[int, TransactionRef, str], wire.WritableTxnMarkerTopic] = {}
    for item in items:
        key = item.coordinator_epoch, item.due.ref
        marker = markers.get(key)
        if marker is None:
            marker = markers[key] = wire.WritableTxnMarker(
                producer_id=item.due.ref.producer_id,
                producer_epoch=item.due.ref.producer_epoch,
                transaction_result=item.due.commit,
                coordinator_epoch=item.coordinator_epoch,
                transaction_version=item.due.transaction_version,
            )
        name, index = item.partition
        topic = topics.get((*key, name))
        if topic is None:
            topic = topics[*key, name] = wire.WritableTxnMarkerTopic(name)
            marker.topics.append(topic)
        topic.partition_indexes.append(index)
    return wire.WriteTxnMarkersRequest(list(markers.values()))
