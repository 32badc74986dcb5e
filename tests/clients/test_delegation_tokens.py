"""Delegation tokens on a node that serves: made by one client, used by others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from stele import Admin, Consumer, Producer, TopicPartition
from stele.admin.delegation_tokens import DelegationToken
from stele.admin.descriptions import NewTopic
from stele.cluster.kafka_login import LoginError
from stele.errors import ApiError, DeliveryTimeoutError, ErrorCode
from tests.support.sasl_node import SaslNode, sasl_node

pytestmark = pytest.mark.processes

TOPIC = "t"
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
NAME, PASSWORD = "bob", "bob-secret"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslNode]:
    users = [f"{each}=[name={NAME},password={PASSWORD}]" for each in MECHANISMS]
    with sasl_node(tmp_path_factory.mktemp("tokens"), *users) as running:
        with Admin(running.server("INTERNAL")) as admin:
            admin.create_topics([NewTopic(TOPIC, 1, 1)])
        yield running


def by_password(node: SaslNode, listener: str = "SASL") -> Admin:
    return Admin(
        node.server(listener),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=MECHANISMS[0],
        sasl_username=NAME,
        sasl_password=PASSWORD,
    )


def by_token(node: SaslNode, listener: str, mechanism: str, token: DelegationToken) -> Any:
    options: dict[str, Any] = {
        "security_protocol": "SASL_SSL" if listener == "TLS" else "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": token.jaas_config,
    }
    if listener == "TLS":
        options["ssl_truststore_location"] = node.ca_file
    return options


@pytest.mark.parametrize("listener", ["SASL", "TLS"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_clients_work_by_a_token(node: SaslNode, listener: str, mechanism: str) -> None:
    with by_password(node) as admin:
        token = admin.create_delegation_token(renewers=["User:rita"])
    assert (token.owner, token.requester) == (f"User:{NAME}", f"User:{NAME}")
    options = by_token(node, listener, mechanism, token)
    with Producer(node.server(listener), **options) as producer:
        producer.send(TOPIC, token.token_id.encode()).result(20)
    with Consumer(node.server(listener), auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        assert consumer.poll(20)
    with Admin(node.server(listener), **options) as own:
        assert TOPIC in [each.name for each in own.list_topics()]
        with pytest.raises(ApiError, match="has logged in by a delegation token") as caught:
            own.create_delegation_token()
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_a_cluster_begins_with_the_users_that_it_was_formatted_with(node: SaslNode) -> None:
    with by_password(node) as admin:
        users = admin.describe_user_scram_credentials()
    assert {name: [each.mechanism for each in found] for name, found in users.items()} == {
        NAME: list(MECHANISMS)
    }


def test_a_token_is_renewed_described_and_removed(node: SaslNode) -> None:
    with by_password(node) as admin:
        token = admin.create_delegation_token(max_lifetime_ms=3_600_000)
        assert admin.describe_delegation_tokens([f"User:{NAME}"]).count(token) == 1
        assert admin.renew_delegation_token(token.token_id, renew_period_ms=60_000)
        (found,) = [
            each for each in admin.describe_delegation_tokens() if each.token_id == token.token_id
        ]
        assert found.expiry_ms < token.expiry_ms
        admin.expire_delegation_token(token.token_id)
        assert token.token_id not in [each.token_id for each in admin.describe_delegation_tokens()]
        with pytest.raises(ApiError) as caught:
            admin.renew_delegation_token(token.token_id)
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    options = by_token(node, "SASL", MECHANISMS[0], token)
    with Producer(node.server("SASL"), **options) as own, pytest.raises(LoginError):
        own.send(TOPIC, b"x").result(20)


def test_a_token_that_is_renewed_keeps_its_client_at_work(node: SaslNode) -> None:
    """The client logs in again before each end that it knows, and learns the new one."""
    with by_password(node) as admin:
        token = admin.create_delegation_token()
        admin.renew_delegation_token(token.token_id, renew_period_ms=3_000)
        options = by_token(node, "SASL", MECHANISMS[0], token)
        with Producer(node.server("SASL"), **options) as producer:
            end = time.monotonic() + 9
            while time.monotonic() < end:
                producer.send(TOPIC, b"x").result(30)
                admin.renew_delegation_token(token.token_id, renew_period_ms=3_000)
                time.sleep(0.1)


def test_nobody_works_by_a_token_that_has_expired(node: SaslNode) -> None:
    with by_password(node) as admin:
        token = admin.create_delegation_token(max_lifetime_ms=2_000)
        options = by_token(node, "SASL", MECHANISMS[1], token)
        with pytest.raises(DeliveryTimeoutError, match="the login of user"):
            _send_for(30, node, options)
        with Producer(node.server("SASL"), **options) as own, pytest.raises(LoginError):
            own.send(TOPIC, b"x").result(20)
        deadline = time.monotonic() + 30
        while any(each.token_id == token.token_id for each in admin.describe_delegation_tokens()):
            assert time.monotonic() < deadline, "the controller removes it"
            time.sleep(0.1)


def _send_for(seconds: float, node: SaslNode, options: Any) -> None:
    patience: Any = {"delivery_timeout_ms": 10_000, "request_timeout_ms": 2_000, "linger_ms": 0}
    with Producer(node.server("SASL"), **options, **patience) as producer:
        producer.send(TOPIC, b"x").result(20)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            producer.send(TOPIC, b"x").result(30)
            time.sleep(0.05)


def test_who_has_not_logged_in_has_no_tokens(node: SaslNode) -> None:
    with Admin(node.server("INTERNAL")) as admin:
        with pytest.raises(ApiError, match="nobody has logged in on the listener INTERNAL"):
            admin.create_delegation_token()
        with pytest.raises(ApiError) as caught:
            admin.describe_delegation_tokens()
        assert caught.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
