"""Subscriptions to the metrics of clients: values, errors, and which clients match."""

from __future__ import annotations

import pytest

from metadata.client_metrics import CRITERIA, Subscription, subscription_of
from metadata.config_keys import validate_client_metrics
from stele.errors import ApiError, ErrorCode

CLIENT = {
    "client_id": "orders-1",
    "client_instance_id": "AAAAAAAAAAAAAAAAAAAAAQ",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "3.7.0",
    "client_source_address": "10.0.0.7",
    "client_source_port": "50000",
}


def test_a_subscription_without_keys_has_kafkas_defaults() -> None:
    assert subscription_of({}) == Subscription((), 300_000, ())


def test_all_criteria_have_to_match_the_whole_value() -> None:
    def matches(text: str) -> bool:
        return subscription_of({"match": text}).matches(CLIENT)

    assert set(CRITERIA) == set(CLIENT)
    assert matches("client_id=orders-.*")
    assert matches(" client_id = orders-[0-9] , client_software_version=3[.]7[.].*")
    assert matches(",".join(f"{name}={value}" for name, value in CLIENT.items()))
    assert not matches("client_id=orders")
    assert not matches("client_id=rders-1")
    assert not matches("client_id=orders-.*,client_source_port=50001")
    assert matches("")


def test_a_value_of_more_than_1024_characters_matches_nothing() -> None:
    every = subscription_of({"match": "client_id=.*"})
    assert every.matches({**CLIENT, "client_id": "é" * 1_024})
    assert not every.matches({**CLIENT, "client_id": "é" * 1_025})


def test_an_expression_is_matched_for_any_number_of_clients() -> None:
    """The work of one match is bounded, and the work of all matches together is not."""
    subscription = subscription_of({"match": "client_id=(a|aa)*b"})
    (pattern,) = (each for _, each in subscription.match)
    pattern.work = 3_000_000
    assert subscription.matches({**CLIENT, "client_id": "aaab"})
    assert pattern.work < 100


@pytest.mark.parametrize(
    ("configs", "code", "words"),
    [
        ({"interval.ms": "99"}, ErrorCode.INVALID_REQUEST, "from 100 to 3600000"),
        ({"interval.ms": "3600001"}, ErrorCode.INVALID_REQUEST, "from 100 to 3600000"),
        ({"interval.ms": "soon"}, ErrorCode.INVALID_CONFIG, "a whole number"),
        ({"metric": "*"}, ErrorCode.INVALID_REQUEST, "did you mean metrics?"),
        ({"match": "client_id"}, ErrorCode.INVALID_CONFIG, "CRITERION=EXPRESSION"),
        ({"match": "client_id="}, ErrorCode.INVALID_CONFIG, "CRITERION=EXPRESSION"),
        ({"match": "client_id=a=b"}, ErrorCode.INVALID_CONFIG, "one equals sign"),
        ({"match": "user=ann"}, ErrorCode.INVALID_CONFIG, "there is no criterion 'user'"),
        ({"match": "client_id=a,client_id=b"}, ErrorCode.INVALID_CONFIG, "named twice"),
        ({"match": "client_id=("}, ErrorCode.INVALID_CONFIG, "cannot be used"),
        ({"match": "client_id=" + "x" * 5_000}, ErrorCode.INVALID_CONFIG, "4000 characters"),
        ({"metrics": "m" * 32_768}, ErrorCode.INVALID_CONFIG, "32767 are the most"),
    ],
)
def test_refused_as_kafka_does_with_the_reason(
    configs: dict[str, str], code: ErrorCode, words: str
) -> None:
    with pytest.raises(ApiError, match=words) as refused:
        validate_client_metrics(configs)
    assert refused.value.code == code


def test_the_bounds_of_the_interval_are_valid() -> None:
    for interval in (100, 3_600_000):
        assert subscription_of({"interval.ms": str(interval)}).interval_ms == interval
