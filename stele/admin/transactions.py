"""Administration of transactions, and of producers whose transactions hang (KIP-664)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from stele.admin.coordinators import TRANSACTIONS, Coordinators
from stele.admin.grpc_calls import Message, call
from stele.admin.items import all_or_raise
from stele.admin.part import AdminPart
from stele.admin.requests import AdminRequests
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import transactions_pb2 as pb

AnswerT = TypeVar("AnswerT")

SERVICE: Final = "/stele.v1.Transactions/"

LONGEST_TRANSACTION_MS: Final = 900_000
"""The default of the brokers' ``transaction.max.timeout.ms``."""

_FENCING_TIMEOUT_MS: Final = 1_000
"""The timeout of the producer that takes an id over, and begins no transaction."""


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, its producer and the state of its transaction."""

    transactional_id: str
    producer_id: int
    state: str  # Kafka's name: Empty, Ongoing, PrepareCommit, CompleteCommit, …


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its transaction, as the coordinator knows them."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None  # None: there is no transaction
    # The partitions of the transaction. While it is being ended: those whose marker is not written.
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerDescription:
    """A producer, as the leader of a partition knows it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int  # -1: none since the epoch began
    last_timestamp_ms: int
    coordinator_epoch: int  # of the last marker; -1: none
    transaction_start_offset: int | None  # None: it has no transaction in the partition


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition but that no coordinator knows."""

    partition: TopicPartition
    producer: ProducerDescription


class TransactionAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for transactions."""

    def __init__(self, view: ClusterView, requests: AdminRequests) -> None:
        super().__init__(view, requests)
        self._coordinators = Coordinators(view, TRANSACTIONS)

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_duration_ms: int = 0,
    ) -> list[TransactionListing]:
        """All transactional ids, in their order.

        A filter that is empty matches all. ``min_duration_ms`` selects transactions that have been
        open for longer. Raises ApiError INVALID_REQUEST for a state that does not exist.
        """
        request = pb.ListTransactionsRequest(
            states=states, producer_ids=producer_ids, min_duration_ms=min_duration_ms
        )
        answers = await self._coordinators.ask_all_brokers(
            "ListTransactions", request, pb.ListTransactionsResponse.FromString
        )
        for answer in answers:
            if answer.unknown_states:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"there are no such states: {', '.join(answer.unknown_states)}",
                )
        # An id that moves meanwhile may be listed by both brokers.
        found = {
            each.transactional_id: TransactionListing(
                each.transactional_id, each.producer_id, each.state
            )
            for answer in answers
            for each in answer.transactions
        }
        return [found[name] for name in sorted(found)]

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> list[TransactionDescription]:
        """Transactional ids with their transactions, in the order of the call. Raises BulkError
        with TRANSACTIONAL_ID_NOT_FOUND.
        """
        found, failed = await self._describe(transactional_ids)
        return all_or_raise(failed, list(found.values()))

    async def _describe(
        self, transactional_ids: Iterable[str]
    ) -> tuple[dict[str, TransactionDescription], dict[str, ApiError]]:
        answers = await self._coordinators.ask_each(
            transactional_ids,
            "DescribeTransactions",
            lambda names: pb.DescribeTransactionsRequest(transactional_ids=names),
            pb.DescribeTransactionsResponse.FromString,
            lambda answer: answer.transactions,
        )
        failed = {name: each for name, each in answers.items() if isinstance(each, ApiError)}
        found = {
            name: _description(each.coordinator.broker_id, each.told)
            for name, each in answers.items()
            if not isinstance(each, ApiError)
        }
        return found, failed

    async def fence_producer(self, transactional_id: str) -> None:
        """Take the transactional id over. Its producer is fenced, and its open transaction, even a
        prepared one, is aborted.

        Raises ApiError.
        """
        await self._coordinators.ask(
            transactional_id,
            "InitTransactions",
            pb.InitTransactionsRequest(
                transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
            ),
            pb.InitTransactionsResponse.FromString,
        )

    async def forget_transactional_ids(self, transactional_ids: Iterable[str]) -> None:
        """Have the coordinators forget ids that nobody will use again, now instead of after
        ``transactional.id.expiration.ms``. Waits for the end of transactions that are decided.

        Raises BulkError: INVALID_TXN_STATE for an id with an open transaction, UNSUPPORTED_VERSION
        from brokers that are older.
        """
        answers = await self._coordinators.ask_each(
            transactional_ids,
            "ForgetTransactionalIds",
            lambda names: pb.ForgetTransactionalIdsRequest(transactional_ids=names),
            pb.ForgetTransactionalIdsResponse.FromString,
            lambda answer: answer.transactional_ids,
        )
        failed = {name: each for name, each in answers.items() if isinstance(each, ApiError)}
        all_or_raise(failed, [])

    # ------------------------------------------------------------------- leaders of partitions

    async def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """The idempotent and transactional producers that the leader of each partition knows.
        Raises BulkError.
        """
        wanted = list(dict.fromkeys(TopicPartition(*each) for each in partitions))
        found: dict[TopicPartition, list[ProducerDescription]] = {}
        failed: dict[str, ApiError] = {}

        async def attempt() -> None:
            missing = [each for each in wanted if each not in found and str(each) not in failed]
            problem: ApiError | None = None
            for broker_id, names in (await self._by_leader(missing)).items():
                request = pb.DescribeProducersRequest()
                for name in names:
                    request.topics.add(topic=name.topic, partitions=[name.partition])
                answer = await self._ask(
                    broker_id, "DescribeProducers", request, pb.DescribeProducersResponse.FromString
                )
                for name, each in zip(names, answer.partitions, strict=True):
                    code = error_code(each.error)
                    if code is ErrorCode.NONE:
                        found[name] = [_producer(told) for told in each.producers]
                        continue
                    error = ApiError(code, f"{name}: {each.message or explain(code)}")
                    if code.retriable:
                        problem = error
                    else:
                        failed[str(name)] = error
            if problem is not None:
                raise problem

        await self._keep_asking(attempt, "DescribeProducers")
        all_or_raise(failed, [])
        return {name: found[name] for name in wanted}

    async def find_hanging_transactions(
        self,
        partitions: Iterable[tuple[str, int]],
        *,
        longest_transaction_ms: int = LONGEST_TRANSACTION_MS,
    ) -> list[HangingTransaction]:
        """Transactions in these partitions that no coordinator knows. So no coordinator will ever
        end them.

        A transaction whose last record is younger than ``longest_transaction_ms`` is left out: its
        coordinator may not know the partition yet. Raises ApiError, BulkError.
        """
        oldest_ms = self._view.world.clock.time_ms() - longest_transaction_ms
        suspects = [
            HangingTransaction(name, producer)
            for name, producers in (await self.describe_producers(partitions)).items()
            for producer in producers
            if producer.transaction_start_offset is not None
            and producer.last_timestamp_ms <= oldest_ms
        ]
        if not suspects:
            return []
        producer_ids = sorted({each.producer.producer_id for each in suspects})
        listed = await self.list_transactions(producer_ids=producer_ids)
        found, failed = await self._describe(each.transactional_id for each in listed)
        for error in failed.values():
            if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise error
        known = {
            (each.producer_id, partition)
            for each in found.values()
            for partition in each.partitions
        }
        return [
            each for each in suspects if (each.producer.producer_id, each.partition) not in known
        ]

    async def abort_hanging_transaction(
        self,
        partition: tuple[str, int],
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        """Abort a transaction in one partition. The arguments come from
        ``find_hanging_transactions``.

        Use it for nothing else: a transaction that a coordinator still knows would be aborted in
        this partition and perhaps committed in others. Raises ApiError.
        """
        name = TopicPartition(*partition)
        request = pb.AbortHangingTransactionRequest(
            topic=name.topic,
            partition=name.partition,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=max(coordinator_epoch, 0),
        )

        async def attempt() -> None:
            for broker_id in await self._by_leader([name]):
                answer = await self._ask(
                    broker_id,
                    "AbortHangingTransaction",
                    request,
                    pb.AbortHangingTransactionResponse.FromString,
                )
                code = error_code(answer.error)
                if code is not ErrorCode.NONE:
                    raise ApiError(code, f"{name}: {answer.message or explain(code)}")

        await self._keep_asking(attempt, "AbortHangingTransaction")

    async def _by_leader(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[int, list[TopicPartition]]:
        """Raises ApiError UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, UnreachableError."""
        for name in partitions:
            self._view.want(name.topic)
        await self._view.refresh()
        found: dict[int, list[TopicPartition]] = {}
        for name in partitions:
            topic = self._view.topic(name.topic)
            if topic is None or name.partition not in topic.partitions:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}"
                )
            leader = self._view.leader(name)
            if leader is None:
                raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name} has no leader")
            found.setdefault(leader.broker_id, []).append(name)
        return found

    async def _keep_asking(self, attempt: Callable[[], Awaitable[None]], method: str) -> None:
        timeout_s = self._view.config.default_api_timeout_ms / 1000
        await self._view.keep_asking(attempt, method, timeout_s)

    async def _ask(
        self, broker_id: int, method: str, request: Message, parse: Callable[[bytes], AnswerT]
    ) -> AnswerT:
        """Raises RpcError."""
        return await self._view.ask(
            broker_id, call(SERVICE + method, request, parse), timeout_s=self._view.attempt_s
        )


def _description(
    coordinator_id: int, told: pb.DescribeTransactionsResponse.Transaction
) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=told.transactional_id,
        coordinator_id=coordinator_id,
        state=told.state,
        producer_id=told.producer_id,
        producer_epoch=told.producer_epoch,
        timeout_ms=told.timeout_ms,
        start_time_ms=told.start_time_ms if told.start_time_ms >= 0 else None,
        partitions=tuple(
            TopicPartition(topic.topic, number)
            for topic in told.topics
            for number in topic.partitions
        ),
    )


def _producer(told: pb.DescribeProducersResponse.Producer) -> ProducerDescription:
    offset = told.transaction_start_offset
    return ProducerDescription(
        producer_id=told.producer_id,
        producer_epoch=told.producer_epoch,
        last_sequence=told.last_sequence,
        last_timestamp_ms=told.last_timestamp_ms,
        coordinator_epoch=told.coordinator_epoch,
        transaction_start_offset=offset if offset >= 0 else None,
    )
