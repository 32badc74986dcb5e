"""Which node a request says that it comes from, and which node its sender's certificate names."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor

import stele.wire.v1
from broker.api import SERVED
from runtime.authorization.node_identity import SENDERS
from stele.errors import ErrorCode
from stele.wire.kafka import definitions, schema
from stele.wire.kafka.messages import fetch
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.worlds import virtual
from world.network import Identity

README = Path(__file__).parents[3] / "security" / "README.md"
NODE_ID = re.compile(r"(broker|node|replica|voter|leader|candidate|controller|coordinator)_ids?")
ROW = re.compile(r"^\| ([^|`]+) \| (`[^|]+`) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)


def _of_kafka(fields: list[schema.Field], path: str) -> Iterator[str]:
    for field in fields:
        if NODE_ID.fullmatch(field.name):
            yield path + field.name
        yield from _of_kafka(field.fields, f"{path}{field.name}.")


def _of_grpc(message: Descriptor, path: str, within: tuple[Descriptor, ...]) -> Iterator[str]:
    for field in message.fields:
        if NODE_ID.fullmatch(field.name):
            yield path + field.name
        nested = field.message_type
        if nested is not None and nested not in within:
            yield from _of_grpc(nested, f"{path}{field.name}.", (*within, nested))


def _requests() -> Iterator[tuple[str, str]]:
    """Every request, and each of its fields that holds the id of a node."""
    for served in SERVED:
        api = definitions.find(served.api.key)
        for path in _of_kafka(api.request, ""):
            yield api.name, path
    for module in pkgutil.iter_modules(stele.wire.v1.__path__):
        if not module.name.endswith("_pb2"):
            continue
        file = importlib.import_module(f"stele.wire.v1.{module.name}").DESCRIPTOR
        for service in file.services_by_name.values():
            for method in service.methods:
                for path in _of_grpc(method.input_type, "", (method.input_type,)):
                    yield f"{service.name}/{method.name}", path


def _table() -> dict[tuple[str, str], tuple[str, str]]:
    """The rows of the page: the node that a field of a request names, and where this is checked."""
    return {
        (request, field.strip("`")): (whose, where)
        for requests, fields, whose, where in ROW.findall(README.read_text())
        for request in requests.split(", ")
        for field in fields.split(", ")
    }


def test_every_id_of_a_node_in_a_request_is_in_the_table() -> None:
    assert set(_table()) == set(_requests())


def test_every_senders_id_of_the_control_plane_is_checked() -> None:
    checked = {
        (request, field)
        for (request, field), (whose, where) in _table().items()
        if "/" in request and whose == "the sender's"
    }
    assert checked == {
        (method.removeprefix("/stele.v1."), sender.field) for method, sender in SENDERS.items()
    }


def _fetch(version: int, replica_id: int, epoch: int = 2) -> fetch.FetchRequest:
    request = fetch.FetchRequest(
        topics=[fetch.FetchTopic("a", topic_id("a"), [fetch.FetchPartition(0)])],
        session_epoch=0 if epoch >= 0 else -1,
    )
    if version >= 15:
        request.replica_state = fetch.ReplicaState(replica_id, epoch)
    else:
        request.replica_id = replica_id
    return request


def _edges() -> tuple[Edges, Client]:
    edges = Edges()
    edges.add_topic("a", [[1, 2, 3]])
    return edges, edges.client("INTERNAL")


@pytest.mark.parametrize("epoch", [2, -1])
@pytest.mark.parametrize("version", [11, 14, 15, 18])
@virtual
async def test_a_node_fetches_in_its_own_name_only(version: int, epoch: int) -> None:
    """Otherwise broker 2 could acknowledge for broker 3 what broker 3 has not."""
    edges, client = _edges()
    client.protocol.tls_established(Identity("User:CN=node-2", frozenset([2])))
    answer = await client.call(fetch.API, version, _fetch(version, 3, epoch))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert edges.replicas.fetch.fetched == []
    assert len(edges.context.sessions) == 0
    assert edges.authorizer.rules == [
        "asked in the name of node 3, and its certificate is that of node 2"
    ]

    answer = await client.call(fetch.API, version, _fetch(version, 2, epoch))
    assert answer.error_code == ErrorCode.NONE
    assert [each.replica_id for each in edges.replicas.fetch.fetched] == [2]


@virtual
async def test_versions_without_an_error_of_the_request_refuse_each_partition() -> None:
    edges, client = _edges()
    client.protocol.tls_established(Identity("User:CN=node-2", frozenset([2])))
    answer = await client.call(fetch.API, 4, _fetch(4, 3))
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    ]
    assert edges.replicas.fetch.fetched == []


@virtual
async def test_a_node_whose_certificate_names_it_may_consume() -> None:
    edges, client = _edges()
    client.protocol.tls_established(Identity("User:CN=node-2", frozenset([2])))
    answer = await client.call(fetch.API, 18, _fetch(18, -1, -1))
    assert answer.error_code == ErrorCode.NONE
    assert [each.replica_id for each in edges.replicas.fetch.fetched] == [-1]


@virtual
async def test_a_certificate_without_a_node_is_bound_to_none() -> None:
    edges, client = _edges()
    client.protocol.tls_established(Identity("User:CN=node"))
    answer = await client.call(fetch.API, 18, _fetch(18, 3, 3))
    assert answer.error_code == ErrorCode.NONE
    assert [each.replica_id for each in edges.replicas.fetch.fetched] == [3]
