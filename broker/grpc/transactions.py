"""stele.v1.Transactions: their administration over gRPC, by the functions of the Kafka APIs."""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import Message

from broker.coordinator.transaction.types import InitRequest, ListRequest
from broker.grpc.answers import check_count, refusable, tell_coordinators, why
from broker.grpc.messages import unary
from broker.replication.types import Marker
from broker.service import producers, transactions
from broker.service.context import BrokerContext
from broker.service.coordinators import TRANSACTIONS, Coordinators
from broker.service.topics import NO_TOPIC_ID
from runtime.authorization.authorizer import CLUSTER, Operation, refusal
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import transactions_pb2 as pb
from storage.turns import SLICE_STEPS, Slices
from world.network import Service

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)


class TransactionsService:
    """The service for the clients of one named listener."""

    def __init__(self, context: BrokerContext, listener: str) -> None:
        self._context = context
        self._listener = listener

    def service(self) -> Service:
        may_be_refused: dict[str, tuple[type[Message], type[Message], Any]] = {
            "InitTransactions": (
                pb.InitTransactionsRequest,
                pb.InitTransactionsResponse,
                self._init,
            ),
            "ListTransactions": (
                pb.ListTransactionsRequest,
                pb.ListTransactionsResponse,
                self._list,
            ),
            "AbortHangingTransaction": (
                pb.AbortHangingTransactionRequest,
                pb.AbortHangingTransactionResponse,
                self._abort_hanging,
            ),
        }
        each_with_an_error: dict[str, tuple[type[Message], Any]] = {
            "FindTransactionCoordinators": (pb.FindTransactionCoordinatorsRequest, self._find),
            "DescribeTransactions": (pb.DescribeTransactionsRequest, self._describe),
            "DescribeProducers": (pb.DescribeProducersRequest, self._describe_producers),
            "ForgetTransactionalIds": (pb.ForgetTransactionalIdsRequest, self._forget),
        }
        calls = {
            name: (request, refusable(response, handle))
            for name, (request, response, handle) in may_be_refused.items()
        }
        return Service(
            unary={
                f"/stele.v1.Transactions/{name}": unary(self._listener, *call)
                for name, call in {**calls, **each_with_an_error}.items()
            }
        )

    async def _find(
        self, caller: Caller, request: pb.FindTransactionCoordinatorsRequest
    ) -> pb.FindTransactionCoordinatorsResponse:
        check_count(len(request.transactional_ids), "transactional ids")
        answer = pb.FindTransactionCoordinatorsResponse()
        await tell_coordinators(
            Coordinators(self._context, caller, TRANSACTIONS),
            request.transactional_ids,
            lambda each: answer.coordinators.add(transactional_id=each),
        )
        return answer

    async def _init(
        self, caller: Caller, request: pb.InitTransactionsRequest
    ) -> pb.InitTransactionsResponse:
        answer = await transactions.init_producer_id(
            self._context,
            caller,
            InitRequest(request.transactional_id, request.transaction_timeout_ms),
        )
        return pb.InitTransactionsResponse(
            error=answer.error,
            message=explain(answer.error),
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
        )

    async def _describe(
        self, caller: Caller, request: pb.DescribeTransactionsRequest
    ) -> pb.DescribeTransactionsResponse:
        check_count(len(request.transactional_ids), "transactional ids")
        answer = pb.DescribeTransactionsResponse()
        for each in await transactions.describe(self._context, caller, request.transactional_ids):
            told = answer.transactions.add(transactional_id=each.transactional_id)
            if each.error is not ErrorCode.NONE:
                told.error, told.message = each.error, explain(each.error)
                continue
            told.state, told.timeout_ms = each.state.label, each.timeout_ms
            told.start_time_ms = each.start_time_ms
            told.producer_id, told.producer_epoch = each.producer_id, each.producer_epoch
            by_topic: dict[str, list[int]] = {}
            for name, number in each.partitions:
                by_topic.setdefault(name, []).append(number)
            for name, numbers in by_topic.items():
                told.topics.add(topic=name, partitions=numbers)
        return answer

    async def _forget(
        self, caller: Caller, request: pb.ForgetTransactionalIdsRequest
    ) -> pb.ForgetTransactionalIdsResponse:
        names = request.transactional_ids
        check_count(len(names), "transactional ids")
        errors = await transactions.forget(self._context, caller, names)
        answer = pb.ForgetTransactionalIdsResponse()
        for name, error in zip(names, errors, strict=True):
            answer.transactional_ids.add(transactional_id=name, error=error, message=explain(error))
        return answer

    async def _list(
        self, caller: Caller, request: pb.ListTransactionsRequest
    ) -> pb.ListTransactionsResponse:
        wanted = ListRequest(
            states=tuple(request.states),
            producer_ids=tuple(request.producer_ids),
            duration_ms=request.min_duration_ms if request.min_duration_ms > 0 else -1,
        )
        found = await transactions.list_transactions(self._context, caller, wanted)
        return pb.ListTransactionsResponse(
            unknown_states=found.unknown_states,
            transactions=[
                pb.ListTransactionsResponse.Transaction(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    state=each.state.label,
                )
                for each in found.transactions
            ],
        )

    async def _describe_producers(
        self, caller: Caller, request: pb.DescribeProducersRequest
    ) -> pb.DescribeProducersResponse:
        topics = producers.topics(self._context, caller)
        answer = pb.DescribeProducersResponse()
        slices = Slices(SLICE_STEPS)
        for topic in request.topics:
            await slices.step()
            for number in topic.partitions:
                await slices.step()
                told = answer.partitions.add(topic=topic.topic, partition=number)
                found = topics.partition(topic.topic, NO_TOPIC_ID, number)
                try:
                    if isinstance(found, ErrorCode):
                        raise ApiError(found)
                    known = producers.producers_of(self._context, found)
                except ApiError as error:
                    told.error, told.message = error.code, why(error)
                    continue
                for each in known:
                    told.producers.add(
                        producer_id=each.producer_id,
                        producer_epoch=each.epoch,
                        last_sequence=each.last_sequence,
                        last_timestamp_ms=each.last_append_ms,
                        coordinator_epoch=each.coordinator_epoch,
                        transaction_start_offset=each.transaction_first_offset,
                    )
        return answer

    async def _abort_hanging(
        self, caller: Caller, request: pb.AbortHangingTransactionRequest
    ) -> pb.AbortHangingTransactionResponse:
        refused = refusal(self._context.authorizer, caller, Operation.ALTER, CLUSTER)
        if refused is not None:
            raise refused
        topics = producers.topics(self._context, caller)
        found = topics.partition(request.topic, NO_TOPIC_ID, request.partition)
        if isinstance(found, ErrorCode):
            raise ApiError(found)
        marker = Marker(
            found,
            request.producer_id,
            request.producer_epoch,
            commit=False,
            coordinator_epoch=request.coordinator_epoch,
            transaction_version=0,  # the marker has the epoch of the records
        )
        (error,) = await transactions.write_markers(self._context, [marker])
        return pb.AbortHangingTransactionResponse(error=error, message=explain(error))
