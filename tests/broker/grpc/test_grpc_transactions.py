"""stele.v1.Transactions: what is translated and refused."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import Message

from broker.grpc.transactions import TransactionsService
from stele.errors import ErrorCode
from stele.wire.v1 import transactions_pb2 as pb
from tests.support.broker_edges import PEER
from tests.support.timing import run_virtual


async def ask(method: str, request: Message) -> Any:
    answer = getattr(pb, f"{method}Response")
    service = TransactionsService("EXTERNAL").service()
    call = service.unary[f"/stele.v1.Transactions/{method}"]
    return answer.FromString(await call(request.SerializeToString(), PEER))


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("FindTransactionCoordinators", {"transactional_ids": ["t"]}),
        ("InitTransactions", {"transactional_id": "t"}),
        ("CommitTransactionOffsets", {"transactional_id": "t"}),
        ("EndTransaction", {"transactional_id": "t"}),
        ("DescribeTransactions", {"transactional_ids": ["t"]}),
        ("ListTransactions", {}),
        ("DescribeProducers", {"topics": [{"topic": "a", "partitions": [0]}]}),
        ("AbortHangingTransaction", {"topic": "a"}),
    ],
)
def test_what_is_not_built_is_refused(method: str, request_: dict[str, Any]) -> None:
    async def main() -> None:
        answer = await ask(method, getattr(pb, f"{method}Request")(**request_))
        fields = (value for field, value in answer.ListFields() if field.is_repeated)
        (told,) = next(fields, [answer])
        assert told.error == ErrorCode.UNSUPPORTED_VERSION
        assert told.message

    run_virtual(main())
