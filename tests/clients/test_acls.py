"""ACLs through unmodified admin clients, ours and the command line, on real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import admin as confluent_typed
from kafka import admin as kafka_python

from chaos.process_cluster import ProcessCluster
from cli import main
from stele import Acl, AclFilter, Admin
from stele.admin.acls import AccessVerdict
from stele.errors import ApiError, BulkError, ConfigError, ErrorCode

pytestmark = pytest.mark.processes

confluent: Any = confluent_typed  # its stubs lack that filters may have no name

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three brokers. A client may ask any of them."""
    cluster = ProcessCluster(tmp_path_factory.mktemp("acls"), settings=SETTINGS, controllers=1)
    asyncio.run(cluster.start())
    yield cluster.bootstrap_servers
    asyncio.run(cluster.stop())


@pytest.fixture(autouse=True)
def no_rules(servers: str) -> Iterator[None]:
    yield
    with Admin(servers) as admin:
        admin.delete_acls([AclFilter()])


def test_confluent(servers: str) -> None:
    client = confluent.AdminClient({"bootstrap.servers": servers})

    def binding(name: str, kind: Any = confluent.ResourcePatternType.LITERAL) -> Any:
        return confluent.AclBinding(
            confluent.ResourceType.TOPIC, name, kind, "User:ann", "*",
            confluent.AclOperation.READ, confluent.AclPermissionType.ALLOW,
        )  # fmt: skip

    rules = [binding("a"), binding("a", confluent.ResourcePatternType.PREFIXED), binding("b")]
    for future in client.create_acls(rules).values():
        assert future.result(10) is None
    match = confluent.AclBindingFilter(
        confluent.ResourceType.TOPIC, "ab", confluent.ResourcePatternType.MATCH, None, None,
        confluent.AclOperation.ANY, confluent.AclPermissionType.ANY,
    )  # fmt: skip
    assert client.describe_acls(match).result(10) == [rules[1]]
    everything = confluent.AclBindingFilter(
        confluent.ResourceType.ANY, None, confluent.ResourcePatternType.ANY, "User:ann", None,
        confluent.AclOperation.ANY, confluent.AclPermissionType.ANY,
    )  # fmt: skip
    assert sorted(client.describe_acls(everything).result(10)) == sorted(rules)
    (deleted,) = client.delete_acls([everything]).values()
    assert sorted(deleted.result(10)) == sorted(rules)
    assert client.describe_acls(everything).result(10) == []


@pytest.fixture
def client(servers: str) -> Iterator[Any]:
    client = kafka_python.KafkaAdminClient(bootstrap_servers=servers)
    yield client
    client.close()


def test_kafka_python(client: Any) -> None:

    def rule(principal: str) -> Any:
        return kafka_python.ACL(
            principal,
            "*",
            kafka_python.ACLOperation.ALL,
            kafka_python.ACLPermissionType.DENY,
            kafka_python.ResourcePattern(kafka_python.ResourceType.GROUP, "g"),
        )

    good, bad = rule("User:ann"), rule("ann")
    told = client.create_acls([good])
    assert [each.principal for each in told["succeeded"]] == ["User:ann"]
    refused = client.create_acls([bad])
    assert len(refused["failed"]) == 1
    wanted = kafka_python.ACLFilter(
        "User:ann",
        None,
        kafka_python.ACLOperation.ANY,
        kafka_python.ACLPermissionType.ANY,
        kafka_python.ResourcePatternFilter(
            kafka_python.ResourceType.ANY, None, kafka_python.ACLResourcePatternType.ANY
        ),
    )
    found, _ = client.describe_acls(wanted)
    assert found == [good]
    ((_, matched, _),) = client.delete_acls([wanted])
    assert matched == [good]


def test_our_client(servers: str) -> None:
    rules = [
        Acl("User:ann", "WRITE", "TOPIC", "orders"),
        Acl("User:*", "READ", "TOPIC", "or", pattern_type="PREFIXED", host="10.0.0.1"),
        Acl("User:ann", "IDEMPOTENT_WRITE", "CLUSTER", "kafka-cluster", permission="DENY"),
    ]
    with Admin(servers) as admin:
        admin.create_acls(rules)
        admin.create_acls(rules[:1])
        assert set(admin.describe_acls()) == set(rules)
        wanted = AclFilter(resource_type="topic", resource_name="orders", pattern_type="match")
        assert set(admin.describe_acls(wanted)) == set(rules[:2])
        told = admin.test_access("User:ann", "DESCRIBE", "TOPIC", "orders")
        assert told == AccessVerdict(True, "Rule", rules[0])
        assert admin.test_access("User:bob", "READ", "TOPIC", "orders").reason == "DefaultDeny"
        with pytest.raises(BulkError, match="is neither an address nor") as bulk:
            admin.create_acls([Acl("User:a", "READ", "TOPIC", "t", host="h"), rules[0]])
        assert bulk.value.succeeded == [str(rules[0])]
        with pytest.raises(ConfigError, match="GROUP has no operation WRITE: it has READ"):
            admin.create_acls([Acl("User:a", "WRITE", "GROUP", "g")])
        assert admin.delete_acls([AclFilter(principal="User:*")]) == [rules[1]]
        assert len(admin.describe_acls()) == 2


def test_the_command_line(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        code = main.run(["acls", *arguments, "-b", servers])
        return code, capsys.readouterr().out

    assert run("add", "User:ann", "READ,WRITE", "topic:orders")[0] == 0
    assert json.loads(run("list", "--json")[1])[0]["operation"] == "READ"
    code, said = run("test", "User:ann", "READ", "topic:orders")
    assert (code, said.endswith("ALLOW User:ann READ TOPIC orders\n")) == (0, True)
    assert run("test", "User:bob", "READ", "topic:orders")[0] == 3
    assert run("remove", "--principal", "User:ann")[0] == 0
    assert run("test", "User:ann", "READ", "topic:orders")[0] == 3


def test_without_an_authorizer(bootstrap: str) -> None:
    with Admin(bootstrap) as admin, pytest.raises(ApiError) as caught:
        admin.describe_acls()
    assert caught.value.code is ErrorCode.SECURITY_DISABLED
    assert "authorizer.class.name is not set" in caught.value.message
