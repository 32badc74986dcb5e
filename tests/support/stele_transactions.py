"""Transactions in the cluster of the client's tests: a coordinator that fails on order.

It is deliberately dumb. It is the same one whichever broker is asked, it ends a transaction in the
turn that decides, and knows nothing of time-outs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stele.aio import Producer
from stele.cluster.messages import NO_LEADER, CoordinatorKind, ProduceAnswer, ProduceRequest
from stele.errors import (
    ErrorCode,
)
from stele.wire.batch import decode, read_header, stamp
from stele.wire.control_records import decode_end_marker, end_marker_batch
from stele.wire.kafka.messages import (
    end_txn,
    find_coordinator,
    init_producer_id,
    txn_offset_commit,
)
from tests.support.stele import LOST, FakeCluster, FakePartition, Stage, on_stage
from tests.support.worlds import Scenario, gives


@dataclass(slots=True)
class TransactionFault:
    """The fate of the next request of a method. ``applied``: it takes effect all the same.
    ``is_lost``: there is no answer."""

    error: ErrorCode = ErrorCode.NONE
    applied: bool = False
    is_lost: bool = False


class Ended(NamedTuple):
    """The last transaction that was ended: its producer, how, and the producer that goes on."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


@dataclass(slots=True)
class FakeTransactionalId:
    producer_id: int
    producer_epoch: int = 0  # of the client
    data_epoch: int = 0  # of the records of the open transaction
    partitions: list[FakePartition] = field(default_factory=list)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)  # pending
    is_two_phase: bool = False
    ended: Ended | None = None

    @property
    def is_open(self) -> bool:
        return bool(self.partitions or self.offsets)


class FakeTransactions:
    """Installed in a cluster, it coordinates transactions and checks transactional batches."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.ids: dict[str, FakeTransactionalId] = {}
        self.committed_offsets: dict[tuple[str, str, int], int] = {}
        self.coordinator = 1
        self.faults: dict[str, deque[TransactionFault]] = {}
        self.asked: list[str] = []  # the methods of questions to the coordinator
        self.group_errors: deque[ErrorCode] = deque()  # of the next commits of offsets
        self._produce = cluster.produce
        cluster.produce = self._checked_produce  # type: ignore[method-assign]
        for api, handle in (
            (find_coordinator.API, self._find),
            (init_producer_id.API, self._init),
            (end_txn.API, self._end),
            (txn_offset_commit.API, self._offsets),
        ):
            cluster.answer(api, self._handler(handle))

    def fail(self, method: str, *faults: TransactionFault) -> None:
        self.faults.setdefault(method, deque()).extend(faults)

    def _handler(self, handle: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        def answer(broker: int, request: Any) -> Any:
            method = _name(request)
            self.asked.append(method)
            queue = self.faults.get(method)
            fault = queue.popleft() if queue else TransactionFault()
            told = None
            if not fault.error or fault.applied:
                told = handle(broker, request)
            if fault.is_lost:
                raise LOST
            if fault.error:
                return _refusal(request, fault.error)
            return told

        return answer

    # ------------------------------------------------------------------------ coordinator

    def _find(self, broker: int, request: find_coordinator.FindCoordinatorRequest) -> Any:
        """Up to version 3 there is one key, and one answer."""
        found = [
            find_coordinator.Coordinator(each, self.coordinator)
            for each in request.coordinator_keys
        ]
        return find_coordinator.FindCoordinatorResponse(
            node_id=self.coordinator, coordinators=found
        )

    def _init(self, broker: int, request: init_producer_id.InitProducerIdRequest) -> Any:
        if request.transactional_id is None:
            self.cluster.next_producer_id += 1
            return init_producer_id.InitProducerIdResponse(
                producer_id=self.cluster.next_producer_id
            )
        if broker != self.coordinator:
            return _refusal(request, ErrorCode.NOT_COORDINATOR)
        known = self.ids.get(request.transactional_id)
        if known is None:
            self.cluster.next_producer_id += 1
            known = FakeTransactionalId(self.cluster.next_producer_id, -1, -1)
            self.ids[request.transactional_id] = known
        elif request.producer_id >= 0 and (
            (request.producer_id, request.producer_epoch)
            != (known.producer_id, known.producer_epoch)
        ):
            return _refusal(request, ErrorCode.PRODUCER_FENCED)
        answer = init_producer_id.InitProducerIdResponse()
        known.is_two_phase = request.enable2_pc
        known.producer_epoch += 1
        if request.keep_prepared_txn and known.is_open:
            answer.ongoing_txn_producer_id = known.producer_id
            answer.ongoing_txn_producer_epoch = known.data_epoch
        else:
            self._finish(known, is_commit=False)
            known.data_epoch = known.producer_epoch
        known.ended = None
        answer.producer_id, answer.producer_epoch = known.producer_id, known.producer_epoch
        return answer

    def _end(self, broker: int, request: end_txn.EndTxnRequest) -> Any:
        if broker != self.coordinator:
            return _refusal(request, ErrorCode.NOT_COORDINATOR)
        known = self.ids[request.transactional_id]
        asked = Ended(request.producer_id, request.producer_epoch, request.committed)
        if asked != known.ended:
            if asked[:2] != (known.producer_id, known.producer_epoch):
                return _refusal(request, ErrorCode.PRODUCER_FENCED)
            if not known.is_open and request.committed:
                return _refusal(request, ErrorCode.INVALID_TXN_STATE)
            known.producer_epoch += 1
            self._finish(known, is_commit=request.committed)
            known.data_epoch = known.producer_epoch
            known.ended = asked
        return end_txn.EndTxnResponse(
            producer_id=known.producer_id, producer_epoch=known.producer_epoch
        )

    def _finish(self, known: FakeTransactionalId, *, is_commit: bool) -> None:
        for partition in known.partitions:
            batch = end_marker_batch(
                known.producer_id,
                known.producer_epoch,
                commit=is_commit,
                coordinator_epoch=0,
                timestamp_ms=0,
            )
            stamp(
                batch,
                0,
                base_offset=partition.end_offset,
                leader_epoch=partition.leader_epoch,
            )
            partition.batches.append(batch)
            partition.end_offset += 1
        if is_commit:
            self.committed_offsets.update(known.offsets)
        known.partitions.clear()
        known.offsets.clear()

    # ------------------------------------------------------------------- offsets of groups

    def _offsets(self, broker: int, request: txn_offset_commit.TxnOffsetCommitRequest) -> Any:
        if self.group_errors:
            return _refusal(request, self.group_errors.popleft())
        known = self.ids[request.transactional_id]
        if (request.producer_id, request.producer_epoch) != (known.producer_id, known.data_epoch):
            return _refusal(request, ErrorCode.INVALID_PRODUCER_EPOCH)
        for topic in request.topics:
            for each in topic.partitions:
                place = request.group_id, topic.name, each.partition_index
                known.offsets[place] = each.committed_offset
        return _refusal(request, ErrorCode.NONE)

    # ---------------------------------------------------------------------------- batches

    def _checked_produce(
        self, broker: int, request: ProduceRequest
    ) -> tuple[list[ProduceAnswer] | None, bool]:
        headers = [read_header(part.records) for part in request.partitions]
        assert all(each.is_transactional == bool(request.transactional_id) for each in headers)
        if not request.transactional_id:
            return self._produce(broker, request)
        known = self.ids[request.transactional_id]
        current = (known.producer_id, known.data_epoch)
        if any((each.producer_id, each.producer_epoch) != current for each in headers):
            code = ErrorCode.INVALID_PRODUCER_EPOCH
            return [
                ProduceAnswer("", each.topic_id, each.partition, code, "", 0, -1, NO_LEADER)
                for each in request.partitions
            ], False
        for part in request.partitions:
            for topic in self.cluster.topics.values():
                if topic.topic_id == part.topic_id:
                    partition = topic.partitions[part.partition]
                    if not any(each is partition for each in known.partitions):
                        known.partitions.append(partition)
        return self._produce(broker, request)

    # ----------------------------------------------------------------------------- readers

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        """The values that a reader of committed records gets, in the order of the commits. Fails
        for records of a transaction that is still open."""
        found: list[bytes | None] = []
        opened: dict[int, list[bytes | None]] = {}
        for batch in self.cluster.partition(topic, partition).batches:
            header = read_header(batch)
            records = list(decode(batch))
            if header.is_control:
                marker = decode_end_marker(records[0])
                assert marker is not None
                written = opened.pop(header.producer_id, [])
                found += written if marker.commit else []
            elif header.is_transactional:
                opened.setdefault(header.producer_id, []).extend(each.value for each in records)
            else:
                found += [each.value for each in records]
        assert not opened, "a transaction is open"
        return found


def _name(request: Any) -> str:
    """What is asked. The coordinators of groups and of transactions are two things."""
    if isinstance(request, find_coordinator.FindCoordinatorRequest):
        return "FindGroup" if request.key_type == CoordinatorKind.GROUP else "FindTransaction"
    if isinstance(request, init_producer_id.InitProducerIdRequest):
        return "InitProducerId"
    return "EndTxn" if isinstance(request, end_txn.EndTxnRequest) else "TxnOffsetCommit"


def _refusal(request: Any, error: ErrorCode) -> Any:
    """The answer with this error in every part."""
    if isinstance(request, find_coordinator.FindCoordinatorRequest):
        found = [
            find_coordinator.Coordinator(each, -1, error_code=error)
            for each in request.coordinator_keys
        ]
        return find_coordinator.FindCoordinatorResponse(error_code=error, coordinators=found)
    if isinstance(request, init_producer_id.InitProducerIdRequest):
        return init_producer_id.InitProducerIdResponse(error_code=error)
    if isinstance(request, end_txn.EndTxnRequest):
        return end_txn.EndTxnResponse(error_code=error)
    return txn_offset_commit.TxnOffsetCommitResponse(
        topics=[
            txn_offset_commit.TxnOffsetCommitResponseTopic(
                topic.name,
                [
                    txn_offset_commit.TxnOffsetCommitResponsePartition(each.partition_index, error)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@gives("stage", "transactions")
def with_transactions(scenario: Scenario) -> None:
    async def whole(stage: Stage) -> None:
        stage.cluster.create("t", 2)
        await scenario(stage, FakeTransactions(stage.cluster))

    on_stage.run(whole)


def transactional(stage: Stage, **options: Any) -> Producer:
    return stage.producer(**{"transactional_id": "tx", "max_block_ms": 5_000, **options})
