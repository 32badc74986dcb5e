"""A partition that this broker leads and writes itself: the log of one of its coordinators.

It writes by the one append path of all producers, as acks=all, but only in the leader epoch in
which its coordinator began: a leader that was deposed and elected again between a decision and its
append is another one, whose machine may have missed records of the leader in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.replication.led import LedPartition
from broker.replication.produce import ProduceRequests
from broker.replication.replica import (
    OnMarker,
    ProduceToken,
    Replica,
    ReplicaState,
    ReportCorrupt,
)
from broker.replication.replicas import Replicas
from broker.replication.shared import SharedPartition
from broker.replication.verification import Guard
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.batch import BatchHeader, Record, batches, decode
from stele.wire.control_records import EndMarker, decode_end_marker
from storage.errors import CorruptLogError
from storage.turns import Slices

_READ_BYTES = 1 << 20
_RECORDS_A_TURN = 500
VERIFIED_MAX: Final = 10_000
"""Producers whose transactions are confirmed and that have not written yet."""


class Loaded(NamedTuple):
    """Records of one batch."""

    records: Sequence[Record]
    producer_id: int = -1
    """The producer of the transaction that they are part of, or whose end they are; -1: none."""
    marker: EndMarker | None = None
    """What the one record says, if it is the end of the transaction."""


class HostedPartition(LedPartition):
    """One partition in one leader epoch, as its coordinator writes and reads it."""

    def __init__(
        self,
        replica: Replica,
        produce: ProduceRequests,
        *,
        lease_valid: Callable[[], bool],
        deposed: Callable[[], bool],
        on_corrupt: ReportCorrupt,
    ) -> None:
        super().__init__(replica, lease_valid=lease_valid, deposed=deposed)
        self._produce = produce
        self._on_corrupt = on_corrupt
        self._on_marker: OnMarker | None = None
        # By producer id: the epoch whose transaction a coordinator has confirmed, while the log
        # does not have the transaction yet. In the order of confirmations, VERIFIED_MAX at most.
        self._verified: dict[int, tuple[int, Guard]] = {}

    @property
    def write_refusal(self) -> ErrorCode:
        """Why nothing can be appended now; NONE: it can."""
        if self.replica.machine.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return self.refusal

    def begin_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        *,
        adds: bool,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Have it confirmed that the partition is part of a transaction, unless its log says so.
        ``adds``: it is made part of it. ``done`` is called exactly once, perhaps at once."""
        replica = self.replica
        if not self.is_led:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.log.producers.is_open(producer_id, producer_epoch):
            done(ErrorCode.NONE)
        else:
            transactional = self._produce.transactional
            guard = transactional.guards.of(replica, producer_id, producer_epoch)

            def decided(error: ErrorCode) -> None:
                if guard.is_over:  # the next transaction of the epoch has a verdict of its own
                    error = ErrorCode.INVALID_TXN_STATE
                if error is ErrorCode.NONE:
                    self._remember(producer_id, producer_epoch, guard)
                done(error)

            transactional.verifier.verify(
                transactional_id,
                producer_id,
                producer_epoch,
                TopicPartition(replica.topic, replica.id.partition),
                add=adds,
                done=decided,
            )

    def _remember(self, producer_id: int, producer_epoch: int, guard: Guard) -> None:
        """A producer whose group refuses its offsets never writes. So the oldest is forgotten: who
        writes does it in the next turns of the event loop."""
        self._verified.pop(producer_id, None)
        self._verified[producer_id] = producer_epoch, guard
        if len(self._verified) > VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]

    def transaction_refusal(self, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Why a batch of the producer's transaction cannot be appended; NONE: the transaction is
        open in the log, or was confirmed, and no marker has ended it since."""
        if not self.is_led:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        producers = self.log.producers
        entry = producers.get(producer_id)
        if entry is not None and producer_epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if producers.is_open(producer_id, producer_epoch):
            self._verified.pop(producer_id, None)
            return ErrorCode.NONE
        verified = self._verified.get(producer_id)
        if verified is None:
            return ErrorCode.INVALID_TXN_STATE
        epoch, guard = verified
        if epoch != producer_epoch:
            return ErrorCode.INVALID_TXN_STATE
        if not guard.holds(self.replica):
            del self._verified[producer_id]
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    @property
    def max_batch_bytes(self) -> int:
        return self.replica.config.max_message_bytes

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    def append(self, batch: bytearray, token: ProduceToken) -> int:
        """Append one batch, whose buffer is given away; its base offset. ``token`` hears when it is
        committed, or that the ISR has become too small for that.

        Raises ApiError, StorageError: nothing was appended.
        """
        return self._produce.append_own(self.replica, batch, self.leader_epoch, token)

    def watch(self, on_advanced: Callable[[], None], on_marker: OnMarker) -> None:
        """Have ``on_advanced`` called when the high watermark has risen, and sometimes when it has
        not, and ``on_marker`` for each end of a transaction that is appended from now on."""
        self.replica.consumers[self] = on_advanced
        self.replica.on_marker = self._on_marker = on_marker

    def unwatch(self) -> None:
        self.replica.consumers.pop(self, None)
        if self.replica.on_marker is self._on_marker:  # else that of a later leader epoch
            self.replica.on_marker = None

    async def records(self) -> AsyncIterator[Loaded]:
        """All records up to the log's end but for other control records than the ends of
        transactions, as many as fit into a turn of the event loop at a time.

        Raises ApiError: it is not led any more, or its log cannot be read.
        """
        offset = self.log.start_offset
        slices = Slices(_RECORDS_A_TURN)
        while offset < self.log.end_offset:
            log = self.log
            try:
                result = log.read(offset, _READ_BYTES)
                if result.cold is not None:
                    await log.warm(result.cold)
            except CorruptLogError as error:
                self._on_corrupt(self.replica, log, error)
                raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            self.check_led()
            for position, header in batches(result.data):
                for loaded in _loaded(header, decode(result.data, position), offset):
                    yield loaded
                    if await slices.step(len(loaded.records)):
                        self.check_led()
            offset = result.next_offset


class Hosting:
    """Hands out the partitions that this broker leads to its coordinators and share groups."""

    def __init__(
        self,
        replicas: Replicas,
        produce: ProduceRequests,
        lease_valid: Callable[[], bool],
        on_corrupt: ReportCorrupt,
    ) -> None:
        self._replicas = replicas
        self._produce = produce
        self._lease_valid = lease_valid
        self._on_corrupt = on_corrupt
        self._listeners: list[Callable[[PartitionId], None]] = []

    def host(self, partition: PartitionId) -> HostedPartition | None:
        """The partition, if this broker leads it and its log is there."""
        replica = self._led(partition)
        if replica is None:
            return None
        return HostedPartition(
            replica,
            self._produce,
            lease_valid=self._lease_valid,
            deposed=self._replicas.deposed,
            on_corrupt=self._on_corrupt,
        )

    def share(self, partition: PartitionId) -> SharedPartition | None:
        """The same for share groups."""
        replica = self._led(partition)
        if replica is None:
            return None
        return SharedPartition(
            replica,
            lease_valid=self._lease_valid,
            deposed=self._replicas.deposed,
            on_corrupt=self._on_corrupt,
        )

    def _led(self, partition: PartitionId) -> Replica | None:
        replica = self._replicas.by_id.get(partition)
        if replica is None or replica.state is not ReplicaState.ONLINE:
            return None
        return replica if replica.machine.is_leader else None

    def when_leading(self, listener: Callable[[PartitionId], None]) -> None:
        """Have the listener called whenever this broker begins to lead a partition in a leader
        epoch. That may be later than the metadata say so, if the log has to be made first."""
        self._listeners.append(listener)

    def leads(self, partition: PartitionId) -> None:
        """This broker begins to lead the partition."""
        for listener in self._listeners:
            listener(partition)


def _loaded(header: BatchHeader, found: list[Record], start_offset: int) -> Iterator[Loaded]:
    """The records of a batch from an offset on, in parts."""
    if found and found[0].offset < start_offset:
        found = [each for each in found if each.offset >= start_offset]
    producer_id = header.producer_id if header.is_transactional else -1
    if not header.is_control:
        for start in range(0, len(found), _RECORDS_A_TURN):
            yield Loaded(found[start : start + _RECORDS_A_TURN], producer_id)
        return
    for each in found:
        marker = decode_end_marker(each)
        if marker is not None:
            yield Loaded([each], producer_id, marker)
