"""AlterClientQuotas and DescribeClientQuotas, in Kafka's protocol and in gRPC."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from broker.grpc.admin import AdminService
from metadata.client_quotas import quota_record
from metadata.records import METADATA_VERSION, METADATA_VERSION_LEVEL
from stele.errors import ErrorCode
from stele.wire.kafka.messages import alter_client_quotas, describe_client_quotas
from stele.wire.kafka.messages.alter_client_quotas import EntityData, EntryData, OpData
from stele.wire.kafka.messages.describe_client_quotas import ComponentData
from stele.wire.v1 import admin_pb2 as pb
from stele.wire.v1 import metadata_pb2
from tests.support.broker_apis import Edges
from tests.support.client_quotas import entity
from tests.support.worlds import virtual
from world.network import Peer

Told = list[tuple[dict[str, str | None], dict[str, float]]]
RATE = "producer_byte_rate"


def wish(names: Mapping[str, str | None], value: float, *, remove: bool = False) -> EntryData:
    return EntryData(
        [EntityData(kind, name) for kind, name in names.items()], [OpData(RATE, value, remove)]
    )


ENTITIES: list[dict[str, str | None]] = [
    {"user": "ann"},
    {"user": None},
    {"user": "ann", "client-id": "c"},
    {"user": "ann", "client-id": None},
    {"user": None, "client-id": "c"},
    {"client-id": "c"},
    {"client-id": None},
]


def made() -> Edges:
    edges = Edges()
    level = metadata_pb2.FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_LEVEL)
    edges.commit(metadata_pb2.MetadataRecord(feature_level=level))
    return edges


async def with_quotas() -> Edges:
    edges = made()
    request = alter_client_quotas.AlterClientQuotasRequest(
        [wish(each, 100.0 + number) for number, each in enumerate(ENTITIES)]
    )
    answer = await edges.client().call(alter_client_quotas.API, 1, request)
    assert [each.error_code for each in answer.entries] == [ErrorCode.NONE] * len(ENTITIES)
    return edges


async def _by_grpc(
    edges: Edges, request: pb.DescribeClientQuotasRequest
) -> pb.DescribeClientQuotasResponse:
    service = AdminService(edges.context, "EXTERNAL").service()
    handler = service.unary["/stele.v1.Admin/DescribeClientQuotas"]
    payload = await handler(request.SerializeToString(), Peer("127.0.0.1:5", None))
    return pb.DescribeClientQuotasResponse.FromString(payload)


async def described(
    edges: Edges, components: list[ComponentData], *, strict: bool = False, version: int = 1
) -> list[dict[str, str | None]]:
    """The described entities, the same in both protocols."""
    request = describe_client_quotas.DescribeClientQuotasRequest(components, strict)
    answer = await edges.client().call(describe_client_quotas.API, version, request)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    told: Told = [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    ]
    by_grpc = await _by_grpc(
        edges,
        pb.DescribeClientQuotasRequest(
            components=[
                pb.DescribeClientQuotasRequest.Component(
                    type=each.entity_type, match_type=each.match_type, match=each.match
                )
                for each in components
            ],
            strict=strict,
        ),
    )
    same: Told = [
        (
            {part.type: part.name if part.HasField("name") else None for part in each.entity},
            {quota.key: quota.value for quota in each.quotas},
        )
        for each in by_grpc.entries
    ]
    assert told == same
    for names, values in told:
        assert values == {RATE: 100.0 + ENTITIES.index(names)}
    return [names for names, _ in told]


@pytest.mark.parametrize("version", [0, 1])
@virtual
async def test_all_quotas_are_described(version: int) -> None:
    edges = await with_quotas()
    found = await described(edges, [], version=version)
    assert sorted(map(str, found)) == sorted(str(dict(sorted(each.items()))) for each in ENTITIES)
    assert await described(edges, [], strict=True) == []


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([ComponentData("user", 0, "ann")], False, [0, 2, 3]),
        ([ComponentData("user", 0, "ann")], True, [0]),
        ([ComponentData("user", 0, "bob")], False, []),
        ([ComponentData("user", 1, None)], False, [1, 4]),
        ([ComponentData("user", 1, None)], True, [1]),
        ([ComponentData("user", 2, None)], False, [0, 1, 2, 3, 4]),
        ([ComponentData("user", 2, None)], True, [0, 1]),
        ([ComponentData("client-id", 2, None)], True, [5, 6]),
        ([ComponentData("user", 0, "ann"), ComponentData("client-id", 2, None)], True, [2, 3]),
        ([ComponentData("user", 2, None), ComponentData("client-id", 0, "c")], False, [2, 4]),
        ([ComponentData("user", 1, None), ComponentData("client-id", 1, None)], False, []),
        ([ComponentData("ip", 2, None)], False, []),
    ],
)
@virtual
async def test_components_match(
    components: list[ComponentData], strict: bool, expected: list[int]
) -> None:
    edges = await with_quotas()
    found = await described(edges, components, strict=strict)
    assert sorted(ENTITIES.index(each) for each in found) == expected


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([("", 0, "a")], ErrorCode.INVALID_REQUEST, "no entity type"),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION, "no entity type 'group'"),
        ([("user", 0, "a"), ("user", 2, None)], ErrorCode.INVALID_REQUEST, "two components"),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST, "two components"),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST, "which user"),
        ([("user", 1, "a")], ErrorCode.INVALID_REQUEST, "a match type without one"),
        ([("user", 2, "a")], ErrorCode.INVALID_REQUEST, "a match type without one"),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "match type 3 is not known"),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST, "no entity has an ip"),
        ([("client-id", 1, None), ("ip", 0, "::1")], ErrorCode.INVALID_REQUEST, "has an ip"),
    ],
)
@virtual
async def test_a_filter_is_refused(
    components: list[tuple[str, int, str | None]], error: ErrorCode, message: str
) -> None:
    edges = await with_quotas()
    request = describe_client_quotas.DescribeClientQuotasRequest(
        [ComponentData(*each) for each in components]
    )
    answer = await edges.client().call(describe_client_quotas.API, 1, request)
    assert (answer.error_code, answer.entries) == (error, None)
    assert message in (answer.error_message or "")


@virtual
async def test_an_address_is_found_in_any_form() -> None:
    edges = made()
    client = edges.client()
    edges.commit(quota_record(entity(ip="2001:db8::1"), "connection_creation_rate", 5.0))
    wanted = describe_client_quotas.DescribeClientQuotasRequest(
        [ComponentData("ip", 0, "2001:DB8:0:0::1")]
    )
    answer = await client.call(describe_client_quotas.API, 1, wanted)
    assert len(answer.entries or ()) == 1


@virtual
async def test_a_quota_is_removed_and_a_validation_changes_nothing() -> None:
    edges = await with_quotas()
    client = edges.client()
    for validate_only, left in ((True, len(ENTITIES)), (False, len(ENTITIES) - 1)):
        request = alter_client_quotas.AlterClientQuotasRequest(
            [wish({"user": "ann"}, float("nan"), remove=True)], validate_only
        )
        answer = await client.call(alter_client_quotas.API, 0, request)
        assert [each.error_code for each in answer.entries] == [ErrorCode.NONE]
        assert len(await described(edges, [])) == left


@virtual
async def test_each_entity_gets_its_own_answer() -> None:
    edges = made()
    request = alter_client_quotas.AlterClientQuotasRequest(
        [wish({"user": "ann"}, 0.0), wish({"client-id": "c"}, 5.0)]
    )
    answer = await edges.client().call(alter_client_quotas.API, 1, request)
    assert [
        (each.error_code, [(it.entity_type, it.entity_name) for it in each.entity])
        for each in answer.entries
    ] == [(ErrorCode.INVALID_REQUEST, [("user", "ann")]), (ErrorCode.NONE, [("client-id", "c")])]
    assert "must be a number above 0" in (answer.entries[0].error_message or "")
    assert answer.entries[1].error_message is None


@virtual
async def test_too_many_entities_are_refused_before_the_controller_is_asked() -> None:
    edges = Edges()
    request = alter_client_quotas.AlterClientQuotasRequest([EntryData()] * 10_001)
    answer = await edges.client().call(alter_client_quotas.API, 1, request)
    assert {each.error_code for each in answer.entries} == {ErrorCode.POLICY_VIOLATION}
