"""Transactions in the cluster of the client's tests: a coordinator that fails as told.

It is deliberately dumb. It is the same one whichever broker is asked, it ends a transaction in the
turn that decides, and knows nothing of time-outs.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stele.errors import ErrorCode
from stele.wire.batch import decode, read_header, stamp
from stele.wire.control_records import decode_end_marker, end_marker_batch
from stele.wire.v1 import data_pb2, groups_pb2
from stele.wire.v1 import transactions_pb2 as pb
from tests.support.stele import LOST, FakeCluster, FakePartition


@dataclass(slots=True)
class TransactionFault:
    """The fate of the next request of a method. ``applied``: it takes effect all the same.
    ``is_lost``: there is no answer."""

    error: ErrorCode = ErrorCode.NONE
    applied: bool = False
    is_lost: bool = False


class Ended(NamedTuple):
    """The last transaction that was ended: as whom, how, and as whom the producer goes on."""

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
    """Installed in a cluster, it answers stele.v1.Transactions and checks transactional batches."""

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
        for method, (request, handle) in {
            "FindTransactionCoordinators": (pb.FindTransactionCoordinatorsRequest, self._find),
            "FindCoordinator": (groups_pb2.FindCoordinatorRequest, self._find_group),
            "InitTransactions": (pb.InitTransactionsRequest, self._init),
            "EndTransaction": (pb.EndTransactionRequest, self._end),
            "CommitTransactionOffsets": (pb.CommitTransactionOffsetsRequest, self._offsets),
        }.items():
            cluster.others[method] = self._handler(method, request, handle)

    def fail(self, method: str, *faults: TransactionFault) -> None:
        self.faults.setdefault(method, deque()).extend(faults)

    def _handler(self, method: str, request_type: Any, handle: Any) -> Any:
        def answer(broker: int, payload: bytes) -> Any:
            self.asked.append(method)
            queue = self.faults.get(method)
            fault = queue.popleft() if queue else TransactionFault()
            told = None
            if not fault.error or fault.applied:
                told = handle(broker, request_type.FromString(payload))
            if fault.is_lost:
                raise LOST
            if fault.error:
                return _refusal(method, fault.error)
            return told

        return answer

    # ------------------------------------------------------------------------ coordinator

    def _find(
        self, broker: int, request: pb.FindTransactionCoordinatorsRequest
    ) -> pb.FindTransactionCoordinatorsResponse:
        answer = pb.FindTransactionCoordinatorsResponse()
        for each in request.transactional_ids:
            answer.coordinators.add(transactional_id=each, broker_id=self.coordinator)
        return answer

    def _find_group(
        self, broker: int, request: groups_pb2.FindCoordinatorRequest
    ) -> groups_pb2.FindCoordinatorResponse:
        answer = groups_pb2.FindCoordinatorResponse()
        for each in request.groups:
            answer.coordinators.add(group=each, broker_id=self.coordinator)
        return answer

    def _init(
        self, broker: int, request: pb.InitTransactionsRequest
    ) -> pb.InitTransactionsResponse:
        if broker != self.coordinator:
            return pb.InitTransactionsResponse(error=ErrorCode.NOT_COORDINATOR)
        known = self.ids.get(request.transactional_id)
        if known is None:
            self.cluster.next_producer_id += 1
            known = FakeTransactionalId(self.cluster.next_producer_id, -1, -1)
            self.ids[request.transactional_id] = known
        elif request.HasField("producer_id") and (
            (request.producer_id, request.producer_epoch)
            != (known.producer_id, known.producer_epoch)
        ):
            return pb.InitTransactionsResponse(error=ErrorCode.PRODUCER_FENCED)
        answer = pb.InitTransactionsResponse(ongoing_producer_id=-1, ongoing_producer_epoch=-1)
        known.is_two_phase = request.enable_two_phase_commit
        known.producer_epoch += 1
        if request.keep_prepared_transaction and known.is_open:
            answer.ongoing_producer_id = known.producer_id
            answer.ongoing_producer_epoch = known.data_epoch
        else:
            self._finish(known, is_commit=False)
            known.data_epoch = known.producer_epoch
        known.ended = None
        answer.producer_id, answer.producer_epoch = known.producer_id, known.producer_epoch
        return answer

    def _end(self, broker: int, request: pb.EndTransactionRequest) -> pb.EndTransactionResponse:
        if broker != self.coordinator:
            return pb.EndTransactionResponse(error=ErrorCode.NOT_COORDINATOR)
        known = self.ids[request.transactional_id]
        asked = Ended(request.producer_id, request.producer_epoch, request.is_commit)
        if asked != known.ended:
            if asked[:2] != (known.producer_id, known.producer_epoch):
                return pb.EndTransactionResponse(error=ErrorCode.PRODUCER_FENCED)
            if not known.is_open and request.is_commit:
                return pb.EndTransactionResponse(error=ErrorCode.INVALID_TXN_STATE)
            known.producer_epoch += 1
            self._finish(known, is_commit=request.is_commit)
            known.data_epoch = known.producer_epoch
            known.ended = asked
        return pb.EndTransactionResponse(
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

    def _offsets(
        self, broker: int, request: pb.CommitTransactionOffsetsRequest
    ) -> pb.CommitTransactionOffsetsResponse:
        if self.group_errors:
            return pb.CommitTransactionOffsetsResponse(error=self.group_errors.popleft())
        known = self.ids[request.transactional_id]
        if (request.producer_id, request.producer_epoch) != (known.producer_id, known.data_epoch):
            return pb.CommitTransactionOffsetsResponse(error=ErrorCode.INVALID_PRODUCER_EPOCH)
        answer = pb.CommitTransactionOffsetsResponse()
        for each in request.partitions:
            known.offsets[request.group, each.topic, each.partition] = each.offset
            answer.partitions.add(topic=each.topic, partition=each.partition)
        return answer

    # ---------------------------------------------------------------------------- batches

    def _checked_produce(
        self, broker: int, request: data_pb2.ProduceRequest
    ) -> tuple[data_pb2.ProduceResponse | None, bool]:
        headers = [read_header(part.records) for part in request.partitions]
        assert all(each.is_transactional == bool(request.transactional_id) for each in headers)
        if not request.transactional_id:
            return self._produce(broker, request)
        known = self.ids[request.transactional_id]
        current = (known.producer_id, known.data_epoch)
        if any((each.producer_id, each.producer_epoch) != current for each in headers):
            answer = data_pb2.ProduceResponse(correlation_id=request.correlation_id)
            for part in request.partitions:
                answer.partitions.add(
                    topic_id=part.topic_id,
                    partition=part.partition,
                    leader=-1,
                    error=ErrorCode.INVALID_PRODUCER_EPOCH,
                )
            return answer, False
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


def _refusal(method: str, error: ErrorCode) -> Any:
    if method == "FindTransactionCoordinators":
        answer = pb.FindTransactionCoordinatorsResponse()
        answer.coordinators.add(error=error)
        return answer
    if method == "FindCoordinator":
        groups = groups_pb2.FindCoordinatorResponse()
        groups.coordinators.add(error=error)
        return groups
    return getattr(pb, f"{method}Response")(error=error)
