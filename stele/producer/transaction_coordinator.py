"""The coordinators that a transactional producer asks: of its transactional id, and of groups.

Partitions and groups join a transaction with their batches and offsets, and each transaction has an
epoch of its own (KIP-890). For that the cluster's ``transaction.version`` must be 2. At a lower
level Stele's brokers add a partition or group to the transaction in the same way, and the epoch
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from stele.cluster.coordinator import (
    MovingCoordinator,
    group_coordinator,
    transaction_coordinator,
)
from stele.cluster.kafka_connection import STELES_FEATURE
from stele.cluster.kafka_link import KafkaLink, Question, needs, question
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.config import ProducerConfig
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.producer.idempotence import Identity
from stele.producer.transaction_state import (
    CoordinatorAnswer,
    CoordinatorQuestion,
    End,
    Init,
    PreparedTransaction,
)
from stele.records import GroupMetadata, OffsetAndMetadata
from stele.wire import kafka
from stele.wire.kafka.messages import end_txn, init_producer_id, txn_offset_commit
from stele.wire.kafka.messages.end_txn import EndTxnResponse
from stele.wire.kafka.messages.init_producer_id import InitProducerIdResponse

_NO_PRODUCER: Final = Identity(-1, -1)
_NEW_EPOCHS: Final = 2  # of transaction.version
_TELLS_NEW_EPOCH: Final = 5
_KEEPS_EPOCH: Final = 4
"""The versions of EndTxn whose answer has the producer's new epoch, and the versions that leave the
epoch as it is.
"""
_ADDS_GROUP: Final = 5
_TWO_PHASE_COMMIT: Final = 6


class TransactionCoordinator:
    """The coordinator of one transactional id, and the coordinators of groups whose offsets are
    committed with it.

    All methods raise UnreachableError if a coordinator cannot be found or does not answer. They
    raise ApiError if no broker may name the coordinator, or if it does not know the request.
    """

    def __init__(self, config: ProducerConfig, view: ClusterView, transactional_id: str) -> None:
        self._config = config
        self._view = view
        self._id = transactional_id
        self._coordinator = transaction_coordinator(view, transactional_id)
        self._groups: dict[str, MovingCoordinator] = {}

    @property
    def where(self) -> str:
        """Which broker it is, or why none is known, in words."""
        return self._coordinator.where

    async def ask(
        self, question: CoordinatorQuestion, on_sending: Callable[[], None]
    ) -> CoordinatorAnswer:
        """``on_sending`` is called before the question leaves."""
        asked = self._init(question) if isinstance(question, Init) else self._end(question)
        answer = await self._coordinator.ask(asked, on_sending=on_sending)
        self._coordinator.note(answer.code)
        return answer

    def _init(self, asked: Init) -> Question[CoordinatorAnswer]:
        config = self._config
        who = asked.identity or _NO_PRODUCER
        has_two_phases = config.transaction_two_phase_commit_enable
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=config.transaction_timeout_ms,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            enable2_pc=has_two_phases,
            keep_prepared_txn=asked.keep_prepared,
        )
        at_least = _TWO_PHASE_COMMIT if has_two_phases else 0
        sent = question(init_producer_id.API, needs(init_producer_id.API, at_least, request))

        async def ask(link: KafkaLink, timeout_s: float) -> CoordinatorAnswer:
            await _has_new_epochs(link, timeout_s)
            told = await sent.ask(link, timeout_s)
            ongoing = None
            if asked.keep_prepared and told.ongoing_txn_producer_id >= 0:
                ongoing = PreparedTransaction(
                    told.ongoing_txn_producer_id, told.ongoing_txn_producer_epoch
                )
            return _answer(told, Identity(told.producer_id, told.producer_epoch), ongoing)

        return Question(sent.what, ask)

    def _end(self, asked: End) -> Question[CoordinatorAnswer]:
        api = end_txn.API
        request = end_txn.EndTxnRequest(
            self._id, asked.identity.producer_id, asked.identity.producer_epoch, asked.is_commit
        )

        async def ask(link: KafkaLink, timeout_s: float) -> CoordinatorAnswer:
            if await _has_new_epochs(link, timeout_s):
                sent = question(api, needs(api, _TELLS_NEW_EPOCH, request))
                told = await sent.ask(link, timeout_s)
                return _answer(told, Identity(told.producer_id, told.producer_epoch), None)
            sent = question(api, needs(api, 0, request), at_most=_KEEPS_EPOCH)
            return _answer(await sent.ask(link, timeout_s), asked.identity, None)

        return Question(api.key.name, ask)

    async def commit_offsets(
        self,
        identity: Identity,
        group: GroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
    ) -> tuple[dict[TopicPartition, ErrorCode], str]:
        """The error of each partition, and why."""
        coordinator = self._groups.get(group.group_id)
        if coordinator is None:
            coordinator = group_coordinator(self._view, group.group_id)
            self._groups[group.group_id] = coordinator
        topics: dict[
            tuple[str, bytes], list[txn_offset_commit.TxnOffsetCommitRequestPartition]
        ] = {}
        for name, each in offsets.items():
            topics.setdefault((name.topic, each.topic_id), []).append(
                txn_offset_commit.TxnOffsetCommitRequestPartition(
                    name.partition, each.offset, each.leader_epoch, each.metadata
                )
            )
        request = txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[
                # Kafka's brokers skip the id, and go by the name.
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    name, partitions, topic_id or kafka.ZERO_UUID
                )
                for (name, topic_id), partitions in topics.items()
            ],
        )
        api = txn_offset_commit.API
        told = await coordinator.ask(question(api, needs(api, _ADDS_GROUP, request)))
        found = {}
        why = told.error_message or ""
        for topic in told.topics:
            for part in topic.partitions:
                code = error_code(part.error_code)
                coordinator.note(code)
                found[TopicPartition(topic.name, part.partition_index)] = code
                why = why or part.error_message or explain(code)
        return found, why


async def _has_new_epochs(link: KafkaLink, timeout_s: float) -> bool:
    """Whether each transaction has an epoch of its own. Raises ApiError UNSUPPORTED_VERSION if not,
    and the brokers are Kafka's. RpcError."""
    features = await link.features(timeout_s=timeout_s)
    level = features.get("transaction.version", 0)
    if level < _NEW_EPOCHS and STELES_FEATURE not in features:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the cluster's transaction.version is {level}: our transactions need {_NEW_EPOCHS}",
        )
    return level >= _NEW_EPOCHS


def _answer(
    told: InitProducerIdResponse | EndTxnResponse,
    identity: Identity,
    ongoing: PreparedTransaction | None,
) -> CoordinatorAnswer:
    code = error_code(told.error_code)
    if code is not ErrorCode.NONE:
        return CoordinatorAnswer(code, told.error_message or explain(code), None, None)
    return CoordinatorAnswer(code, "", identity, ongoing)
