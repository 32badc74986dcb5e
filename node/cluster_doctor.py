"""What is unsafe in a live cluster: its users, their rules, the certificates that brokers show."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509

from node.doctor import SOON_DAYS, in_order
from node.findings import Finding, Level
from security.node_identity import named_nodes, node_uri
from security.renewal import days_left, names_host
from stele.admin.acls import Acl
from stele.admin.client_connections import ListenerCertificate
from world.network import ANONYMOUS

_EVERYBODY = ("User:*", ANONYMOUS)
_CHANGES = ("ALL", "WRITE", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS", "CLUSTER_ACTION")


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster as an administrator's client sees it."""

    rules: Sequence[Acl] | None  # None: it has no authorizer
    users: Sequence[str] | None  # with a SCRAM credential; None: they could not be asked for
    brokers: Mapping[int, tuple[str, int]]  # where clients are told to connect
    certificates: Mapping[int, x509.Certificate]  # what is shown there, of brokers with TLS
    silent: Mapping[int, str]  # brokers that showed none, and why
    has_tls: bool  # whether this client came in over TLS
    now: datetime
    anonymous_is_super: bool = False
    fenced: Sequence[int] = ()  # registered brokers that are not in service
    silent_voters: Sequence[int] = ()  # controllers that the active one does not hear
    listeners: Mapping[int, Sequence[ListenerCertificate]] = field(default_factory=dict)
    """What brokers say of their own certificates."""
    untold: Mapping[int, str] = field(default_factory=dict)
    """Brokers that do not say it, and why."""


def examine_cluster(facts: ClusterFacts) -> list[Finding]:
    """All findings, the worst first."""
    return in_order([*_access(facts), *_transport(facts), *_refused(facts), *_absent(facts)])


def _access(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.rules is None:
        yield Finding(
            Level.PROBLEM,
            "cluster",
            "there is no authorizer: whoever gets in reads, writes and deletes everything",
            "set authorizer.class.name and super.users on every node",
        )
        return
    if facts.anonymous_is_super:
        yield Finding(
            Level.PROBLEM,
            "super users",
            f"{ANONYMOUS} is a super user: access rules have no effect for those who do not say "
            "who they are",
            f"take {ANONYMOUS} out of super.users on every node, and let nodes come in by "
            "certificates",
        )
    for rule in facts.rules:
        if rule.permission == "ALLOW" and rule.principal in _EVERYBODY:
            changes = rule.operation in _CHANGES
            yield Finding(
                Level.PROBLEM if changes else Level.ADVICE,
                "access rules",
                f"{rule.principal} may {rule.operation} the {rule.resource_type.lower()} "
                f"{rule.resource_name}: that is everybody",
                f"name the users instead: stele acls list --principal '{rule.principal}'",
            )
    if facts.users is None:
        return
    named = {rule.principal for rule in facts.rules}
    for user in sorted(facts.users):
        if f"User:{user}" not in named:
            yield Finding(
                Level.ADVICE,
                f"user {user}",
                "no rule names this user: it may do nothing",
                f"stele acls add {shlex.quote(f'User:{user}')} READ topic:NAME, or "
                f"stele users remove {shlex.quote(user)}",
            )
    known = {f"User:{user}" for user in facts.users}
    for principal in sorted(named - known - set(_EVERYBODY)):
        if "=" not in principal:  # the name of a certificate
            yield Finding(
                Level.ADVICE,
                "access rules",
                f"{principal} has rules and no SCRAM credential: whoever gets this name by another "
                "way has its rights",
                f"stele acls list --principal {shlex.quote(principal)}",
            )


def _transport(facts: ClusterFacts) -> Iterator[Finding]:
    if not facts.has_tls:
        yield Finding(
            Level.ADVICE,
            "this connection",
            "it is not encrypted",
            "examine the cluster over its TLS listener: --command-config with security.protocol "
            "SSL or SASL_SSL",
        )
        return
    for broker_id, reason in facts.silent.items():
        yield Finding(
            Level.PROBLEM,
            f"broker {broker_id}",
            f"it showed no certificate: {reason}",
            "look into its log",
        )
    for broker_id, certificate in facts.certificates.items():
        host, _ = facts.brokers[broker_id]
        if not names_host(certificate, host):
            yield Finding(
                Level.PROBLEM,
                f"broker {broker_id}",
                f"it is advertised as {host}, which its certificate does not name",
                f"give the certificate the name {host}, or advertise one that it has",
            )
        named = named_nodes(certificate)
        if named and broker_id not in named:
            shown = ", ".join(node_uri(each) for each in sorted(named))
            yield Finding(
                Level.PROBLEM,
                f"broker {broker_id}",
                f"its certificate is that of another node: it names {shown}. Where it shows it to "
                "other nodes, they refuse what it says",
                f"use the certificate of node {broker_id}, or issue one with the URI "
                f"{node_uri(broker_id)}",
            )
        begins = certificate.not_valid_before_utc
        if facts.now < begins:
            yield Finding(
                Level.PROBLEM,
                f"broker {broker_id}",
                f"its certificate is valid only from {begins:%Y-%m-%d %H:%M} UTC",
                "set the clock of its machine and of this one, or issue the certificate again",
            )
        left = days_left(certificate, facts.now)
        if left < SOON_DAYS:
            until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
            said = f"expired on {until}" if left < 0 else f"ends on {until}, in {int(left)} days"
            yield Finding(
                Level.PROBLEM if left < 0 else Level.ADVICE,
                f"broker {broker_id}",
                f"its certificate {said}",
                "renew it: stele certs renew",
            )


def _refused(facts: ClusterFacts) -> Iterator[Finding]:
    """The old certificate is still shown, so only its broker knows that there is a new one."""
    for broker_id, listeners in sorted(facts.listeners.items()):
        for each in listeners:
            if each.refusal is not None:
                until = datetime.fromtimestamp(each.valid_until_ms / 1000, UTC)
                yield Finding(
                    Level.PROBLEM,
                    f"broker {broker_id}, listener {each.listener}",
                    f"it has refused its new certificate: {each.refusal}. It goes on with the old "
                    f"one until {until:%Y-%m-%d %H:%M} UTC",
                    "put a certificate that fits in its place: the broker tries again every 10 s",
                )
    for broker_id, reason in sorted(facts.untold.items()):
        yield Finding(
            Level.ADVICE,
            f"broker {broker_id}",
            f"whether it has refused a certificate is not known: {reason}",
            "look at its metric stele_tls_exchange_refused",
        )


def _absent(facts: ClusterFacts) -> Iterator[Finding]:
    """What the others refuse is in their logs only, and its own configuration may show why."""
    absent = [("broker", each, "it is fenced: it serves nothing") for each in facts.fenced]
    heard = "the active controller does not hear of it"
    absent += [("controller", each, heard) for each in facts.silent_voters]
    for role, node_id, what in absent:
        yield Finding(
            Level.PROBLEM,
            f"{role} {node_id}",
            what,
            "start it if it is down; otherwise run stele doctor --config on its machine, and look "
            "for denials of CLUSTER_ACTION in the audit log of the active controller: stele "
            "explain audit FILE",
        )
