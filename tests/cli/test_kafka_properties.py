"""Options of our clients by the names of Kafka's properties, and values of records."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.kafka_properties import client_options, option_properties, read_properties
from cli.output import CommandError
from cli.perf.payload import payload
from stele.config import ClientConfig, ConsumerConfig, ProducerConfig, ShareConsumerConfig


def test_a_file_and_options_over_it(tmp_path: Path) -> None:
    file = tmp_path / "producer.properties"
    file.write_text(
        "# as for Kafka's tool\nbootstrap.servers=h:1\nacks=1\nlinger.ms = 5\n"
        "key.serializer=org.apache.kafka.common.serialization.ByteArraySerializer\n"
    )
    read = read_properties(file, ["linger.ms=0 compression.type=zstd", "client.id=x"], "-p")
    assert read["bootstrap.servers"] == "h:1"
    assert client_options(ProducerConfig, read) == {
        "acks": "1",
        "linger_ms": 0,
        "compression": "zstd",
        "client_id": "x",
    }


def test_all_kinds_of_values() -> None:
    properties = {
        "enable.idempotence": "False",
        "max.in.flight.requests.per.connection": "1",
        "batch.size": "16384",
    }
    assert client_options(ProducerConfig, properties) == {
        "enable_idempotence": False,
        "max_in_flight": 1,
        "batch_size": 16384,
    }
    assert client_options(ConsumerConfig, {"check.crcs": "true"}) == {"check_crcs": True}
    properties = {"transactional.id": "t", "transaction.timeout.ms": "5000"}
    assert client_options(ProducerConfig, properties) == {
        "transactional_id": "t",
        "transaction_timeout_ms": 5000,
    }
    assert client_options(ConsumerConfig, {"group.id": "g"}) == {"group_id": "g"}


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("linger.m", "1", "no property 'linger.m'. Did you mean 'linger.ms'?"),
        ("on.wait", "1", "no property 'on.wait'"),
        ("total.timeout.ms", "1", "no property"),
        ("batch.size", "1k", "batch.size=1k is not a whole number"),
        ("enable.idempotence", "1", "give true or false"),
    ],
)
def test_what_our_clients_do_not_have(name: str, value: str, said: str) -> None:
    with pytest.raises(CommandError) as refused:
        client_options(ProducerConfig, {name: value})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (ProducerConfig, "on.wait"),
        (ConsumerConfig, "on.truncation"),
        (ShareConsumerConfig, "on.acknowledged"),
    ],
)
def test_a_callback_is_no_property(config: type[ClientConfig], name: str) -> None:
    with pytest.raises(CommandError, match=f"no property '{name}'"):
        client_options(config, {name: "1"})


def test_what_is_no_property() -> None:
    with pytest.raises(CommandError, match="name=value"):
        read_properties(None, ["acks"], "--command-property")


# ------------------------------------------------------------------------------- payloads


def test_random_letters_have_the_size_and_are_the_same_in_every_run() -> None:
    first, second = (payload(1000, None, "\\n", monotonic=False) for _ in range(2))
    values = [first(number) for number in range(50)]
    assert [second(number) for number in range(50)] == values
    assert len(set(values)) == 50
    assert {len(each) for each in values} == {1000}
    assert set(b"".join(values)) == set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert len(payload(5_000_000, None, "\\n", monotonic=False)(7)) == 5_000_000


def test_other_payloads(tmp_path: Path) -> None:
    numbers = payload(None, None, "\\n", monotonic=True)
    assert [numbers(0), numbers(41)] == [b"0", b"41"]
    file = tmp_path / "values"
    file.write_bytes(b"one\ntwo\n")
    values = payload(None, file, "\\n", monotonic=False)
    assert {values(number) for number in range(50)} == {b"one", b"two"}
    values = payload(None, file, "o", monotonic=False)
    assert {values(number) for number in range(50)} == {b"", b"ne\ntw", b"\n"}


@pytest.mark.parametrize(
    ("size", "content", "delimiter", "monotonic", "said"),
    [
        (None, None, "\\n", False, "give one of"),
        (10, None, "\\n", True, "give one of"),
        (10, b"x", "\\n", False, "give one of"),
        (None, b"", "\\n", False, "is empty"),
        (None, b"x", "", False, "must not be empty"),
    ],
)
def test_payloads_that_cannot_be(
    tmp_path: Path,
    size: int | None,
    content: bytes | None,
    delimiter: str,
    monotonic: bool,
    said: str,
) -> None:
    file = tmp_path / "values"
    file.write_bytes(content or b"")
    with pytest.raises(CommandError, match=said):
        payload(size, None if content is None else file, delimiter, monotonic=monotonic)


def test_options_of_the_command_line_are_checked() -> None:
    given = ["linger.ms=0", "compression.type=lz4"]
    assert option_properties(ProducerConfig, given, {}) == {"linger_ms": 0, "compression": "lz4"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sasl.password=secret", "the file of --command-config"),
        ("ssl.key.password=secret", "the file of --command-config"),
        ("bootstrap.servers=h:1", "give --bootstrap-server instead"),
        ("group.id=g", "give --group instead"),
        ("linger", "not of the form name=value"),
        ("fetch.min.byte=1", "Did you mean 'fetch.min.bytes'"),
    ],
)
def test_a_property_that_does_not_belong_there_is_refused(given: str, said: str) -> None:
    with pytest.raises(CommandError) as refusal:
        option_properties(ConsumerConfig, [given], {"group.id": "--group"})
    assert said in str(refusal.value)
    assert "secret" not in str(refusal.value)
