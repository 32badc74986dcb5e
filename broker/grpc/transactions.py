"""stele.v1.Transactions: transactions for gRPC clients, by the functions of the Kafka plane."""

from __future__ import annotations

from typing import Any, Final

from broker.grpc.messages import unary
from runtime.authorization.caller import Caller
from stele.errors import ErrorCode
from stele.wire.v1 import transactions_pb2 as pb
from world.network import Service

_REFUSAL: Final[dict[str, Any]] = {
    "error": ErrorCode.UNSUPPORTED_VERSION,
    "message": "transactions are not built yet",
}


class TransactionsService:
    """The service as it is given to those who came in over one named listener."""

    def __init__(self, listener: str) -> None:
        self._listener = listener

    def service(self) -> Service:
        methods: dict[str, tuple[Any, Any]] = {
            "FindTransactionCoordinators": (pb.FindTransactionCoordinatorsRequest, self._find),
            "InitTransactions": (pb.InitTransactionsRequest, self._init),
            "CommitTransactionOffsets": (
                pb.CommitTransactionOffsetsRequest,
                self._commit_offsets,
            ),
            "EndTransaction": (pb.EndTransactionRequest, self._end),
            "DescribeTransactions": (pb.DescribeTransactionsRequest, self._describe),
            "ListTransactions": (pb.ListTransactionsRequest, self._list),
            "DescribeProducers": (pb.DescribeProducersRequest, self._describe_producers),
            "AbortHangingTransaction": (pb.AbortHangingTransactionRequest, self._abort_hanging),
        }
        return Service(
            unary={
                f"/stele.v1.Transactions/{name}": unary(self._listener, *method)
                for name, method in methods.items()
            }
        )

    async def _find(
        self, caller: Caller, request: pb.FindTransactionCoordinatorsRequest
    ) -> pb.FindTransactionCoordinatorsResponse:
        answer = pb.FindTransactionCoordinatorsResponse()
        for each in request.transactional_ids:
            answer.coordinators.add(transactional_id=each, broker_id=-1, grpc_port=-1, **_REFUSAL)
        return answer

    async def _init(
        self, caller: Caller, request: pb.InitTransactionsRequest
    ) -> pb.InitTransactionsResponse:
        return pb.InitTransactionsResponse(**_REFUSAL)

    async def _commit_offsets(
        self, caller: Caller, request: pb.CommitTransactionOffsetsRequest
    ) -> pb.CommitTransactionOffsetsResponse:
        return pb.CommitTransactionOffsetsResponse(**_REFUSAL)

    async def _end(
        self, caller: Caller, request: pb.EndTransactionRequest
    ) -> pb.EndTransactionResponse:
        return pb.EndTransactionResponse(**_REFUSAL)

    async def _describe(
        self, caller: Caller, request: pb.DescribeTransactionsRequest
    ) -> pb.DescribeTransactionsResponse:
        answer = pb.DescribeTransactionsResponse()
        for each in request.transactional_ids:
            answer.transactions.add(transactional_id=each, **_REFUSAL)
        return answer

    async def _list(
        self, caller: Caller, request: pb.ListTransactionsRequest
    ) -> pb.ListTransactionsResponse:
        return pb.ListTransactionsResponse(**_REFUSAL)

    async def _describe_producers(
        self, caller: Caller, request: pb.DescribeProducersRequest
    ) -> pb.DescribeProducersResponse:
        answer = pb.DescribeProducersResponse()
        for topic in request.topics:
            for number in topic.partitions:
                answer.partitions.add(topic=topic.topic, partition=number, **_REFUSAL)
        return answer

    async def _abort_hanging(
        self, caller: Caller, request: pb.AbortHangingTransactionRequest
    ) -> pb.AbortHangingTransactionResponse:
        return pb.AbortHangingTransactionResponse(**_REFUSAL)
