"""What would keep a node's peers from taking it, found in its configuration and at its start."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from node.directories import directories_of
from node.findings import Finding, Level
from node.format import format_directory
from node.node_facts import read_facts
from node.peers_doctor import PEER_CHECKS
from node.process_end import EXIT_FAILED
from node.run import run_node
from node.start_checks import check_start
from runtime.config.node import ConfigError, NodeConfig, from_settings
from runtime.real.disk import RealDisk
from security.authority import Authority, Subject
from security.node_identity import node_uri

NOW: Final = datetime.now(UTC)
AUTHORITY: Final = Authority.make(NOW)
OTHER: Final = Authority.make(NOW)
STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
HOST: Final = "b1.example.com"
PRINCIPAL: Final = "User:CN=node-1,OU=nodes,O=Stele"
NODES: Final = Subject.node(1, [HOST])


@dataclass
class Files:
    """A node's stores, and the settings that name them."""

    directory: Path

    def store(
        self,
        subject: Subject = NODES,
        *,
        authority: Authority = AUTHORITY,
        since: datetime = NOW,
        days: int = 100,
        name: str = "node.pem",
    ) -> str:
        return self.write(name, authority.issue(subject, since, days).text)

    def write(self, name: str, text: str) -> str:
        path = self.directory / name
        path.touch(0o600)
        path.write_text(text)
        return str(path)

    def settings(
        self, changed: Mapping[str, str] | None = None, without: Sequence[str] = ()
    ) -> dict[str, str]:
        settings = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "controller.quorum.voters": f"1@{HOST}:9093,2@b2.example.com:9093",
            "controller.listener": "0.0.0.0:9093",
            "listeners": "CLIENTS://0.0.0.0:9092,NODES://0.0.0.0:9094",
            "advertised.listeners": f"CLIENTS://{HOST}:9092,NODES://{HOST}:9094",
            "grpc.listeners": "CLIENTS://0.0.0.0:9192,NODES://0.0.0.0:9194",
            "grpc.advertised.listeners": f"CLIENTS://{HOST}:9192,NODES://{HOST}:9194",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "NODES",
            "ssl.keystore.location": str(self.directory / "node.pem"),
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "listener.name.nodes.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "authorizer.class.name": STANDARD,
            "super.users": f"User:admin;{PRINCIPAL}",
        }
        settings |= changed or {}
        return {name: text for name, text in settings.items() if name not in without}

    def config(
        self, changed: Mapping[str, str] | None = None, without: Sequence[str] = ()
    ) -> NodeConfig:
        return from_settings(self.settings(changed, without))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.store()
    made.write("ca.pem", AUTHORITY.certificate)
    return made


BROKER: Final = {"process.roles": "broker", "controller.quorum.voters": "2@b2.example.com:9093"}
ALONE: Final = {"controller.quorum.voters": f"1@{HOST}:9093"}


def findings(config: NodeConfig, now: datetime = NOW) -> dict[str, Finding]:
    """By listener: what the checks of peers find."""
    found = [each for check in PEER_CHECKS for each in check(read_facts(config, now))]
    by_listener: dict[str, Finding] = {}
    for each in found:
        by_listener.setdefault(each.where.rpartition(" ")[2], each)
    return by_listener


def levels(found: Mapping[str, Finding]) -> dict[str, Level]:
    return {listener: each.level for listener, each in found.items()}


def refusal(config: NodeConfig, now: datetime = NOW) -> str:
    with pytest.raises(ConfigError) as caught:
        check_start(config, now)
    return str(caught.value)


@pytest.mark.parametrize("changed", [{}, BROKER, ALONE])
def test_a_good_node_starts_without_a_word(
    files: Files, changed: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    without = ["controller.listener"] if changed is BROKER else []
    assert findings(files.config(changed, without)) == {}
    check_start(files.config(changed, without), NOW)
    assert caplog.records == []


def test_a_node_without_tls_is_not_examined() -> None:
    plain = from_settings(
        {"node.id": "1", "process.roles": "broker", "controller.quorum.voters": "2@b2:9093"}
    )
    assert findings(plain) == {}
    check_start(plain, NOW)


def test_a_certificate_that_has_expired(files: Files) -> None:
    store = files.store(since=NOW - timedelta(days=30), days=10)
    config = files.config()
    assert levels(findings(config)) == {
        "CLIENTS": Level.PROBLEM,  # nodes connect all the same
        "NODES": Level.FATAL,
        "CONTROLLER": Level.FATAL,
    }
    said = refusal(config)
    ended = NOW - timedelta(days=20)
    assert f"listener NODES and CONTROLLER: its certificate (ssl.keystore.location={store})" in said
    assert f"expired on {ended:%Y-%m-%d %H:%M} UTC" in said
    assert "What to do: renew it: stele certs renew" in said
    assert "refuses its certificate" not in said  # that would be the same fault


def test_a_certificate_that_is_not_valid_yet(files: Files) -> None:
    files.store(since=NOW + timedelta(days=3))
    said = refusal(files.config())
    assert "is valid only from " in said
    assert f"and it is {NOW:%Y-%m-%d %H:%M} UTC" in said
    assert "set the clock of this machine" in said


def test_a_certificate_is_valid_from_its_first_second_to_its_last(files: Files) -> None:
    store = Path(files.store(authority=OTHER))
    certificate = x509.load_pem_x509_certificates(store.read_bytes())[0]
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    second = timedelta(seconds=1)
    for now, what in (
        (begins - second, "is valid only from"),
        (begins, "a node with the same settings refuses"),
        (ends, "a node with the same settings refuses"),
        (ends + second, "expired on"),
    ):
        assert what in findings(files.config(), now)["NODES"].what


def test_a_certificate_of_clients_alone_that_has_expired_is_a_warning(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """The node still holds replicas, and takes the renewed file by itself."""
    old = files.store(since=NOW - timedelta(days=30), days=10, name="clients.pem")
    config = files.config({"listener.name.CLIENTS.ssl.keystore.location": old})
    check_start(config, NOW)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert f"listener.name.CLIENTS.ssl.keystore.location={old}" in caplog.text


def test_a_certificate_of_another_node(files: Files) -> None:
    files.store(Subject.node(7, [HOST]))
    said = refusal(files.config({"super.users": "User:CN=node-7,OU=nodes,O=Stele"}))
    assert f"it names {node_uri(7)}, and node.id is 1" in said
    assert "use the certificate of node 1, or issue one with the URI stele:node:1" in said


def test_a_certificate_that_names_no_node_may_be_any(files: Files) -> None:
    issued = _issued(AUTHORITY, x509.DNSName(HOST))
    files.write("node.pem", issued)
    assert findings(files.config({"super.users": "User:CN=plain"})) == {}


def test_an_authority_that_its_own_trust_store_lacks(files: Files) -> None:
    files.store(authority=OTHER)
    said = refusal(files.config())
    trust = files.directory / "ca.pem"
    issuer = x509.load_pem_x509_certificate(OTHER.certificate.encode()).subject.rfc4514_string()
    assert "a node with the same settings refuses its certificate" in said
    assert f"issued by {issuer!r}) as a server, by ssl.truststore.location={trust}: " in said
    assert f"add the certificate of {issuer!r} to the trust stores of all nodes" in said


def test_a_certificate_that_is_not_for_clients(files: Files) -> None:
    purposes = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    files.write("node.pem", _issued(AUTHORITY, x509.DNSName(HOST), purposes=purposes))
    said = refusal(files.config({"super.users": "User:CN=plain"}))
    assert ") as a client, by ssl.truststore.location=" in said
    assert "a certificate that their authority has issued for servers and clients" in said


def test_an_advertised_host_that_the_certificate_does_not_name(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.store(Subject.node(1, ["10.0.0.7", "other.example.com"]))
    found = findings(files.config())
    assert levels(found) == {
        "CLIENTS": Level.PROBLEM,
        "NODES": Level.FATAL,
        "CONTROLLER": Level.FATAL,
    }
    said = refusal(files.config())
    assert f"advertised as {HOST}, which its certificate" in said
    assert "The certificate names DNS:other.example.com, IP:10.0.0.7, URI:stele:node:1" in said
    assert f"give the certificate the name {HOST}, or advertise one that it has" in said


def test_names_that_nobody_compares(files: Files) -> None:
    files.store(Subject.node(1, ["other.example.com"]))
    plain = "CLIENTS:SASL_SSL,NODES:SSL,CONTROLLER:PLAINTEXT"
    unchecked = "listener.name.nodes.ssl.endpoint.identification.algorithm"
    config = files.config(
        {
            "listener.security.protocol.map": plain,
            unchecked: "",
            "super.users": f"User:ANONYMOUS;{PRINCIPAL}",
        }
    )
    assert levels(findings(config)) == {"CLIENTS": Level.PROBLEM, "NODES": Level.PROBLEM}
    check_start(config, NOW)


def test_the_names_of_a_controller_are_compared_whatever_is_set(files: Files) -> None:
    files.store(Subject.node(1, ["other.example.com"]))
    found = findings(files.config({"ssl.endpoint.identification.algorithm": ""}))
    assert "which its certificate" in found["CONTROLLER"].what
    assert levels(found) == {
        "CLIENTS": Level.PROBLEM,
        "NODES": Level.PROBLEM,
        "CONTROLLER": Level.FATAL,
    }


def test_a_certificate_without_names(files: Files) -> None:
    files.write("node.pem", _issued(AUTHORITY))
    said = refusal(files.config({"super.users": "User:CN=plain"}))
    assert "The certificate names no name at all" in said


def test_a_controller_whose_host_is_not_to_be_compared(files: Files) -> None:
    """gRPC cannot do that."""
    said = refusal(files.config({"ssl.endpoint.identification.algorithm": ""}))
    assert "ssl.endpoint.identification.algorithm is empty, but gRPC always compares" in said
    assert "listener CONTROLLER: " in said
    assert "no node calls a controller" in said


def test_a_broker_that_may_be_alone_is_only_warned_of_its_listener(files: Files) -> None:
    files.store(Subject.node(1, ["other.example.com"]))
    found = findings(files.config(ALONE))
    assert levels(found) == {
        "CLIENTS": Level.PROBLEM,
        "NODES": Level.PROBLEM,
        "CONTROLLER": Level.FATAL,  # its own broker connects there
    }


def test_a_controller_that_is_no_super_user(files: Files) -> None:
    config = files.config({"super.users": "User:admin"})
    assert levels(findings(config)) == {"NODES": Level.PROBLEM, "CONTROLLER": Level.FATAL}
    said = refusal(config)
    assert f"this node is {PRINCIPAL}, which super.users does not name" in said
    assert "they could not form a quorum" in said
    assert f"add it to super.users on every node: super.users=...;{PRINCIPAL}" in said


def test_a_broker_that_is_no_super_user_may_have_an_acl(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    config = files.config({**BROKER, "super.users": "User:admin"}, ["controller.listener"])
    check_start(config, NOW)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    assert said.startswith("listener CONTROLLER and NODES: by its certificate")
    assert f"stele acls add {PRINCIPAL!r} CLUSTER_ACTION cluster" in said


def test_a_broker_asks_several_controllers_for_its_right_as_one(files: Files) -> None:
    voters = {"controller.quorum.voters": "2@b2.example.com:9093,3@b3.example.com:9093"}
    config = files.config({**BROKER, **voters, "super.users": "User:a"}, ["controller.listener"])
    assert set(levels(findings(config)).values()) == {Level.PROBLEM}


def test_a_controller_that_is_alone_needs_nobody_and_is_warned(files: Files) -> None:
    config = files.config({**ALONE, "super.users": "User:admin"})
    assert levels(findings(config)) == {"NODES": Level.PROBLEM, "CONTROLLER": Level.PROBLEM}


@pytest.mark.parametrize(
    ("changed", "without"),
    [
        ({}, ["listener.name.nodes.ssl.client.auth"]),
        ({"listener.security.protocol.map": "CLIENTS:SSL,NODES:SASL_SSL,CONTROLLER:SSL"}, []),
    ],
)
def test_where_no_certificate_says_who_comes_in_it_needs_no_right(
    files: Files, changed: dict[str, str], without: list[str]
) -> None:
    mechanism = {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"} if changed else {}
    settings = {**changed, **mechanism, "super.users": "User:ANONYMOUS;User:n"}
    found = findings(files.config(settings, without))
    assert "super.users" not in str(found.get("NODES"))
    assert "super.users" in found["CONTROLLER"].what


def test_a_super_user_in_another_order(files: Files) -> None:
    said = refusal(files.config({"super.users": "User:O=Stele, OU=nodes, CN=node-1"}))
    assert "(it has 'User:O=Stele, OU=nodes, CN=node-1', in another order or notation)" in said


def test_rules_by_which_a_certificate_gives_a_super_user(files: Files) -> None:
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=(node)-.*$/$1/"}
    assert findings(files.config({**rules, "super.users": "User:node"})) == {}
    assert "this node is User:node, which" in refusal(files.config(rules))


def test_rules_by_which_its_own_certificate_gives_nobody(files: Files) -> None:
    said = refusal(files.config({"ssl.principal.mapping.rules": "RULE:^CN=broker-.*$/broker/"}))
    assert "gives no principal: no rule of ssl.principal.mapping.rules matches" in said
    assert "add a rule for it to ssl.principal.mapping.rules, or DEFAULT as the last one" in said


LOGIN: Final = {
    "inter.broker.listener.name": "CLIENTS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}
JAAS: Final = "listener.name.clients.plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({JAAS: 'm required username="n" password="p" user_n="p";'}, None),
        (
            {JAAS: 'm required username="n" password="p" user_n="q";'},
            "as 'n' by PLAIN, which has another password there",
        ),
        (
            {JAAS: 'm required username="n" password="p" user_m="p";'},
            "as 'n' by PLAIN, and there is no such user. What to do: set user_n to the password",
        ),
        (
            {
                JAAS: 'm required username="n" password="p";',
                "listener.name.clients.plain.sasl.plain.scram.enable": "true",
            },
            None,
        ),
        (
            {
                JAAS: 'm required user_m="q";',
                "listener.name.clients.scram-sha-256.sasl.jaas.config": (
                    'm required username="n" password="p";'
                ),
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            },
            None,
        ),
        ({JAAS: 'm required user_n="p";'}, "by PLAIN, and no user is set. What to do: set user"),
        (
            {
                JAAS: 'm required username="n" password="p" user_n="p";',
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            },
            "=SCRAM-SHA-256, and sasl.enabled.mechanisms has only PLAIN: brokers cannot log in",
        ),
    ],
)
def test_brokers_that_could_not_log_in_at_one_another(
    files: Files, changed: dict[str, str], said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    users = {"super.users": f"User:n;{PRINCIPAL}"}
    config = files.config({**LOGIN, **users, **changed}, ["listener.name.nodes.ssl.client.auth"])
    if said is None:
        check_start(config, NOW)
        assert caplog.records == []
        return
    assert said in refusal(config)
    alone = files.config(
        {**LOGIN, **users, **changed, **ALONE}, ["listener.name.nodes.ssl.client.auth"]
    )
    check_start(alone, NOW)
    assert said in caplog.text


def test_the_process_ends_with_one_line(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    files.store(authority=OTHER)
    config = files.config({"log.dirs": str(files.directory / "data")})
    format_directory(RealDisk(), directories_of(config), "cluster", 1, random.Random(1))
    assert run_node(config) == EXIT_FAILED
    said = capsys.readouterr().err
    assert said.startswith("stele: listener NODES and CONTROLLER: a node with the same settings")
    assert said.count("\n") == 1


def test_a_store_that_cannot_be_read_is_left_to_the_start_itself(files: Files) -> None:
    (files.directory / "node.pem").unlink()
    config = files.config()
    check_start(config, NOW)
    assert set(read_facts(config, NOW).unreadable) == {"CLIENTS", "NODES", "CONTROLLER"}


def test_a_trust_store_that_cannot_be_read(files: Files) -> None:
    (files.directory / "ca.pem").write_text("nothing")
    unreadable = read_facts(files.config(), NOW).unreadable
    assert "ca.pem is neither PEM nor PKCS12" in unreadable["NODES"]


def test_a_key_that_others_can_read(files: Files) -> None:
    store = files.directory / "node.pem"
    store.chmod(0o644)
    assert read_facts(files.config(), NOW).exposed_files == (str(store),)


def test_levels_do_not_depend_on_the_clock_alone(files: Files) -> None:
    """A node that is examined later than its certificate ends is refused then, and not now."""
    config = files.config()
    check_start(config, NOW)
    assert "expired on" in refusal(config, NOW + timedelta(days=101))
    assert findings(replace(config)) == {}


def _issued(
    authority: Authority, *names: x509.GeneralName, purposes: x509.ExtendedKeyUsage | None = None
) -> str:
    """A key store of another tool's making, with the subject ``CN=plain``."""
    own = x509.load_pem_x509_certificate(authority.certificate.encode())
    signer = serialization.load_pem_private_key(authority.keystore.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "plain")]))
        .issuer_name(own.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=10))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    if purposes is not None:
        builder = builder.add_extension(purposes, critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    signed = builder.sign(signer, hashes.SHA256())
    return (private + signed.public_bytes(serialization.Encoding.PEM)).decode()
