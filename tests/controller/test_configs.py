"""Changes and descriptions of the dynamic configuration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller import configs, producer_ids
from controller.features import update_features
from metadata.config_keys import NODE_KEYS, TOPIC_KEYS
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.effective import DEFAULT, layers, sourced
from metadata.internal_topics import GROUP_TOPIC
from metadata.records import METADATA_VERSION_LEVEL
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1 import controller_pb2 as pb
from stele.wire.v1 import metadata_pb2 as metadata
from tests.support.controller import Machine, refusal

LAYERS = ["DYNAMIC_TOPIC", "DYNAMIC_BROKER", "DYNAMIC_DEFAULT_BROKER", "STATIC_BROKER", DEFAULT]


@pytest.fixture
def machine() -> Machine:
    machine = Machine({"min.insync.replicas": "2", "log.retention.hours": "1"})
    machine.brokers(1)
    machine.create("t", {0: [1]})
    return machine


def alter(
    machine: Machine, kind: int, resource: str, *, validate_only: bool = False, **changes: object
) -> admin.AlterConfigsResponse.Resource:
    request = admin.AlterConfigsRequest(
        validate_only=validate_only,
        resources=[
            admin.AlterConfigsRequest.Resource(
                resource=admin.ConfigResource(type=kind, name=resource),
                changes=[
                    admin.AlterConfigsRequest.Change(
                        name=name.replace("_", "."), value=None if value is None else str(value)
                    )
                    for name, value in changes.items()
                ],
            )
        ],
    )
    return machine.do(lambda context: configs.alter_configs(context, request)).resources[0]


def described(machine: Machine, kind: int, name: str) -> dict[str, tuple[str, str]]:
    request = admin.DescribeConfigsRequest(resources=[admin.ConfigResource(type=kind, name=name)])
    answer = configs.describe_configs(
        machine.image, machine.static, request, lambda _: None
    ).resources[0]
    assert answer.error == 0
    return {entry.name: (entry.value, entry.source) for entry in answer.entries}


def test_the_first_controller_writes_what_all_must_agree_on() -> None:
    machine = Machine({"min.insync.replicas": "2"})
    assert machine.image.features["metadata.version"] == METADATA_VERSION_LEVEL
    assert dict(machine.image.config(CLUSTER)) == {"min.insync.replicas": "2"}
    machine.do(configs.bootstrap)
    assert machine.last_records == ()


def test_set_and_removed(machine: Machine) -> None:
    assert alter(machine, 2, "t", retention_ms=5, segment_bytes=4096).error == 0
    assert dict(machine.image.config(ConfigResource.topic("t"))) == {
        "retention.ms": "5",
        "segment.bytes": "4096",
    }
    assert alter(machine, 2, "t", retention_ms=None).error == 0
    assert dict(machine.image.config(ConfigResource.topic("t"))) == {"segment.bytes": "4096"}
    assert alter(machine, 2, "t", segment_bytes=4096, retention_ms=None).error == 0
    assert machine.last_records == ()


@pytest.mark.parametrize(
    ("kind", "resource", "changes", "code"),
    [
        (2, "x", {"retention_ms": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "t", {"retentoin_ms": 1}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"retentoin_ms": None}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"log_retention_ms": 1}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"min_insync_replicas": 0}, ErrorCode.INVALID_CONFIG),
        (2, "t", {"retention_ms": 5, "segment_bytes": "big"}, ErrorCode.INVALID_CONFIG),
        (
            2,
            "t",
            {"min_compaction_lag_ms": 6, "max_compaction_lag_ms": 5},
            ErrorCode.INVALID_CONFIG,
        ),
        (4, "one", {"log_retention_ms": 1}, ErrorCode.INVALID_REQUEST),
        (4, "1", {"node_id": 1}, ErrorCode.INVALID_CONFIG),
        (4, "1", {"min_insync_replicas": 1}, ErrorCode.INVALID_CONFIG),
        (4, "", {"min_insync_replicas": None}, ErrorCode.INVALID_CONFIG),
        (8, "1", {"x": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_as_a_whole(
    machine: Machine, kind: int, resource: str, changes: dict[str, Any], code: ErrorCode
) -> None:
    before = machine.image
    answer = alter(machine, kind, resource, **changes)
    assert answer.error == code, answer
    assert answer.message
    assert machine.image is before


@pytest.mark.parametrize("resource", ["", "1"])
def test_a_limit_of_a_listener_needs_a_broker_with_the_listener(resource: str) -> None:
    machine = Machine()
    names = ("EXTERNAL", "BROKERS")
    machine.register(
        1, endpoints=[metadata.Endpoint(listener=name, host="b", port=9092) for name in names]
    )

    def set_limit(name: str, value: str | None) -> admin.AlterConfigsResponse.Resource:
        change = admin.AlterConfigsRequest.Change(name=name, value=value)
        asked = admin.AlterConfigsRequest.Resource(
            resource=admin.ConfigResource(type=4, name=resource), changes=[change]
        )
        request = admin.AlterConfigsRequest(resources=[asked])
        return machine.do(lambda context: configs.alter_configs(context, request)).resources[0]

    assert set_limit("listener.name.external.max.connections", "5").error == 0
    answer = set_limit("listener.name.extern.max.connections", "5")
    assert answer.error == ErrorCode.INVALID_CONFIG
    assert "there is no listener extern: there are brokers, external" in answer.message
    assert set_limit("listener.name.extern.max.connections", None).error == 0


def test_settings_are_checked_together_with_the_settings_that_stay(machine: Machine) -> None:
    assert alter(machine, 2, "t", max_compaction_lag_ms=5).error == 0
    assert alter(machine, 2, "t", min_compaction_lag_ms=5).error == 0
    answer = alter(machine, 2, "t", min_compaction_lag_ms=6)
    assert answer.error == ErrorCode.INVALID_CONFIG
    assert answer.message == "min.compaction.lag.ms 6 is above max.compaction.lag.ms 5"
    assert alter(machine, 2, "t", max_compaction_lag_ms=4).error == ErrorCode.INVALID_CONFIG
    assert alter(machine, 2, "t", max_compaction_lag_ms=None, min_compaction_lag_ms=6).error == 0


def test_an_internal_topic_stays_compacted(machine: Machine) -> None:
    machine.create(GROUP_TOPIC, {0: [1]}, cleanup_policy="compact")
    for policy in ("delete", "compact,delete", None):
        answer = alter(machine, 2, GROUP_TOPIC, cleanup_policy=policy)
        assert answer.error == ErrorCode.INVALID_CONFIG, policy
        assert "cleanup.policy=compact" in answer.message
    assert alter(machine, 2, GROUP_TOPIC, segment_bytes=5000, cleanup_policy="compact").error == 0
    assert alter(machine, 2, GROUP_TOPIC, min_insync_replicas=1).error == 0


def test_validate_only(machine: Machine) -> None:
    before = machine.image
    assert alter(machine, 2, "t", validate_only=True, retention_ms=5).error == 0
    assert machine.image is before


# ---------------------------------------------------------------------- against a dumb twin

LISTED = "cleanup.policy"
PLAIN = "retention.ms"
OPERATIONS = st.tuples(
    st.sampled_from([PLAIN, LISTED, "no.such"]),
    st.sampled_from(["set", "delete", "append", "subtract"]),
    st.sampled_from(["5", "6", "delete", "delete,delete", " delete , ", "", "nonsense"]),
)


class ConfigTwin:
    """The values that are set on one topic, key by key."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def apply(self, operations: Sequence[tuple[str, str, str]], *, replace_all: bool) -> bool:
        """Apply changes. Returns whether they were allowed; otherwise nothing is changed."""
        after = {} if replace_all else dict(self.values)
        if len({name for name, _, _ in operations}) < len(operations):
            return False
        for name, operation, value in operations:
            if name == "no.such" or (operation in ("append", "subtract") and name == PLAIN):
                return False
            if operation == "delete":
                after.pop(name, None)
                continue
            if operation != "set":
                present = self.items(self.values.get(name, "delete"))
                given_ = self.items(value)
                if operation == "append":
                    items = present + [item for item in given_ if item not in present]
                else:
                    items = [item for item in present if item not in given_]
                value = ",".join(items)
            allowed = value.isdecimal() if name == PLAIN else {*self.items(value)} <= {"delete"}
            if not allowed:
                return False
            after[name] = value
        self.values = after
        return True

    @staticmethod
    def items(text: str) -> list[str]:
        return list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


@settings(max_examples=300)
@given(
    requests=st.lists(
        st.tuples(st.lists(OPERATIONS, max_size=3), st.booleans(), st.booleans()), max_size=8
    )
)
def test_altered_as_the_twin_says(
    requests: list[tuple[list[tuple[str, str, str]], bool, bool]],
) -> None:
    machine = Machine()
    machine.brokers(1)
    machine.create("t", {0: [1]})
    twin = ConfigTwin()
    for operations, replace_all, validate_only in requests:
        request = admin.AlterConfigsRequest(validate_only=validate_only)
        resource = request.resources.add(
            resource=admin.ConfigResource(type=2, name="t"), replace_all=replace_all
        )
        for name, operation, value in operations:
            change = resource.changes.add(name=name)
            if operation != "delete":
                change.value = value
            if operation in ("append", "subtract"):
                change.list_operation = getattr(admin.ListOperation, operation.upper())
        answer = machine.do(lambda context, wish=request: configs.alter_configs(context, wish))  # type: ignore[misc]
        before = dict(twin.values)
        allowed = twin.apply(operations, replace_all=replace_all)
        if validate_only:
            twin.values = before
        (result,) = answer.resources
        assert (result.error == ErrorCode.NONE) == allowed, result
        assert bool(result.message) == (not allowed)
        assert dict(machine.image.config(ConfigResource.topic("t"))) == twin.values


def test_what_is_in_force_is_the_first_of_all_layers(machine: Machine) -> None:
    alter(machine, 4, "", log_segment_bytes=2048)
    alter(machine, 4, "1", log_segment_bytes=4096)
    alter(machine, 2, "t", retention_ms=7)
    for topic, broker_id in (("t", 1), ("t", None), (None, 1), (None, None)):
        for key in (TOPIC_KEYS if topic else NODE_KEYS).values():
            where: dict[str, Any] = {"topic": topic, "broker_id": broker_id}
            found = layers(machine.image, key, static=machine.static, **where)
            assert sourced(machine.image, key, static=machine.static, **where) == found[0][1:]
            assert found[-1].source == DEFAULT
            order = [LAYERS.index(each.source) for each in found]
            assert order == sorted({*order})


def test_described_with_their_sources(machine: Machine) -> None:
    alter(machine, 4, "", log_segment_bytes=2048)
    alter(machine, 2, "t", index_interval_bytes=1)
    entries = described(machine, 2, "t")
    assert entries["retention.ms"] == ("3600000", "STATIC_BROKER")
    assert entries["segment.bytes"] == ("2048", "DYNAMIC_DEFAULT_BROKER")
    assert entries["index.interval.bytes"] == ("1", "DYNAMIC_TOPIC")
    assert entries["max.message.bytes"] == ("1048588", "DEFAULT")
    assert entries["min.insync.replicas"] == ("2", "DYNAMIC_DEFAULT_BROKER")
    alter(machine, 4, "1", log_segment_bytes=1024)
    assert described(machine, 4, "1")["log.segment.bytes"] == ("1024", "DYNAMIC_BROKER")
    assert described(machine, 4, "")["log.segment.bytes"] == ("2048", "DYNAMIC_DEFAULT_BROKER")


def test_described_what_is_not_there(machine: Machine) -> None:
    request = admin.DescribeConfigsRequest(resources=[admin.ConfigResource(type=2, name="x")])
    answer = configs.describe_configs(machine.image, {}, request, lambda _: None).resources[0]
    assert answer.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_producer_ids_come_in_blocks_that_never_overlap(machine: Machine) -> None:
    def allocate(epoch: int) -> producer_ids.ProducerIdBlock:
        request = pb.AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        return machine.do(lambda context: producer_ids.allocate(context, request))

    epoch = machine.epoch_of(1)
    assert [allocate(epoch) for _ in range(3)] == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert refusal(lambda: allocate(epoch + 1)).code is ErrorCode.STALE_BROKER_EPOCH


# --------------------------------------------------------------------------------- groups


def of_groups(**settings: str) -> Machine:
    raw = {f"group.consumer.{key.replace('_', '.')}": value for key, value in settings.items()}
    return Machine(raw)


def test_a_group_needs_no_more_than_a_name() -> None:
    machine = of_groups()
    assert alter(machine, 32, "g", consumer_session_timeout_ms=50_000).error == 0
    of_consumers = {
        name: told
        for name, told in described(machine, 32, "g").items()
        if name.startswith("consumer.")
    }
    assert of_consumers == {
        "consumer.session.timeout.ms": ("50000", "DYNAMIC_GROUP"),
        "consumer.heartbeat.interval.ms": ("5000", "DEFAULT"),
        "consumer.assignment.interval.ms": ("1000", "DEFAULT"),
    }
    said = alter(machine, 32, "g", consumer_assignment_interval_ms=15_001)
    assert said.error == ErrorCode.INVALID_CONFIG
    assert "group.consumer.max.assignment.interval.ms" in said.message
    assert described(machine, 32, "other")["consumer.session.timeout.ms"] == ("45000", "DEFAULT")
    assert alter(machine, 32, "g", consumer_session_timeout_ms=None).error == 0
    assert not machine.image.config(ConfigResource.group("g"))
    assert (
        alter(machine, 32, "", consumer_session_timeout_ms=50_000).error
        == ErrorCode.INVALID_REQUEST
    )


def test_the_dead_letter_topic_of_a_group() -> None:
    machine = of_groups()
    name = "errors.deadletterqueue.topic.name"

    def told(topic: str) -> admin.AlterConfigsResponse.Resource:
        return alter(machine, 32, "g", errors_deadletterqueue_topic_name=topic)

    said = told("letters")
    assert said.error == ErrorCode.INVALID_CONFIG
    assert "it must begin with 'dlq.' (errors.deadletterqueue.topic.name.prefix)" in said.message
    assert told("dlq.a topic").error == ErrorCode.INVALID_CONFIG
    assert told("dlq.letters").error == 0
    assert described(machine, 32, "g")[name] == ("dlq.letters", "DYNAMIC_GROUP")
    assert told("").error == 0
    # An internal topic is refused whatever the prefix is.
    machine = Machine({"errors.deadletterqueue.topic.name.prefix": ""})
    assert told("__consumer_offsets").error == ErrorCode.INVALID_CONFIG
    assert told("letters").error == 0


def test_a_dead_letter_topic_needs_a_level_of_share_version() -> None:
    machine = of_groups()
    request = admin.UpdateFeaturesRequest()
    request.updates.add(name="share.version", level=1, type=admin.UpgradeType.SAFE_DOWNGRADE)
    assert machine.do(lambda context: update_features(context, request)).features[0].error == 0
    said = alter(machine, 32, "g", errors_deadletterqueue_topic_name="dlq.letters")
    assert said.error == ErrorCode.UNSUPPORTED_VERSION
    assert "a dead letter topic needs share.version 2, and 1 is finalized" in said.message


def test_the_bounds_of_the_controller_agree_with_groups() -> None:
    machine = of_groups(min_session_timeout_ms="100", max_session_timeout_ms="200")
    for value in (99, 100, 200):
        said = alter(machine, 32, "g", consumer_session_timeout_ms=value)
        assert said.error == ErrorCode.INVALID_CONFIG, "below the interval of heartbeats"
    machine = of_groups(
        min_session_timeout_ms="100",
        max_session_timeout_ms="200",
        min_heartbeat_interval_ms="10",
        heartbeat_interval_ms="20",
    )
    expected = {99: ErrorCode.INVALID_CONFIG, 100: 0, 200: 0, 201: ErrorCode.INVALID_CONFIG}
    assert {
        value: alter(machine, 32, "g", consumer_session_timeout_ms=value).error
        for value in expected
    } == expected
    assert alter(machine, 32, "g", consumer_heartbeat_interval_ms=199).error == 0
    said = alter(machine, 32, "g", consumer_heartbeat_interval_ms=200)
    assert said.error == ErrorCode.INVALID_CONFIG
    assert "consumer.session.timeout.ms 200 must be larger" in said.message
    # What the group does not set has the controller's default, also where that is out of bounds.
    assert alter(machine, 32, "h", consumer_heartbeat_interval_ms=30).error == 0


def test_a_group_has_no_configuration_before_every_node_knows_them() -> None:
    machine = of_groups()
    level = metadata.FeatureLevelRecord(name="metadata.version", level=2)
    delta = MetadataDelta(machine.image)
    delta.replay(machine.next_offset, metadata.MetadataRecord(feature_level=level))
    machine.image = delta.apply()
    machine.next_offset += 1
    said = alter(machine, 32, "g", consumer_session_timeout_ms=50_000)
    assert said.error == ErrorCode.UNSUPPORTED_VERSION
    assert "needs metadata.version 3" in said.message


def test_all_values_of_the_cluster_can_be_replaced(machine: Machine) -> None:
    """Except that the cluster always has a min.insync.replicas."""

    def replace(**values: str) -> admin.AlterConfigsResponse.Resource:
        resource = admin.AlterConfigsRequest.Resource(
            resource=admin.ConfigResource(type=metadata.ConfigResourceType.BROKER, name=""),
            replace_all=True,
            changes=[
                admin.AlterConfigsRequest.Change(name=name.replace("_", "."), value=value)
                for name, value in values.items()
            ],
        )
        request = admin.AlterConfigsRequest(resources=[resource])
        return machine.do(lambda context: configs.alter_configs(context, request)).resources[0]

    least = machine.image.config(CLUSTER)["min.insync.replicas"]
    assert not replace(log_retention_ms="5").error
    assert dict(machine.image.config(CLUSTER)) == {
        "log.retention.ms": "5",
        "min.insync.replicas": least,
    }
    assert not replace(log_retention_bytes="7", min_insync_replicas="2").error
    assert dict(machine.image.config(CLUSTER)) == {
        "log.retention.bytes": "7",
        "min.insync.replicas": "2",
    }
    assert not replace().error
    assert dict(machine.image.config(CLUSTER)) == {"min.insync.replicas": "2"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.cleaner.threads", "2"),
        ("log.cleaner.io.buffer.size", "1048576"),
        ("transaction.partition.verification.enable", "false"),
    ],
)
@pytest.mark.parametrize("broker", ["", "1"])
def test_what_kafka_changes_at_run_time_and_changes_nothing_here_is_accepted(
    machine: Machine, name: str, value: str, broker: str
) -> None:
    resource = admin.AlterConfigsRequest.Resource(
        resource=admin.ConfigResource(type=metadata.ConfigResourceType.BROKER, name=broker),
        changes=[admin.AlterConfigsRequest.Change(name=name, value=value)],
    )
    request = admin.AlterConfigsRequest(resources=[resource])
    answer = machine.do(lambda context: configs.alter_configs(context, request)).resources[0]
    assert not answer.error, answer.message


def test_a_store_that_is_set_to_the_value_it_has_is_written_again(machine: Machine) -> None:
    """Its file may have changed: the record tells the broker to read it again (KAFKA-14136)."""
    written: list[bool] = []
    for value in ("/a.pem", "/a.pem", None, None):
        change = admin.AlterConfigsRequest.Change(
            name="listener.name.external.ssl.keystore.location", value=value
        )
        request = admin.AlterConfigsRequest(
            resources=[
                admin.AlterConfigsRequest.Resource(
                    resource=admin.ConfigResource(
                        type=metadata.ConfigResourceType.BROKER, name="1"
                    ),
                    changes=[change],
                )
            ]
        )
        answer = machine.do(partial(configs.alter_configs, request=request))
        assert answer.resources[0].error == 0, answer.resources[0].message
        written.append(bool(machine.last_records))
    assert written == [True, True, True, False]
