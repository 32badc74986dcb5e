from __future__ import annotations

import pytest

from stele.config import ProducerConfig
from stele.ids import TopicPartition
from stele.spark.client_settings import of_admins
from stele.spark.option_error import OptionError
from stele.spark.options import EARLIEST, LATEST, AtTime, SinkOptions, SourceOptions

BASE = {"bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
SINK = {"bootstrap.servers": "127.0.0.1:9092", "topic": "orders"}


def of(partition: int) -> TopicPartition:
    return TopicPartition("orders", partition)


def test_defaults_are_sparks() -> None:
    options = SourceOptions.parse(BASE)
    assert options.subscription.topics == ("orders",)
    assert options.start.of(of(3)) == EARLIEST
    assert options.end.of(of(3)) == LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert options.isolation_level == "read_uncommitted"
    assert SourceOptions.parse(BASE, is_stream=True).start.of(of(3)) == LATEST


def test_names_are_case_insensitive_and_have_kafkas_or_steles_prefix() -> None:
    options = SourceOptions.parse(
        {
            "kafka.bootstrap.servers": "h:1",
            "SUBSCRIBE": "a, b",
            "includeHeaders": "TRUE",
            "kafka.request.timeout.ms": "77",
            "stele.check.crcs": "false",
            "kafka.isolation.level": "read_committed",
            "kafka.group.id": "billing",
            "fetchOffset.numRetries": "3",
            "kafka.security.protocol": "PLAINTEXT",
        }
    )
    assert options.subscription.topics == ("a", "b")
    assert options.include_headers
    assert options.client["request_timeout_ms"] == 77
    assert options.client["check_crcs"] is False
    assert (options.isolation_level, options.group_id) == ("read_committed", "billing")


def test_a_time_for_all_wins_over_times_and_these_over_offsets() -> None:
    given = {
        **BASE,
        "startingOffsets": '{"orders": {"0": 23, "1": -2}}',
        "startingOffsetsByTimestamp": '{"orders": {"1": 1000}}',
    }
    options = SourceOptions.parse(given)
    assert [options.start.of(of(n)) for n in range(2)] == [EARLIEST, AtTime(1000)]
    options = SourceOptions.parse({**given, "startingTimestamp": "5"})
    assert [options.start.of(of(n)) for n in range(2)] == [AtTime(5), AtTime(5)]
    del given["startingOffsetsByTimestamp"]
    options = SourceOptions.parse(given)
    assert [options.start.of(of(n)) for n in range(3)] == [23, EARLIEST, EARLIEST]


def test_partitions_are_assigned_one_by_one() -> None:
    options = SourceOptions.parse(
        {"bootstrap.servers": "h:1", "assign": '{"orders": [1, 0], "lines": [2]}'}
    )
    assert options.subscription.partitions == (of(1), of(0), TopicPartition("lines", 2))
    assert str(options.subscription) == "orders-1, orders-0, lines-2"
    assert options.subscription.names == ("orders", "lines")
    read = {name: options.subscription.has_topic(name) for name in ("orders", "lines", "order")}
    assert read == {"orders": True, "lines": True, "order": False}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"subscribe": ""}, "subscribe"),
        ({"subscribePattern": "a.*"}, "only one of them"),
        ({"subscribe": "", "subscribePattern": "a("}, "no regular expression"),
        ({"subscribe": "", "assign": '{"orders": 1}'}, "but topic 'orders' has 1"),
        ({"subscribe": "", "assign": '{"orders": "01"}'}, "but topic 'orders' has \"01\""),
        ({"subscribe": "", "assign": '{"orders": []}'}, "but topic 'orders' has"),
        ({"subscribe": "", "assign": "{}"}, "assign"),
        ({"subscribe": "", "assign": '{"orders": [0.5]}'}, "'orders' has no partition 0.5"),
        ({"subscribe": "", "assign": '{"orders": [true]}'}, "'orders' has no partition true"),
        ({"subscribe": "", "assign": '{"orders": [-1]}'}, "'orders' has no partition -1"),
        ({"subscribe": "", "assign": f'{{"a": [{2**31}]}}'}, "'a' has no partition 2147483648"),
        ({"subscribe": "", "assign": '{"a": [0], "a": [1]}'}, "names 'a' twice"),
        ({"bootstrap.servers": ""}, "bootstrap.servers"),
        ({"startingOffset": "earliest"}, "unknown option 'startingOffset'"),
        ({"kafka.retrys": "3"}, "unknown option 'kafka.retrys'"),
        ({"kafkas.request.timeout.ms": "3"}, "unknown option 'kafkas.request.timeout.ms'"),
        ({"kafka.key.deserializer": "x"}, "cannot be set: keys are bytes"),
        ({"kafka.auto.offset.reset": "latest"}, "cannot be set: the options startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "cannot be set: the checkpoint has"),
        ({"kafka.request.timeout.ms": "0"}, "request_timeout_ms=0 must be at least 1"),
        ({"kafka.request.timeout.ms": "soon"}, "is a number"),
        ({"kafka.security.protocol": "TLS"}, "security_protocol='TLS' must be one of: PLAINTEXT"),
        ({"kafka.ssl.key.password": "x"}, "ssl_key_password has no effect"),
        ({"kafka.isolation.level": "serializable"}, "read_uncommitted, read_committed"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"endingOffsets": '{"orders": 3}'}, "endingOffsets"),
        ({"startingOffsets": "latest"}, "of a batch read cannot be latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "-1 of orders-0: .* cannot be latest"),
        ({"startingOffsets": '{"orders": {"0": 1.5}}'}, "1.5 of orders-0 is no whole number"),
        ({"startingOffsets": '{"orders": {"0": 2.0}}'}, "2.0 of orders-0 is no whole number"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "true of orders-0 is no whole number"),
        ({"startingOffsets": '{"orders": {"0": "1"}}'}, '"1" of orders-0 is no whole number'),
        ({"startingOffsets": '{"orders": {"0": NaN}}'}, "NaN of orders-0 is no whole number"),
        ({"startingOffsets": f'{{"orders": {{"0": {2**63}}}}}'}, "is no whole number"),
        ({"startingOffsets": '{"orders": {"0": 1, "0": 5}}'}, "names '0' twice"),
        ({"startingOffsets": '{"a": {"0": 1}, "a": {"0": 5}}'}, "names 'a' twice"),
        ({"startingOffsets": '{"orders": {"00": 1}}'}, "'orders' has no partition '00'"),
        ({"startingOffsets": f'{{"orders": {{"{2**31}": 1}}}}'}, "no partition '2147483648'"),
        ({"startingOffsets": '{"orders": {"-1": 1}}'}, "'orders' has no partition '-1'"),
        ({"startingOffsets": '["orders"]'}, "startingOffsets"),
        ({"minPartitions": "²"}, "whole number"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "-2 of orders-0: .* cannot be earliest"),
        ({"endingOffsets": '{"orders": {"0": -7}}'}, "at least 0"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -1}}'}, "times are at least 0"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error, latest"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"maxTriggerDelay": "a while"}, "500ms, 30s, 15m or 1 minute"),
        ({"maxTriggerDelay": "5 weeks"}, "500ms, 30s, 15m or 1 minute"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss"),
    ],
)
def test_a_wrong_option_is_named(change: dict[str, str], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        SourceOptions.parse({**BASE, **change})


@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("500ms", 500), ("500", 500), ("30s", 30_000), ("15m", 900_000), ("15min", 900_000),
        ("1 minute", 60_000), ("2 minutes", 120_000), ("1 Hour", 3_600_000), ("1d", 86_400_000),
        ("10 milliseconds", 10), ("3 seconds", 3_000),
    ],
)  # fmt: skip
def test_times_have_the_units_of_spark(value: str, ms: int) -> None:
    options = SourceOptions.parse({**BASE, "maxTriggerDelay": value}, is_stream=True)
    assert options.max_trigger_delay_ms == ms


def test_settings_of_an_ordinary_consumer_are_taken() -> None:
    used = {
        "kafka.fetch.max.wait.ms": "100",
        "kafka.max.partition.fetch.bytes": "1048576",
        "kafka.max.poll.records": "100",
        "kafka.session.timeout.ms": "10000",
        "kafka.client.rack": "r",
    }
    ignored = {
        "kafka.receive.buffer.bytes": "65536",
        "kafka.partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor",
        "kafka.reconnect.backoff.ms": "50",
        "fetchOffset.numRetries": "3",
        "kafka.linger.ms": "5",
    }
    options = SourceOptions.parse({**BASE, **used, **ignored})
    assert sorted(options.ignored) == sorted(ignored)
    assert options.client["fetch_max_wait_ms"] == 100
    assert options.client["client_rack"] == "r"


def test_settings_of_an_ordinary_producer_are_taken() -> None:
    given = {
        "kafka.acks": "1",
        "kafka.retries": "3",
        "kafka.max.in.flight.requests.per.connection": "1",
        "kafka.batch.size": "16384",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
        "kafka.compression.type": "lz4",
        "kafka.delivery.timeout.ms": "60000",
        "kafka.metadata.max.age.ms": "1000",
        "kafka.group.id": "g",
    }
    plain = SinkOptions.parse({**SINK, **given, "exactlyOnce": "false", "kafka.acks": "all"})
    assert (plain.client["acks"], plain.client["max_in_flight"]) == ("all", 1)
    assert sorted(plain.ignored) == ["kafka.group.id", "kafka.retries"]
    options = SinkOptions.parse({**SINK, **given})
    assert "acks" not in options.client
    assert sorted(options.ignored) == ["kafka.acks", "kafka.group.id", "kafka.retries"]
    ProducerConfig(**options.client, transactional_id="t")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kafka.transactional.id": "t"}, "cannot be set: the option exactlyOnce decides"),
        ({"kafka.value.serializer": "x"}, "cannot be set: values are bytes"),
        ({"kafka.partitioner.class": "x"}, "cannot be set: the key decides"),
        ({"kafka.max.in.flight.requests.per.connection": "9"}, "must be at most 5"),
        ({"kafka.compression.type": "best"}, "compression='best' must be one of"),
    ],
)
def test_a_setting_of_a_producer_that_cannot_be_is_refused(
    change: dict[str, str], word: str
) -> None:
    with pytest.raises(OptionError, match=word):
        SinkOptions.parse({**SINK, **change})


def test_administration_has_the_settings_of_all_clients_and_no_other() -> None:
    """The driver reads the metadata under the name and with the times that its tasks have."""
    own = {
        "kafka.client.id": "job",
        "kafka.request.timeout.ms": "77",
        "kafka.fetch.max.wait.ms": "100",
    }
    options = SourceOptions.parse({**BASE, **own})
    found = of_admins(options.client)
    assert (found["client_id"], found["request_timeout_ms"]) == ("job", 77)
    assert "fetch_max_wait_ms" not in found


def test_a_stream_may_begin_at_the_end() -> None:
    value = '{"orders": {"0": -1}}'
    options = SourceOptions.parse({**BASE, "startingOffsets": value}, is_stream=True)
    assert options.start.of(of(0)) == LATEST
    options = SourceOptions.parse({**BASE, "startingOffsets": "latest"}, is_stream=True)
    assert options.start.of(of(0)) == LATEST


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="endingOffsets"):
        SourceOptions.parse({**BASE, "endingOffsets": "latest"}, is_stream=True)


def test_what_is_written_goes_to_a_topic() -> None:
    options = SinkOptions.parse({**SINK, "kafka.compression.type": "zstd", "exactlyOnce": "FALSE"})
    assert (options.topic, options.exactly_once) == ("orders", False)
    assert options.client["compression"] == "zstd"
    with pytest.raises(OptionError, match="unknown option 'subscribe'"):
        SinkOptions.parse({**SINK, "subscribe": "orders"})


def test_the_greatest_partition_and_offset() -> None:
    most, end = 2**31 - 1, 2**63 - 1
    given = {
        "bootstrap.servers": "h:1",
        "assign": f'{{"orders": [{most}]}}',
        "startingOffsets": f'{{"orders": {{"{most}": {end}}}}}',
    }
    options = SourceOptions.parse(given)
    assert options.subscription.partitions == (of(most),)
    assert options.start.of(of(most)) == end


def test_a_pattern_matches_whole_names_of_topics_that_are_not_internal() -> None:
    pattern = {"bootstrap.servers": "h:1", "subscribePattern": ".*orders"}
    subscription = SourceOptions.parse(pattern).subscription
    names = ["orders", "old.orders", "orders-2", "__orders"]
    assert [subscription.has_topic(name) for name in names] == [True, True, False, False]
