"""Which callers get a producer id, and what the others are answered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from broker.service.context import BrokerContext
from broker.service.producers import new_producer_id
from metadata.brokers import Plane
from runtime.authorization.authorizer import CLUSTER, Operation, topic_resource
from runtime.authorization.caller import Caller
from stele.errors import ApiError, ErrorCode
from tests.support.authorizer import FakeAuthorizer, Need

ANN = Caller("User:ann", "c", "CLIENTS", Plane.GRPC, "10.0.0.1")


class _Ids:
    async def take(self) -> int:
        return 7


def context(*allowed: Need) -> tuple[BrokerContext, FakeAuthorizer]:
    authorizer = FakeAuthorizer()
    authorizer.only = frozenset(allowed)
    made = SimpleNamespace(authorizer=authorizer, producer_ids=_Ids())
    return cast(BrokerContext, made), authorizer


@pytest.mark.parametrize(
    "need", [(Operation.WRITE, topic_resource("t")), (Operation.IDEMPOTENT_WRITE, CLUSTER)]
)
async def test_one_of_both_permissions_is_enough(need: Need) -> None:
    made, _ = context(need)
    assert await new_producer_id(made, ANN) == 7


async def test_the_refusal_of_a_caller_with_neither_names_both() -> None:
    made, authorizer = context((Operation.READ, topic_resource("t")))
    with pytest.raises(ApiError) as caught:
        await new_producer_id(made, ANN)
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    said = "User:ann has no WRITE on any topic, nor IDEMPOTENT_WRITE on the cluster"
    assert said in caught.value.message
    assert authorizer.denials == [(Operation.IDEMPOTENT_WRITE, CLUSTER)]
