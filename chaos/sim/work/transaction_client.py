"""The requests of transactional producers, as any client sends them: one attempt each. It shares no
code with our client.

Clients of two kinds are simulated. The old ones add each partition to the transaction before they
write to it (KIP-98). For the new ones the brokers do that, and the epoch rises with every
transaction (KIP-890, transaction.version 2).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.generations import Membership
from chaos.sim.partition_name import PartitionName
from chaos.sim.world.clock import EPOCH_MS
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.api import Api
from stele.wire.kafka.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
    txn_offset_commit,
)

_GROUP, _TRANSACTION = 0, 1  # kinds of coordinators
_OLD_PRODUCE, _OLD_END, _OLD_OFFSETS = 11, 4, 4  # the last versions of clients of the old kind
_NAMES_TOPICS: Final = 12  # the last version of Produce that does
_OLD_ADD: Final = 3  # the last version of AddPartitionsToTxn that clients use
_PATIENCE_S: Final = 4.0

_ELSEWHERE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class ProducerEpoch(NamedTuple):
    """By which coordinators and logs know a process of a transactional producer."""

    producer_id: int = -1
    epoch: int = -1


NO_PRODUCER: Final = ProducerEpoch()


@dataclass(slots=True)
class TransactionClient:
    """All methods raise ApiError or OSError: there is no answer, and the outcome is unknown."""

    transactional_id: str
    connections: Connections
    rng: random.Random
    is_old: bool = False
    _coordinators: dict[tuple[int, str], int] = field(default_factory=dict)  # by kind and key
    _leaders: dict[PartitionName, int] = field(default_factory=dict)

    async def init(
        self,
        timeout_ms: int,
        *,
        two_phase: bool = False,
        keep_prepared: bool = False,
        producer: ProducerEpoch = NO_PRODUCER,
    ) -> init_producer_id.InitProducerIdResponse:
        """``producer``: of a process that goes on after an error (KIP-360)."""
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            enable2_pc=two_phase,
            keep_prepared_txn=keep_prepared,
        )
        answer: init_producer_id.InitProducerIdResponse = await self._ask(
            init_producer_id.API, request
        )
        self._heard(answer.error_code)
        return answer

    async def add(self, producer: ProducerEpoch, partition: PartitionName) -> ErrorCode:
        """Add a partition to the transaction, as old clients do."""
        topic, number = partition
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[number])
            ],
        )
        answer = await self._ask(add_partitions_to_txn.API, request, at_most=_OLD_ADD)
        (of_topic,) = answer.results_by_topic_v3_and_below
        return self._heard(of_topic.results_by_partition[0].partition_error_code)

    async def add_offsets(self, producer: ProducerEpoch, group_id: str) -> ErrorCode:
        """Say that the transaction will have offsets of a group, as old clients do."""
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )
        return self._heard((await self._ask(add_offsets_to_txn.API, request)).error_code)

    async def write(
        self,
        producer: ProducerEpoch,
        partition: PartitionName,
        sequence: int,
        values: Iterable[bytes],
    ) -> tuple[ErrorCode, int]:
        """Write a batch. Returns the offset of its first record, too."""
        topic, number = partition
        builder = BatchBuilder()
        for value in values:
            builder.append(None, value, timestamp_ms=EPOCH_MS)
        batch = builder.build(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=int(_PATIENCE_S * 1000),
            topic_data=[
                produce.TopicProduceData(
                    name=topic, partition_data=[produce.PartitionProduceData(number, batch)]
                )
            ],
        )
        answer = await self._ask_leader(partition, request)
        error = ErrorCode(answer.error_code)
        if error is not ErrorCode.NONE:
            self._leaders.pop(partition, None)
        return error, answer.base_offset

    async def commit_offsets(
        self,
        producer: ProducerEpoch,
        group_id: str,
        offsets: Mapping[PartitionName, tuple[int, str]],
        member: Membership,
    ) -> ErrorCode:
        """Make offsets and their metadata a part of the transaction, as this member of the group
        (KIP-447). Returns the first error."""
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        txn_offset_commit.TxnOffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, number), (offset, metadata) in offsets.items()
            ],
        )
        at_most = _OLD_OFFSETS if self.is_old else None
        coordinator = _GROUP, group_id
        answer = await self._ask(txn_offset_commit.API, request, coordinator, at_most=at_most)
        errors = [each.error_code for topic in answer.topics for each in topic.partitions]
        return self._heard(next((each for each in errors if each), 0), coordinator)

    async def end(self, producer: ProducerEpoch, *, commit: bool) -> end_txn.EndTxnResponse:
        request = end_txn.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        at_most = _OLD_END if self.is_old else None
        answer: end_txn.EndTxnResponse = await self._ask(end_txn.API, request, at_most=at_most)
        self._heard(answer.error_code)
        return answer

    # ------------------------------------------------------------------------- asking

    async def _ask(
        self,
        api: Api[Any, Any],
        message: Any,
        coordinator: tuple[int, str] | None = None,
        *,
        at_most: int | None = None,
    ) -> Any:
        coordinator = coordinator or (_TRANSACTION, self.transactional_id)
        if coordinator not in self._coordinators:
            await self._find(coordinator)
        try:
            return await self.connections.ask(
                self._coordinators[coordinator], api, message, at_most=at_most
            )
        except (ApiError, OSError):
            self._coordinators.pop(coordinator, None)
            raise

    async def _find(self, coordinator: tuple[int, str]) -> None:
        kind, key = coordinator
        broker = self.rng.choice(self.connections.brokers)
        request = find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        answer = await self.connections.ask(broker, find_coordinator.API, request)
        (found,) = answer.coordinators
        if found.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(found.error_code), found.error_message or "")
        self._coordinators[coordinator] = found.node_id

    def _heard(self, number: int, coordinator: tuple[int, str] | None = None) -> ErrorCode:
        error = ErrorCode(number)
        if error in _ELSEWHERE:
            self._coordinators.pop(coordinator or (_TRANSACTION, self.transactional_id), None)
        return error

    async def _ask_leader(
        self, partition: PartitionName, request: produce.ProduceRequest
    ) -> produce.PartitionProduceResponse:
        topic, number = partition
        if partition not in self._leaders:
            broker = self.rng.choice(self.connections.brokers)
            self._leaders |= await self.connections.leaders({topic: number + 1}, broker)
        leader = self._leaders.get(partition)
        if leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{number} has no leader")
        at_most = _OLD_PRODUCE if self.is_old else _NAMES_TOPICS
        try:
            answer = await self.connections.ask(
                leader, produce.API, request, at_most=at_most, timeout_s=_PATIENCE_S + 1.0
            )
        except (ApiError, OSError):
            self._leaders.pop(partition, None)
            raise
        return answer.responses[0].partition_responses[0]
