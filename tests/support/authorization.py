"""Brokers whose authorizer denies something, and the errors in their answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message

from broker.grpc.admin import AdminService
from metadata.features import GROUP_VERSION, SHARE_VERSION
from metadata.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from metadata.records import METADATA_VERSION, METADATA_VERSION_LEVEL
from runtime.authorization.authorizer import topic_resource
from stele.errors import ErrorCode
from tests.support.authorizer import FakeAuthorizer
from tests.support.broker_apis import Edges
from tests.support.broker_edges import PEER
from tests.support.timing import until

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
        if name == "error" or name.endswith("error_code"):
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


async def edges_with_coordinators(authorizer: FakeAuthorizer) -> Edges:
    """There is a topic, and this broker coordinates every group and every transactional id."""
    edges = Edges(
        authorizer,
        group_initial_rebalance_delay_ms="0",
        transaction_two_phase_commit_enable="true",
        delegation_token_secret_key="secret",
        listener_security_protocol_map="EXTERNAL:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="SCRAM-SHA-512",
        telemetry_receiver="prometheus",
    )
    edges.finalize(METADATA_VERSION, METADATA_VERSION_LEVEL)
    edges.finalize(GROUP_VERSION, 1)
    edges.finalize(SHARE_VERSION, 1)
    edges.add_topic("there", [[1, 2]])
    for name in (GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC):
        edges.add_topic(name, [[1]])
    kinds = (edges.groups, edges.transactions, edges.sharing.coordinators)
    await until(lambda: [len(each.active) for each in kinds] == [1, 1, 1])
    return edges


async def call_admin(edges: Edges, method: str, request: Message, answer: Any) -> Any:
    service = AdminService(edges.context, "EXTERNAL").service()
    payload = request.SerializeToString()
    return answer.FromString(await service.call(f"/stele.v1.{method}", payload, PEER))
