"""IncrementalAlterConfigs, AlterConfigs and DescribeConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from metadata.configs import CLUSTER, ConfigResource
from metadata.effective import effective_group_config
from metadata.records import METADATA_VERSION, METADATA_VERSION_LEVEL
from stele.errors import ErrorCode
from stele.wire.kafka.messages import alter_configs as legacy
from stele.wire.kafka.messages import describe_configs as describing
from stele.wire.kafka.messages import incremental_alter_configs as incremental
from stele.wire.kafka.messages import list_config_resources as listing
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
ASSIGNMENT = "consumer.assignment.interval.ms"
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

Changes = dict[str, tuple[int, str | None]]


def _edges(**settings: str) -> Edges:
    edges = Edges(**settings)
    level = pb.FeatureLevelRecord(name=METADATA_VERSION, level=METADATA_VERSION_LEVEL)
    edges.commit(pb.MetadataRecord(feature_level=level))
    return edges


def _incremental(
    *resources: tuple[int, str, Changes], validate_only: bool = False
) -> incremental.IncrementalAlterConfigsRequest:
    return incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                kind,
                name,
                [
                    incremental.AlterableConfig(key, operation, value)
                    for key, (operation, value) in changes.items()
                ],
            )
            for kind, name, changes in resources
        ],
        validate_only=validate_only,
    )


def _legacy(
    *resources: tuple[int, str, dict[str, str | None]], validate_only: bool = False
) -> legacy.AlterConfigsRequest:
    return legacy.AlterConfigsRequest(
        resources=[
            legacy.AlterConfigsResource(
                kind, name, [legacy.AlterableConfig(key, value) for key, value in configs.items()]
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


@pytest.mark.parametrize("version", [0, 1])
@virtual
async def test_single_keys_are_changed_and_each_resource_is_answered(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()
    answer = await client.call(
        incremental.API,
        version,
        _incremental(
            (TOPIC, "a", {"retention.ms": (SET, "5"), "segment.bytes": (SET, "2048")}),
            (TOPIC, "b", {"retention.ms": (SET, "5")}),
            (BROKER, "2", {"log.segment.bytes": (SET, "4096")}),
            (BROKER, "", {"log.retention.ms": (SET, "7")}),
        ),
    )
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [
        (TOPIC, "a"),
        (TOPIC, "b"),
        (BROKER, "2"),
        (BROKER, ""),
    ]
    assert [each.error_code for each in answer.responses] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert answer.responses[0].error_message is None
    assert answer.responses[1].error_message
    image = edges.publisher.image  # known here when the answer comes
    assert dict(image.config(ConfigResource.topic("a"))) == {
        "retention.ms": "5",
        "segment.bytes": "2048",
    }
    await client.call(
        incremental.API, version, _incremental((TOPIC, "a", {"retention.ms": (DELETE, None)}))
    )
    image = edges.publisher.image
    assert dict(image.config(ConfigResource.topic("a"))) == {"segment.bytes": "2048"}
    assert dict(image.config(ConfigResource.broker(2))) == {"log.segment.bytes": "4096"}
    assert dict(image.config(CLUSTER)) == {"log.retention.ms": "7"}


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "a", {"retention.ms": (SET, None)}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", {"retention.ms": (APPEND, None)}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", {"retention.ms": (4, "1")}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", {"retention.ms": (-1, "1")}, ErrorCode.INVALID_REQUEST),
        (TOPIC, "a", {"retention.ms": (APPEND, "1")}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", {"retention.ms": (SUBTRACT, "1")}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", {"no.such": (APPEND, "1")}, ErrorCode.INVALID_CONFIG),
        (TOPIC, "a", {"retention.ms": (SET, "soon")}, ErrorCode.INVALID_CONFIG),
        (BROKER, "9", {"log.retention.ms": (SET, "1")}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "one", {"log.retention.ms": (SET, "1")}, ErrorCode.INVALID_REQUEST),
        (BROKER, "1", {"log.dirs": (SET, "/x")}, ErrorCode.INVALID_CONFIG),
        (LOGGER, "1", {"kafka": (SET, "DEBUG")}, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", {"metrics": (SET, "x")}, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", {"metrics": (SET, None)}, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", {"metric": (SET, "x")}, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", {"interval.ms": (SET, "99")}, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", {"interval.ms": (SET, "soon")}, ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "m", {"interval.ms": (APPEND, "1")}, ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "m", {"match": (SET, "user=ann")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "", {SESSION: (SET, "50000")}, ErrorCode.INVALID_REQUEST),
        (GROUP, "g", {SESSION: (SET, None)}, ErrorCode.INVALID_REQUEST),
        (GROUP, "g", {SESSION: (SET, "soon")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {SESSION: (SET, "44999")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {SESSION: (SET, "60001")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {INTERVAL: (SET, "4999")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {INTERVAL: (SET, "15001")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {SESSION: (APPEND, "50000")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {"streams.session.timeout.ms": (SET, "50000")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {"share.session.timeout.ms": (SET, "5000")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {"share.auto.offset.reset": (SET, "none")}, ErrorCode.INVALID_CONFIG),
        # The longest rest is a minute, unless it is set too.
        (GROUP, "g", {"share.redelivery.backoff.ms": (SET, "60001")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {"share.redelivery.backoff.ms": (SET, "-1")}, ErrorCode.INVALID_CONFIG),
        (GROUP, "g", {"retention.ms": (DELETE, None)}, ErrorCode.INVALID_CONFIG),
    ],
)
@virtual
async def test_refused_with_the_reason(
    kind: int, name: str, changes: Changes, code: ErrorCode
) -> None:
    edges = _edges()
    edges.add_topic("a", [[1]])
    edges.add_topic("b", [[1]])
    before = edges.publisher.image
    answer = await edges.client().call(
        incremental.API, 1, _incremental((kind, name, changes), (TOPIC, "b", {}))
    )
    refused, other = answer.responses
    assert refused.error_code == code, refused
    assert refused.error_message
    assert other.error_code == ErrorCode.NONE
    assert edges.publisher.image.configs == before.configs


@virtual
async def test_a_resource_named_twice_is_refused_and_the_others_are_not() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    edges.add_topic("b", [[1]])
    change: Changes = {"retention.ms": (SET, "5")}
    answer = await edges.client().call(
        incremental.API,
        1,
        _incremental((TOPIC, "a", change), (TOPIC, "b", change), (TOPIC, "a", change)),
    )
    invalid, none = ErrorCode.INVALID_REQUEST, ErrorCode.NONE
    assert [each.error_code for each in answer.responses] == [invalid, none, invalid]
    assert not edges.publisher.image.config(ConfigResource.topic("a"))


@pytest.mark.parametrize("version", [0, 1, 2])
@virtual
async def test_the_older_request_replaces_all_that_is_set(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    client = edges.client()

    async def alter(configs: dict[str, str | None], *, validate_only: bool = False) -> int:
        request = _legacy((TOPIC, "a", configs), validate_only=validate_only)
        (result,) = (await client.call(legacy.API, version, request)).responses
        return result.error_code

    def configs() -> dict[str, str]:
        return dict(edges.publisher.image.config(ConfigResource.topic("a")))

    assert await alter({"retention.ms": "5", "segment.bytes": "2048"}) == ErrorCode.NONE
    assert await alter({"retention.ms": "6"}) == ErrorCode.NONE
    assert configs() == {"retention.ms": "6"}
    assert await alter({"retention.ms": None}) == ErrorCode.INVALID_REQUEST
    assert await alter({"retention.ms": "x"}) == ErrorCode.INVALID_CONFIG
    assert await alter({}, validate_only=True) == ErrorCode.NONE
    assert configs() == {"retention.ms": "6"}
    assert await alter({}) == ErrorCode.NONE
    assert configs() == {}


@virtual
async def test_no_controller_answers() -> None:
    edges = Edges()
    edges.add_topic("a", [[1]])
    edges.controller.refuse_with = ErrorCode.NOT_CONTROLLER
    client = edges.client()
    request = _incremental((TOPIC, "a", {"retention.ms": (SET, "5")}))
    (result,) = (await client.call(incremental.API, 1, request)).responses
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    older = await client.call(legacy.API, 2, _legacy((TOPIC, "a", {})))
    assert older.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@virtual
async def test_described_with_sources_synonyms_and_documentation(version: int) -> None:
    edges = Edges(log_retention_hours="2")
    edges.add_topic("a", [[1]])
    client = edges.client()
    await client.call(
        incremental.API,
        1,
        _incremental(
            (TOPIC, "a", {"retention.ms": (SET, "5")}),
            (BROKER, "1", {"log.retention.ms": (SET, "6")}),
            (BROKER, "", {"log.retention.ms": (SET, "7")}),
        ),
    )
    request = describing.DescribeConfigsRequest(
        resources=[
            describing.DescribeConfigsResource(TOPIC, "a", ["retention.ms"]),
            describing.DescribeConfigsResource(BROKER, "1", ["log.retention.ms", "node.id"]),
            describing.DescribeConfigsResource(BROKER, ""),
            describing.DescribeConfigsResource(BROKER, "2"),
            describing.DescribeConfigsResource(LOGGER, "1"),
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    topic, broker, cluster, other, logger = (
        await client.call(describing.API, version, request)
    ).results
    (retention,) = topic.configs
    assert (retention.value, retention.config_source, retention.read_only) == ("5", 1, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "6", 2),
        ("log.retention.ms", "7", 3),
        ("log.retention.ms", "7200000", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    assert bool(retention.documentation) == (version >= 3)
    of_broker = {each.name: each for each in broker.configs}
    assert (of_broker["log.retention.ms"].value, of_broker["node.id"].read_only) == ("6", True)
    assert [each.name for each in cluster.configs] == ["log.retention.ms"]
    assert other.error_code == logger.error_code == ErrorCode.INVALID_REQUEST
    request.include_synonyms = False
    (topic, *_) = (await client.call(describing.API, version, request)).results
    assert topic.configs[0].synonyms == []


@virtual
async def test_limits_of_a_listener_are_described_where_they_are_set() -> None:
    edges = Edges(listener_name_EXTERNAL_max_connections="5")
    client = edges.client()
    for broker, name, value in (
        ("", "listener.name.internal.max.connection.creation.rate", "7"),
        ("1", "listener.name.external.max.connections", "6"),
    ):
        change = _incremental((BROKER, broker, {name: (SET, value)}))
        (result,) = (await client.call(incremental.API, 1, change)).responses
        assert result.error_code == 0, result
    request = describing.DescribeConfigsRequest(
        resources=[describing.DescribeConfigsResource(BROKER, each) for each in ("1", "")],
        include_synonyms=True,
    )
    own, cluster = (await client.call(describing.API, 4, request)).results
    of_listeners = [each for each in own.configs if each.name.startswith("listener.name.")]
    assert [(each.name, each.value, each.read_only) for each in of_listeners] == [
        ("listener.name.external.max.connections", "6", False),
        ("listener.name.internal.max.connection.creation.rate", "7", False),
    ]
    assert [each.value for each in of_listeners[0].synonyms] == ["6", "5", str(2**31 - 1)]
    assert [each.name for each in cluster.configs] == [
        "listener.name.internal.max.connection.creation.rate"
    ]


@virtual
async def test_a_group_has_a_configuration_of_its_own() -> None:
    edges = _edges(group_consumer_session_timeout_ms="46000")
    client = edges.client()

    async def described(keys: list[str] | None) -> list[tuple[Any, ...]]:
        request = describing.DescribeConfigsRequest(
            [describing.DescribeConfigsResource(GROUP, "g", keys)], include_synonyms=True
        )
        (result,) = (await client.call(describing.API, 4, request)).results
        assert result.error_code == ErrorCode.NONE
        assert not any(each.read_only for each in result.configs)
        return [
            (each.name, each.value, each.config_source, [one.source for one in each.synonyms])
            for each in result.configs
        ]

    assert [each for each in await described(None) if each[0].startswith("consumer.")] == [
        (ASSIGNMENT, "1000", 5, [5]),
        (INTERVAL, "5000", 5, [5]),
        (SESSION, "46000", 4, [4, 5]),
    ], "of a group that does not exist"
    changes: Changes = {SESSION: (SET, "50000")}
    answer = await client.call(incremental.API, 1, _incremental((GROUP, "g", changes)))
    assert answer.responses[0].error_code == ErrorCode.NONE
    assert await described([SESSION]) == [(SESSION, "50000", 8, [8, 4, 5])]
    replaced = await client.call(legacy.API, 2, _legacy((GROUP, "g", {INTERVAL: "7000"})))
    assert replaced.responses[0].error_code == ErrorCode.NONE
    config = effective_group_config(edges.publisher.image, "g", static=edges.context.config.raw)
    assert config.consumer_session_timeout_ms == 46_000, "it was not named again"
    assert config.consumer_heartbeat_interval_ms == 7_000


@virtual
async def test_the_nameless_group_and_subscription_are_not_described() -> None:
    asked = [(GROUP, ""), (CLIENT_METRICS, ""), (99, "x")]
    request = describing.DescribeConfigsRequest(
        [describing.DescribeConfigsResource(*each) for each in asked]
    )
    answer = await Edges().client().call(describing.API, 4, request)
    assert {each.error_code for each in answer.results} == {ErrorCode.INVALID_REQUEST}


@virtual
async def test_a_subscription_to_metrics_lives_as_long_as_a_key_is_set() -> None:
    edges = _edges()
    client = edges.client()

    async def alter(changes: Changes) -> int:
        answer = await client.call(incremental.API, 1, _incremental((CLIENT_METRICS, "m", changes)))
        return answer.responses[0].error_code

    async def described() -> list[tuple[str, str | None, int]]:
        request = describing.DescribeConfigsRequest(
            [describing.DescribeConfigsResource(CLIENT_METRICS, "m")]
        )
        (result,) = (await client.call(describing.API, 4, request)).results
        return [(each.name, each.value, each.config_source) for each in result.configs]

    async def listed() -> list[str]:
        answer = await client.call(listing.API, 0, listing.ListConfigResourcesRequest())
        assert all(each.resource_type == CLIENT_METRICS for each in answer.config_resources)
        return [each.resource_name for each in answer.config_resources]

    assert await listed() == []
    assert await described() == [("interval.ms", "300000", 5), ("match", "", 5), ("metrics", "", 5)]
    changes: Changes = {"metrics": (SET, "a."), "interval.ms": (SET, "1000")}
    assert await alter(changes) == ErrorCode.NONE
    assert await alter({"metrics": (APPEND, "b.,a.")}) == ErrorCode.NONE
    assert await described() == [
        ("interval.ms", "1000", 7),
        ("match", "", 5),
        ("metrics", "a.,b.", 7),
    ]
    assert await alter({"interval.ms": (SET, "1")}) == ErrorCode.INVALID_REQUEST
    assert await listed() == ["m"]
    assert await alter({"metrics": (DELETE, None), "interval.ms": (DELETE, None)}) == ErrorCode.NONE
    assert await listed() == []


@virtual
async def test_a_subscription_needs_the_level_of_every_node() -> None:
    edges = Edges()
    level = pb.FeatureLevelRecord(name=METADATA_VERSION, level=7)
    edges.commit(pb.MetadataRecord(feature_level=level))
    request = _incremental((CLIENT_METRICS, "m", {"metrics": (SET, "a.")}))
    (refused,) = (await edges.client().call(incremental.API, 1, request)).responses
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "metadata.version 8" in (refused.error_message or "")


@virtual
async def test_what_can_have_a_configuration_is_listed() -> None:
    edges = _edges()
    for topic in ("b", "a"):
        edges.add_topic(topic, [[1]])
    client = edges.client()
    for group in ("h", "g"):
        changes: Changes = {SESSION: (SET, "50000")}
        await client.call(incremental.API, 1, _incremental((GROUP, group, changes)))
    changes = {"metrics": (SET, "*")}
    await client.call(incremental.API, 1, _incremental((CLIENT_METRICS, "m", changes)))
    brokers = [str(each.broker_id) for each in edges.publisher.image.sorted_brokers()]

    async def listed(version: int, types: list[int]) -> list[tuple[int, str]]:
        request = listing.ListConfigResourcesRequest(types)
        answer = await client.call(listing.API, version, request)
        assert answer.error_code == ErrorCode.NONE
        return [(each.resource_type, each.resource_name) for each in answer.config_resources]

    groups = [(GROUP, "g"), (GROUP, "h")]
    assert await listed(1, []) == [
        (TOPIC, "a"),
        (TOPIC, "b"),
        *((BROKER, each) for each in brokers),
        *((LOGGER, each) for each in brokers),
        (CLIENT_METRICS, "m"),
        *groups,
    ]
    assert await listed(1, [GROUP, GROUP]) == groups
    assert await listed(1, [CLIENT_METRICS]) == [(CLIENT_METRICS, "m")]
    assert await listed(0, []) == [(CLIENT_METRICS, "m")]
    answer = await client.call(listing.API, 1, listing.ListConfigResourcesRequest([GROUP, 99]))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.config_resources == []
