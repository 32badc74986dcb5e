"""The coordinators of a transactional producer over gRPC: ``stele.v1.Transactions``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from stele.cluster.coordinator import (
    MovingCoordinator,
    group_coordinator,
    transaction_coordinator,
)
from stele.cluster.grpc_plane import call
from stele.cluster.plane import error_code
from stele.cluster.view import ClusterView
from stele.config import ProducerConfig
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.producer.idempotence import Identity
from stele.producer.transactions import Answer, End, Init, PreparedTransaction, Question
from stele.records import GroupMetadata, OffsetAndMetadata
from stele.wire.v1 import transactions_pb2 as pb

SERVICE: Final = "/stele.v1.Transactions/"


class GrpcTransactionCoordinator:
    def __init__(self, config: ProducerConfig, view: ClusterView, transactional_id: str) -> None:
        self._config = config
        self._view = view
        self._id = transactional_id
        self._coordinator = transaction_coordinator(view, transactional_id)
        self._groups: dict[str, MovingCoordinator] = {}

    @property
    def where(self) -> str:
        return self._coordinator.where

    async def ask(self, question: Question, on_sending: Callable[[], None]) -> Answer:
        if isinstance(question, Init):
            answer = await self._init(question, on_sending)
        else:
            answer = await self._end(question, on_sending)
        self._coordinator.note(answer.code)
        return answer

    async def _init(self, question: Init, on_sending: Callable[[], None]) -> Answer:
        request = pb.InitTransactionsRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._config.transaction_timeout_ms,
            enable_two_phase_commit=self._config.transaction_two_phase_commit_enable,
            keep_prepared_transaction=question.keep_prepared,
        )
        if question.identity is not None:
            request.producer_id, request.producer_epoch = question.identity
        told = await self._coordinator.ask(
            call(f"{SERVICE}InitTransactions", request, pb.InitTransactionsResponse.FromString),
            on_sending=on_sending,
        )
        ongoing = None
        if question.keep_prepared and told.ongoing_producer_id >= 0:
            ongoing = PreparedTransaction(told.ongoing_producer_id, told.ongoing_producer_epoch)
        return _answer(told, ongoing)

    async def _end(self, question: End, on_sending: Callable[[], None]) -> Answer:
        told = await self._coordinator.ask(
            call(
                f"{SERVICE}EndTransaction",
                pb.EndTransactionRequest(
                    transactional_id=self._id,
                    producer_id=question.identity.producer_id,
                    producer_epoch=question.identity.producer_epoch,
                    is_commit=question.is_commit,
                ),
                pb.EndTransactionResponse.FromString,
            ),
            on_sending=on_sending,
        )
        return _answer(told, None)

    async def commit_offsets(
        self,
        identity: Identity,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> tuple[dict[TopicPartition, ErrorCode], str]:
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = group_coordinator(self._view, group.group_id)
            self._groups[group.group_id] = coordinator
        request = pb.CommitTransactionOffsetsRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group=group.group_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
        )
        if group.generation_id >= 0:
            request.generation = group.generation_id
        for name, each in offsets.items():
            request.partitions.add(
                topic=name.topic,
                partition=name.partition,
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                topic_id=each.topic_id,
            )
        told = await coordinator.ask(
            call(
                f"{SERVICE}CommitTransactionOffsets",
                request,
                pb.CommitTransactionOffsetsResponse.FromString,
            )
        )
        code = error_code(told.error)
        coordinator.note(code)
        if code is not ErrorCode.NONE:
            return dict.fromkeys(offsets, code), told.message
        found = {
            TopicPartition(each.topic, each.partition): error_code(each.error)
            for each in told.partitions
        }
        for name in found:
            coordinator.note(found[name])
        return found, told.message


def _answer(told: Any, ongoing: PreparedTransaction | None) -> Answer:
    code = error_code(told.error)
    identity = None
    if code is ErrorCode.NONE:
        identity = Identity(told.producer_id, told.producer_epoch)
    return Answer(code, told.message, identity, ongoing)
