"""All replicas of this broker by id, and the carrying out of what their machines want."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast
from weakref import WeakValueDictionary

from broker.partition.effects import (
    Acknowledged,
    Advanced,
    Appended,
    BrokerStatus,
    Effect,
    Followed,
    Led,
    Proposed,
    Refused,
)
from broker.replication.events import ReplicaEvents
from broker.replication.replica import ProduceToken, Replica
from broker.replication.traffic import TopicTraffic
from broker.replication.types import LeaderHint
from metadata.image import MetadataImage
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.world import Clock
from storage.log import PartitionLog
from storage.producer_state import EndedTransaction

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ReplicaCounters:
    """Totals since start (`bytes_*`, `*_total`) and present values, for /metrics."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    throttled_bytes_in: int = 0
    throttled_bytes_out: int = 0
    failed_produce_total: int = 0
    refused_producers_total: int = 0
    isr_shrinks_total: int = 0
    isr_expands_total: int = 0
    transactions_cut_total: int = 0
    leader_count: int = 0
    partition_count: int = 0
    producer_ids: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    offline_replicas: int = 0


class Metadata(Protocol):
    """The one holder of the broker's metadata."""

    @property
    def image(self) -> MetadataImage:
        """As published last."""
        ...


class Replicas:
    """The registry that the parts of the replica manager share."""

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        metadata: Metadata,
        events: ReplicaEvents,
        deposed: Callable[[], bool],
        *,
        tells_high_watermarks_at_once: bool,
    ) -> None:
        """``deposed``: whether this broker leads nothing, whatever the image says.
        ``tells_high_watermarks_at_once``: followers hear of a risen high watermark at once, because
        they have consumers."""
        self.broker_id = broker_id
        self.clock = clock
        self.metadata = metadata
        self.deposed = deposed
        self.tells_high_watermarks_at_once = tells_high_watermarks_at_once
        self._events = events
        self.by_id: dict[PartitionId, Replica] = {}
        # Replicas that time may change: every leading one that is not settled. A replica that has
        # settled, or leads no more, leaves at the next look.
        self.unsettled: dict[PartitionId, None] = {}
        self.counters = ReplicaCounters()
        # Replicas of this broker that have no log here, because their directory is not open.
        self.unopened: Container[PartitionId] = ()
        # What ``status`` has found in the image: every fetch of a follower asks for it.
        self._statuses: dict[int, BrokerStatus] = {}
        self._image_of_statuses: MetadataImage | None = None
        # By topic, as long as there is a replica of it.
        self.traffic: WeakValueDictionary[str, TopicTraffic] = WeakValueDictionary()

    def __iter__(self) -> Iterator[Replica]:
        return iter(self.by_id.values())

    def traffic_of(self, topic: str) -> TopicTraffic:
        """What all replicas of a topic share."""
        traffic = self.traffic.get(topic)
        if traffic is None:
            traffic = self.traffic[topic] = TopicTraffic()
        return traffic

    def now_ms(self) -> float:
        return self.clock.monotonic() * 1000

    def status(self, broker_id: int) -> BrokerStatus:
        """What the metadata says of a broker that wants to replicate."""
        image = self.metadata.image
        if image is not self._image_of_statuses:
            self._image_of_statuses = image
            self._statuses.clear()
        status = self._statuses.get(broker_id)
        if status is None:
            registration = image.broker(broker_id)
            if registration is None:  # anybody may name any id, so it is not kept
                return BrokerStatus()
            status = BrokerStatus(registration.broker_epoch, registration.may_join_isr)
            self._statuses[broker_id] = status
        return status

    def registered_epoch(self, broker_id: int) -> int:
        """The epoch of a broker's registration, by the metadata."""
        return self.status(broker_id).epoch

    def listen(self, replica: Replica, log: PartitionLog) -> None:
        """Let the replica's machine hear of what happens to its log."""

        def made_durable(_: PartitionLog) -> None:
            effects = replica.machine.made_durable(replica.position, self.now_ms())
            if effects:
                self.carry_out(replica, effects)

        def ended(transaction: EndedTransaction) -> None:
            replica.machine.transaction_ended(transaction.first_offset, transaction.marker_offset)

        for transaction in log.transactions.undecided:
            ended(transaction)
        log.transactions.on_ended = ended
        log.on_durable = made_durable
        log.ask_high_watermark = lambda: replica.machine.high_watermark

    def hint(self, partition: PartitionId) -> LeaderHint:
        """The leader, by the metadata applied last."""
        state = self.metadata.image.partition(partition.topic_id, partition.partition)
        if state is None or (state.leader == self.broker_id and self.deposed()):
            return LeaderHint()
        return LeaderHint(state.leader, state.leader_epoch)

    def refusal(self, partition: PartitionId) -> ErrorCode:
        """Why a partition that has no replica here cannot be served."""
        if partition in self.unopened:
            return ErrorCode.KAFKA_STORAGE_ERROR
        topic = self.metadata.image.topic_by_id(partition.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not 0 <= partition.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def carry_out(self, replica: Replica, effects: Sequence[Effect]) -> None:
        """Do what a machine wants, in its order."""
        for effect in effects:
            match effect:
                case Appended():
                    self.unsettled[replica.id] = None
                    replica.wake_followers()
                case Advanced():
                    if self.tells_high_watermarks_at_once:
                        replica.stir_followers(wakes=True)
                    else:
                        replica.tell_followers_of_advance()
                    replica.wake_consumers()
                case Acknowledged(tokens):
                    for token in tokens:
                        cast(ProduceToken, token).acknowledge()
                case Refused(tokens, error):
                    for token in tokens:
                        cast(ProduceToken, token).refuse(error)
                case Proposed():
                    self._count_proposal(replica, effect)
                    self._events.proposed(replica, effect)
                case Led():
                    self._events.led(replica, effect)
                case Followed():
                    self._events.followed(replica, effect)

    def _count_proposal(self, replica: Replica, proposed: Proposed) -> None:
        growth = len(proposed.isr) - len(replica.machine.state.isr)
        if growth > 0:
            change = "grow"
            self.counters.isr_expands_total += 1
        elif growth < 0:
            change = "shrink"
            self.counters.isr_shrinks_total += 1
        else:
            return  # it only says that the leader has recovered
        logger.info(
            "%r: the ISR %s is to %s: %s",
            replica,
            list(replica.machine.state.isr),
            change,
            [member.broker_id for member in proposed.isr],
        )
