"""What the doctor finds in the configuration of a node and in a live cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from node.cluster_doctor import ClusterFacts, examine_cluster
from node.doctor import examine
from node.findings import Finding, Level, NodeFacts
from runtime.config.node import from_settings
from security.authority import Authority, Subject
from stele.admin.acls import Acl
from stele.admin.client_connections import ListenerCertificate

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
AUTHORITY = Authority.make(NOW)
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SAFE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.quorum.voters": "1@b1.example.com:9093",
    "controller.listener": "0.0.0.0:9093",
    "listeners": "CLIENTS://0.0.0.0:9092,NODES://0.0.0.0:9094",
    "advertised.listeners": "CLIENTS://b1.example.com:9092,NODES://b1.example.com:9094",
    "grpc.listeners": "CLIENTS://0.0.0.0:9192,NODES://0.0.0.0:9194",
    "grpc.advertised.listeners": "CLIENTS://b1.example.com:9192,NODES://b1.example.com:9194",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "NODES",
    "ssl.keystore.location": "/node-1.pem",
    "listener.name.nodes.ssl.client.auth": "required",
    "listener.name.controller.ssl.client.auth": "required",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "authorizer.class.name": STANDARD,
    "super.users": "User:CN=node-1,OU=nodes,O=Stele",
}


NODES_AUTH = "listener.name.nodes.ssl.client.auth"


HOST = "b1.example.com"


def certificate(*hosts: str, days: int = 365, node_id: int = 1) -> x509.Certificate:
    issued = AUTHORITY.issue(Subject.node(node_id, hosts), NOW, days)
    return x509.load_pem_x509_certificate(issued.certificate.encode())


def facts(
    settings: Mapping[str, str] | None = None,
    *,
    without: Sequence[str] = (),
    certificate_of: x509.Certificate | None = None,
) -> NodeFacts:
    kept = {key: value for key, value in SAFE.items() if key not in without}
    config = from_settings({**kept, **(settings or {})})
    shown = certificate_of or certificate("b1.example.com")
    names = ("CLIENTS", "NODES", "CONTROLLER")
    return NodeFacts(config, dict.fromkeys(names, shown), {}, (), NOW)


def said(found: list[Finding]) -> list[tuple[Level, str, str]]:
    return [(each.level, each.where, each.what) for each in found]


def test_nothing_is_found_in_a_safe_configuration() -> None:
    assert examine(facts()) == []


def test_plaintext_that_faces_outside() -> None:
    mapped = {"listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,NODES:SSL,CONTROLLER:SSL"}
    found = examine(facts(mapped))
    assert said(found) == [
        (
            Level.PROBLEM,
            "node 1, listener CLIENTS",
            "it is SASL_PLAINTEXT on 0.0.0.0: whoever is on the way reads passwords and records",
        )
    ]
    inside = {
        "listeners": "CLIENTS://127.0.0.1:9092,NODES://0.0.0.0:9094",
        "grpc.listeners": "CLIENTS://localhost:9192,NODES://0.0.0.0:9194",
    }
    assert examine(facts({**mapped, **inside})) == []


def test_nobody_has_to_say_who_it_is() -> None:
    found = examine(facts({"super.users": "User:ANONYMOUS;User:x"}, without=[NODES_AUTH]))
    assert (Level.ADVICE, "node 1, listener NODES") in [each[:2] for each in said(found)]
    assert any("clients need not say who they are" in each.what for each in found)


def test_no_authorizer() -> None:
    found = examine(facts(without=["authorizer.class.name", "super.users"]))
    assert [each.what for each in found] == [
        "there is no authorizer: whoever gets in reads, writes and deletes everything"
    ]


def test_super_users_that_are_everybody() -> None:
    found = examine(facts({"super.users": "User:ANONYMOUS;User:CN=node-1,OU=nodes,O=Stele"}))
    assert [each.level for each in found] == [Level.PROBLEM]
    assert "User:ANONYMOUS is a super user" in found[0].what


def test_what_no_rule_is_about() -> None:
    found = examine(facts({"allow.everyone.if.no.acl.found": "true"}))
    assert [each.level for each in found] == [Level.ADVICE]
    assert "everybody may use what no rule is about" in found[0].what


@pytest.mark.parametrize(
    ("passed", "level", "what"),
    [
        (timedelta(days=0), None, ""),
        (timedelta(days=70), None, ""),
        (timedelta(days=71), Level.ADVICE, "ends on 2026-08-12, in 29 days"),
        (timedelta(days=100), Level.ADVICE, "ends on 2026-08-12, in 0 days"),
        (timedelta(days=101), Level.PROBLEM, "expired on 2026-08-12"),
    ],
)
def test_a_certificate_that_ends(passed: timedelta, level: Level | None, what: str) -> None:
    ends = certificate("b1.example.com", days=100)
    found = examine(replace(facts(certificate_of=ends), now=NOW + passed))
    # The controllers' listener has the same one: with it nobody comes in there.
    assert {each.level for each in found} - {Level.FATAL} == ({level} if level else set())
    assert all(what in each.what for each in found)


def test_a_name_that_the_certificate_lacks() -> None:
    found = examine(facts(certificate_of=certificate("other.example.com")))
    assert {each.where for each in found} == {
        "node 1, listener CLIENTS",
        "node 1, listener NODES",
        "node 1, listener CONTROLLER",
    }
    assert all("advertised as b1.example.com, which its certificate" in each.what for each in found)


def test_a_key_that_others_can_read_and_a_store_that_nobody_can() -> None:
    found = examine(
        replace(facts(), exposed_files=("/node-1.pem",), unreadable={"NODES": "no such file"})
    )
    assert [each.advice for each in found] == [
        "the node does not start so",
        "chmod 600 /node-1.pem",
    ]


# ------------------------------------------------------------------------------ live clusters

CLUSTER = ClusterFacts(
    rules=[Acl("User:ann", "READ", "TOPIC", "orders")],
    users=["ann"],
    brokers={101: ("b1.example.com", 9092)},
    certificates={101: certificate(HOST, node_id=101)},
    silent={},
    has_tls=True,
    now=NOW,
)


def test_nothing_is_found_in_a_safe_cluster() -> None:
    taken = ListenerCertificate("CLIENTS", 0, None)
    assert examine_cluster(replace(CLUSTER, listeners={101: [taken]})) == []


def test_a_certificate_that_a_listener_has_refused() -> None:
    """The old one is still shown, and nothing is wrong with it."""
    ends_ms = int(NOW.timestamp() * 1000)
    refused = ListenerCertificate("NODES", ends_ms, "the new certificate lacks the names DNS:a")
    (found,) = examine_cluster(replace(CLUSTER, listeners={101: [refused]}))
    assert (found.level, found.where) == (Level.PROBLEM, "broker 101, listener NODES")
    assert "it has refused its new certificate: the new certificate lacks the names" in found.what
    assert f"until {NOW:%Y-%m-%d %H:%M} UTC" in found.what


def test_a_broker_that_does_not_say_what_it_has_refused() -> None:
    (found,) = examine_cluster(replace(CLUSTER, untold={101: "broker 101 is older"}))
    assert found.level is Level.ADVICE
    assert "is not known: broker 101 is older" in found.what


def test_a_cluster_without_an_authorizer() -> None:
    (found,) = examine_cluster(replace(CLUSTER, rules=None))
    assert found.level is Level.PROBLEM
    assert "there is no authorizer" in found.what


def test_rules_for_everybody() -> None:
    rules = [
        *(CLUSTER.rules or ()),
        Acl("User:*", "READ", "TOPIC", "public"),
        Acl("User:ANONYMOUS", "WRITE", "TOPIC", "*"),
        Acl("User:*", "DELETE", "TOPIC", "*", permission="DENY"),
    ]
    found = examine_cluster(replace(CLUSTER, rules=rules))
    assert [(each.level, each.what) for each in found] == [
        (Level.PROBLEM, "User:ANONYMOUS may WRITE the topic *: that is everybody"),
        (Level.ADVICE, "User:* may READ the topic public: that is everybody"),
    ]


def test_users_without_rules_and_rules_without_users() -> None:
    rules = [Acl("User:bob", "READ", "TOPIC", "t"), Acl("User:CN=x,O=y", "READ", "TOPIC", "t")]
    found = examine_cluster(replace(CLUSTER, rules=rules))
    assert [each.where for each in found] == ["user ann", "access rules"]
    assert "User:bob has rules and no SCRAM credential" in found[1].what
    assert [each.where for each in examine_cluster(replace(CLUSTER, users=None))] == []


def test_certificates_that_brokers_show() -> None:
    early = replace(CLUSTER, now=CLUSTER.certificates[101].not_valid_before_utc)
    assert examine_cluster(early) == []
    assert examine_cluster(replace(CLUSTER, now=NOW + timedelta(days=335))) == []
    late = replace(CLUSTER, now=NOW + timedelta(days=340))
    assert [each.level for each in examine_cluster(late)] == [Level.ADVICE]
    (last,) = examine_cluster(replace(CLUSTER, now=CLUSTER.certificates[101].not_valid_after_utc))
    assert (last.level, "in 0 days" in last.what) == (Level.ADVICE, True)
    gone = replace(CLUSTER, now=NOW + timedelta(days=366))
    assert [each.level for each in examine_cluster(gone)] == [Level.PROBLEM]
    other = replace(CLUSTER, certificates={101: certificate("elsewhere", node_id=101)})
    assert "which its certificate does not name" in examine_cluster(other)[0].what
    silent = replace(CLUSTER, certificates={}, silent={101: "connection refused"})
    assert "showed no certificate: connection refused" in examine_cluster(silent)[0].what


def test_a_connection_in_plaintext_shows_no_certificates() -> None:
    (found,) = examine_cluster(replace(CLUSTER, has_tls=False))
    assert (found.level, found.where) == (Level.ADVICE, "this connection")


def test_everybody_as_super_user_of_a_live_cluster() -> None:
    (found,) = examine_cluster(replace(CLUSTER, anonymous_is_super=True))
    assert (found.level, found.where) == (Level.PROBLEM, "super users")
    assert "User:ANONYMOUS is a super user" in found.what


def test_a_broker_with_the_certificate_of_another_node() -> None:
    (found,) = examine_cluster(replace(CLUSTER, certificates={101: certificate(HOST, node_id=7)}))
    assert (found.level, found.where) == (Level.PROBLEM, "broker 101")
    assert "it names stele:node:7" in found.what
    assert "issue one with the URI stele:node:101" in found.advice


def test_a_broker_whose_certificate_is_not_valid_yet() -> None:
    (found,) = examine_cluster(replace(CLUSTER, now=NOW - timedelta(days=2)))
    assert found.level is Level.PROBLEM
    assert found.what.startswith("its certificate is valid only from 2026-05-04")


def test_nodes_that_are_not_in_service() -> None:
    found = examine_cluster(replace(CLUSTER, fenced=[102], silent_voters=[3]))
    assert [(each.level, each.where) for each in found] == [
        (Level.PROBLEM, "broker 102"),
        (Level.PROBLEM, "controller 3"),
    ]
    assert all("run stele doctor --config on its machine" in each.advice for each in found)
