"""Brokers whose authorizer denies something, and the errors in their answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from broker.grpc.admin import AdminService
from runtime.authorization.authorizer import topic_resource
from stele.errors import ErrorCode
from tests.support.broker_apis import Edges
from tests.support.broker_edges import PEER

A, B = topic_resource("a"), topic_resource("b")


def told_errors(answer: Any) -> Iterator[ErrorCode]:
    """All errors anywhere in an answer, in its order, without NONE."""
    if isinstance(answer, Message):
        fields: Any = [
            (field.name, list(value) if field.is_repeated else value)
            for field, value in answer.ListFields()
        ]
    else:
        fields = [(name, getattr(answer, name)) for name in getattr(answer, "__slots__", ())]
    for name, value in fields:
        if name in ("error", "error_code", "topic_config_error_code"):
            if value:
                yield ErrorCode(value)
        elif isinstance(value, list):
            for each in value:
                yield from told_errors(each)
        else:
            yield from told_errors(value)


def edges_with_topics() -> Edges:
    edges = Edges()
    for name in ("a", "b"):
        edges.add_topic(name, [[1, 2]])
    return edges


async def call_admin(edges: Edges, method: str, request: Message, answer: Any) -> Any:
    service = AdminService(edges.context, "EXTERNAL").service()
    payload = request.SerializeToString()
    return answer.FromString(await service.unary[f"/stele.v1.{method}"](payload, PEER))
