"""The declared keys, their values and what these mean."""

from __future__ import annotations

import pytest

from metadata.config_keys import (
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    NODE_KEYS,
    NUM_PARTITIONS,
    TOPIC_KEYS,
    ConfigKey,
    Scope,
    Type,
    nearest,
    validate_broker_config,
    validate_topic_config,
)
from metadata.configs import CLUSTER, ConfigResource
from metadata.delta import MetadataDelta
from metadata.effective import (
    cluster_int,
    effective_topic_config,
    min_insync_replicas,
    static_value,
    unclean_election_enabled,
)
from metadata.image import EMPTY, MetadataImage
from metadata.security_settings import store_key
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import metadata_pb2 as pb

EVERY_KEY = [
    *TOPIC_KEYS.values(),
    *GROUP_KEYS.values(),
    *CLIENT_METRICS_KEYS.values(),
    *NODE_KEYS.values(),
]


@pytest.mark.parametrize("key", EVERY_KEY, ids=lambda k: k.name)
def test_every_default_is_valid_and_every_line_says_something(key: ConfigKey) -> None:
    assert key.doc.endswith(".")
    assert "\n" not in key.doc
    assert "|" not in key.doc
    if key.default:
        key.parse(key.default)


def test_kafkas_synonyms() -> None:
    expected = {
        "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        "segment.ms": ("log.roll.ms", "log.roll.hours"),
        "segment.bytes": ("log.segment.bytes",),
        "max.message.bytes": ("message.max.bytes",),
        "min.insync.replicas": ("min.insync.replicas",),
        "segment.index.bytes": ("log.index.size.max.bytes",),
        "flush.messages": ("log.flush.interval.messages",),
    }
    for name, synonyms in expected.items():
        key = TOPIC_KEYS[name]
        assert (key.synonym, *(coarse for coarse, _ in key.coarser)) == synonyms
        assert all(synonym in NODE_KEYS for synonym in synonyms)


# Apache Kafka 4.1's topic configuration (LogConfig and ServerTopicConfigSynonyms): default, and
# the broker's key for it.
KAFKA = {
    "cleanup.policy": ("delete", "log.cleanup.policy"),
    "compression.gzip.level": ("-1", "compression.gzip.level"),
    "compression.lz4.level": ("9", "compression.lz4.level"),
    "compression.type": ("producer", "compression.type"),
    "compression.zstd.level": ("3", "compression.zstd.level"),
    "delete.retention.ms": ("86400000", "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": ("60000", "log.segment.delete.delay.ms"),
    "flush.messages": (str(2**63 - 1), "log.flush.interval.messages"),
    "flush.ms": (str(2**63 - 1), "log.flush.interval.ms"),
    "follower.replication.throttled.replicas": ("", None),
    "index.interval.bytes": ("4096", "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": ("", None),
    "local.retention.bytes": ("-2", "log.local.retention.bytes"),
    "local.retention.ms": ("-2", "log.local.retention.ms"),
    "max.compaction.lag.ms": (str(2**63 - 1), "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": ("1048588", "message.max.bytes"),
    "message.timestamp.after.max.ms": ("3600000", "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (str(2**63 - 1), "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": ("CreateTime", "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": ("0.5", "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": ("0", "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": ("1", "min.insync.replicas"),
    "preallocate": ("false", "log.preallocate"),
    "remote.log.copy.disable": ("false", None),
    "remote.log.delete.on.disable": ("false", None),
    "remote.storage.enable": ("false", None),
    "retention.bytes": ("-1", "log.retention.bytes"),
    "retention.ms": ("604800000", "log.retention.ms"),
    "segment.bytes": ("1073741824", "log.segment.bytes"),
    "segment.index.bytes": ("10485760", "log.index.size.max.bytes"),
    "segment.jitter.ms": ("0", "log.roll.jitter.ms"),
    "segment.ms": ("604800000", "log.roll.ms"),
    "unclean.leader.election.enable": ("false", "unclean.leader.election.enable"),
}
# Keys that tools of older versions still set.
OLDER = {"message.downconversion.enable", "message.format.version"}
# Kafka 4.4 (KIP-1191).
NEWER = {"errors.deadletterqueue.group.enable"}


def test_every_topic_key_of_kafka_is_known_with_its_default_and_its_synonym() -> None:
    assert set(TOPIC_KEYS) == set(KAFKA) | OLDER | NEWER
    ours = {name: (TOPIC_KEYS[name].default, TOPIC_KEYS[name].synonym) for name in KAFKA}
    differs = {"flush.messages"}  # everything acknowledged is on disk
    assert {name for name in KAFKA if ours[name] != KAFKA[name]} == differs
    assert "Kafka's default" in TOPIC_KEYS["flush.messages"].doc


@pytest.mark.parametrize("key", TOPIC_KEYS.values(), ids=lambda k: k.name)
def test_a_topic_can_be_given_any_key_with_kafkas_default(key: ConfigKey) -> None:
    assert key.default is not None
    validate_topic_config(key.name, KAFKA.get(key.name, (key.default,))[0])


@pytest.mark.parametrize("key", TOPIC_KEYS.values(), ids=lambda k: k.name)
def test_a_key_that_nothing_goes_by_says_so(key: ConfigKey) -> None:
    words = "Accepted" in key.doc or "not built" in key.doc or "never compressed" in key.doc
    assert words == key.is_inert or key.not_built


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cleanup.policy", "compress", "one or several of delete, compact"),
        ("cleanup.policy", "delete,compress", "one or several of delete, compact"),
        ("remote.storage.enable", "True", "tiered storage is not built"),
        ("compression.type", "brotli", "one of uncompressed, zstd, lz4"),
        ("compression.type", "none", "one of uncompressed, zstd, lz4"),
        ("compression.gzip.level", "0", "one of -1, 1"),
        ("compression.lz4.level", "18", "from 1 to 17"),
        ("min.cleanable.dirty.ratio", "1.5", "from 0 to 1"),
        ("leader.replication.throttled.replicas", "0:1,2", "partition:broker"),
        ("follower.replication.throttled.replicas", "all", "partition:broker"),
        ("follower.replication.throttled.replicas", "*,0:1", "partition:broker"),
    ],
)
def test_wrong_values_are_refused_with_the_reason(name: str, value: str, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        validate_topic_config(name, value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_throttled_replicas_are_written_as_in_kafka() -> None:
    key = TOPIC_KEYS["leader.replication.throttled.replicas"]
    assert key.parse("0:1, 12:3") == ("0:1", "12:3")
    assert key.parse("*") == ("*",)
    assert key.parse("") == ()
    assert key.name not in NODE_KEYS


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_rates_of_throttled_replicas_are_a_broker_s_and_dynamic(role: str) -> None:
    name = f"{role}.replication.throttled.rate"
    assert NODE_KEYS[name].default == str(2**63 - 1)
    for one_broker in (True, False):
        validate_broker_config(name, "0", one_broker=one_broker)
        validate_broker_config(name, None, one_broker=one_broker)
        with pytest.raises(ApiError, match="whole number from 0"):
            validate_broker_config(name, "-1", one_broker=one_broker)


def test_the_typed_topic_configuration_has_exactly_the_keys_that_something_goes_by() -> None:
    names = {name.replace(".", "_") for name, key in TOPIC_KEYS.items() if not key.is_inert}
    assert set(vars(effective_topic_config(EMPTY, "t", static={}))) == names
    kinds = {
        Type.INT: int,
        Type.LONG: int,
        Type.BOOLEAN: bool,
        Type.DOUBLE: float,
        Type.STRING: str,
        Type.LIST: tuple,
    }
    config = effective_topic_config(EMPTY, "t", static={})
    for name, key in TOPIC_KEYS.items():
        if key.is_inert:
            continue
        assert isinstance(getattr(config, name.replace(".", "_")), kinds[key.type])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.mss", "1", "did you mean retention.ms"),
        ("quite.something.else", "1", "there is no topic configuration"),
        ("log.retention.hours", "1", "that of topics is retention.ms"),
        ("log.segment.bytes", "1", "that of topics is segment.bytes"),
        ("retention.ms", "-2", "from -1"),
        ("retention.ms", "1.5", "a whole number"),
        ("retention.ms", "99999999999999999999", "from -1"),
        ("segment.bytes", "2147483648", "to 2147483647"),
        ("segment.bytes", "", "a whole number"),
        ("cleanup.policy", "keep", "one or several of delete, compact"),
        ("message.timestamp.type", "createtime", "CreateTime, LogAppendTime"),
        ("unclean.leader.election.enable", "yes", "true or false"),
    ],
)
def test_bad_topic_settings_say_what_would_be_right(name: str, value: str, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        validate_topic_config(name, value)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_good_topic_settings() -> None:
    for name, value in (("retention.ms", " -1 "), ("unclean.leader.election.enable", "TRUE")):
        validate_topic_config(name, value)


def test_scopes() -> None:
    validate_broker_config("log.retention.ms", "1", one_broker=True)
    validate_broker_config("min.insync.replicas", "2", one_broker=False)
    for name, value, one_broker in (
        ("min.insync.replicas", "2", True),
        ("unclean.leader.election.enable", "true", True),
        ("min.insync.replicas", None, False),
        ("log.dirs", "/x", False),
        ("log.retention.hours", "1", False),
        ("nonsense", "1", False),
    ):
        with pytest.raises(ApiError):
            validate_broker_config(name, value, one_broker=one_broker)
    assert all(key.scope is Scope.TOPIC for key in TOPIC_KEYS.values())


def test_nearest() -> None:
    assert nearest("listner", NODE_KEYS) == "listeners"
    assert nearest("qqqqqqq", NODE_KEYS) is None


def with_configs(*settings: tuple[ConfigResource, str, str]) -> MetadataImage:
    delta = MetadataDelta(EMPTY)
    for offset, (resource, name, value) in enumerate(settings):
        config = pb.ConfigRecord(
            resource_type=resource.type,  # type: ignore[arg-type]
            resource_name=resource.name,
            name=name,
            value=value,
        )
        delta.replay(offset, pb.MetadataRecord(config=config))
    return delta.apply()


def test_the_narrowest_wins() -> None:
    layers = [
        (CLUSTER, "log.retention.ms", "2"),
        (ConfigResource.broker(1), "log.retention.ms", "3"),
        (ConfigResource.topic("t"), "retention.ms", "4"),
    ]
    static = {"log.retention.hours": "1"}

    def retention(image: MetadataImage, layer: dict[str, str], broker_id: int | None) -> int:
        return effective_topic_config(image, "t", static=layer, broker_id=broker_id).retention_ms

    assert retention(EMPTY, {}, 1) == 604_800_000
    assert retention(EMPTY, static, 1) == 3_600_000
    assert retention(with_configs(*layers[:1]), static, 1) == 2
    assert retention(with_configs(*layers[:2]), static, 1) == 3
    assert retention(with_configs(*layers[:2]), static, 2) == 2
    assert retention(with_configs(*layers[:2]), static, None) == 2
    assert retention(with_configs(*layers), static, 1) == 4


def test_the_finest_static_spelling_wins_and_unlimited_is_no_number() -> None:
    key = TOPIC_KEYS["retention.ms"]
    assert static_value(key, {"log.retention.hours": "2", "log.retention.minutes": "1"}) == "60000"
    assert static_value(key, {"log.retention.hours": "-1"}) == "-1"
    assert static_value(key, {}) is None


def test_what_controllers_and_leaders_must_agree_on_is_not_read_from_their_files() -> None:
    image = with_configs((CLUSTER, "min.insync.replicas", "2"))
    assert min_insync_replicas(image, "t") == 2
    assert (
        effective_topic_config(
            image, "t", static={"min.insync.replicas": "1"}, broker_id=1
        ).min_insync_replicas
        == 2
    )
    override = with_configs((ConfigResource.topic("t"), "min.insync.replicas", "3"))
    assert min_insync_replicas(override, "t") == 3
    assert min_insync_replicas(EMPTY, "t") == 1


def test_cluster_wide_values() -> None:
    assert cluster_int(EMPTY, NUM_PARTITIONS, {"num.partitions": "4"}) == 4
    image = with_configs((CLUSTER, "num.partitions", "5"))
    assert cluster_int(image, NUM_PARTITIONS, {"num.partitions": "4"}) == 5
    assert not unclean_election_enabled(EMPTY, "t", {})
    assert unclean_election_enabled(EMPTY, "t", {"unclean.leader.election.enable": "true"})


STORE = "listener.name.external.ssl.keystore.location"


def test_a_listeners_stores_are_dynamic_on_one_broker_with_the_prefix() -> None:
    validate_broker_config(STORE, "/new.pem", one_broker=True)
    validate_broker_config(STORE, None, one_broker=True)
    for name, one_broker, said in (
        (STORE, False, "is set for one broker, by its number"),
        ("ssl.keystore.location", True, "set listener.name.<listener>.ssl.keystore.location"),
        ("ssl.key.password", True, "set listener.name.<listener>.ssl.key.password"),
    ):
        with pytest.raises(ApiError, match=said) as raised:
            validate_broker_config(name, "x", one_broker=one_broker)
        assert raised.value.code == ErrorCode.INVALID_REQUEST
    for name in ("listener.name.external.ssl.client.auth", "listener.name.ssl.keystore.x"):
        with pytest.raises(ApiError) as raised:
            validate_broker_config(name, "required", one_broker=True)
        assert raised.value.code == ErrorCode.INVALID_CONFIG


def test_the_parts_of_a_stores_key() -> None:
    found = store_key("listener.name.My.Net.ssl.key.password")
    assert found is not None
    assert (found.listener, found.name, found.key.type) == (
        "my.net",
        "ssl.key.password",
        Type.PASSWORD,
    )
    assert store_key("ssl.key.password") is None


def test_limits_of_connections_are_dynamic_also_those_of_a_listener() -> None:
    for one_broker in (True, False):
        for name in ("max.connections", "max.connections.per.ip", "max.connection.creation.rate"):
            validate_broker_config(name, "7", one_broker=one_broker)
        for name in ("max.connections", "max.connection.creation.rate"):
            validate_broker_config(f"listener.name.my.net.{name}", "7", one_broker=one_broker)
            validate_broker_config(f"listener.name.my.net.{name}", None, one_broker=one_broker)
        validate_broker_config(OVERRIDES, "10.0.0.1:5,[::1]:0", one_broker=one_broker)


OVERRIDES = "max.connections.per.ip.overrides"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("max.connections", "-1", "whole number from 0"),
        ("max.connection.creation.rate", "0", "whole number from 1"),
        ("listener.name.net.max.connection.creation.rate", "0", "listener.name.net.* from 1"),
        ("listener.name.net.max.connections", "many", "whole number"),
        ("listener.name.net.max.connections.per.ip", "1", "there is no configuration"),
        ("listener.name.Net.max.connections", "1", "lower case.*listener.name.net.max"),
        (OVERRIDES, "somewhere:10", "ADDRESS:COUNT"),
        (OVERRIDES, "10.0.0.1", "ADDRESS:COUNT"),
    ],
)
def test_bad_limits_of_connections_are_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(ApiError, match=words) as caught:
        validate_broker_config(name, value, one_broker=False)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
