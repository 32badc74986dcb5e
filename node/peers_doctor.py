"""Whether the other nodes of a cluster, and clients, take a node as what its certificate says.

A node whose peers refuse it starts and never serves, and the reason is in the logs of the others.
What the configuration alone shows is found here, by ``stele doctor`` and at each start. Pure, but
for the stores, which the caller has read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from node.findings import Check, Finding, Level, NodeFacts
from runtime.config.security import ListenerSecurity
from security.authorizer.decision import Policy
from security.distinguished_name import MalformedNameError, subject_of
from security.node_identity import named_nodes, node_uri
from security.principal import MappingRules, NoRuleMatchesError, PrincipalError, user
from security.renewal import names_host
from stele.addresses import SecurityProtocol
from stele.security.stores import alternative_names


def _dates(facts: NodeFacts) -> Iterator[Finding]:
    for name, certificate in facts.certificates.items():
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        store = facts.keystore_of(name)
        if facts.now > ends:
            yield Finding(
                facts.fatal_on(name),
                facts.place_of(name),
                f"its certificate ({store}) expired on {ends:%Y-%m-%d %H:%M} UTC: clients and "
                "other nodes refuse it",
                "renew it: stele certs renew",
            )
        elif facts.now < begins:
            yield Finding(
                facts.fatal_on(name),
                facts.place_of(name),
                f"its certificate ({store}) is valid only from {begins:%Y-%m-%d %H:%M} UTC, and it "
                f"is {facts.now:%Y-%m-%d %H:%M} UTC: clients and other nodes refuse it",
                "set the clock of this machine, or issue the certificate again",
            )


def _names(facts: NodeFacts) -> Iterator[Finding]:
    for security, _, advertised in facts.listeners:
        certificate = facts.certificates.get(security.name)
        if certificate is None or names_host(certificate, advertised.host):
            continue
        level = facts.fatal_on(security.name)
        if advertised.host.lower() in _common_names(certificate):
            level = Level.PROBLEM  # gRPC and Java compare it if there are no other names
        of_controllers = security.name in facts.config.security.controllers
        if not of_controllers and not security.tls.checks_host_name:
            level = Level.PROBLEM  # brokers replicate all the same
        there = ", ".join(sorted(alternative_names(certificate))) or "no name at all"
        yield Finding(
            level,
            facts.place_of(security.name),
            f"it is advertised as {advertised.host}, which its certificate "
            f"({facts.keystore_of(security.name)}) does not name: clients and other nodes refuse "
            f"it. The certificate names {there}",
            f"give the certificate the name {advertised.host}, or advertise one that it has",
        )


def _common_names(certificate: x509.Certificate) -> list[str]:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return [str(each.value).lower() for each in found]


def _other_node(facts: NodeFacts) -> Iterator[Finding]:
    own = facts.config.node_id
    for security in facts.peer_listeners:
        certificate = facts.certificates.get(security.name)
        named = frozenset[int]() if certificate is None else named_nodes(certificate)
        if named and own not in named:
            shown = ", ".join(node_uri(each) for each in sorted(named))
            yield Finding(
                facts.fatal_on(security.name),
                facts.place_of(security.name),
                f"its certificate ({facts.keystore_of(security.name)}) is that of another node: it "
                f"names {shown}, and node.id is {own}. The other nodes refuse what this one says",
                f"use the certificate of node {own}, or issue one with the URI {node_uri(own)}",
            )


def _own_authority(facts: NodeFacts) -> Iterator[Finding]:
    for name, refused in facts.refused.items():
        certificate = facts.certificates[name]
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not begins <= facts.now <= ends:
            continue  # it says no more than the dates do
        trust = facts.key(name, "ssl.truststore.location")
        trusted = facts.config.raw.get(trust)
        believed = f"{trust}={trusted}" if trusted else "its trust store"
        issuer = certificate.issuer.rfc4514_string()
        role = "as a client" if refused.by_server else "as a server"
        yield Finding(
            facts.fatal_on(name),
            facts.place_of(name),
            f"a node with the same settings refuses its certificate ({facts.keystore_of(name)}, "
            f"issued by {issuer!r}) {role}, by {believed}: {refused.reason}",
            f"add the certificate of {issuer!r} to the trust stores of all nodes, or use a "
            "certificate that their authority has issued for servers and clients",
        )


def _checks_no_name(facts: NodeFacts) -> Iterator[Finding]:
    """Brokers replicate over Kafka's protocol, and only controllers call them over gRPC."""
    for security in facts.peer_listeners:
        if security.tls.checks_host_name:
            continue
        is_controllers = security.name in facts.config.security.controllers
        key = facts.key(security.name, "ssl.endpoint.identification.algorithm")
        yield Finding(
            Level.FATAL if is_controllers else Level.PROBLEM,
            facts.place_of(security.name),
            f"{key} is empty, but gRPC always compares the host with the names of the certificate: "
            + ("no node calls a controller" if is_controllers else "controllers call no broker"),
            f"remove {key}, and add the advertised hosts to the certificates' names",
        )


def _rights(facts: NodeFacts) -> Iterator[Finding]:
    policy = facts.config.access_policy
    for security in facts.peer_listeners:
        certificate = facts.certificates.get(security.name)
        if security.protocol is not SecurityProtocol.SSL or security.client_auth == "none":
            continue  # then it is no certificate that says who comes in
        if policy is None or certificate is None:
            continue
        try:
            principal = _principal(security, certificate)
        except (MalformedNameError, NoRuleMatchesError, PrincipalError) as error:
            key = facts.key(security.name, "ssl.principal.mapping.rules")
            yield Finding(
                facts.fatal_on(security.name),
                facts.place_of(security.name),
                f"its own certificate ({facts.keystore_of(security.name)}) gives no principal: "
                f"{error}. The other nodes refuse it",
                f"add a rule for it to {key}, or DEFAULT as the last one",
            )
            continue
        if principal not in policy.super_users:
            yield _no_super_user(facts, security, principal, policy)


def _principal(security: ListenerSecurity, certificate: x509.Certificate) -> str:
    rules = MappingRules(security.text("ssl.principal.mapping.rules"))
    return user(rules.name_of(subject_of(certificate.public_bytes(Encoding.DER))))


def _no_super_user(
    facts: NodeFacts, security: ListenerSecurity, principal: str, policy: Policy
) -> Finding:
    """Controllers are asked for their right before there are ACLs. A broker may get it by one."""
    config = facts.config
    is_final = (
        config.is_controller
        and len(config.voters) > 1
        and security.name in config.security.controllers
    )
    alike = [each for each in policy.super_users if _parts(each) == _parts(principal)]
    hint = f" (it has {alike[0]!r}, in another order or notation)" if alike else ""
    if is_final:
        why = "and controllers need that before there are ACLs: they could not form a quorum"
        advice = f"add it to super.users on every node: super.users=...;{principal}"
    else:
        why = "so the other nodes refuse it, unless an ACL allows it CLUSTER_ACTION"
        advice = (
            f"add it to super.users on every node, or: stele acls add {principal!r} CLUSTER_ACTION "
            "cluster"
        )
    return Finding(
        Level.FATAL if is_final else Level.PROBLEM,
        facts.place_of(security.name),
        f"by its certificate ({facts.keystore_of(security.name)}) this node is {principal}, which "
        f"super.users does not name{hint}, {why}",
        advice,
    )


def _login(facts: NodeFacts) -> Iterator[Finding]:
    """Brokers log in at one another by the settings that they have in common."""
    config = facts.config
    name = config.inter_broker_listener_name
    listener, sasl = config.security.listeners.get(name), config.security.to_brokers.sasl
    if listener is None or sasl is None:
        return
    level, where = facts.fatal_on(name), facts.place_of(name)
    key = "sasl.mechanism.inter.broker.protocol"
    users = f"listener.name.{name.lower()}.plain.sasl.jaas.config"
    if sasl.mechanism not in listener.mechanisms:
        enabled = facts.key(name, "sasl.enabled.mechanisms")
        yield Finding(
            level,
            where,
            f"{key}={sasl.mechanism}, and {enabled} has only {', '.join(listener.mechanisms)}: "
            "brokers cannot log in at one another",
            f"add {sasl.mechanism} to {enabled}, or set {key} to one of them",
        )
    elif sasl.token is not None:
        pass  # who the node is stands in its token
    elif not sasl.username:
        yield Finding(
            level,
            where,
            f"brokers log in at one another by {sasl.mechanism}, and no user is set",
            "set username and password in "
            f"listener.name.{name.lower()}.{sasl.mechanism.lower()}.sasl.jaas.config",
        )
    elif (
        sasl.mechanism == "PLAIN"
        and not listener.flag("sasl.plain.scram.enable", "PLAIN")
        and listener.plain_users.get(sasl.username) != sasl.password
    ):
        known = sasl.username in listener.plain_users
        yield Finding(
            level,
            where,
            f"brokers log in at one another as {sasl.username!r} by PLAIN, "
            + ("which has another password there" if known else "and there is no such user"),
            f"set user_{sasl.username} to the password of {sasl.username} in {users}",
        )


def _parts(principal: str) -> list[str]:
    """The parts of a certificate's name, whatever their order, their case and their blanks."""
    return sorted(part.strip().lower() for part in principal.partition(":")[2].split(","))


PEER_CHECKS: Final[tuple[Check, ...]] = (
    _dates,
    _names,
    _other_node,
    _own_authority,
    _checks_no_name,
    _rights,
    _login,
)
